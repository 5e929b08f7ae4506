//! Addresses that pods of a job talk to and that nobody in the inventory has. Of a job that is known in part these may be
//! members that are not known yet. Enters: flows that concern no job; leaves: whom to look up, each at most every minute.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::inventory::{Endpoint, Inventory, JobIndex, JobNumbers};
use crate::membership::JobId;
use crate::observation::End;
use crate::time::Timestamp;

/// Addresses that are remembered; what comes beyond is counted.
const REMEMBERED: usize = 1024;
/// An address that is met again is told again after so long.
const AGAIN: Duration = Duration::from_secs(60);

/// Somebody a job's pod talks to, and whom the inventory does not have.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Unresolved {
    /// The namespace of the job's pod: a member would be in it, too.
    pub namespace: String,
    /// The job.
    pub job: JobId,
    /// The address.
    pub ip: IpAddr,
    /// The name of the pod that has it, where the source told one of this namespace.
    pub pod: Option<String>,
}

/// What is to be looked up.
#[derive(Default)]
pub(super) struct Lookups {
    /// When each was told last.
    told: BTreeMap<(JobIndex, IpAddr), Timestamp>,
    pending: Vec<Unresolved>,
    left_out: u64,
}

impl Lookups {
    /// Takes the ends of something that concerns no job.
    pub(super) fn note(&mut self, ends: [&End<'_>; 2], at: Timestamp, inventory: &Inventory) {
        if !inventory.any_partial() {
            return;
        }
        let found = ends.map(|end| inventory.endpoint(end, at));
        for ((own, _), (other, end)) in
            [((found[0], ends[0]), (found[1], ends[1])), ((found[1], ends[1]), (found[0], ends[0]))]
        {
            let (Endpoint::Pod(pod), Endpoint::Address(ip)) = (own, other) else { continue };
            let Some((job, _)) = inventory.job_of(pod).filter(|(job, _)| inventory.is_partial(*job)) else {
                continue;
            };
            let namespace = &inventory.pod(pod).namespace;
            let elsewhere = end.pod.is_some_and(|(of, _)| of != namespace);
            let local = ip.is_loopback() || ip.is_multicast() || ip.is_unspecified();
            if end.reserved.is_none() && !elsewhere && !local && self.is_due((job, ip), at) {
                self.pending.push(Unresolved {
                    namespace: namespace.clone(),
                    job: inventory.job(job).id.clone(),
                    ip,
                    pod: end.pod.map(|(_, name)| name.to_owned()),
                });
            }
        }
    }

    fn is_due(&mut self, who: (JobIndex, IpAddr), at: Timestamp) -> bool {
        let old = |told: &Timestamp| at >= told.plus(AGAIN);
        if let Some(told) = self.told.get(&who) {
            if !old(told) {
                return false;
            }
        } else if self.told.len() >= REMEMBERED {
            self.told.retain(|_, told| !old(told));
        }
        if self.told.len() >= REMEMBERED || self.pending.len() >= REMEMBERED {
            self.left_out += 1;
            return false;
        }
        self.told.insert(who, at);
        true
    }

    pub(super) fn take(&mut self) -> Vec<Unresolved> {
        std::mem::take(&mut self.pending)
    }

    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }

    pub(super) fn renumber_jobs(&mut self, jobs: &JobNumbers) {
        let told = std::mem::take(&mut self.told);
        let renumbered = told.into_iter().filter_map(|((job, ip), at)| Some(((jobs.get(job)?, ip), at)));
        self.told = renumbered.collect();
    }
}
