//! The objects that users edit and the pods that come of them. Enters: Kubernetes objects; leaves: their pod
//! templates, the pods their controllers would make, patches to them, and the cluster as it would be after a
//! change. Must not know policies, flows or findings.

mod fit;
mod kinds;
mod marks;
mod patch;
mod predict;
mod runtime;
mod selector;
mod simulate;
mod template;
#[cfg(test)]
mod tests;

pub use fit::{Fit, fit};
pub use patch::{merge, patch_templates};
pub use predict::{MAX_PODS, identified, predicted_pods, predicted_pods_of};
pub use runtime::{RUNTIME_KINDS, with_runtime};
pub use selector::{selects, term_selects};
pub use simulate::{Change, Target, simulate};
pub use template::{PathStep, Template, templates};
