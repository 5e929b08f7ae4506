//! The pods that are known, and when each held its addresses. Enters: what watches and look-ups tell, with the time it
//! was told; leaves: pods whose own fields say from when and until when their addresses were theirs. Must not know jobs.
//!
//! A pod's fields tell less than was seen. `status.startTime` is the second in which the kubelet took the pod, before it
//! had an address; `metadata.deletionTimestamp` is when its grace ends, and it may be gone before or after. So both are
//! replaced where more is known: the first by the end of the pod that had the address before, the second by the time
//! at which the pod was told to be gone.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use firedoor_core::facts::{Phase, Pod};
use firedoor_core::object::{Object, OwnerRef};
use firedoor_core::time::Timestamp;

/// Who says that a pod is there: one watch, or the look-ups.
pub(super) type Holder = u32;

/// The times that Kubernetes writes are whole seconds.
const SECOND: Duration = Duration::from_secs(1);

/// A pod.
pub(super) struct Record {
    pub(super) object: Object,
    pub(super) node: Option<Box<str>>,
    pub(super) owners: Arc<[OwnerRef]>,
    /// When its addresses ceased to be its own; `None`: they still are.
    pub(super) until: Option<Timestamp>,
    holders: Vec<Holder>,
    addresses: Vec<IpAddr>,
    /// From when its addresses were its own.
    from: Option<Timestamp>,
    /// When it was first seen with its addresses.
    addressed: Option<Timestamp>,
    /// When it was last told to be there.
    seen: Timestamp,
    /// Until when its grace lasts, once it is being deleted.
    grace: Option<Timestamp>,
    deleted: bool,
}

impl Record {
    pub(super) fn is_held_by(&self, holder: Holder) -> bool {
        self.holders.contains(&holder)
    }

    /// Whether it had ended this long before `now`.
    pub(super) fn ended_before(&self, now: Timestamp, by: Duration) -> bool {
        self.until.is_some_and(|until| until.plus(by) < now)
    }
}

/// All pods that are known, by UID.
pub(super) struct Pods {
    records: BTreeMap<Box<str>, Record>,
    by_address: BTreeMap<IpAddr, Vec<Box<str>>>,
    /// Thousands of pods have the same owner.
    owners: BTreeSet<Arc<[OwnerRef]>>,
    /// How long a pod that ended is remembered.
    keep: Duration,
}

impl Pods {
    pub(super) fn new(keep: Duration) -> Self {
        Self { records: BTreeMap::new(), by_address: BTreeMap::new(), owners: BTreeSet::new(), keep }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Record)> {
        self.records.iter().map(|(uid, record)| (&**uid, record))
    }

    pub(super) fn get(&self, uid: &str) -> Option<&Record> {
        self.records.get(uid)
    }

    pub(super) fn held_by(&self, holder: Holder) -> impl Iterator<Item = (&str, &Record)> {
        self.iter().filter(move |(_, record)| record.is_held_by(holder))
    }

    /// Whether a pod of today has this address for itself.
    pub(super) fn has_address(&self, ip: IpAddr) -> bool {
        let uids = self.by_address.get(&ip);
        uids.into_iter().flatten().filter_map(|uid| self.get(uid)).any(|record| record.until.is_none())
    }

    /// A pod is there. `false`: this is no pod, or one that ended long ago.
    pub(super) fn put(&mut self, holder: Holder, object: Object, now: Timestamp) -> bool {
        self.insert(holder, object, now, now)
    }

    /// What a pod was like before it was gone.
    pub(super) fn last_form(&mut self, holder: Holder, object: Object, now: Timestamp) {
        if let Some(seen) = object.uid().and_then(|uid| self.get(uid)).map(|record| record.seen) {
            self.insert(holder, object, now, seen);
        }
    }

    fn insert(&mut self, holder: Holder, object: Object, now: Timestamp, seen: Timestamp) -> bool {
        let told = object.apart();
        let grace = told.text("/metadata/deletionTimestamp").and_then(Timestamp::parse);
        let Some(pod) = Pod::from_object(&told) else { return false };
        let Some(uid) = pod.uid.as_deref() else { return false };
        let finished = matches!(pod.phase, Phase::Succeeded | Phase::Failed);
        let known = self.records.get(uid);
        if known.is_some_and(|record| record.deleted) {
            // A UID does not come back: this is older news, from a slower watch.
            return true;
        }
        let until = finished.then(|| {
            let first_told = known.and_then(|record| record.until);
            pod.lease.until.or(first_told).unwrap_or(now)
        });
        if until.is_some_and(|until| until.plus(self.keep) < now) {
            self.forget(uid);
            return true;
        }
        let owners =
            self.owners.get(pod.owners.as_slice()).cloned().unwrap_or_else(|| pod.owners.as_slice().into());
        self.owners.insert(Arc::clone(&owners));
        let addresses = if pod.host_network { Vec::new() } else { pod.ips.clone() };
        let same = known.is_some_and(|record| record.addresses == addresses);
        let mut record = Record {
            node: pod.node.as_deref().map(Into::into),
            until,
            holders: known.map(|record| record.holders.clone()).unwrap_or_default(),
            from: pod.lease.from.max(known.and_then(|record| record.from)),
            addressed: known
                .filter(|_| same)
                .map_or(Some(now), |r| r.addressed)
                .filter(|_| !addresses.is_empty()),
            owners,
            grace,
            deleted: false,
            seen,
            addresses,
            object,
        };
        if !record.holders.contains(&holder) {
            record.holders.push(holder);
        }
        record.object = dated(record.object, record.from, record.until);
        let uid: Box<str> = uid.into();
        if !same {
            self.unaddress(&uid);
            for ip in &record.addresses {
                self.by_address.entry(*ip).or_default().push(uid.clone());
            }
        }
        let addresses = record.addresses.clone();
        self.records.insert(uid, record);
        self.settle(&addresses);
        true
    }

    /// A holder was told that a pod is gone. `definite`: it was deleted, and did not just cease to be selected.
    pub(super) fn removed(&mut self, holder: Holder, uid: &str, definite: bool, now: Timestamp) {
        let Some(record) = self.records.get_mut(uid) else { return };
        record.holders.retain(|other| *other != holder);
        if !definite && !record.holders.is_empty() {
            return;
        }
        record.deleted = definite;
        self.end(uid, now);
    }

    /// A holder listed all it has: what it had and did not list is gone, since some time after `last`.
    pub(super) fn sweep(
        &mut self,
        holder: Holder,
        listed: &BTreeSet<Box<str>>,
        last: Timestamp,
        now: Timestamp,
    ) {
        let missing = self.held_by(holder).filter(|(uid, _)| !listed.contains(*uid));
        let missing: Vec<(String, Option<Timestamp>)> =
            missing.map(|(uid, record)| (uid.to_owned(), record.grace)).collect();
        for (uid, grace) in missing {
            let when = grace.map_or(now, |grace| grace.max(last).min(now));
            self.removed(holder, &uid, false, when);
        }
    }

    /// A holder holds nothing any more, which says nothing about the pods: those that nobody else holds are forgotten.
    /// What had ended stays its time.
    pub(super) fn release(&mut self, holder: Holder, but: impl Fn(&Record) -> bool) {
        let mut lost = Vec::new();
        for (uid, record) in &mut self.records {
            if record.is_held_by(holder) && !but(record) {
                record.holders.retain(|other| *other != holder);
                if record.holders.is_empty() && !record.deleted {
                    lost.push(uid.clone());
                }
            }
        }
        for uid in lost {
            self.forget(&uid);
        }
    }

    /// Forgets what ended long ago.
    pub(super) fn prune(&mut self, now: Timestamp) -> bool {
        let over = self.iter().filter(|(_, record)| record.ended_before(now, self.keep));
        let over: Vec<String> = over.map(|(uid, _)| uid.to_owned()).collect();
        for uid in &over {
            self.forget(uid);
        }
        // One is held by this set itself.
        self.owners.retain(|owners| Arc::strong_count(owners) > 1);
        !over.is_empty()
    }

    fn end(&mut self, uid: &str, at: Timestamp) {
        let Some(record) = self.records.get_mut(uid) else { return };
        if record.until.is_none() {
            record.until = Some(at);
            record.object = dated(record.object.clone(), record.from, record.until);
        }
        let addresses = record.addresses.clone();
        self.settle(&addresses);
    }

    /// No address is two pods' at a time: where two seem to overlap, the later one had it from when the earlier one
    /// ended, and at the latest from when it was seen with it.
    fn settle(&mut self, addresses: &[IpAddr]) {
        for ip in addresses {
            let Some(uids) = self.by_address.get(ip).filter(|uids| uids.len() > 1) else { continue };
            let mut order: Vec<(Option<Timestamp>, Option<Timestamp>, Box<str>)> = uids
                .iter()
                .filter_map(|uid| Some((self.get(uid)?.addressed, self.get(uid)?.from, uid.clone())))
                .collect();
            order.sort();
            for two in order.windows(2) {
                if let [(.., before), (.., after)] = two {
                    self.divide(before, after);
                }
            }
        }
    }

    fn divide(&mut self, before: &str, after: &str) {
        let (Some(a), Some(b)) = (self.get(before), self.get(after)) else { return };
        let (Some(until), Some(from), Some(addressed)) = (a.until, b.from, b.addressed) else { return };
        let whole_second = until.nanos().is_multiple_of(1_000_000_000);
        let at_latest = if whole_second { until.plus(SECOND) } else { until };
        if at_latest <= from {
            return;
        }
        let (until, from) = if until <= addressed {
            (until, at_latest.min(addressed).max(from))
        } else {
            // That the earlier one is gone was told after the later one had its address.
            let between = from.plus(SECOND).max(a.seen).min(addressed).max(from);
            (between, between)
        };
        self.redate(before, |record| record.until = Some(until));
        self.redate(after, |record| record.from = Some(from));
    }

    fn redate(&mut self, uid: &str, change: impl Fn(&mut Record)) {
        let Some(record) = self.records.get_mut(uid) else { return };
        let was = (record.from, record.until);
        change(record);
        if was != (record.from, record.until) {
            record.object = dated(record.object.clone(), record.from, record.until);
        }
    }

    fn forget(&mut self, uid: &str) {
        self.unaddress(uid);
        self.records.remove(uid);
    }

    fn unaddress(&mut self, uid: &str) {
        let Some(record) = self.records.get(uid) else { return };
        for ip in &record.addresses {
            if let Some(uids) = self.by_address.get_mut(ip) {
                uids.retain(|other| &**other != uid);
                if uids.is_empty() {
                    self.by_address.remove(ip);
                }
            }
        }
    }
}

/// The pod with its times where [`Pod::from_object`] looks for them.
fn dated(object: Object, from: Option<Timestamp>, until: Option<Timestamp>) -> Object {
    let told = object.apart();
    let finished = matches!(told.text("/status/phase"), Some("Succeeded" | "Failed"));
    let as_told = Pod::from_object(&told).map(|pod| pod.lease);
    if as_told.is_some_and(|told| told.from == from && told.until == until) {
        return object;
    }
    let mut value = told.into_value();
    let text = |time: Timestamp| Value::from(time.to_string());
    if let (Some(from), Some(status)) = (from, section(&mut value, "status")) {
        status.insert("startTime".to_owned(), text(from));
    }
    if finished && let (Some(until), Some(status)) = (until, section(&mut value, "status")) {
        status.remove("containerStatuses");
        status.insert("conditions".to_owned(), json!([{ "lastTransitionTime": text(until) }]));
    }
    if !finished && let Some(metadata) = section(&mut value, "metadata") {
        match until {
            Some(until) => metadata.insert("deletionTimestamp".to_owned(), text(until)),
            None => metadata.remove("deletionTimestamp"),
        };
    }
    Object::from_value(value).map_or(object, |object| object.packed())
}

fn section<'v>(value: &'v mut Value, field: &str) -> Option<&'v mut serde_json::Map<String, Value>> {
    let fields = value.as_object_mut()?;
    fields.entry(field).or_insert_with(|| json!({})).as_object_mut()
}

#[cfg(test)]
#[path = "pods/tests.rs"]
mod tests;
