//! From what is known to what is watched and asked for. Enters: the pods of this node; leaves: watches begun and ended,
//! and the list of what to get, the most important first. Must not know answers.

use std::collections::BTreeSet;

use firedoor_core::facts::Pod;
use firedoor_core::object::{Object, OwnerRef};

use super::api::Served;
use super::discovery::POLICIES;
use super::fetch::{Key, Trouble};
use super::follower::Follower;
use super::pods::{Holder, Record};
use super::wanted::{self, Reference};
use super::watched::Wanted;
use super::{now, snapshot};

/// Owners of other nodes' pods that are asked for: their jobs are known by labels, and many share an owner.
const MAX_REMOTE_OWNERS: usize = 64;

impl Follower {
    /// Decides anew what to watch and to get.
    pub(super) fn plan(&mut self) {
        let time = now();
        let linger = self.settings.linger;
        let local = self.local().filter(|(_, record)| !record.ended_before(time, linger));
        let local: Vec<Pod> = local.filter_map(|(_, record)| Pod::from_object(&record.object)).collect();
        let owners: Vec<Object> = self.owners().cloned().collect();
        self.here = wanted::jobs(&local, &owners, &self.settings.grouping);
        self.large.retain(|job| self.here.labelled.contains_key(job));

        let wants = self.watches();
        let over = self.watched.iter().filter(|(_, watched)| !wants.contains(&watched.wanted));
        let over: Vec<Holder> = over.map(|(holder, _)| *holder).collect();
        for holder in over {
            self.end(holder);
        }
        let have: BTreeSet<&Wanted> = self.watched.values().map(|watched| &watched.wanted).collect();
        let new: Vec<Wanted> = wants.iter().filter(|wanted| !have.contains(wanted)).cloned().collect();
        for wanted in new {
            self.begin(wanted);
        }
        self.keep_peers();
        let keys = self.gets(&local);
        self.fetched.want(keys);
    }

    /// The owners that are known.
    pub(super) fn owners(&self) -> impl Iterator<Item = &Object> {
        self.fetched
            .iter()
            .filter(|(key, ..)| matches!(key, Key::Owner(_)))
            .flat_map(|(_, objects, _)| objects)
    }

    fn watches(&self) -> BTreeSet<Wanted> {
        let mut wants = BTreeSet::from([Wanted::Own]);
        let namespaces = self.here.namespaces();
        if namespaces.is_empty() {
            return wants;
        }
        wants.insert(Wanted::Namespaces);
        let small = self.here.labelled.keys().filter(|job| !self.large.contains(*job));
        wants.extend(small.cloned().map(Wanted::Job));
        for (version, kind) in POLICIES {
            let kinds = self.fetched.kinds(version).iter();
            let Some(found) = kinds.into_iter().find(|found| found.served.kind == kind && found.watchable)
            else {
                continue;
            };
            let served = &found.served;
            if served.namespaced {
                let each = namespaces.iter().map(|namespace| Some((*namespace).to_owned()));
                wants.extend(each.map(|namespace| Wanted::Policies(served.clone(), namespace)));
            } else {
                wants.insert(Wanted::Policies(served.clone(), None));
            }
        }
        wants
    }

    fn keep_peers(&mut self) {
        let namespaces = snapshot::partial_namespaces(self);
        let namespaces: BTreeSet<&str> = namespaces.iter().map(String::as_str).collect();
        self.peers.keep(&namespaces);
        let kept = |record: &Record| record.object.namespace().is_some_and(|n| namespaces.contains(n));
        self.pods.release(super::follower::PEERS, kept);
    }

    /// What to get, the most important first.
    fn gets(&self, local: &[Pod]) -> Vec<Key> {
        let mut keys = Vec::new();
        let mut seen = BTreeSet::new();
        let mut add = |key: Key| {
            let new = seen.insert(key.clone());
            if new {
                keys.push(key);
            }
            new
        };
        let namespaces = self.here.namespaces();
        let mut owners = Owners { follower: self, wanted: Vec::new(), asked: BTreeSet::new() };
        for pod in local {
            owners.above(&pod.namespace, &pod.owners, self.is_member(pod), self.settings.max_owners);
        }
        // Asked for even where no job is: a name that no node has is found out.
        add(Key::Node(self.settings.node.clone()));
        if !namespaces.is_empty() {
            add(Key::Groups);
            for version in self.policy_versions() {
                add(Key::Kinds(version));
            }
        }
        // Whoever is known of other nodes is a member, or is taken for one.
        let room = self.settings.max_owners.min(owners.wanted.len() + MAX_REMOTE_OWNERS);
        for (_, record) in self.remote() {
            let namespace = record.object.namespace().unwrap_or_default();
            owners.above(namespace, &record.owners, true, room);
        }
        let owners = owners.wanted;
        for owner in owners {
            for version in self.versions_of(&owner) {
                add(Key::Kinds(version));
            }
            if self.served(&owner).is_some() {
                add(Key::Owner(owner));
            }
        }
        if namespaces.is_empty() {
            return keys;
        }
        for key in [Key::ApiService, Key::ApiEndpoints, Key::NameServers, Key::NameService] {
            add(key);
        }
        for namespace in namespaces {
            add(Key::Services(namespace.to_owned()));
        }
        let mut nodes = 1;
        for node in self.remote().filter_map(|(_, record)| record.node.as_deref()) {
            if nodes >= self.settings.max_nodes {
                break;
            }
            nodes += usize::from(add(Key::Node(node.to_owned())));
        }
        keys
    }

    /// The pods of other nodes.
    fn remote(&self) -> impl Iterator<Item = (&str, &Record)> {
        let own = self.settings.node.as_str();
        self.pods.iter().filter(move |(_, record)| record.node.as_deref() != Some(own))
    }

    /// Versions in which policies are served, as far as it is known.
    fn policy_versions(&self) -> BTreeSet<String> {
        let served = |version: &&str| {
            let group = version.split('/').next().unwrap_or_default();
            self.fetched.versions(group).is_some_and(|served| served.iter().any(|served| served == version))
        };
        POLICIES.iter().map(|(version, _)| *version).filter(served).map(str::to_owned).collect()
    }

    /// Whether a pod is in a job of this node.
    fn is_member(&self, pod: &Pod) -> bool {
        let uid = pod.uid.as_deref().unwrap_or_default();
        let unlabelled = || self.here.unlabelled.iter().any(|(_, other)| other == uid);
        self.here.labelled.keys().any(|job| job.selects(pod)) || unlabelled()
    }

    /// The versions whose kinds tell how an owner is asked for: the one that the reference names and, where the server
    /// no longer serves that, the group's preferred one.
    fn versions_of(&self, owner: &Reference) -> Vec<String> {
        let mut versions = vec![owner.api_version.clone()];
        if matches!(self.fetched.served(&owner.api_version, &owner.kind), Some(Err(Trouble::Absent))) {
            versions.extend(self.preferred(owner));
        }
        versions
    }

    fn preferred(&self, owner: &Reference) -> Option<String> {
        let (group, _) = owner.api_version.split_once('/')?;
        self.fetched.versions(group)?.first().filter(|version| **version != owner.api_version).cloned()
    }

    /// How an owner is asked for; `None` while that is not known, and where the server has no such kind.
    pub(super) fn served(&self, owner: &Reference) -> Option<Served> {
        match self.fetched.served(&owner.api_version, &owner.kind)? {
            Ok(served) => Some(served),
            Err(_) => self.fetched.served(&self.preferred(owner)?, &owner.kind)?.ok(),
        }
    }
}

/// Owners while they are gathered.
struct Owners<'f> {
    follower: &'f Follower,
    wanted: Vec<Reference>,
    /// UIDs of the owners whose chains were followed: most pods of a job share one.
    asked: BTreeSet<String>,
}

impl Owners<'_> {
    /// Adds what is above an object with these owners, up to `most` in all.
    fn above(&mut self, namespace: &str, first: &[OwnerRef], in_job: bool, most: usize) {
        let Some(owner) = wanted::controller(first) else { return };
        if self.wanted.len() >= most || !self.asked.insert(format!("{in_job} {}", owner.uid)) {
            return;
        }
        let fetched = &self.follower.fetched;
        let known = |reference: &Reference| fetched.objects(&Key::Owner(reference.clone())).first();
        for owner in wanted::owners(namespace, first, in_job, &known) {
            if self.wanted.len() < most && !self.wanted.contains(&owner) {
                self.wanted.push(owner);
            }
        }
    }
}
