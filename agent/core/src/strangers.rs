//! Workloads that talk like a gang but are not joined to one job: a coordinator that is a Deployment and workers
//! that are a Job share nothing but a label. Enters: flows that concern no job; leaves: the label key that would
//! join their ends. Must not know windows.

use std::collections::{BTreeMap, BTreeSet};

use crate::drop_reason::DropClass;
use crate::facts::Pod;
use crate::inventory::{Endpoint, Inventory, PodId};
use crate::membership::suggest_group_by;
use crate::observation::{DroppedPacket, Drops, End, EventKind, Flow, SocketEvent, SocketStep, Verdict};
use crate::report::Suggestion;
use crate::time::Timestamp;

/// Pairs that are remembered; what comes beyond changes no suggestion.
const REMEMBERED: usize = 4_096;
/// So many drops between two pods mean that they want to talk.
const INSISTENT: u64 = 3;

#[derive(Default)]
struct Talk {
    drops: u64,
    opened: bool,
    /// Halves of the horizon that passed since it was seen.
    halves: u8,
}

/// Pairs of pods that talk without being of one job.
#[derive(Default)]
pub struct Strangers {
    pairs: BTreeMap<(PodId, PodId), Talk>,
}

impl Strangers {
    /// Takes a flow that concerns no job.
    pub fn note(&mut self, flow: &Flow<'_>, inventory: &Inventory) {
        let dropped = matches!(
            (flow.verdict, flow.kind),
            (Verdict::Dropped(_), EventKind::Drop | EventKind::PolicyVerdict)
        );
        let opening = flow.flags.syn && !flow.flags.ack;
        if dropped || opening {
            self.meet((&flow.src, &flow.dst), flow.at, dropped, inventory);
        }
    }

    /// Takes a socket's step that concerns no job.
    pub fn note_socket(&mut self, event: &SocketEvent<'_>, inventory: &Inventory) {
        if event.step == SocketStep::Opening {
            self.meet((&event.local, &event.remote), event.at, false, inventory);
        }
    }

    /// Takes drops that concern no job.
    pub fn note_drops(&mut self, drops: &Drops<'_>, inventory: &Inventory) {
        if drops.what == DroppedPacket::Opening && drops.reason.class() != DropClass::NotAFailure {
            self.meet((&drops.src, &drops.dst), drops.last, true, inventory);
        }
    }

    fn meet(&mut self, ends: (&End<'_>, &End<'_>), at: Timestamp, dropped: bool, inventory: &Inventory) {
        let ends = (inventory.endpoint(ends.0, at), inventory.endpoint(ends.1, at));
        let (Endpoint::Pod(src), Endpoint::Pod(dst)) = ends else { return };
        let (from, to) = (inventory.pod(src), inventory.pod(dst));
        if is_step(from) || is_step(to) {
            return;
        }
        let trains = |id: PodId, pod: &Pod| pod.gpus > 0 || inventory.job_of(id).is_some();
        if src == dst || from.namespace != to.namespace || !(trains(src, from) || trains(dst, to)) {
            return;
        }
        let room = self.pairs.len() < REMEMBERED;
        match self.pairs.entry((src, dst)) {
            std::collections::btree_map::Entry::Occupied(talk) => talk.into_mut().note(dropped),
            std::collections::btree_map::Entry::Vacant(place) if room => {
                place.insert(Talk::default()).note(dropped)
            }
            std::collections::btree_map::Entry::Vacant(_) => {}
        }
    }

    /// Forgets everything about these pods.
    pub fn forget(&mut self, pods: &BTreeSet<PodId>) {
        self.pairs.retain(|(src, dst), _| !pods.contains(src) && !pods.contains(dst));
    }

    /// A half of the horizon is over: who did not talk in the last two is forgotten.
    pub fn turn(&mut self) {
        self.pairs.retain(|_, talk| {
            talk.halves = talk.halves.saturating_add(1);
            talk.halves < 2
        });
    }

    /// The label keys that would join them, by namespace.
    #[must_use]
    pub fn suggestions(&self, inventory: &Inventory) -> Vec<Suggestion> {
        let mut by_namespace: BTreeMap<&str, Vec<(usize, usize)>> = BTreeMap::new();
        for ((src, dst), talk) in &self.pairs {
            if talk.drops >= INSISTENT || (talk.opened && is_rendezvous(inventory, *src, *dst)) {
                let pair = (src.0 as usize, dst.0 as usize);
                by_namespace.entry(&inventory.pod(*src).namespace).or_default().push(pair);
            }
        }
        let suggest = |(namespace, pairs): (&str, Vec<(usize, usize)>)| {
            let found = suggest_group_by(inventory.pods(), inventory.membership(), &pairs)?;
            let carries =
                |pod: &&Pod| pod.namespace == namespace && pod.labels.get(&found.key) == Some(&found.value);
            let pods = inventory.pods().iter().filter(carries).count();
            let summary = format!(
                "{pods} pods of namespace {namespace} talk like one job, but are not joined to one: they share the label {}={}. Set jobs.groupBy = [\"{}\"] to join them",
                found.key, found.value, found.key
            );
            Some(Suggestion {
                namespace: namespace.to_owned(),
                group_by: found.key,
                value: found.value,
                pods,
                summary,
            })
        };
        by_namespace.into_iter().filter_map(suggest).collect()
    }
}

/// The steps of a pipeline pass their work on to each other; that makes no gang of them (Argo Workflows, Kubeflow
/// Pipelines, Tekton).
fn is_step(pod: &Pod) -> bool {
    let keys = ["workflows.argoproj.io/workflow", "pipeline/runid", "tekton.dev/pipelineRun"];
    keys.iter().any(|key| pod.labels.contains_key(*key))
}

impl Talk {
    fn note(&mut self, dropped: bool) {
        self.drops += u64::from(dropped);
        self.opened = true;
        self.halves = 0;
    }
}

/// Whether `src` calls `dst` the way members of a gang do: by a headless service, or by `MASTER_ADDR`.
fn is_rendezvous(inventory: &Inventory, src: PodId, dst: PodId) -> bool {
    let (from, to) = (inventory.pod(src), inventory.pod(dst));
    let headless = inventory.services_of(to).any(|service| service.headless);
    let master = ["MASTER_ADDR", "PET_MASTER_ADDR"].iter().find_map(|variable| from.env.get(*variable));
    let named = master.is_some_and(|master| {
        let host = master.split(['.', ':']).next().unwrap_or_default();
        host == to.name || inventory.services_of(to).any(|service| service.name == host)
    });
    headless || named
}
