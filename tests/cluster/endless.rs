//! Servers that never come to an end: lists that go on for ever, watches that are over as soon as they began.

use std::time::{Duration, Instant};

use firedoor::cluster::ClusterSettings;

use crate::kube::{Entry, FakeKube, Pages};
use crate::world::*;

/// Objects that a list of these tests may have.
const MOST: usize = 400;

async fn many_pods() -> FakeKube {
    let kube = cluster().await;
    kube.put_all([pod("llama", 0, NODE), pod("llama", 1, "node-b"), owner("llama")]);
    kube.put_all((10..60).map(|index| pod("llama", index, NODE)));
    kube
}

fn of_pages() -> ClusterSettings {
    ClusterSettings { page: 10, max_listed: MOST, ..settings() }
}

/// Lists of this node's pods that were begun.
fn begun(log: &[Entry]) -> usize {
    let own = |entry: &&Entry| entry.verb == "list" && entry.query.contains("spec.nodeName");
    log.iter().filter(own).filter(|entry| !entry.query.contains("continue=")).count()
}

#[tokio::test]
async fn a_list_that_never_ends_is_told_and_begun_anew() {
    let ways = [
        (Pages::Repeated, "goes on with the page it was"),
        (Pages::Empty, "goes on without filling its pages"),
        (Pages::New, "goes on beyond 400 objects"),
    ];
    for (pages, what) in ways {
        let kube = many_pods().await;
        kube.turn_pages(pages);
        let mut followed = Followed::new(&kube, of_pages());
        let told = |notes: &[String]| notes.iter().any(|note| note.contains(what));
        let stuck = followed.until(what, |snapshot| told(&snapshot.notes)).await;
        assert!(!stuck.ready);
        // However often it is begun anew, what it brought does not pile up.
        kube.until("more lists", |log| begun(log) >= 4).await;
        let pods = names(&followed.now(), Some("Pod")).len();
        // A list of the node, and one of the job.
        assert!(pods <= 2 * (MOST + 10) + 52, "{pods} pods are held");
        kube.turn_pages(Pages::Honest);
        let snapshot = followed.until_ready().await;
        assert_eq!(names(&snapshot, Some("Pod")).len(), 52, "{pages:?}");
        followed.stop().await;
    }
}

/// What a list that was not finished brought is forgotten; what was known before it stays.
#[tokio::test]
async fn a_list_that_never_ends_takes_nothing_that_was_known() {
    let kube = many_pods().await;
    let mut followed = Followed::new(&kube, of_pages());
    followed.until_ready().await;
    kube.turn_pages(Pages::New);
    let before = begun(&kube.log());
    kube.compact();
    kube.cut();
    kube.put(pod("llama", 60, NODE));
    kube.compact();
    kube.until("more lists", |log| begun(log) >= before + 3).await;
    let stuck = followed.until("it to be told", |snapshot| snapshot.stale_since.is_some()).await;
    assert!((10..60).all(|index| lives(&stuck, &format!("llama-worker-{index}"))));
    kube.turn_pages(Pages::Honest);
    let all = |snapshot: &firedoor::cluster::Snapshot| names(snapshot, Some("Pod")).len() == 53;
    let snapshot = followed.until("the pods that there are", all).await;
    assert!(lives(&snapshot, "llama-worker-60") && snapshot.ended.is_empty());
    followed.stop().await;
}

#[tokio::test]
async fn watches_that_end_at_once_are_begun_anew_after_a_pause() {
    let kube = many_pods().await;
    let backoff = (Duration::from_millis(100), Duration::from_secs(2));
    let mut followed = Followed::new(&kube, ClusterSettings { backoff, ..settings() });
    followed.until_ready().await;
    let watches = |log: &[Entry]| log.iter().filter(|entry| entry.verb == "watch").count();
    kube.until("the watches", |log| log.iter().filter(|entry| entry.open).count() == 4).await;
    kube.cut_watches_short(true);
    let (before, since) = (watches(&kube.log()), Instant::now());
    kube.until("new watches", |log| watches(log) >= before + 24).await;
    // Six of each: the pauses grow from 0.1 s to 2 s, give or take half.
    let took = since.elapsed();
    assert!(took >= Duration::from_millis(1500), "24 watches in {took:?}");
    // What happens is heard all the same.
    kube.put(pod("llama", 5, "node-b"));
    followed.until("the new pod", |snapshot| lives(snapshot, "llama-worker-5")).await;
    kube.cut_watches_short(false);
    kube.until("watches that last", |log| log.iter().filter(|entry| entry.open).count() == 4).await;
    kube.put(pod("llama", 6, "node-b"));
    followed.until("the next one", |snapshot| lives(snapshot, "llama-worker-6")).await;
    followed.stop().await;
}
