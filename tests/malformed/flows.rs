//! Flow lines that are no flows, or say impossible things.

use serde_json::json;

use crate::capture::{Capture, denied, denied_at, time};

/// Four good attempts with something odd after the second.
fn around(odd: impl AsRef<[u8]>) -> Vec<Vec<u8>> {
    let mut lines: Vec<Vec<u8>> = denied(4).into_iter().map(String::into_bytes).collect();
    lines.insert(2, odd.as_ref().to_vec());
    lines
}

/// Asserts that the odd line is refused with its number, and nothing else is.
fn refused(odd: impl AsRef<[u8]>, what: &str) {
    let seen = Capture::new().flows(around(odd)).replay();
    assert_eq!([seen.count("received"), seen.count("rejected"), seen.count("attributed")], [5, 1, 4]);
    seen.blocked(4);
    seen.told("flows.jsonl:3", what);
    let told: usize = seen.problems.iter().map(String::len).sum();
    assert!(told < 1000, "a message is short: {:?}", seen.problems);
}

#[test]
fn a_line_of_ten_megabytes_is_refused() {
    refused(vec![b'x'; 10 << 20], "longer");
    let mut long = denied_at(&time(6), 50_000);
    long["flow"]["source"]["labels"] = json!(vec!["k8s:label=of-an-absurd-length"; 400_000]);
    refused(long.to_string(), "longer");
}

#[test]
fn bytes_that_are_no_text_are_refused() {
    refused([0_u8; 64], "");
    refused([0xff, 0xfe, 0xc3, 0x28, 0xa0], "");
    let flow = denied_at(&time(6), 50_000).to_string();
    refused(flow.replace("tide-worker-0", "tide\u{0}worker-0"), "");
    let mut bytes = flow.into_bytes();
    let at = bytes.windows(4).position(|w| w == b"tide").expect("a name");
    bytes[at] = 0xc3;
    let seen = Capture::new().flows(around(bytes)).replay();
    // The address still tells whose the flow is; whether the line is used or refused, it is counted.
    assert_eq!(seen.count("received"), 5);
    assert_eq!(seen.exit, 1);
}

#[test]
fn other_json_is_refused() {
    for odd in
        ["{}", "[]", "null", "42", "\"flow\"", "{\"flow\":null}", "{\"flow\":[]}", "{\"flow\":{}}", "}{"]
    {
        refused(odd, "");
    }
    refused("{\"flow\":{\"time\":\"2026-11-07T09:00:06Z\",\"IP\":{\"source\":\"10.1.2.5\"", "");
    refused(
        "Nov  7 09:00:06.000: sea/tide-worker-0:40001 -> sea/tide-master-0:29500 DROPPED",
        "hubble observe",
    );
}

#[test]
fn json_of_a_depth_without_end_is_refused() {
    refused("[".repeat(500_000), "");
    refused(format!("{{\"flow\":{}", "{\"a\":".repeat(150_000)), "");
    refused(format!("{{\"x\":{}{}}}", "[".repeat(200_000), "]".repeat(200_000)), "");
}

#[test]
fn numbers_for_names_and_text_for_numbers_are_understood() {
    let lines = (0..4).map(|k| {
        let mut line = denied_at(&time(4 * k), 40_000);
        let flow = line["flow"].as_object_mut().expect("a flow");
        flow.insert("verdict".into(), json!(2));
        flow.insert("drop_reason".into(), json!("133"));
        flow.insert("drop_reason_desc".into(), json!(133));
        flow.insert("traffic_direction".into(), json!(2));
        flow.insert("Type".into(), json!(1));
        flow.insert("event_type".into(), json!({"type": "1", "sub_type": "133"}));
        flow["IP"]["ipVersion"] = json!(1);
        let port = format!("{}", 40_000 + k);
        flow.insert(
            "l4".into(),
            json!({"TCP": {"source_port": port, "destination_port": "29500", "flags": {"SYN": true}}}),
        );
        line.to_string()
    });
    let seen = Capture::new().flows(lines).replay();
    assert!(seen.problems.is_empty(), "{:?}", seen.problems);
    seen.blocked(4);
    assert_eq!(seen.report["jobs"][0]["findings"][0]["cause"]["reason"], "POLICY_DENIED");
    assert_eq!(seen.report["jobs"][0]["findings"][0]["pairs"][0]["direction"], "egress");
}

#[test]
fn names_and_numbers_nobody_knows_are_tolerated() {
    let mut odd = denied_at(&time(6), 50_000);
    odd["flow"]["verdict"] = json!("PONDERED");
    odd["flow"]["event_type"] = json!({"type": 77, "sub_type": -3});
    odd["flow"]["traffic_direction"] = json!("SIDEWAYS");
    odd["flow"]["trace_reason"] = json!(99);
    odd["flow"]["drop_reason"] = json!(4_000_000_000_u64);
    odd["flow"]["drop_reason_desc"] = json!("DROP_TIRED");
    odd["flow"]["l5"] = json!({"QUIC": [1, 2, {"three": null}]});
    let seen = Capture::new().flows(around(odd.to_string())).replay();
    assert_eq!([seen.count("received"), seen.count("rejected")], [5, 0]);
    seen.blocked(4);
}

#[test]
fn impossible_ports_name_no_door() {
    for port in [json!(-1), json!(65_536), json!(4_294_967_296_u64), json!("-22"), json!(1e300), json!(2.5)] {
        let mut odd = denied_at(&time(6), 50_000);
        odd["flow"]["l4"]["TCP"]["destination_port"] = port;
        let seen = Capture::new().flows(around(odd.to_string())).replay();
        assert_eq!(seen.count("received"), 5);
        seen.blocked(4);
    }
}

#[test]
fn impossible_times_move_nothing() {
    let odd = ["9999-12-31T23:59:59Z", "1969-12-31T23:59:59Z", "2026-13-45T99:99:99Z", "yesterday", ""];
    for odd in odd {
        let seen = Capture::new().flows(around(denied_at(odd, 50_000).to_string())).replay();
        assert_eq!([seen.count("received"), seen.count("rejected")], [5, 1], "{odd}");
        seen.blocked(4);
        assert_eq!(seen.report["window"], json!({"start": time(0), "end": time(12)}), "{odd}");
    }
}

#[test]
fn an_impossible_time_at_the_start_moves_nothing() {
    for odd in ["2099-01-01T00:00:00Z", "1970-01-01T00:00:01Z"] {
        let mut lines = denied(6);
        lines.insert(0, denied_at(odd, 50_000).to_string());
        let seen = Capture::new().flows(lines).replay();
        assert_eq!([seen.count("received"), seen.count("attributed")], [7, 6], "{odd}: {}", seen.page);
        seen.blocked(6);
    }
}

#[test]
fn hours_of_silence_are_no_jump() {
    let mut lines = denied(4);
    // Nothing happens on the node for five hours: a gap says nothing about a clock.
    lines.extend((0..4).map(|k| denied_at(&time(5 * 3600 + 4 * k), 51_000 + k).to_string()));
    let seen = Capture::new().flows(lines).replay();
    assert_eq!([seen.count("received"), seen.count("attributed")], [8, 8], "{}", seen.page);
    assert_eq!(seen.report["window"]["end"], time(5 * 3600 + 12));
}

#[test]
fn days_of_silence_are_no_jump() {
    let mut lines = denied(4);
    // A capture over a weekend, or the rotated file of an exporter: six events of Monday agree with each other.
    lines.extend(
        (0..6).map(|k| denied_at(&format!("2026-11-09T09:00:{:02}Z", 4 * k), 51_000 + k).to_string()),
    );
    let seen = Capture::new().flows(lines).replay();
    assert_eq!([seen.count("received"), seen.count("attributed")], [10, 10], "{}", seen.page);
}

#[test]
fn a_clock_that_runs_backwards_is_counted() {
    let mut lines = denied(5);
    // The node's clock is set back by two hours; it stays behind.
    lines.extend(
        (0..4).map(|k| denied_at(&format!("2026-11-07T07:00:{:02}Z", 20 + k), 51_000 + k).to_string()),
    );
    let seen = Capture::new().flows(lines).replay();
    assert_eq!([seen.count("received"), seen.count("attributed"), seen.count("late")], [9, 5, 4]);
    assert_eq!(seen.report["coverage"]["complete"], false);
    seen.blocked(5);
}

#[test]
fn a_hundred_thousand_node_names_are_counted() {
    let mut lines = denied(4);
    lines.extend((0..100_000).map(|k| {
        format!(
            "{{\"flow\":{{\"time\":\"{}\",\"verdict\":\"FORWARDED\",\"IP\":{{\"source\":\"10.9.0.1\",\
             \"destination\":\"10.9.0.2\"}},\"node_name\":\"made-up-{k}\",\"event_type\":{{\"type\":4}}}}}}",
            time(13)
        )
    }));
    let seen = Capture::new().flows(lines).replay();
    assert_eq!([seen.count("received"), seen.count("attributed")], [100_004, 4]);
    seen.blocked(4);
}

#[test]
fn many_damaged_lines_are_told_in_few_words() {
    let mut lines = denied(4);
    lines.extend((0..5_000).map(|k| format!("garbage {k}")));
    let seen = Capture::new().flows(lines).replay();
    assert_eq!(seen.count("rejected"), 5_000);
    seen.blocked(4);
    assert!(seen.problems.len() < 20, "{} lines of problems", seen.problems.len());
    assert!(seen.problems.iter().any(|p| p.contains("4995 more")), "{:?}", seen.problems);
}

#[test]
fn lost_events_of_absurd_numbers_are_counted() {
    let lost = |count: serde_json::Value| {
        json!({"lost_events": {"source": 3, "num_events_lost": count}, "node_name": "n2", "time": time(6)})
            .to_string()
    };
    let max = u64::MAX.to_string();
    let seen = Capture::new().flows([denied(4), vec![lost(json!(max)), lost(json!(max))]].concat()).replay();
    assert_eq!(seen.count("lost"), u64::MAX);
    assert_eq!(seen.report["coverage"]["complete"], false);
    seen.blocked(4);
}

#[test]
fn lost_events_without_a_readable_time_are_counted_once() {
    for time_of_loss in [json!(null), json!("yesterday"), json!("")] {
        for node in [json!("n2"), json!(null)] {
            let lost =
                json!({"lost_events": {"num_events_lost": 7}, "node_name": node, "time": time_of_loss});
            let seen = Capture::new().flows(around(lost.to_string())).replay();
            assert_eq!([seen.count("received"), seen.count("rejected"), seen.count("lost")], [4, 0, 7]);
            assert_eq!(seen.report["jobs"][0]["coverage"]["lost"], 7);
            assert_eq!(seen.report["window"], json!({"start": time(0), "end": time(12)}));
            seen.told("flows.jsonl:3", "its lost events are counted");
            seen.blocked(4);
            // Nothing tells two such messages from one that was told twice: more may be lost, never less.
            let twice = Capture::new().flows([denied(4), vec![lost.to_string(), lost.to_string()]].concat());
            assert_eq!(twice.replay().count("lost"), 14);
        }
    }
}

#[test]
fn lost_events_of_impossible_numbers_are_refused() {
    for count in [json!(-1), json!("-5"), json!("18446744073709551616"), json!(1.5)] {
        let lost = json!({"lost_events": {"num_events_lost": count}, "node_name": "n2", "time": time(6)});
        let seen = Capture::new().flows(around(lost.to_string())).replay();
        assert_eq!([seen.count("received"), seen.count("rejected"), seen.count("lost")], [5, 1, 0]);
        seen.told("flows.jsonl:3", "");
        seen.blocked(4);
    }
}
