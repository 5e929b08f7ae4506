//! What is told about remedies: what to change, and how.

use serde::Serialize;

/// Something that would mend a finding.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RemedyReport {
    /// One sentence.
    pub summary: String,
    /// Whether it was checked to open every pair of the job without a new finding.
    pub verified: bool,
    /// Whether it opens a policy.
    pub weakens_isolation: bool,
    /// What it needs besides being applied.
    pub needs: Vec<String>,
    /// What to do, in order.
    pub steps: Vec<StepReport>,
}

/// One step of a remedy.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct StepReport {
    /// What kind of step.
    pub kind: &'static str,
    /// The object to change.
    pub target: TargetReport,
    /// How the patch applies: `merge`, `apply` or `delete`.
    pub patch_type: &'static str,
    /// The patch, as YAML.
    pub patch: String,
}

/// The object a step changes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetReport {
    /// For example `apps/v1`.
    pub api_version: String,
    /// For example `Deployment`.
    pub kind: String,
    /// `null` for cluster-scoped objects.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}
