//! What is known, put together. Enters: everything that was told; leaves: a [`Snapshot`], sorted, with what a person
//! should know. Must not know how it came.

use std::collections::{BTreeMap, BTreeSet};

use firedoor_core::object::Object;
use firedoor_core::time::Timestamp;

use super::fetch::{Key, Trouble};
use super::follower::Follower;
use super::watched::{Wanted, Watched};
use super::{PartialJob, Snapshot, WhyPartial};

/// Notes of one kind name no more than this many examples.
const EXAMPLES: usize = 3;

impl Follower {
    /// The snapshot of this moment.
    pub(super) fn snapshot(&mut self) -> Snapshot {
        self.ready |= self.is_complete();
        self.told_trouble = self.api.access.trouble();
        let ended = self.pods.iter().filter_map(|(uid, record)| Some((uid.to_owned(), record.until?)));
        let mut requests = self.api.meter.read();
        requests.watching = self.watched.len() as u64;
        requests.refused_lookups = self.peers.refused;
        let down = self.watched.values().filter_map(|watched| Some(watched.down.as_ref()?.0));
        Snapshot {
            objects: self.objects(),
            ended: ended.collect(),
            partial: partial(self),
            ready: self.ready,
            stale_since: down.min(),
            notes: self.notes(requests.malformed),
            requests,
        }
    }

    fn is_complete(&self) -> bool {
        let own = self.watched.values().find(|watched| watched.wanted == Wanted::Own);
        let known = |watched: &Watched| watched.listed || watched.refused.is_some();
        !self.replan
            && own.is_some_and(|own| own.listed)
            && self.watched.values().all(known)
            && self.fetched.complete()
    }

    fn objects(&self) -> Vec<Object> {
        let mut objects: Vec<&Object> = self.pods.iter().map(|(_, record)| &record.object).collect();
        let known: BTreeSet<&str> = self.pods.iter().map(|(uid, _)| uid).collect();
        for (_, fetched, _) in self.fetched.iter() {
            let new = |object: &&Object| object.uid().is_none_or(|uid| !known.contains(uid));
            objects.extend(fetched.iter().filter(new));
        }
        let mut namespaces: BTreeSet<&str> = objects.iter().filter_map(|object| object.namespace()).collect();
        namespaces.extend(["default", "kube-system"]);
        for watched in self.watched.values() {
            let named =
                |object: &&Object| watched.wanted != Wanted::Namespaces || namespaces.contains(object.name());
            objects.extend(watched.objects.values().filter(named));
        }
        objects.sort_by_cached_key(|object| {
            (
                object.kind().to_owned(),
                object.namespace().map(str::to_owned),
                object.name().to_owned(),
                object.uid().map(str::to_owned),
            )
        });
        objects.dedup_by(|a, b| a.uid().is_some() && a.uid() == b.uid() && a.kind() == b.kind());
        objects.into_iter().cloned().collect()
    }

    fn notes(&self, malformed: u64) -> Vec<String> {
        let mut notes = Vec::new();
        let mut down: Vec<&(Timestamp, String)> =
            self.watched.values().filter_map(|watched| watched.down.as_ref()).collect();
        down.sort();
        if let Some((since, why)) = down.first() {
            let (all, of) = (down.len(), self.watched.len());
            notes.push(format!("the API server does not answer since {since} ({all} of {of} watches): {why}; what was known stays"));
        }
        if let Some(why) = &self.told_trouble {
            notes.push(format!("the credentials for the API server cannot be read again: {why}"));
        }
        for (what, why, effect) in self.refusals() {
            notes.push(format!("the API server refuses {what}: {why}; {effect}"));
        }
        if malformed > 0 {
            notes.push(format!(
                "{malformed} objects from the API server were not understood and are left out"
            ));
        }
        if self.peers.refused > 0 {
            notes.push(format!(
                "{} look-ups of unknown peers were not made, there were too many",
                self.peers.refused
            ));
        }
        notes
    }

    /// What RBAC refuses, why, and what that costs.
    fn refusals(&self) -> Vec<(String, String, &'static str)> {
        let mut found: BTreeMap<(&'static str, &'static str), (BTreeSet<String>, String)> = BTreeMap::new();
        let mut add = |what: &'static str, effect: &'static str, example: String, why: &str| {
            let entry = found.entry((what, effect)).or_insert_with(|| (BTreeSet::new(), why.to_owned()));
            entry.0.insert(example);
        };
        for watched in self.watched.values() {
            let Some(why) = &watched.refused else { continue };
            let (what, effect, example) = match &watched.wanted {
                Wanted::Own => ("to list pods", "nothing is known of this node", "of this node".to_owned()),
                Wanted::Job(job) => (
                    "to list pods",
                    "only this node's members and observed peers are known",
                    format!("in {}", job.namespace),
                ),
                Wanted::Policies(served, namespace) => {
                    let place = namespace.as_deref().map_or(String::new(), |n| format!(" in {n}"));
                    (
                        "to list policies",
                        "a block cannot be blamed on them",
                        format!("{}{place}", served.kind),
                    )
                }
                Wanted::Namespaces => (
                    "to list namespaces",
                    "policies that select by a namespace's labels are misjudged",
                    "labels".to_owned(),
                ),
            };
            add(what, effect, example, why);
        }
        for (key, _, trouble) in self.fetched.iter() {
            let Some(Trouble::Refused(why)) = trouble else { continue };
            let (what, effect, example) = match key {
                Key::Groups | Key::Kinds(_) => (
                    "to tell what it serves",
                    "policies and owners are not looked for",
                    "API discovery".to_owned(),
                ),
                Key::Node(_) => ("to get nodes", "zones are not known", "nodes".to_owned()),
                Key::Owner(owner) => (
                    "to get owners",
                    "jobs are told by owner references and labels alone",
                    format!("{} ({})", owner.kind, owner.api_version),
                ),
                Key::Services(_) | Key::NameService | Key::ApiService | Key::ApiEndpoints => (
                    "to list services",
                    "traffic to their addresses is not told apart",
                    "services, endpointslices".to_owned(),
                ),
                Key::NameServers => {
                    ("to list pods", "remedies cannot name the name servers", "in kube-system".to_owned())
                }
            };
            add(what, effect, example, why);
        }
        let told = found.into_iter().map(|((what, effect), (examples, why))| {
            let more = if examples.len() > EXAMPLES { ", ..." } else { "" };
            let named = examples.into_iter().take(EXAMPLES).collect::<Vec<_>>().join(", ");
            (format!("{what} ({named}{more})"), why, effect)
        });
        told.collect()
    }
}

/// The jobs whose members are known in part only.
fn partial(follower: &Follower) -> Vec<PartialJob> {
    let mut jobs = Vec::new();
    for (job, local) in &follower.here.labelled {
        let watched =
            follower.watched.values().find(|w| matches!(&w.wanted, Wanted::Job(other) if other == job));
        let why = match watched {
            _ if follower.large.contains(job) => WhyPartial::TooLarge,
            Some(watched) if watched.listed => continue,
            Some(watched) if watched.refused.is_some() => WhyPartial::Refused,
            _ => WhyPartial::NotYet,
        };
        let (namespace, labels) = (job.namespace.clone(), job.labels.clone());
        jobs.push(PartialJob { namespace, labels, local: local.iter().cloned().collect(), why });
    }
    for (namespace, uid) in &follower.here.unlabelled {
        let (namespace, local) = (namespace.clone(), vec![uid.clone()]);
        jobs.push(PartialJob { namespace, labels: Vec::new(), local, why: WhyPartial::NoSharedLabel });
    }
    jobs
}

/// Where such jobs are: only there may an unknown peer be a member. A job that is just being listed is no reason to look
/// its members up one by one.
pub(super) fn partial_namespaces(follower: &Follower) -> BTreeSet<String> {
    let lasting = partial(follower).into_iter().filter(|job| job.why != WhyPartial::NotYet);
    lasting.map(|job| job.namespace).collect()
}
