//! firedoor as a library.
