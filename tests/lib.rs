//! Integration tests of firedoor.
