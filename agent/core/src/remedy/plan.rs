//! A remedy in the making: what it changes, before it is checked and printed. Must not know why.

use serde_json::Value;

use super::yaml::to_yaml;
use crate::object::Object;
use crate::report::{RemedyReport, StepReport, TargetReport};

/// What kind of step.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum StepKind {
    RemoveZoneSpread,
    CoLocate,
    Tolerate,
    Relabel,
    EditDeny,
    AllowTraffic,
}

impl StepKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::RemoveZoneSpread => "remove-zone-spread",
            Self::CoLocate => "co-locate",
            Self::Tolerate => "tolerate",
            Self::Relabel => "relabel",
            Self::EditDeny => "edit-deny",
            Self::AllowTraffic => "allow-traffic",
        }
    }
}

/// How a step changes its target.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Action {
    /// A JSON merge patch of this object.
    Merge(Object, Value),
    /// A whole new object.
    Apply(Object),
    /// The object goes.
    Delete(Object),
}

/// One step.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Step {
    pub(super) kind: StepKind,
    pub(super) action: Action,
}

/// What a remedy needs besides being applied.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Need {
    /// The job is deleted and submitted again: its pods never move.
    Resubmit,
    /// The controller replaces the pods, one after the other.
    Rollout,
    /// The pod is deleted and created again.
    Recreate,
    /// `enableDefaultDeny` is not in the API of older versions.
    Cilium116,
}

impl Need {
    fn as_str(self) -> &'static str {
        match self {
            Self::Resubmit => "resubmit",
            Self::Rollout => "rollout",
            Self::Recreate => "recreate",
            Self::Cilium116 => "cilium >= 1.16",
        }
    }
}

/// A remedy before its check.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Plan {
    pub(super) summary: String,
    pub(super) needs: Vec<Need>,
    pub(super) steps: Vec<Step>,
}

impl Plan {
    /// Whether it opens a policy. Moving pods and correcting labels leaves every policy as it is.
    pub(super) fn weakens_isolation(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.kind, StepKind::AllowTraffic | StepKind::EditDeny))
    }

    pub(super) fn report(self, verified: bool) -> RemedyReport {
        let mut needs = self.needs.clone();
        needs.sort_unstable();
        needs.dedup();
        RemedyReport {
            weakens_isolation: self.weakens_isolation(),
            verified,
            needs: needs.into_iter().map(|need| need.as_str().to_owned()).collect(),
            steps: self.steps.into_iter().map(Step::report).collect(),
            summary: self.summary,
        }
    }
}

impl Step {
    fn report(self) -> StepReport {
        let (object, patch_type, patch) = match self.action {
            Action::Merge(object, patch) => (object, "merge", to_yaml(&patch)),
            Action::Apply(object) => {
                let text = to_yaml(object.value());
                (object, "apply", text)
            }
            Action::Delete(object) => (object, "delete", String::new()),
        };
        StepReport { kind: self.kind.as_str(), target: target(&object), patch_type, patch }
    }
}

fn target(object: &Object) -> TargetReport {
    TargetReport {
        api_version: object.api_version().to_owned(),
        kind: object.kind().to_owned(),
        namespace: object.namespace().map(str::to_owned),
        name: object.name().to_owned(),
    }
}
