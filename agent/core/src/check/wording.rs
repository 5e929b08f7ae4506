//! How ends, ports and missing allows are put into words. Must not know how they were found.

use super::gangs::{Gang, Source};
use super::report::{EndAt, MissingReport};
use super::world::World;
use crate::membership::Role;
use crate::policy::{MissingAllow, Side};

/// Labels that differ from pod to pod or change with every run: no rule should name them.
const FLEETING: [&str; 19] = [
    "pod-template-hash",
    "controller-uid",
    "controller-revision-hash",
    "pod-name",
    "pod-index",
    "job-completion-index",
    "jobset-uid",
    "job-global-index",
    "restart-attempt",
    "replica-index",
    "task-index",
    "worker-index",
    "operator-name",
    "global-replicas",
    "replicatedjob-replicas",
    "job-index",
    "queue-name",
    "is-ray-node",
    "job-namespace",
];

pub(super) fn ports(range: (u16, u16)) -> String {
    if range.0 == range.1 { range.0.to_string() } else { format!("{}-{}", range.0, range.1) }
}

pub(super) fn width(range: (u16, u16)) -> u32 {
    u32::from(range.1).saturating_sub(u32::from(range.0)).saturating_add(1)
}

pub(super) fn role(role: Option<Role>) -> &'static str {
    role.map_or("unknown", Role::as_str)
}

/// What pods of one template and role are called: `worker pods of Job ml-workers`.
pub(super) fn pods(world: &World, source: &Source, role: Option<Role>) -> String {
    let object = world.object_at(source.object);
    let does = role.map(|role| format!("{} ", role.as_str())).unwrap_or_default();
    let part = if source.name.is_empty() || source.name.eq_ignore_ascii_case(does.trim()) {
        String::new()
    } else {
        format!(" ({})", source.name)
    };
    format!("{does}pods of {} {}{part}", object.kind, object.name)
}

pub(super) fn end(world: &World, gang: &Gang<'_>, source: usize, does: Option<Role>) -> EndAt {
    let found = gang.source(source);
    let object = found.map(|source| world.object_at(source.object));
    EndAt {
        object: object.map(|object| format!("{}/{}", object.kind, object.name)).unwrap_or_default(),
        template: found.map(|source| source.name.clone()).unwrap_or_default(),
        role: role(does),
    }
}

pub(super) fn missing(missing: &MissingAllow) -> MissingReport {
    MissingReport {
        direction: missing.direction.as_str(),
        subject: side(&missing.subject),
        peer: side(&missing.peer),
        protocol: missing.protocol.name(),
        ports: missing.ports.iter().map(|range| ports(*range)).collect(),
    }
}

/// Allows between the same ends in one, with all their ports.
pub(super) fn joined(missing: Vec<MissingReport>) -> Vec<MissingReport> {
    let mut joined: Vec<MissingReport> = Vec::new();
    for mut one in missing {
        let same = |other: &&mut MissingReport| {
            (other.direction, other.protocol) == (one.direction, one.protocol)
                && (&other.subject, &other.peer) == (&one.subject, &one.peer)
        };
        match joined.iter_mut().find(same) {
            Some(other) => {
                other.ports.append(&mut one.ports);
                other.ports.sort_by_key(|port| port.split('-').next().and_then(|p| p.parse::<u32>().ok()));
                other.ports.dedup();
            }
            None => joined.push(one),
        }
    }
    joined
}

fn side(side: &Side) -> String {
    match side {
        Side::Pods { namespace, labels } => {
            // The old and the prefixed name of a Job say the same.
            let twice = |key: &str| key == "job-name" && labels.contains_key("batch.kubernetes.io/job-name");
            let lasting =
                |key: &str| !twice(key) && !FLEETING.contains(&key.rsplit('/').next().unwrap_or(key));
            let told =
                labels.iter().filter(|(key, _)| lasting(key)).map(|(key, value)| format!("{key}={value}"));
            let told: Vec<String> = told.collect();
            if told.is_empty() {
                format!("pods of namespace {namespace}")
            } else {
                format!("pods of namespace {namespace} with {}", told.join(", "))
            }
        }
        Side::Entity(entity, _) => format!("{entity:?}"),
    }
}

/// `a`, `a and b`, `a, b and c`.
pub(super) fn listed(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
