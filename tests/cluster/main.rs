//! The cluster as one node follows it, over real sockets, from an API server that is taken away, cut off, slowed down
//! and changed behind its back.

mod credentials;
mod endless;
#[path = "../fakes/kube/mod.rs"]
mod kube;
mod scope;
mod server;
mod time;
mod trouble;
mod world;
