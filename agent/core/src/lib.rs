//! The pure domain of firedoor. Everything here is synchronous and deterministic: no clock, no I/O, no
//! runtime. Time is event time and arrives with the events; the same input gives the same report, byte for
//! byte. `cargo xtask tidy` holds the wall.

pub mod facts;
pub mod object;
pub mod policy;
pub mod time;
