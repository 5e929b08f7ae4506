//! The `firedoor` command.

fn main() {}
