//! Placeholder until the messages land.
