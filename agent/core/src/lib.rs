//! The pure domain of firedoor. Everything here is synchronous and deterministic: no clock, no I/O, no
//! runtime. Time is event time and arrives with the events; the same input gives the same report, byte for
//! byte. `cargo xtask tidy` holds the wall.

pub mod attribute;
pub mod check;
pub mod diagnose;
pub mod drop_reason;
pub mod facts;
pub mod gpu;
pub mod history;
pub mod inventory;
pub mod ledger;
pub mod membership;
pub mod object;
pub mod observation;
pub mod pipeline;
pub mod policy;
pub mod prices;
pub mod remedy;
pub mod report;
pub mod settings;
pub mod strangers;
pub mod tally;
pub mod time;
pub mod workload;
