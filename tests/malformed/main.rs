//! Captures as they should not be. Whatever is in them: no panic, a clear message with file and line, nothing
//! silently lost, and the good lines around are used.

mod capture;
mod files;
mod flows;
mod names;
mod objects;
mod sockets;
