//! The `firedoor` command, for tests that need a process: to signal it, to kill it, to look at its memory.

fn main() -> std::process::ExitCode {
    firedoor::cli::run()
}
