//! Where observations come from while things happen. Each source turns what it sees into observations and knows
//! nothing of what becomes of them.

#[cfg(feature = "ebpf")]
pub mod ebpf;
pub mod gpu;
pub mod hubble;
pub mod placement;
