//! What the agent makes of mistakes and of trouble on its own machine: it says so, once, and keeps what it knew.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::process::Agent;
use crate::world::{self, NODE, Stage};
use crate::{block, is_blocked};

/// The stage's cluster as files.
fn inventory(stage: &Stage) -> PathBuf {
    let directory = stage.directory.path().join("objects");
    std::fs::create_dir(&directory).unwrap();
    for (number, object) in world::objects().iter().enumerate() {
        write(&directory.join(format!("{number:02}.json")), object);
    }
    directory
}

fn write(file: &Path, object: &Value) {
    std::fs::write(file, object.to_string()).unwrap();
}

fn notes(readiness: &Value) -> String {
    readiness["inventory"]["notes"].to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inventory_that_is_damaged_or_gone_takes_nothing_away() {
    let stage = Stage::new().await;
    let directory = inventory(&stage);
    let agent = Agent::with(&stage, &["--node", NODE, "--inventory", directory.to_str().unwrap()]);
    agent.ready().await;
    block(&stage);
    agent.until("the block", is_blocked).await;
    let member = directory.join("08.json");
    let whole = std::fs::read(&member).unwrap();
    std::fs::write(&member, &whole[..whole.len() / 2]).unwrap();
    let told = agent
        .until_readiness("the file to be told as damaged", |told| {
            notes(told).contains("objects it held before")
        })
        .await;
    assert!(!told["inventory"]["stale_since"].is_null() && notes(&told).contains("08.json"), "{told:#}");
    assert!(is_blocked(&agent.report().await));
    std::fs::write(&member, &whole).unwrap();
    agent.until_readiness("the file to be whole", |told| told["inventory"]["stale_since"].is_null()).await;

    let away = stage.directory.path().join("away");
    std::fs::rename(&directory, &away).unwrap();
    agent
        .until_readiness("the directory to be told as gone", |told| {
            notes(told).contains("cannot be read since")
        })
        .await;
    agent.until_log("objects cannot be read since").await;
    assert!(is_blocked(&agent.report().await));
    std::fs::rename(&away, &directory).unwrap();
    agent
        .until_readiness("the directory to be back", |told| told["inventory"]["stale_since"].is_null())
        .await;
    let said = agent.said();
    assert_eq!(said.matches("cannot be read since").count(), 1, "{said}");
    assert!(agent.terminate().await.success());
}

/// One file holds all, as a script writes it: JSON documents, replaced by others of the same size and time.
#[tokio::test(flavor = "multi_thread")]
async fn an_inventory_in_one_file_is_replaced_whole() {
    let stage = Stage::new().await;
    let directory = stage.directory.path().join("objects");
    std::fs::create_dir(&directory).unwrap();
    let (file, next) = (directory.join("all.yaml"), directory.join("next"));
    let all = world::objects().map(|object| object.to_string()).join("\n---\n");
    std::fs::write(&file, &all).unwrap();
    let agent = Agent::with(&stage, &["--node", NODE, "--inventory", directory.to_str().unwrap()]);
    agent.ready().await;
    agent.until("the job", |report| report["jobs"][0]["name"] == "llama").await;
    std::fs::write(&next, all.replace("\"llama\"", "\"lamas\"")).unwrap();
    let modified = std::fs::metadata(&file).unwrap().modified().unwrap();
    std::fs::File::options().write(true).open(&next).unwrap().set_modified(modified).unwrap();
    std::fs::rename(&next, &file).unwrap();
    agent.until("the other job", |report| report["jobs"][0]["name"] == "lamas").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_nobody_knows_is_told() {
    let stage = Stage::new().await;
    let kubeconfig = stage.kubeconfig();
    let more = ["--node", "gpu-node-q", "--kubeconfig", kubeconfig.to_str().unwrap()];
    let agent = Agent::with(&stage, &more);
    agent
        .until_readiness("the unknown node", |told| {
            notes(told).contains("node gpu-node-q is not among the nodes that are known")
        })
        .await;
    agent.until_log("node gpu-node-q is not among").await;
}

/// Whoever removes what is recorded learns it from the log and from how the agent ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_recording_that_is_removed_is_told() {
    let stage = Stage::new().await;
    let recording = stage.directory.path().join("recording");
    let agent = Agent::start(&stage, &["--record", recording.to_str().unwrap()]);
    agent.ready().await;
    std::fs::remove_dir_all(&recording).unwrap();
    agent.until_log("nothing more is recorded").await;
    let status = agent.terminate().await;
    assert_eq!(status.code(), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inventory_that_was_never_there_is_an_error() {
    let stage = Stage::new().await;
    let missing = stage.directory.path().join("missing");
    let agent = Agent::with(&stage, &["--node", NODE, "--inventory", missing.to_str().unwrap()]);
    let (status, said) = agent.ended().await;
    assert_eq!(status.code(), Some(2));
    assert!(said.contains("cannot read the inventory") && said.contains("missing"), "{said}");
}

/// Whoever reads the report alone learns that half of it is missing.
#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_never_came_up_is_missing_from_the_report() {
    let stage = Stage::new().await;
    let agent = Agent::start(&stage, &["--set", "hubble.address=unix:///nowhere/hubble.sock"]);
    let report =
        agent.until("a report that is not complete", |report| report["coverage"]["complete"] == false).await;
    assert_eq!(report["jobs"][0]["verdict"], "inconclusive", "{report:#}");
    let text = agent.text_report().await;
    assert!(text.contains("the hubble source is down since"), "{text}");
    agent.until_log("hubble is not watched: unix:///nowhere/hubble.sock: ").await;
}

/// A log that nobody reads, as that of a runtime that hangs, holds up nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_nobody_reads_holds_up_nothing() {
    let stage = Stage::new().await;
    let kubeconfig = stage.kubeconfig();
    let agent = Agent::unheard(&stage, &["--node", NODE, "--kubeconfig", kubeconfig.to_str().unwrap()]);
    agent.ready().await;
    block(&stage);
    agent.until("the block", is_blocked).await;
    assert!(agent.terminate().await.success());
}
