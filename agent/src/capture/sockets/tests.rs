//! What is written is read again as it was, and says the same.

use std::collections::BTreeSet;

use firedoor_core::inventory::Inventory;
use firedoor_core::membership::Grouping;
use firedoor_core::object::Object;
use firedoor_core::pipeline::Pipeline;
use firedoor_core::settings::Settings;
use serde_json::json;

use super::*;

fn end(ip: &str, port: u16, uid: Option<&'static str>) -> End<'static> {
    End { ip: ip.parse().ok(), port, pod: None, uid, reserved: None }
}

fn observations() -> Vec<Observation<'static>> {
    let at = Timestamp::parse("2026-11-06T10:00:00.000000123Z").unwrap();
    let carried = Carried {
        sent: u64::MAX,
        received: 0,
        retransmitted: 3,
        rtt: Some(Duration::from_micros(1234)),
        min_rtt: None,
    };
    let steps = [
        SocketStep::Opening,
        SocketStep::Retried,
        SocketStep::Established,
        SocketStep::Refused,
        SocketStep::GaveUp,
        SocketStep::Recognised(App::TcpStore),
        SocketStep::Carried(carried),
        SocketStep::Closed(Carried::default()),
    ];
    let openers = [None, Some(Opener::Local), Some(Opener::Remote)];
    let mut all: Vec<Observation<'_>> = Vec::new();
    for (step, opener) in steps.into_iter().zip(openers.into_iter().cycle()) {
        let local = end("10.0.0.1", 40_000, Some("u\"1"));
        let remote = end("fd00::2", 9999, None);
        let (observer, source) = ("n\\1", SourceKind::Ebpf);
        all.push(Observation::Socket(SocketEvent { at, observer, source, local, remote, opener, step }));
    }
    all.push(Observation::Socket(SocketEvent {
        at,
        observer: "n1",
        source: SourceKind::Ebpf,
        local: end("::", 29_500, Some("u2")),
        remote: End::UNKNOWN,
        opener: None,
        step: SocketStep::Listening,
    }));
    for direction in [None, Some(Direction::Ingress)] {
        all.push(Observation::Drops(Drops {
            first: Timestamp::from_nanos(at.nanos() - 1),
            last: at,
            observer: "n1",
            source: SourceKind::Ebpf,
            protocol: Protocol::Udp,
            src: end("10.0.0.1", 0, None),
            dst: end("10.0.0.2", 53, Some("u2")),
            what: DroppedPacket::Opening,
            reason: DropReason::from_kernel_name("NETFILTER_DROP"),
            direction,
            packets: 7,
            attempts: 2,
        }));
    }
    for observer in [None, Some("n1")] {
        let (source, cause) = (SourceKind::Ebpf, "ring");
        all.push(Observation::Lost(Loss { at: Some(at), observer, source, cause, count: 4 }));
    }
    all
}

#[test]
fn what_is_written_is_read() {
    for observation in observations() {
        let mut line = Vec::new();
        write(&mut line, &observation).unwrap();
        assert_eq!(line.pop(), Some(b'\n'));
        let text = String::from_utf8(line).unwrap();
        assert!(!text.contains('\n'));
        let line = parse(&text).unwrap();
        assert_eq!(line.observation().unwrap().as_ref(), Some(&observation), "{text}");
    }
}

#[test]
fn what_is_newer_than_this_is_passed_over() {
    let line = r#"{"time":"2026-11-06T10:00:00Z","event":"migrated","node":"n1","mood":{"x":[1]}}"#;
    assert_eq!(parse(line).unwrap().observation(), Ok(None));
    let app = r#"{"time":"2026-11-06T10:00:00Z","event":"recognised","app":"quic","node":"n1"}"#;
    assert_eq!(parse(app).unwrap().observation(), Ok(None));
}

#[test]
fn what_cannot_be_used_says_why() {
    let why = |line: &str| parse(line).unwrap().observation().unwrap_err().to_string();
    assert!(why(r#"{"time":"now","event":"opening"}"#).contains("now"));
    assert!(why(r#"{"time":"2026-11-06T10:00:00Z"}"#).contains("event"));
    assert!(why(r#"{"time":"2026-11-06T10:00:00Z","event":"opening","local":{"port":1}}"#).contains("local"));
    assert!(why(r#"{"time":"2026-11-06T10:00:00Z","event":"listening"}"#).contains("local"));
    assert!(why(r#"{"time":"2026-11-06T10:00:00Z","event":"lost"}"#).contains("count"));
    for text in
        [r#"{"time":1}"#, r#"{"local":{"ip":"10.0.0"}}"#, r#"{"local":{"port":70000}}"#, r#"{"sent":-1}"#]
    {
        assert!(parse(text).is_err(), "{text}");
    }
}

/// Two workers in two zones.
fn cluster() -> Vec<Object> {
    let node = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name,
            "labels": {"topology.kubernetes.io/zone": format!("zone-of-{name}")}}})
    };
    let pod = |index: usize| {
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("mid-worker-{index}"), "namespace": "lab", "uid": format!("u{index}"),
                "labels": {"training.kubeflow.org/job-name": "mid", "training.kubeflow.org/replica-type": "worker"},
                "ownerReferences": [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "mid",
                    "uid": "uj", "controller": true}]},
            "spec": {"nodeName": format!("n{index}"), "containers": [{"name": "t"}]},
            "status": {"phase": "Running", "podIP": format!("10.0.0.{index}")}})
    };
    [node("n0"), node("n1"), pod(0), pod(1)].map(|value| Object::from_value(value).unwrap()).into()
}

fn pipeline() -> Pipeline {
    Pipeline::new(Inventory::new(cluster(), &Grouping::default()), Settings::default())
}

/// What a source may tell, of few values each; the number is a seed.
fn told(seed: u64) -> Observation<'static> {
    let random = |place: u64, below: u64| {
        let mixed = (seed ^ (place << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33
    } % below;
    let begin = Timestamp::parse("2026-11-06T10:00:00.000000123Z").unwrap();
    let at = begin.plus(Duration::from_millis(100 * seed + random(1, 90_000)));
    let (a, b) = if random(2, 2) == 0 { ("0", "1") } else { ("1", "0") };
    let observer = if a == "0" { "n0" } else { "n1" };
    let uid = if a == "0" { "u0" } else { "u1" };
    let (mine, other) = (format!("10.0.0.{a}"), format!("10.0.0.{b}"));
    let port = 40_000 + u16::try_from(random(3, 3)).unwrap();
    let carried = Carried {
        sent: 100_000 * random(4, 9),
        received: random(5, 9),
        retransmitted: 1,
        rtt: Some(Duration::from_micros(300 + 400 * random(6, 9))),
        min_rtt: None,
    };
    let step = match random(7, 9) {
        0 => SocketStep::Opening,
        1 => SocketStep::Established,
        2 => SocketStep::Refused,
        3 => SocketStep::Recognised(App::Nccl),
        4 => SocketStep::Closed(carried),
        5 => {
            return Observation::Drops(Drops {
                first: at,
                last: at,
                observer,
                source: SourceKind::Ebpf,
                protocol: Protocol::Tcp,
                src: end(&mine, 0, None),
                dst: end(&other, 29_500, None),
                what: DroppedPacket::Opening,
                reason: DropReason::from_kernel_name("NETFILTER_DROP"),
                direction: Some(Direction::Egress),
                packets: 2,
                attempts: 1,
            });
        }
        _ => SocketStep::Carried(carried),
    };
    let (local, remote) = (end(&mine, port, Some(uid)), end(&other, 29_500, None));
    let opener = Some(Opener::Local).filter(|_| random(8, 5) > 0);
    Observation::Socket(SocketEvent { at, observer, source: SourceKind::Ebpf, local, remote, opener, step })
}

#[test]
fn a_recording_says_what_was_seen_live() {
    let mut live = pipeline();
    let mut recording = Vec::new();
    let (mut late, mut verdicts) = (0, BTreeSet::new());
    for seed in 0..400 {
        let observation = told(seed);
        write(&mut recording, &observation).unwrap();
        live.observe(observation);
        if seed % 20 != 0 {
            continue;
        }
        let mut replay = pipeline();
        for line in std::str::from_utf8(&recording).unwrap().lines() {
            replay.observe(parse(line).unwrap().observation().unwrap().unwrap());
        }
        let look = live.report();
        late = look.coverage.late;
        verdicts.extend(look.jobs.iter().map(|job| job.verdict.as_str()));
        assert_eq!(look, replay.finish(), "after {seed}");
    }
    assert!(late > 0 && verdicts.len() > 1, "{late} late, {verdicts:?}: this tests too little");
}
