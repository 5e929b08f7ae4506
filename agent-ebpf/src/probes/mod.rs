//! The probes, one a file. They hook rare events only (a connection opens, ends, is retried, a packet is dropped)
//! and read the kernel's own counters of live sockets when user space asks: nothing runs per packet.
//!
//! Every probe is optional: one that a kernel refuses costs what it would have seen, nothing else.

mod drops;
mod first_bytes;
mod globals;
mod maps;
mod packet;
mod reset;
mod retransmit;
mod sample;
mod seed;
mod socket;
mod state;
mod table;
