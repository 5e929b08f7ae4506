//! The Hubble source against a server of its kind, over real sockets.

#[path = "../fakes/hubble/mod.rs"]
#[allow(dead_code, reason = "not every test needs everything")]
mod fake;

mod basics;
mod client;
mod decode;
mod losses;
mod relay;
mod resume;
mod servers;
mod tls;
