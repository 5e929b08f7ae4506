//! An alert's way to a person, without an agent. Enters: made-up series of the contract; leaves: whether a real Prometheus
//! with the shipped rules sees a block in them, a real Alertmanager tells of it and of its end, and every panel of the
//! dashboard has something to show.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::monitoring::http::Serving;
use super::monitoring::{Alert, Monitoring, Served, Target};
use crate::command::{target, wait_for};

const ALERT: &str = "FiredoorTrainingTrafficBlocked";
/// By when a person must know.
const NOTICED: Duration = Duration::from_secs(60);
/// How long everything else may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(180);
/// All series of the contract, as an agent would serve them. N grows with every scrape, B is 1 while the job is blocked.
const EXPOSITION: &str = r#"
firedoor_job_symptom{J,symptom="hard-block",cause="policy"} B
firedoor_job_observable{J,symptom="hard-block"} 1
firedoor_job_info{J,verdict="hard-block"} B
firedoor_job_dropped_connections_total{J,reason="POLICY_DENIED",direction="egress",src_zone="zone-a",dst_zone="zone-b",src_role="worker",dst_role="coordinator"} N
firedoor_job_blocking_policy{J,policy_kind="CiliumNetworkPolicy",policy_namespace="ml",policy="intra-zone",direction="egress",certainty="inferred"} B
firedoor_job_network_bytes_total{J,src_zone="zone-a",dst_zone="zone-b"} N00000
firedoor_job_cross_zone_cost_dollars_total{J,src_zone="zone-a",dst_zone="zone-b"} N
firedoor_job_rtt_seconds_bucket{J,src_zone="zone-a",dst_zone="zone-a",le="0.001"} N
firedoor_job_rtt_seconds_bucket{J,src_zone="zone-a",dst_zone="zone-a",le="+Inf"} N
firedoor_job_rtt_seconds_bucket{J,src_zone="zone-a",dst_zone="zone-b",le="0.001"} 0
firedoor_job_rtt_seconds_bucket{J,src_zone="zone-a",dst_zone="zone-b",le="+Inf"} N
firedoor_job_rtt_seconds_sum{J,src_zone="zone-a",dst_zone="zone-a"} N
firedoor_job_rtt_seconds_count{J,src_zone="zone-a",dst_zone="zone-a"} N
firedoor_job_retransmitted_segments_total{J,src_zone="zone-a",dst_zone="zone-b"} N
firedoor_job_gpus{J,state="idle"} 8
firedoor_job_zones{J} 2
firedoor_source_up{source="hubble"} 1
firedoor_source_observations_total{source="hubble",outcome="attributed"} N00
firedoor_source_lost_total{source="hubble",cause="ring"} N
firedoor_source_last_event_timestamp_seconds{source="hubble"} 1700000000
firedoor_inventory_ready 1
firedoor_hubble_certificate_expiry_timestamp_seconds 4000000000
firedoor_build_info{version="0.0.0"} 1
"#;
const JOB: &str = r#"namespace="ml",job="llama",kind="PyTorchJob""#;

/// Plays it.
///
/// # Errors
/// What did not arrive, or not in time.
pub(super) fn run(root: &Path) -> Result<()> {
    let folder = target(root)?.join(format!("deploy/rehearsal-{}", std::process::id()));
    let blocked = Arc::new(AtomicBool::new(false));
    let agent = agent(Arc::clone(&blocked))?;
    let targets = [Target { address: agent.address(), node: "node-a".to_owned() }];
    let monitoring = Monitoring::start(root, &folder, &targets, Duration::from_secs(1))?;
    println!(
        "prometheus http://{}, alertmanager http://{}",
        monitoring.prometheus(),
        monitoring.alertmanager()
    );
    wait_for("the first scrape", LIMIT, || {
        Ok(monitoring.query("firedoor_job_symptom == 0")?.into_iter().next())
    })?;

    blocked.store(true, Ordering::Release);
    let start = Instant::now();
    let alert = monitoring.wait_for_alert(ALERT, NOTICED)?;
    println!("blocked: told after {:.1} s: {}", start.elapsed().as_secs_f64(), alert.annotations["summary"]);
    expect(&alert)?;
    // A series that is missing here would be a panel or a rule that nobody tries.
    let served = monitoring.served(root)?;
    if served != Served::default() {
        bail!("the rehearsal does not serve what the contract lists: {served:?}");
    }
    wait_for("every panel to show something", LIMIT, || {
        let shown = monitoring.run_every_dashboard_query(root)?;
        if let Some((query, why)) = shown.refused.first() {
            bail!("panel `{}`: {why}", query.panel);
        }
        Ok(shown.empty.is_empty().then_some(shown.answered.len()))
    })
    .map(|answered| println!("dashboard: {answered} queries have an answer"))
    .or_else(|why| {
        let empty = monitoring.run_every_dashboard_query(root)?.empty;
        bail!("{why:#}: {empty:#?}")
    })?;

    blocked.store(false, Ordering::Release);
    let start = Instant::now();
    monitoring.wait_for_resolved(ALERT, LIMIT)?;
    println!("mended: told after {:.1} s", start.elapsed().as_secs_f64());
    let failing = monitoring.failing_rules()?;
    if !failing.is_empty() {
        bail!("rules that cannot be evaluated: {failing:?}");
    }
    drop(monitoring);
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

/// Something that serves what an agent would.
fn agent(blocked: Arc<AtomicBool>) -> Result<Serving> {
    let scrapes = AtomicU64::new(10);
    Serving::start(move |_, _| {
        let number = scrapes.fetch_add(1, Ordering::Relaxed).to_string();
        let block = if blocked.load(Ordering::Acquire) { " 1" } else { " 0" };
        let lines = EXPOSITION.lines().map(|line| {
            let (series, value) = line.rsplit_once(' ').unwrap_or((line, ""));
            let value = format!(" {}", value.replace('N', &number)).replace(" B", block);
            if series.is_empty() {
                String::new()
            } else {
                format!("{}{value}\n", series.replace("{J", &format!("{{{JOB}")))
            }
        });
        lines.collect()
    })
}

/// What a person needs to know is in it.
fn expect(alert: &Alert) -> Result<()> {
    let label = |name: &str, value: &str| (alert.labels.get(name), name.to_owned(), value.to_owned());
    let annotation =
        |name: &str, value: &str| (alert.annotations.get(name), name.to_owned(), value.to_owned());
    let expected = [
        label("severity", "critical"),
        label("namespace", "ml"),
        label("job", "llama"),
        label("kind", "PyTorchJob"),
        label("cause", "policy"),
        annotation("zones", "zone-a to zone-b"),
        annotation("reason", "POLICY_DENIED"),
        annotation("policy", "CiliumNetworkPolicy ml/intra-zone (egress, inferred)"),
    ];
    for (is, name, should) in expected {
        if is != Some(&should) {
            bail!("{ALERT}: {name} is {is:?}, should be {should}");
        }
    }
    Ok(())
}
