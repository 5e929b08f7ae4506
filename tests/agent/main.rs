//! The agent as a process, between an API server and a Hubble server of their kinds: what it serves when both come, go
//! and change, and when it is killed itself.

mod gpus;
#[path = "../fakes/hubble/mod.rs"]
#[allow(dead_code, reason = "not every test needs everything")]
mod hubble;
#[path = "../fakes/kube/mod.rs"]
mod kube;
mod process;
mod trouble;
mod world;

use std::time::{Duration, SystemTime};

use process::Agent;
use serde_json::Value;
use world::{Stage, denied, passed};

/// The finding of a job's report, where there is one.
fn finding(report: &Value) -> Option<&Value> {
    report["jobs"].as_array()?.iter().find(|job| job["name"] == "llama")?["findings"].as_array()?.first()
}

fn is_blocked(report: &Value) -> bool {
    finding(report).is_some_and(|found| found["symptom"] == "hard-block" && found["state"] == "active")
}

/// Denials of both workers over ten seconds, the last of them now.
fn block(stage: &Stage) {
    let now = SystemTime::now();
    for attempt in 0..6_u64 {
        let at = now - Duration::from_secs(10 - 2 * attempt);
        for worker in 0..2 {
            stage.hubble.emit_all(denied(worker, 2 * attempt + u64::from(worker), at));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_is_found_told_and_recovers() {
    let stage = Stage::new().await;
    let agent = Agent::start(&stage, &[]);
    agent.ready().await;
    block(&stage);
    let report = agent.until("the block", is_blocked).await;
    let found = finding(&report).unwrap();
    assert_eq!(found["cause"]["policies"][0]["name"], "stay-in-zone", "{found:#}");
    assert_eq!(found["pairs"][0]["src"]["zone"], "zone-a", "{found:#}");
    assert_eq!(found["remedies"][0]["verified"], true, "{found:#}");
    let metrics = agent.metrics().await;
    let job = r#"namespace="ml",job="llama",kind="PyTorchJob""#;
    let symptom = format!(r#"firedoor_job_symptom{{{job},symptom="hard-block",cause="policy"}} 1"#);
    assert!(metrics.contains(&symptom), "{metrics}");
    let dropped = r#"reason="POLICY_DENIED",direction="egress",src_zone="zone-a",dst_zone="zone-b",src_role="worker",dst_role="coordinator"} 12"#;
    assert!(metrics.contains(dropped), "{metrics}");
    assert!(metrics.contains(r#"policy_namespace="ml",policy="stay-in-zone""#), "{metrics}");
    assert!(metrics.contains(r#"firedoor_source_up{source="hubble"} 1"#), "{metrics}");
    let windows = agent.windows().await;
    let names: Vec<&str> =
        windows["pods"].as_array().unwrap().iter().filter_map(|pod| pod["name"].as_str()).collect();
    assert!(names.contains(&"llama-worker-0") && names.contains(&"llama-master-0"), "{windows:#}");
    assert!(
        windows["windows"].as_array().is_some_and(|all| all.iter().all(|one| one["node"] == world::NODE)),
        "{windows:#}"
    );

    stage.open();
    for worker in 0..2 {
        stage.hubble.emit_all(passed(worker, 100 + u64::from(worker), SystemTime::now()));
    }
    agent
        .until("the recovery", |report| finding(report).is_some_and(|found| found["state"] == "recovered"))
        .await;
    let metrics = agent.metrics().await;
    assert!(metrics.contains(&symptom.replace("} 1", "} 0")), "{metrics}");
    let status = agent.terminate().await;
    assert!(status.success(), "{status}");
}

/// What the ring still holds is told again to the next process, and counted by it once.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_agent_finds_the_block_again() {
    let stage = Stage::new().await;
    let agent = Agent::start(&stage, &[]);
    agent.ready().await;
    block(&stage);
    let before = agent.until("the block", is_blocked).await;
    agent.kill().await;
    let again = Agent::start(&stage, &[]);
    again.ready().await;
    let after = again.until("the block, again", is_blocked).await;
    let told = |report: &Value| {
        let found = finding(report).cloned().unwrap();
        (found["since"].clone(), found["cause"].clone(), found["pairs"].clone())
    };
    assert_eq!(told(&after), told(&before));
    let metrics = again.metrics().await;
    let dropped = metrics.lines().filter(|line| line.starts_with("firedoor_job_dropped_connections_total{"));
    let sum: f64 = dropped.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum();
    assert!((sum - 12.0).abs() < f64::EPSILON, "{metrics}");
}

/// Neither server takes the agent down; each is told as gone, and found again.
#[tokio::test(flavor = "multi_thread")]
async fn servers_that_go_and_come_back() {
    let stage = Stage::new().await;
    let agent = Agent::start(&stage, &[]);
    agent.ready().await;
    stage.kube.go_away();
    agent
        .until_readiness("the cluster to be stale", |told| !told["inventory"]["stale_since"].is_null())
        .await;
    stage.hubble.restart();
    block(&stage);
    agent.until("the block, by what was known of the cluster", is_blocked).await;
    // Behind its back the job was replaced.
    stage.replace_job();
    stage.kube.come_back().await;
    agent
        .until("the new pods", |report| {
            let jobs = report["jobs"].as_array().into_iter().flatten();
            jobs.flat_map(|job| job["members"].as_array().into_iter().flatten())
                .any(|member| member["pod"] == "llama-worker-9")
        })
        .await;
    agent
        .until_readiness("the cluster to be known again", |told| {
            told["ready"] == true && told["inventory"]["stale_since"].is_null()
        })
        .await;
}

/// A configuration that is wrong changes nothing when it is read again; one that is right does.
#[tokio::test(flavor = "multi_thread")]
async fn the_configuration_is_read_again() {
    let stage = Stage::new().await;
    let file = stage.directory.path().join("firedoor.toml");
    std::fs::write(&file, "[diagnosis]\ndeniedAttempts = 1000\n").unwrap();
    let agent = Agent::start(&stage, &["--config", file.to_str().unwrap()]);
    agent.ready().await;
    block(&stage);
    agent.until("the denials", |report| report["coverage"]["attributed"] == 24).await;
    std::fs::write(&file, "[diagnosis]\ndeniedAttemts = 3\n").unwrap();
    agent.hang_up();
    agent.until_log("stays as it was").await;
    assert!(!is_blocked(&agent.report().await));
    std::fs::write(&file, "[diagnosis]\ndeniedAttempts = 3\n").unwrap();
    agent.hang_up();
    agent.until("the block", is_blocked).await;
}

/// Whoever opens many connections and says nothing does not keep scrapes and probes out.
#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_keep_nobody_out() {
    let stage = Stage::new().await;
    let agent = Agent::start(&stage, &[]);
    agent.ready().await;
    let silent = agent.half_asked(600);
    let silent = tokio::time::timeout(process::LIMIT, silent).await.expect("all of them are taken");
    assert!(agent.metrics().await.contains("firedoor_source_up"));
    drop(silent);
}
