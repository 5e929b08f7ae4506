//! A capture made for one test. Enters: bytes for its files; leaves: what a replay makes of them, already held
//! against what every replay owes: a sound report, the conservation law, and no control characters for terminals.

use std::path::Path;

use firedoor::output::{json, text};
use serde_json::{Value, json};

/// A capture in a directory of its own, which goes with it.
pub(crate) struct Capture {
    directory: tempfile::TempDir,
}

/// What came of a replay.
pub(crate) struct Seen {
    pub(crate) exit: u8,
    pub(crate) report: Value,
    pub(crate) page: String,
    /// What was damaged, a line each.
    pub(crate) problems: Vec<String>,
    pub(crate) notes: Vec<String>,
}

impl Capture {
    /// A capture whose objects are the small world of [`objects`].
    pub(crate) fn new() -> Self {
        Self::empty().object_file("world.json", objects().to_string())
    }

    /// A directory with nothing in it.
    pub(crate) fn empty() -> Self {
        Self { directory: tempfile::tempdir().expect("a temporary directory") }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn file(self, name: &str, bytes: impl AsRef<[u8]>) -> Self {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a file has a parent")).expect("writable");
        std::fs::write(path, bytes).expect("writable");
        self
    }

    pub(crate) fn object_file(self, name: &str, bytes: impl AsRef<[u8]>) -> Self {
        self.file(&format!("objects/{name}"), bytes)
    }

    pub(crate) fn flows(self, lines: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Self {
        let text = joined(lines);
        self.file("flows.jsonl", text)
    }

    /// Replays it, and checks what holds for every capture.
    pub(crate) fn replay(&self) -> Seen {
        let outcome = firedoor::replay::replay(self.path(), None, true).expect("the capture can be replayed");
        let (mut bytes, mut page) = (Vec::new(), Vec::new());
        json::write(&outcome.report, &mut bytes).expect("a report is JSON");
        text::write(&outcome.report, false, &mut page).expect("a report is text");
        let seen = Seen {
            exit: outcome.exit_code(None),
            report: serde_json::from_slice(&bytes).expect("a report is JSON"),
            page: String::from_utf8(page).expect("a report is UTF-8"),
            problems: outcome.problems.lines().collect(),
            notes: outcome.notes,
        };
        let parts = ["attributed", "not_a_job", "rejected", "late", "duplicate"].map(|key| seen.count(key));
        assert_eq!(seen.count("received"), parts.iter().sum::<u64>(), "nothing is silently lost");
        for line in seen.problems.iter().chain(&seen.notes).map(String::as_str).chain(seen.page.lines()) {
            assert!(!line.contains(char::is_control), "raw control characters: {line:?}");
        }
        for problem in &seen.problems {
            let here = self.path().display().to_string();
            assert!(problem.starts_with(&here), "a problem names its file: {problem}");
        }
        seen
    }
}

impl Seen {
    /// A number of the coverage.
    pub(crate) fn count(&self, key: &str) -> u64 {
        self.report["coverage"][key].as_u64().expect("coverage holds numbers")
    }

    /// Asserts that some problem names `place` (`file` or `file:line`) and says `what`.
    pub(crate) fn told(&self, place: &str, what: &str) {
        let found = self.problems.iter().any(|p| p.contains(&format!("{place}: ")) && p.contains(what));
        assert!(found, "no problem at {place} says {what:?}: {:#?}", self.problems);
    }

    /// Asserts that the world's only job is blocked: its one pair tried `attempts` times and lost as many packets.
    pub(crate) fn blocked(&self, attempts: u64) {
        assert_eq!(self.exit, 1, "{}", self.page);
        let jobs = self.report["jobs"].as_array().expect("jobs");
        assert_eq!(jobs.len(), 1, "{}", self.page);
        let findings = jobs[0]["findings"].as_array().expect("findings");
        assert_eq!(findings.len(), 1, "{}", self.page);
        let pairs = findings[0]["pairs"].as_array().expect("pairs");
        assert_eq!(pairs.len(), 1, "{}", self.page);
        let numbers = json!([pairs[0]["port"], pairs[0]["attempts"], pairs[0]["drops"]]);
        assert_eq!(numbers, json!([29500, attempts, attempts]), "{}", self.page);
    }
}

/// Lines with their ends.
pub(crate) fn joined(lines: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Vec<u8> {
    let mut text = Vec::new();
    for line in lines {
        text.extend_from_slice(line.as_ref());
        text.push(b'\n');
    }
    text
}

/// Two nodes in a zone, and a PyTorchJob with its master on one and its worker on the other.
pub(crate) fn objects() -> Value {
    let node = |name: &str, ip: &str| {
        json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "uid": format!("uid-{name}"), "labels": {
                "topology.kubernetes.io/region": "north", "topology.kubernetes.io/zone": "hall-1"}},
            "status": {"addresses": [{"type": "InternalIP", "address": ip}]}})
    };
    let job = json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "metadata": {"name": "tide", "namespace": "sea", "uid": "uid-tide"}});
    json!({"apiVersion": "v1", "kind": "List", "items": [
        node("n1", "10.0.0.1"), node("n2", "10.0.0.2"), job,
        pod("tide-master-0", "master", "n1", "10.1.1.5"), pod("tide-worker-0", "worker", "n2", "10.1.2.5"),
    ]})
}

/// A pod of the job.
pub(crate) fn pod(name: &str, role: &str, node: &str, ip: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "sea", "uid": format!("uid-{name}"),
            "creationTimestamp": "2026-11-07T08:00:00Z",
            "labels": {"training.kubeflow.org/job-name": "tide", "training.kubeflow.org/replica-type": role,
                "training.kubeflow.org/replica-index": "0"},
            "ownerReferences": [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "tide",
                "uid": "uid-tide", "controller": true}]},
        "spec": {"nodeName": node, "containers": [{"name": "trainer",
            "ports": [{"containerPort": 29500, "protocol": "TCP"}]}]},
        "status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
            "startTime": "2026-11-07T08:00:00Z"}})
}

/// A time of the test day, that many seconds after nine.
pub(crate) fn time(second: u64) -> String {
    format!("2026-11-07T{:02}:{:02}:{:02}Z", 9 + second / 3600, second / 60 % 60, second % 60)
}

/// The drop of the worker's SYN at this time: one attempt, one event.
pub(crate) fn denied_at(time: &str, source_port: u64) -> Value {
    json!({"flow": {"time": time, "verdict": "DROPPED", "drop_reason": 133, "drop_reason_desc": "POLICY_DENIED",
        "IP": {"source": "10.1.2.5", "destination": "10.1.1.5", "ipVersion": "IPv4"},
        "l4": {"TCP": {"source_port": source_port, "destination_port": 29500, "flags": {"SYN": true}}},
        "source": {"identity": 4001, "namespace": "sea", "pod_name": "tide-worker-0", "ID": 77},
        "destination": {"identity": 4002, "namespace": "sea", "pod_name": "tide-master-0"},
        "Type": "L3_L4", "node_name": "n2", "event_type": {"type": 1, "sub_type": 133},
        "traffic_direction": "EGRESS", "Summary": "TCP Flags: SYN"}, "node_name": "n2", "time": time})
}

/// `count` denied attempts, four seconds apart.
pub(crate) fn denied(count: u64) -> Vec<String> {
    (0..count).map(|k| denied_at(&time(4 * k), 40_000 + k % 20_000).to_string()).collect()
}
