//! The policy engine held against a second evaluator that shares nothing with it. Enters: hand-derived cases
//! (`table/`) and random small worlds; leaves: agreement, or the smallest world in which the two disagree. The
//! second evaluator (`reference`) knows the documents only, never the engine.

mod differential;
mod engine;
mod reference;
mod table;
mod worlds;
