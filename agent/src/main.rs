//! The `firedoor` command.

fn main() -> std::process::ExitCode {
    firedoor::cli::run()
}
