//! Reports for people and programs. Enters: a report; leaves: text or JSON. Whatever came from outside is made
//! harmless here: no control character reaches a terminal.

pub mod check_json;
pub mod check_junit;
pub mod check_sarif;
pub mod check_text;
mod escaped_json;
pub mod fix;
pub mod json;
pub mod text;
