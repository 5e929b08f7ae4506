//! Cilium Hubble's flow events. Enters: JSON lines in any published form, or protobuf messages; leaves: observations
//! that borrow from them. Unknown fields, enum names and numbers are tolerated. Must not know jobs.

pub mod convert;
pub mod json;
pub mod message;
pub mod values;
pub mod wire;
pub mod write;
