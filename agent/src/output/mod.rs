//! Reports for people and programs. Enters: a report; leaves: text or JSON. Whatever came from outside is made
//! harmless here: no control character reaches a terminal.

pub mod fix;
pub mod json;
pub mod text;
