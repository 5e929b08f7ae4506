//! firedoor as a library: the edge around the pure core. Sources, files, the command line and the outputs live
//! here; what a diagnosis is lives in `firedoor-core`.

/// An agent lives for weeks and its windows come and go by megabytes: this allocator gives them back, the C library's keeps
/// many of them (`cargo xtask bench memory`). Its settings are in `.cargo/config.toml`.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

pub mod agent;
pub mod capture;
pub mod check;
pub mod cli;
pub mod cluster;
pub mod config;
pub mod harmless;
pub mod hubble;
pub mod output;
pub mod replay;
pub mod source;
