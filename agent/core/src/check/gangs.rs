//! Which pods the manifests would make, and which of them train together. Enters: the world; leaves: [`Gang`]s. Must
//! not know policies or zones.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::placement::Places;
use super::report::{CheckFinding, CheckedJob, CheckedTemplate, JobName, ObjectAt, Rule, Severity};
use super::world::World;
use crate::facts::Pod;
use crate::membership::words::word;
use crate::membership::{Grouping, Job, JobKind, Jobs, Role};
use crate::object::{Labels, Object};
use crate::workload::{Target, predicted_pods_of, templates, with_runtime};

/// The label that stands for an inferred group while jobs are resolved; no pod is ever judged with it.
const INFERRED: &str = "firedoor/inferred-group";
/// What people name an application by.
const GROUP_KEYS: [&str; 4] =
    ["app", "app.kubernetes.io/name", "app.kubernetes.io/part-of", "app.kubernetes.io/instance"];
/// Members that are looked at in all; the further ones of a template are like them.
const MAX_MEMBERS: usize = 16_384;
/// Of every object so many are looked at, however large those before it were: no job goes unchecked.
const MIN_MEMBERS: usize = 64;

/// A pod template of the manifests.
pub(super) struct Source {
    /// The position of its object in the world.
    pub(super) object: usize,
    pub(super) name: String,
    pub(super) labels: Labels,
    pub(super) annotations: Labels,
    /// Annotations of the object and of what lies between it and the template.
    pub(super) above: Labels,
    pub(super) spec: Value,
}

/// All jobs of the manifests.
pub(super) struct Gangs {
    sources: Vec<Source>,
    pods: Vec<Pod>,
    /// For each pod the template it comes from.
    from: Vec<usize>,
    jobs: Vec<Job>,
    /// Groups that nobody configured: name to label key.
    inferred: BTreeMap<String, &'static str>,
    without_runtime: Vec<usize>,
}

/// A job: two pods or more.
pub(super) struct Gang<'g> {
    pub(super) job: &'g Job,
    pub(super) name: JobName,
    all: &'g Gangs,
}

/// A member of a gang.
pub(super) struct MemberPod<'g> {
    pub(super) pod: &'g Pod,
    /// The position of its template among [`Gang::sources`].
    pub(super) source: usize,
    pub(super) role: Option<Role>,
}

impl Gangs {
    pub(super) fn find(world: &World, grouping: &Grouping) -> Self {
        let mut gangs = Self {
            sources: Vec::new(),
            pods: Vec::new(),
            from: Vec::new(),
            jobs: Vec::new(),
            inferred: BTreeMap::new(),
            without_runtime: Vec::new(),
        };
        let is_top = |object: &Object| object.owners().is_empty();
        let works = |object: &Object| {
            object.kind() == "TrainJob"
                || (!templates(object).is_empty() && !object.group().starts_with("trainer."))
        };
        let all = world.objects.iter().enumerate().filter(|(_, object)| is_top(object) && works(object));
        let tops: Vec<usize> = all.map(|(at, _)| at).collect();
        let (own, other): (Vec<usize>, Vec<usize>) =
            tops.into_iter().partition(|at| world.origin(*at).is_some());
        let mut carriers = Vec::new();
        for at in if own.is_empty() { other } else { own } {
            let Some(object) = world.objects.get(at) else { continue };
            let carrier = if object.kind() == "TrainJob" && object.group() == "trainer.kubeflow.org" {
                let Some(set) = with_runtime(object, &world.objects) else {
                    gangs.without_runtime.push(at);
                    continue;
                };
                crate::workload::identified(&set)
            } else {
                object.clone()
            };
            gangs.add(at, &carrier);
            carriers.push(carrier);
        }
        gangs.resolve(world, carriers, grouping);
        gangs
    }

    fn add(&mut self, at: usize, carrier: &Object) {
        let start = self.sources.len();
        self.sources.extend(templates(carrier).into_iter().map(|template| Source {
            object: at,
            name: template.name.clone(),
            labels: template.labels.clone(),
            annotations: template.annotations.clone(),
            above: annotations_above(carrier, &template.path),
            spec: template.spec.clone(),
        }));
        let room = MAX_MEMBERS.saturating_sub(self.pods.len()).max(MIN_MEMBERS);
        let predicted = predicted_pods_of(carrier);
        let templates = self.sources.len().saturating_sub(start).max(1);
        let share = if predicted.len() > room { (room / templates).max(1) } else { predicted.len() };
        let mut taken: BTreeMap<usize, usize> = BTreeMap::new();
        for (template, pod) in predicted {
            let taken = taken.entry(template).or_default();
            *taken += 1;
            if *taken > share {
                continue;
            }
            if let Some(pod) = Pod::from_object(&pod) {
                self.pods.push(pod);
                self.from.push(start + template);
            }
        }
    }

    fn resolve(&mut self, world: &World, carriers: Vec<Object>, grouping: &Grouping) {
        let mut grouping = grouping.clone();
        let mut marked = self.pods.clone();
        if grouping.group_by.is_empty() {
            for (key, namespace, value) in self.unjoined(&grouping) {
                let same = |pod: &&mut Pod| {
                    pod.namespace == namespace && pod.labels.get(key).is_some_and(|found| *found == value)
                };
                for pod in marked.iter_mut().filter(same) {
                    pod.labels.entry(INFERRED.to_owned()).or_insert_with(|| value.clone());
                }
                self.inferred.entry(value).or_insert(key);
            }
            grouping.group_by.push(INFERRED.to_owned());
        }
        // What a TrainJob makes stands beside what the cluster has.
        let known: BTreeSet<Target> = world.objects.iter().map(Target::of).collect();
        let made = carriers.into_iter().filter(|carrier| !known.contains(&Target::of(carrier)));
        let objects: Vec<Object> = world.objects.iter().cloned().chain(made).collect();
        self.jobs = Jobs::resolve(&marked, &objects, &grouping).jobs;
        self.jobs.retain(|job| job.members.len() > 1);
    }

    /// Workloads that look like parts of one job that no controller joins: they share an application label, at least
    /// one is no job of its own, and their pods rendezvous, ask for accelerators, or are named coordinator and worker.
    fn unjoined(&self, grouping: &Grouping) -> Vec<(&'static str, String, String)> {
        let mut found = Vec::new();
        let mut taken: BTreeSet<usize> = BTreeSet::new();
        for key in GROUP_KEYS {
            let mut groups: BTreeMap<(&str, &str), BTreeSet<usize>> = BTreeMap::new();
            for (pod, source) in self.pods.iter().zip(&self.from) {
                if let Some(value) = pod.labels.get(key).filter(|value| !value.is_empty()) {
                    groups.entry((&pod.namespace, value)).or_default().insert(*source);
                }
            }
            for ((namespace, value), sources) in groups {
                if sources.is_disjoint(&taken) && self.looks_like_one_job(&sources, grouping) {
                    taken.extend(&sources);
                    found.push((key, namespace.to_owned(), value.to_owned()));
                }
            }
        }
        found
    }

    fn looks_like_one_job(&self, sources: &BTreeSet<usize>, grouping: &Grouping) -> bool {
        let pods =
            || self.pods.iter().zip(&self.from).filter(|(_, s)| sources.contains(s)).map(|(pod, _)| pod);
        let alone = |pod: &Pod| {
            let kind = pod.owners.first().map(|owner| owner.kind.as_str());
            matches!(kind, None | Some("ReplicaSet" | "StatefulSet" | "ReplicationController"))
        };
        if !pods().any(alone) {
            return false;
        }
        let rendezvous = |pod: &Pod| {
            ["MASTER_ADDR", "PET_MASTER_ADDR", "WORLD_SIZE"].iter().any(|v| pod.env.contains_key(*v))
        };
        if sources.len() < 2 {
            return pods().filter(|pod| rendezvous(pod)).nth(1).is_some();
        }
        let role = |pod: &Pod| grouping.role_labels.iter().find_map(|key| word(pod.labels.get(key)?));
        let has = |wanted: Role| pods().any(|pod| role(pod) == Some(wanted));
        let trains = pods().any(|pod| pod.gpus > 0) || pods().any(rendezvous);
        trains || (has(Role::Coordinator) && has(Role::Worker))
    }

    /// The jobs, sorted.
    pub(super) fn gangs(&self) -> impl Iterator<Item = Gang<'_>> {
        self.jobs.iter().map(|job| {
            let name = JobName {
                namespace: job.id.namespace.clone(),
                kind: job.id.kind.as_str().to_owned(),
                name: job.id.name.clone(),
            };
            Gang { job, name, all: self }
        })
    }

    pub(super) fn findings(&self, world: &World) -> Vec<CheckFinding> {
        let mut findings = Vec::new();
        for &at in &self.without_runtime {
            let runtime = world.objects.get(at).and_then(|o| o.text("/spec/runtimeRef/name")).unwrap_or("?");
            let object = world.object_at(at);
            let summary =
                format!("{} {}: its runtime {runtime} is not among the inputs", object.kind, object.name);
            let mut finding =
                CheckFinding::new(Rule::RuntimeMissing, Severity::Unknown, None, object, summary);
            finding
                .evidence
                .push("A TrainJob's pod templates are in its runtime, so its pods are not known.".to_owned());
            finding.advice.push(
                "Add the runtime: kubectl get clustertrainingruntimes,trainingruntimes -A -o yaml".to_owned(),
            );
            findings.push(finding);
        }
        for gang in self.gangs().filter(|gang| gang.job.id.kind == JobKind::Group) {
            let Some(key) = self.inferred.get(&gang.name.name) else { continue };
            let object = gang.first_object(world);
            let summary = format!(
                "workloads with the label {key}={} were taken for one job of {} pods",
                gang.name.name,
                gang.job.members.len()
            );
            let mut finding = CheckFinding::new(
                Rule::GroupedByLabel,
                Severity::Note,
                Some(gang.name.clone()),
                object,
                summary,
            );
            finding.advice.push(format!("Say so in the configuration: [jobs] groupBy = [\"{key}\"]"));
            findings.push(finding);
        }
        findings
    }
}

/// Annotations on the way from an object down to a template: JobSet and LeaderWorkerSet say there how pods are placed.
fn annotations_above(object: &Object, path: &[crate::workload::PathStep]) -> Labels {
    let mut annotations = object.annotations();
    let mut at = object.value();
    for step in path {
        let next = match step {
            crate::workload::PathStep::Field(name) => at.get(name),
            crate::workload::PathStep::Item(index) => at.get(*index),
        };
        let Some(next) = next else { break };
        at = next;
        annotations.extend(crate::object::string_map(at.pointer("/metadata/annotations")));
    }
    annotations
}

impl<'g> Gang<'g> {
    /// The members, by pod name.
    pub(super) fn members(&self) -> Vec<MemberPod<'g>> {
        let members = self.job.members.iter().filter_map(|member| {
            let (pod, source) = (self.all.pods.get(member.pod)?, *self.all.from.get(member.pod)?);
            Some(MemberPod { pod, source, role: member.role })
        });
        members.collect()
    }

    /// The template at this position.
    pub(super) fn source(&self, position: usize) -> Option<&'g Source> {
        self.all.sources.get(position)
    }

    /// The templates of the members, with how many members each has and what they do.
    pub(super) fn sources(&self) -> BTreeMap<usize, (usize, Option<Role>)> {
        let mut sources: BTreeMap<usize, (usize, BTreeSet<Option<Role>>)> = BTreeMap::new();
        for member in self.members() {
            let (count, roles) = sources.entry(member.source).or_default();
            *count += 1;
            roles.insert(member.role);
        }
        let one = |roles: BTreeSet<Option<Role>>| match roles.len() {
            1 => roles.into_iter().next().flatten(),
            // The first of equal workers leads them.
            _ => Some(Role::Worker),
        };
        sources.into_iter().map(|(at, (count, roles))| (at, (count, one(roles)))).collect()
    }

    pub(super) fn first_object(&self, world: &World) -> ObjectAt {
        let first = self.members().into_iter().next().and_then(|member| self.source(member.source));
        first.map_or_else(|| world.object_at(usize::MAX), |source| world.object_at(source.object))
    }

    pub(super) fn report(&self, world: &World, places: &BTreeMap<usize, Places>) -> CheckedJob {
        let templates = self.sources().into_iter().filter_map(|(at, (pods, role))| {
            let source = self.source(at)?;
            Some(CheckedTemplate {
                object: world.object_at(source.object),
                template: source.name.clone(),
                role: role.map_or("unknown", Role::as_str),
                pods,
                zones: places.get(&at).and_then(|places| places.zone_names()),
            })
        });
        CheckedJob {
            name: self.name.clone(),
            members: self.job.members.len(),
            templates: templates.collect(),
        }
    }
}
