//! Pods come and go, and of some jobs only a part is known.

use std::collections::BTreeSet;
use std::time::Duration;

use super::*;
use crate::inventory::Endpoint;
use crate::membership::JobId;
use crate::observation::Reserved;

fn moment(second: u64, millis: u64) -> Timestamp {
    Timestamp::from_nanos(at(second).nanos() + millis * 1_000_000)
}

fn started(mut pod: Value, second: u64) -> Value {
    pod["status"]["startTime"] = json!(at(second).to_string());
    pod
}

#[test]
fn an_address_that_is_used_again_within_a_second() {
    let old = started(pod("mid", 0, "n1", "10.2.1.5"), 0);
    let mut new = started(pod("mid", 7, "n1", "10.2.1.5"), 100);
    new["metadata"]["uid"] = json!("uid-next");
    let other = pod("mid", 1, "n2", "10.2.2.5");
    let objects_of =
        |pods: [&Value; 2]| objects([node("n1"), node("n2")].into_iter().chain(pods.map(Clone::clone)));
    let inventory = Inventory::new(objects_of([&old, &other]), &Grouping::default());
    let mut live = Pipeline::new(inventory, Settings::default());
    // It ended at 100.4 s; its successor's start is told to the second: 100 s.
    let ended = BTreeMap::from([("uid-mid-worker-0".to_owned(), moment(100, 400))]);
    live.update(objects_of([&new, &other]), &ended);
    let who = |second, millis| {
        let end = End::at("10.2.1.5".parse().expect("an address"), 1);
        match live.inventory().endpoint(&end, moment(second, millis)) {
            Endpoint::Pod(id) => live.inventory().pod(id).uid.clone().unwrap_or_default(),
            other => format!("{other:?}"),
        }
    };
    assert_eq!(who(99, 900), "uid-mid-worker-0");
    assert_eq!(who(100, 399), "uid-mid-worker-0");
    assert_eq!(who(100, 400), "uid-next");
    assert_eq!(who(105, 0), "uid-next");
}

#[test]
fn a_deletion_that_lies_ahead_is_over_when_the_pod_is() {
    let mut dying = started(pod("mid", 0, "n1", "10.2.1.5"), 0);
    dying["metadata"]["deletionTimestamp"] = json!(at(60).to_string());
    let other = pod("mid", 1, "n2", "10.2.2.5");
    let both = objects([node("n1"), node("n2"), dying, other.clone()]);
    let mut live = Pipeline::new(Inventory::new(both, &Grouping::default()), Settings::default());
    let ended = BTreeMap::from([("uid-mid-worker-0".to_owned(), at(31))]);
    live.update(objects([node("n1"), node("n2"), other]), &ended);
    assert_eq!(live.inventory().pods()[0].lease.until, Some(at(31)));
}

fn part_of(live: &Pipeline, job: &str) -> BTreeSet<JobId> {
    live.inventory().jobs().map(|(_, of)| of.id.clone()).filter(|id| id.name == job).collect()
}

/// Worker 0 of job `mid` calls an address.
fn calls(live: &mut Pipeline, second: u64, remote: End<'_>) {
    live.observe(Observation::Socket(SocketEvent {
        at: at(second),
        observer: "n1",
        source: SourceKind::Ebpf,
        local: End {
            uid: Some("uid-mid-worker-0"),
            ..End::at("10.2.1.5".parse().expect("an address"), 40_000)
        },
        remote,
        opener: Some(Opener::Local),
        step: SocketStep::Opening,
    }));
}

#[test]
fn whom_a_job_known_in_part_talks_to_is_looked_up() {
    let mut live = pipeline(&[("mid", 2)]);
    let stranger = End::at("10.77.0.9".parse().expect("an address"), 29500);
    calls(&mut live, 0, stranger);
    assert_eq!(live.take_unresolved(), [], "all members of this job are known");
    live.known_in_part(part_of(&live, "mid"));
    calls(&mut live, 1, stranger);
    calls(&mut live, 2, stranger);
    calls(
        &mut live,
        3,
        End { reserved: Some(Reserved::World), ..End::at("10.77.0.8".parse().expect("an address"), 443) },
    );
    calls(
        &mut live,
        4,
        End { pod: Some(("lab", "mid-worker-9")), ..End::at("10.77.0.7".parse().expect("an address"), 1) },
    );
    calls(
        &mut live,
        5,
        End { pod: Some(("shop", "web-1")), ..End::at("10.77.0.6".parse().expect("an address"), 1) },
    );
    let found = live.take_unresolved();
    let told: Vec<_> = found.iter().map(|who| (who.ip.to_string(), who.pod.as_deref())).collect();
    assert_eq!(told, [("10.77.0.9".to_owned(), None), ("10.77.0.7".to_owned(), Some("mid-worker-9"))]);
    assert!(found.iter().all(|who| who.namespace == "lab" && who.job.name == "mid"));
    // Jobs get other numbers; nobody is told again because of that.
    live.update(cluster(&[("early", 1), ("mid", 2)]), &BTreeMap::new());
    calls(&mut live, 30, stranger);
    assert_eq!(live.take_unresolved(), []);
    calls(&mut live, 62, stranger);
    assert_eq!(live.take_unresolved().len(), 1, "a minute later it is told again");
}

#[test]
fn who_is_looked_up_is_bounded() {
    let mut live = pipeline(&[("mid", 2)]);
    live.known_in_part(part_of(&live, "mid"));
    for k in 0..3_000_u32 {
        let ip =
            IpAddr::from([10, 77, u8::try_from(k / 256).unwrap_or(0), u8::try_from(k % 256).unwrap_or(0)]);
        calls(&mut live, 1, End::at(ip, 29500));
    }
    assert_eq!((live.take_unresolved().len(), live.unresolved_left_out()), (1024, 3_000 - 1024));
}

#[test]
fn a_job_known_in_part_is_never_healthy() {
    let talk = |live: &mut Pipeline| {
        step(live, 0, 40_000, SocketStep::Opening);
        step(live, 0, 40_000, SocketStep::Established);
    };
    let mut whole = pipeline(&[("mid", 2)]);
    talk(&mut whole);
    assert_eq!(whole.report().jobs[0].verdict, JobVerdict::Healthy);
    let mut part = pipeline(&[("mid", 2)]);
    part.known_in_part(part_of(&part, "mid"));
    talk(&mut part);
    let report = part.report();
    assert_eq!(report.jobs[0].verdict, JobVerdict::Inconclusive);
    assert!(report.jobs[0].unknowns[0].starts_with("only 2 members"), "{:?}", report.jobs[0].unknowns);
    // What is blocked is blocked.
    (3..9).for_each(|k| denied(&mut part, 2 * k, 41_000 + u16::try_from(k).unwrap_or(0)));
    assert_eq!(part.report().jobs[0].verdict, JobVerdict::HardBlock);
}

#[test]
fn a_single_known_member_makes_a_job_when_there_are_more() {
    let alone = objects([node("n1"), pod("mid", 0, "n1", "10.2.1.5")]);
    let mut live = Pipeline::new(Inventory::new(alone, &Grouping::default()), Settings::default());
    assert_eq!(live.report().jobs.len(), 0);
    live.known_in_part(part_of(&live, "mid"));
    assert_eq!(live.report().jobs.len(), 1);
    calls(&mut live, 0, End::at("10.2.2.5".parse().expect("an address"), 29500));
    assert_eq!(live.take_unresolved().len(), 1);
    // It was looked up, and is here.
    live.update(cluster(&[("mid", 2)]), &BTreeMap::new());
    calls(&mut live, 1, End::at("10.2.2.5".parse().expect("an address"), 29500));
    (2..5).for_each(|s| calls(&mut live, s, End::at("10.2.2.5".parse().expect("an address"), 29500)));
    assert_eq!(live.report().coverage.attributed, 4);
}

/// A node's clock was an hour ahead until it was set.
#[test]
fn a_clock_that_is_set_back_makes_nothing_late() {
    let all =
        objects([node("n1"), node("n2"), pod("mid", 0, "n1", "10.2.1.5"), pod("mid", 1, "n2", "10.2.2.5")]);
    let mut live = Pipeline::new(Inventory::new(all, &Grouping::default()), Settings::default());
    let to = || End::at("10.2.2.5".parse().expect("an address"), 29_500);
    let counted = |live: &Pipeline| {
        let totals = live.accounts().of(SourceKind::Ebpf).totals;
        (totals.attributed, totals.late, totals.rejected)
    };
    for second in 3600..3605 {
        calls(&mut live, second, to());
    }
    live.start_anew(at(5), Duration::from_secs(60));
    for second in 5..10 {
        live.pass(at(second));
        calls(&mut live, second, to());
    }
    // The source still holds what it was told before.
    calls(&mut live, 3604, to());
    let _ = live.look();
    assert_eq!(counted(&live), (5, 0, 1));
    assert_eq!(live.inventory().pods().len(), 2);
}
