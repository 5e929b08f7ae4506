//! The text of the metrics, and how many series a job has.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use firedoor_core::drop_reason::DropReason;
use firedoor_core::facts::Protocol;
use firedoor_core::inventory::Inventory;
use firedoor_core::ledger::RttSketch;
use firedoor_core::membership::Grouping;
use firedoor_core::object::Object;
use firedoor_core::observation::{
    Direction, End, EventKind, Flow, NamedPolicy, Observation, SourceKind, TcpFlags, Verdict,
};
use firedoor_core::pipeline::Pipeline;
use firedoor_core::settings::Settings;
use firedoor_core::time::Timestamp;
use serde_json::json;

use super::encode::{Count, Family, Form, Histogram, Labels, Series, write};
use super::families::histogram;
use crate::agent::board::{InventoryShown, Shown, SourceShown};

fn written(series: Series, form: Form) -> String {
    let mut text = Vec::new();
    write(vec![Family { name: "firedoor_x", help: "Some.", series }], form, &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

fn labels(value: &str) -> Labels {
    vec![("namespace", value.to_owned())]
}

#[test]
fn counters_carry_their_suffix_in_both_forms() {
    let series =
        || Series::Counters(vec![(labels("ml"), Count::Whole(7)), (labels("b"), Count::Dollars(0.5))]);
    for form in [Form::Prometheus, Form::OpenMetrics] {
        let text = written(series(), form);
        assert!(text.contains("firedoor_x_total{namespace=\"ml\"} 7\n"), "{text}");
        assert!(text.contains("firedoor_x_total{namespace=\"b\"} 0.5\n"), "{text}");
    }
    assert!(written(series(), Form::OpenMetrics).ends_with("# EOF\n"));
    assert!(!written(series(), Form::Prometheus).contains("EOF"));
}

#[test]
fn hostile_labels_stay_labels() {
    let series = Series::Gauges(vec![(labels("a\"} 1\nfiredoor_y{x=\"\\"), 1.0)]);
    for form in [Form::Prometheus, Form::OpenMetrics] {
        let text = written(series.clone(), form);
        assert!(text.contains("{namespace=\"a\\\"} 1\\nfiredoor_y{x=\\\"\\\\\"} 1"), "{text}");
    }
}

#[test]
fn a_family_without_series_is_absent() {
    assert_eq!(written(Series::Gauges(Vec::new()), Form::Prometheus), "");
    assert_eq!(written(Series::Gauges(Vec::new()), Form::OpenMetrics), "# EOF\n");
}

#[test]
fn a_sketch_becomes_a_histogram() {
    let mut sketch = RttSketch::default();
    for micros in [80, 700, 700, 5_000_000] {
        sketch.add(std::time::Duration::from_micros(micros));
    }
    let Histogram { sum, buckets } = histogram(&sketch);
    assert!((sum - 5.00148).abs() < 0.1, "{sum}");
    let held: Vec<(f64, u64)> = buckets.iter().copied().filter(|(_, count)| *count > 0).collect();
    assert_eq!(held, [(1e-4, 1), (1e-3, 2), (f64::INFINITY, 1)]);
    let text = written(Series::Histograms(vec![(labels("ml"), histogram(&sketch))]), Form::Prometheus);
    assert!(text.contains("firedoor_x_bucket{namespace=\"ml\",le=\"0.001\"} 3\n"), "{text}");
    assert!(text.contains("firedoor_x_bucket{namespace=\"ml\",le=\"+Inf\"} 4\n"), "{text}");
    assert!(text.contains("firedoor_x_count{namespace=\"ml\"} 4\n"), "{text}");
}

const ZONES: usize = 3;

fn node(zone: usize) -> Object {
    let labels = json!({"topology.kubernetes.io/zone": format!("zone-{zone}")});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("node-{zone}"), "labels": labels}});
    Object::from_value(node).unwrap()
}

fn address(index: usize) -> String {
    format!("10.1.{}.{}", index / 250, index % 250 + 1)
}

fn pod(index: usize, uid: &str) -> Object {
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("big-worker-{index}"), "namespace": "ml", "uid": format!("{uid}-{index}"),
            "labels": {"training.kubeflow.org/job-name": "big", "training.kubeflow.org/replica-type": "worker",
                "training.kubeflow.org/replica-index": index.to_string()},
            "ownerReferences": [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "big", "uid": uid, "controller": true}]},
        "spec": {"nodeName": format!("node-{}", index % ZONES), "containers": [{"name": "x"}]},
        "status": {"phase": "Running", "podIP": address(index), "startTime": "2026-11-01T09:00:00Z"}});
    Object::from_value(pod).unwrap()
}

/// A SYN of one pod of the job to another from this port, dropped.
fn denied<'a>(
    from: (usize, u16),
    to: usize,
    at: Timestamp,
    node: &'a str,
    policy: Option<&'a str>,
) -> Flow<'a> {
    let (kind, namespace, direction) = ("CiliumNetworkPolicy", "ml", Direction::Egress);
    Flow {
        at,
        observer: node,
        source: SourceKind::Hubble,
        kind: EventKind::Drop,
        sub_kind: 133,
        verdict: Verdict::Dropped(DropReason::from_code(133)),
        protocol: Protocol::Tcp,
        src: End::at(address(from.0).parse().unwrap(), from.1),
        dst: End::at(address(to).parse().unwrap(), 29_500),
        flags: TcpFlags { syn: true, ..TcpFlags::default() },
        is_reply: None,
        direction: Some(Direction::Egress),
        state: None,
        denied_by: policy.map(|name| NamedPolicy { kind, namespace, name, direction }).into_iter().collect(),
    }
}

/// The metrics of an agent that saw each of `pods` pods of a job being denied its way to `peers` others; each of them by
/// a policy of its own, if `named`.
fn metrics_of_a_job(pods: usize, peers: usize, named: bool) -> String {
    let objects = (0..ZONES).map(node).chain((0..pods).map(|index| pod(index, "u")));
    let settings = Settings { horizon: Some(Duration::from_secs(600)), ..Settings::default() };
    let mut pipeline = Pipeline::new(Inventory::new(objects.collect(), &Grouping::default()), settings);
    let start = Timestamp::parse("2026-11-01T10:00:00Z").unwrap();
    for round in 0..4_u16 {
        for from in 0..pods {
            let node = format!("node-{}", from % ZONES);
            for to in (1..=peers).map(|step| (from + step) % pods) {
                let at =
                    start.plus(Duration::from_secs(4 * u64::from(round)) + Duration::from_nanos(from as u64));
                let policy = named.then(|| format!("policy-{from}-{to}"));
                let port = 40_000 + round;
                let flow = denied((from, port), to, at, &node, policy.as_deref());
                pipeline.observe(Observation::Flow(flow));
            }
        }
    }
    let report = pipeline.look();
    let hubble = SourceShown { up: true, ..SourceShown::new(SourceKind::Hubble) };
    let inventory = InventoryShown { ready: true, ..InventoryShown::default() };
    let nodes = BTreeSet::from(["node-0".to_owned()]);
    let shown = Arc::new(Shown::of(&pipeline, report, std::iter::once(&hubble), inventory, None, nodes));
    let mut text = Vec::new();
    super::write(&shown, Form::OpenMetrics, &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

#[test]
fn a_job_of_ten_thousand_pods_has_as_many_series_as_a_small_one() {
    let series = |text: &str| {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect::<Vec<_>>()
    };
    let (small, large) = (metrics_of_a_job(12, 3, false), metrics_of_a_job(10_000, 3, false));
    assert_eq!(series(&small), series(&large));
    let dropped =
        large.lines().find(|line| line.starts_with("firedoor_job_dropped_connections_total{")).unwrap();
    assert!(dropped.contains("reason=\"POLICY_DENIED\",direction=\"egress\""), "{dropped}");
    assert!(large.contains("symptom=\"hard-block\",cause=\"unknown\"} 1"), "{large}");
    for secret in ["big-worker-", "10.1.", "29500", "4000"] {
        assert!(series(&large).iter().all(|series| !series.contains(secret)), "{secret} is in a label");
    }
}

#[test]
fn policies_that_a_source_names_are_few_series() {
    let text = metrics_of_a_job(12, 3, true);
    let series: Vec<&str> =
        text.lines().filter(|line| line.starts_with("firedoor_job_blocking_policy{")).collect();
    assert_eq!(series.len(), firedoor_core::ledger::MAX_NAMED, "{series:?}");
}
