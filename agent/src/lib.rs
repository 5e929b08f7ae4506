//! firedoor as a library: the edge around the pure core. Sources, files, the command line and the outputs live
//! here; what a diagnosis is lives in `firedoor-core`.

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
