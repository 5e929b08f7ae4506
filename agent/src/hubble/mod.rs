//! Cilium Hubble's flow events. Enters: JSON lines in any published form; leaves: observations that borrow from
//! the line. Unknown fields, enum names and numbers are tolerated. Must not know jobs.

pub mod convert;
pub mod json;
