//! Lines of the kernel's that are no observations, or say impossible things.

use serde_json::{Value, json};

use crate::capture::{Capture, Seen, denied, joined, time};

fn opening(second: u64, port: u64) -> Value {
    json!({"time": time(second), "node": "n2", "event": "opening", "opener": "local",
        "local": {"ip": "10.1.2.5", "port": port, "uid": "uid-tide-worker-0"},
        "remote": {"ip": "10.1.1.5", "port": 29500}})
}

fn dropped(second: u64) -> Value {
    json!({"time": time(second), "first": time(second), "node": "n2", "event": "drops", "protocol": "TCP",
        "src": {"ip": "10.1.2.5", "port": 0}, "dst": {"ip": "10.1.1.5", "port": 29500}, "what": "opening",
        "reason": "NETFILTER_DROP", "direction": "egress", "packets": 1, "attempts": 1})
}

/// Four denied attempts of the worker.
fn good() -> Vec<Vec<u8>> {
    let attempt = |k: u64| [opening(4 * k, 40_000 + k), dropped(4 * k)];
    (0..4).flat_map(attempt).map(|line| line.to_string().into_bytes()).collect()
}

fn around(odd: impl AsRef<[u8]>) -> Seen {
    let mut lines = good();
    lines.insert(2, odd.as_ref().to_vec());
    Capture::new().file("sockets.jsonl", joined(lines)).replay()
}

/// Asserts that the odd line is refused with its number, and nothing else is.
fn refused(odd: impl AsRef<[u8]>, what: &str) {
    let seen = around(odd);
    assert_eq!([seen.count("received"), seen.count("rejected"), seen.count("attributed")], [9, 1, 8]);
    seen.blocked(4);
    seen.told("sockets.jsonl:3", what);
    let told: usize = seen.problems.iter().map(String::len).sum();
    assert!(told < 1000, "a message is short: {:?}", seen.problems);
}

#[test]
fn what_is_no_line_of_this_form_is_refused() {
    refused(vec![b'x'; 10 << 20], "longer");
    refused([0xff, 0xfe, 0xc3, 0x28, 0xa0], "UTF-8");
    refused("[".repeat(500_000), "");
    refused(format!("{{\"x\":{}", "{\"a\":".repeat(150_000)), "");
    refused("tcp 10.1.2.5:40000 -> 10.1.1.5:29500", "not JSON");
    for odd in ["{}", "[]", "null", "42", "\"opening\"", "}{", "{\"event\":\"opening\"}", "{\"time\":5}"] {
        refused(odd, "");
    }
}

#[test]
fn what_lacks_what_its_event_needs_is_refused() {
    let without = |mut line: Value, key: &str| {
        line.as_object_mut().expect("a line is a map").remove(key);
        line.to_string()
    };
    for key in ["time", "event", "local", "remote"] {
        refused(without(opening(6, 50_000), key), "");
    }
    for key in ["src", "dst", "protocol", "packets"] {
        refused(without(dropped(6), key), "");
    }
    let with = |key: &str, value: Value| {
        let mut line = dropped(6);
        line[key] = value;
        line.to_string()
    };
    refused(with("packets", json!(-1)), "");
    refused(with("packets", json!("many")), "");
    refused(with("first", json!("yesterday")), "RFC 3339");
    refused(with("src", json!({"ip": "10.1.2", "port": 0})), "");
    refused(with("dst", json!({"ip": "10.1.1.5", "port": 70_000})), "");
    refused(with("protocol", json!("CARRIER-PIGEON")), "protocol");
}

#[test]
fn what_is_newer_is_passed_over_and_told() {
    let mut line = opening(6, 50_000);
    line["event"] = json!("migrated");
    let seen = around(line.to_string());
    assert_eq!([seen.count("received"), seen.count("rejected")], [8, 0]);
    seen.blocked(4);
    assert!(seen.notes.iter().any(|note| note.starts_with("1 lines are kernel events")), "{:?}", seen.notes);
}

#[test]
fn absurd_counts_overflow_nothing() {
    let carried = |second: u64| {
        json!({"time": time(second), "node": "n2", "event": "carried", "opener": "local",
            "local": {"ip": "10.1.2.5", "port": 50_000, "uid": "uid-tide-worker-0"},
            "remote": {"ip": "10.1.1.5", "port": 29500}, "sent": u64::MAX, "received": u64::MAX,
            "retransmitted": u32::MAX, "rtt_us": u64::MAX, "min_rtt_us": u64::MAX})
    };
    let mut drops = dropped(3);
    (drops["packets"], drops["attempts"], drops["first"]) =
        (json!(u64::MAX), json!(u64::MAX), json!("1970-01-01T00:00:00Z"));
    let again = Value::Object(
        drops.as_object().expect("a map").iter().map(|(k, v)| (k.clone(), v.clone())).collect(),
    );
    let mut later = again.clone();
    later["time"] = json!(time(5));
    let lines = [drops, later, carried(1), carried(2), carried(3), opening(4, 50_001)];
    let seen = Capture::new().file("sockets.jsonl", joined(lines.map(|line| line.to_string()))).replay();
    assert_eq!([seen.count("received"), seen.count("attributed")], [6, 6]);
}

#[test]
fn a_recording_alone_is_a_capture_and_goes_with_flows() {
    let seen = Capture::new().file("sockets.jsonl", joined(good())).flows(denied(4)).replay();
    assert_eq!([seen.count("received"), seen.count("rejected")], [12, 0]);
    seen.blocked(4);
    let empty = firedoor::replay::replay(Capture::new().path(), None, true).err().expect("nothing to replay");
    assert!(empty.to_string().contains("sockets*.jsonl"), "{empty}");
}
