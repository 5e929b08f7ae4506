//! Credentials that turn bad, run out and cannot be had, while the cluster is followed.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use firedoor::cluster::{Access, ClusterSettings, Credentials};
use serde_json::json;

use crate::kube::FakeKube;
use crate::world::*;

/// How long reading credentials may take here.
const LIMIT: Duration = Duration::from_millis(500);

async fn two_pods() -> FakeKube {
    let kube = cluster().await;
    kube.put_all([pod("llama", 0, NODE), pod("llama", 1, "node-b"), owner("llama")]);
    kube
}

/// A kubeconfig whose plugin is this directory's script `plugin`, which notes its starts in the file `starts`.
fn with_plugin(kube: &FakeKube, directory: &Path, script: &str) -> Credentials {
    write_plugin(directory, script);
    let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "sh",
        "args": [directory.join("plugin")], "interactiveMode": "IfAvailable"});
    let path = kube.kubeconfig_of(directory, &json!({"exec": exec}));
    Credentials::Kubeconfig { path: Some(path), context: None }
}

fn write_plugin(directory: &Path, script: &str) {
    let starts = directory.join("starts");
    let script = format!("echo $$ >> {}\n{script}\n", starts.display());
    // Not in place: a shell may be reading it.
    std::fs::write(directory.join("new"), script).unwrap();
    std::fs::rename(directory.join("new"), directory.join("plugin")).unwrap();
}

fn starts(directory: &Path) -> usize {
    std::fs::read_to_string(directory.join("starts")).map_or(0, |starts| starts.lines().count())
}

/// A script that prints a token, good for so many seconds.
fn prints(token: &str, seconds: u64) -> String {
    format!(
        "echo '{{\"status\": {{\"token\": \"{token}\", \"expirationTimestamp\": \"'$(date -u -d '+{seconds} seconds' +%FT%TZ)'\"}}}}'"
    )
}

async fn refused(credentials: Credentials) -> String {
    match Access::within(credentials, LIMIT).await {
        Ok(_) => panic!("it was taken"),
        Err(why) => why.to_string(),
    }
}

#[tokio::test]
async fn a_token_that_turns_bad_is_told_and_the_next_one_taken() {
    let kube = two_pods().await;
    let directory = tempfile::tempdir().unwrap();
    let token = |text: &str| std::fs::write(directory.path().join("token"), text).unwrap();
    token("first\n");
    kube.accept_only(&["first"]);
    let mut followed = Followed::by_kubeconfig(&kube, directory.path(), settings()).await;
    followed.until_ready().await;
    kube.accept_only(&["second"]);
    token("a\nb\n");
    kube.cut();
    let what = "/token holds a line end";
    let told = followed.until(what, |s| s.notes.iter().any(|note| note.contains(what))).await;
    assert!(told.notes.iter().any(|note| note.starts_with("the credentials for the API server")));
    assert!(lives(&told, "llama-worker-1"), "what was known stays");
    token("second\n");
    kube.put(pod("llama", 5, "node-b"));
    followed
        .until("the new pod", |snapshot| lives(snapshot, "llama-worker-5") && snapshot.notes.is_empty())
        .await;
    followed.stop().await;
}

/// Nothing is asked meanwhile that would be refused.
#[tokio::test]
async fn a_trouble_that_is_over_is_told_no_longer() {
    let kube = two_pods().await;
    let directory = tempfile::tempdir().unwrap();
    kube.accept_only(&["first"]);
    let access = Access::within(with_plugin(&kube, directory.path(), &prints("first", 4)), LIMIT * 20).await;
    let watch = Duration::from_secs(1);
    let mut followed = Followed::with(access.unwrap(), ClusterSettings { watch, ..settings() });
    followed.until_ready().await;
    write_plugin(directory.path(), "echo no ticket >&2; exit 3");
    let what = "its exec plugin sh failed with exit status: 3: no ticket";
    let told = followed.until(what, |s| s.notes.iter().any(|note| note.contains(what))).await;
    assert!(told.ready);
    // The watches stay open from now on.
    kube.freeze(true);
    write_plugin(directory.path(), &prints("first", 3600));
    followed.until("it to be over", |snapshot| snapshot.notes.is_empty()).await;
    followed.stop().await;
}

#[tokio::test]
async fn a_token_that_is_none_is_refused_at_the_start() {
    let kube = FakeKube::start().await;
    let directory = tempfile::tempdir().unwrap();
    let path = Some(kube.kubeconfig_of(directory.path(), &json!({"token": "a\nb"})));
    let told = refused(Credentials::Kubeconfig { path, context: None }).await;
    assert!(told.contains("its token holds a line end"), "{told}");
}

#[tokio::test]
async fn a_plugin_that_hangs_blocks_nobody() {
    let kube = FakeKube::start().await;
    let directory = tempfile::tempdir().unwrap();
    let credentials = with_plugin(&kube, directory.path(), "sleep 1000");
    let access = Access::within(credentials, Duration::from_secs(2));
    let mut access = std::pin::pin!(access);
    let ticks = async {
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        _ = &mut access => panic!("the runtime stood still"),
        () = ticks => {}
    }
    let told = access.await.map(|_| ()).unwrap_err().to_string();
    assert!(told.contains("its exec plugin sh did not answer within 2 s"), "{told}");
}

#[tokio::test]
async fn a_plugins_token_is_renewed_before_it_runs_out() {
    let kube = two_pods().await;
    let directory = tempfile::tempdir().unwrap();
    let credentials = with_plugin(&kube, directory.path(), &prints("first", 4));
    kube.accept_only(&["first", "second"]);
    let access = Access::within(credentials, Duration::from_secs(30)).await.unwrap();
    assert_eq!(starts(directory.path()), 1, "once for both clients");
    let watch = Duration::from_secs(1);
    let mut followed = Followed::with(access, ClusterSettings { watch, ..settings() });
    followed.until_ready().await;
    write_plugin(directory.path(), &prints("second", 3600));
    kube.until("the second token", |log| log.iter().any(|entry| entry.token.as_deref() == Some("second")))
        .await;
    assert!(kube.log().iter().all(|entry| entry.status != 401), "it was never refused");
    followed.stop().await;
}

#[tokio::test]
async fn a_plugin_that_begins_to_hang_is_told_and_does_not_pile_up() {
    let kube = two_pods().await;
    let directory = tempfile::tempdir().unwrap();
    let credentials = with_plugin(&kube, directory.path(), &prints("first", 2));
    kube.accept_only(&["first"]);
    let access = Access::within(credentials, LIMIT).await.unwrap();
    let watch = Duration::from_secs(1);
    let mut followed = Followed::with(access, ClusterSettings { watch, ..settings() });
    followed.until_ready().await;
    write_plugin(directory.path(), "sleep 1000");
    kube.accept_only(&["second"]);
    let what = "its exec plugin sh did not answer";
    let told = followed.until(what, |s| s.notes.iter().any(|note| note.contains(what))).await;
    assert!(lives(&told, "llama-worker-1"), "what was known stays");
    let (before, since) = (starts(directory.path()), Instant::now());
    kube.until("more refusals", |log| log.iter().filter(|entry| entry.status == 401).count() >= 30).await;
    let most = usize::try_from(since.elapsed().as_secs()).unwrap() + 2;
    let more = starts(directory.path()) - before;
    assert!(more <= most, "{more} starts in {:?}", since.elapsed());
    write_plugin(directory.path(), &prints("second", 3600));
    followed.until("it to be well", |snapshot| snapshot.notes.is_empty()).await;
    let lives = |pid: &str| PathBuf::from(format!("/proc/{pid}/fd/0")).exists();
    let pids = std::fs::read_to_string(directory.path().join("starts")).unwrap();
    assert_eq!(pids.lines().filter(|pid| lives(pid)).count(), 0, "none is left");
    followed.stop().await;
}
