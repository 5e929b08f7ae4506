//! Who locked the door: Kubernetes' and Cilium's network policies, evaluated. Enters: policy objects, namespaces,
//! pods, and a [`Question`]; leaves: an [`Answer`] per direction, three-valued, with the policies behind it. Must not
//! know jobs, flows or remedies.

mod admin;
mod answer;
mod builder;
mod cilium;
mod compiled;
mod evaluate;
mod evaluator;
mod field;
mod hits;
mod identity;
mod model;
mod netpol;
mod ports;
mod selector;
mod set;
mod tally;
#[cfg(test)]
mod tests;

pub use answer::{
    Answer, Closure, Cni, Decision, Direction, Enforcement, Entity, MissingAllow, Note, Peer, PolicyKind,
    PolicyRef, Ports, Question, Rejected, Settings, Side, Verdict3,
};
pub use evaluator::{Evaluator, Identities, PairAnswer};
pub use set::PolicySet;
