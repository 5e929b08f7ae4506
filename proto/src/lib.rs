//! The messages that firedoor exchanges with flow observers, relays and the kubelet.
//!
//! Enters: bytes from the network; leaves: plain structs. The `.proto` files beside this crate hold only the
//! fields that firedoor reads, under their published numbers: everything else is skipped unread, which is also
//! the fastest way to decode it. Numbers of enums stay plain `i32`, so that a server newer than this crate is
//! understood as far as possible. Must not know what any of it means.
//!
//! With the feature `grpc`, each module also holds the stubs of its services.

/// What an observer saw: flows, lost events and the filters that select them.
#[allow(missing_docs, unreachable_pub, clippy::all)]
pub mod flow {
    include!(concat!(env!("OUT_DIR"), "/flow.rs"));
}

/// State of the nodes behind a relay.
#[allow(missing_docs, unreachable_pub, clippy::all)]
pub mod relay {
    include!(concat!(env!("OUT_DIR"), "/relay.rs"));
}

/// The calls to a flow observer.
#[allow(missing_docs, unreachable_pub, clippy::all)]
pub mod observer {
    include!(concat!(env!("OUT_DIR"), "/observer.rs"));
}

/// Which devices the kubelet gave to which container (`PodResources` v1).
#[allow(missing_docs, unreachable_pub, clippy::all)]
pub mod podresources {
    include!(concat!(env!("OUT_DIR"), "/v1.rs"));
}

pub use prost::{DecodeError, Message};
