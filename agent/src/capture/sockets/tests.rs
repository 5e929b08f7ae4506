//! What is written is read again as it was.

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
    assert!(why(r#"{"time":"2026-11-06T10:00:00Z","event":"lost"}"#).contains("count"));
    for text in
        [r#"{"time":1}"#, r#"{"local":{"ip":"10.0.0"}}"#, r#"{"local":{"port":70000}}"#, r#"{"sent":-1}"#]
    {
        assert!(parse(text).is_err(), "{text}");
    }
}
