//! Following a Hubble server: what a flow costs, beside the transport's floor and a client that decodes every field.
//! Enters: the checkout; leaves: what the bench prints. Must not know how it measures.

use std::path::Path;

use anyhow::Result;

use crate::command::{command, succeed};
use crate::setup;

/// Measures.
pub(super) fn run(root: &Path) -> Result<()> {
    setup::ensure(root, setup::Purpose::Bench)?;
    let arguments = ["bench", "--quiet", "-p", "firedoor-tests", "--bench", "hubble"];
    succeed(&mut command(root, "cargo", &arguments))
}
