//! What must be in the agent's readiness and recording. The truth is the script's: who called whom, and with how
//! many bytes.

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

/// The pods of the script.
const A: &str = "0f6b1c2e-4a1d-4c55-9d8e-2f1f6f0a7b01";
const B: &str = "0f6b1c2e-4a1d-4c55-9d8e-2f1f6f0a7b02";
/// The ports of the script, by what happens to them.
const WHOLE: u64 = 29500;
const OLDER: u64 = 29501;
const REFUSED: u64 = 29502;
const UNANSWERED: u64 = 29503;
/// Payload bytes of the connection that the agent sees from its beginning to its end.
const WHOLE_BYTES: u64 = 1_000_006;
/// Payload bytes of the older connection, since the agent watches.
const OLDER_BYTES: u64 = 200_000;
/// The kernel counts a SYN and a FIN as a byte each.
const SEQUENCE_BYTES: u64 = 2;
/// How the agent begins the reason of a hook that this kernel cannot have.
const NOT_IN_THIS_KERNEL: &str = "this kernel does not have it";

/// One thing that was looked at.
#[derive(Debug)]
pub(crate) struct Check {
    pub(crate) name: String,
    pub(crate) passed: bool,
    pub(crate) detail: String,
}

/// A hook, as `/readyz` shows it.
#[derive(Deserialize, Debug)]
struct Hook {
    name: String,
    attached: bool,
    reason: Option<String>,
}

/// The hooks in `/readyz`.
fn hooks(readyz: &str) -> Result<Vec<Hook>> {
    #[derive(Deserialize)]
    struct Readiness {
        sources: Vec<Source>,
    }
    #[derive(Deserialize)]
    struct Source {
        #[serde(default)]
        hooks: Vec<Hook>,
    }
    let readiness: Readiness = serde_json::from_str(readyz).context("/readyz is not what is expected")?;
    Ok(readiness.sources.into_iter().flat_map(|source| source.hooks).collect())
}

/// Everything that must be right.
pub(crate) fn judge(readyz: &str, recording: &str) -> Result<Vec<Check>> {
    let lines = recording.lines().filter(|line| !line.trim().is_empty());
    let events = lines.map(serde_json::from_str).collect::<Result<Vec<Value>, _>>();
    let told = Told { events: events.context("the recording is damaged")? };
    let mut checks: Vec<Check> = hooks(readyz)?.iter().map(hook).collect();
    if checks.is_empty() {
        checks.push(Check { name: "hooks".to_owned(), passed: false, detail: "there are none".to_owned() });
    }
    checks.extend([
        told.happened("opening", A, WHOLE),
        told.happened("established", A, WHOLE),
        told.happened("established", B, WHOLE),
        told.bytes("whole connection, sent", "sent", A, WHOLE, WHOLE_BYTES),
        told.bytes("whole connection, received", "received", B, WHOLE, WHOLE_BYTES),
        told.happened("closed", A, WHOLE),
        told.happened("closed", B, WHOLE),
        told.round_trips(A, WHOLE),
        told.bytes("older connection, sent", "sent", A, OLDER, OLDER_BYTES),
        told.bytes("older connection, received", "received", B, OLDER, OLDER_BYTES),
        told.happened("refused", A, REFUSED),
        told.happened("retried", A, UNANSWERED),
        told.happened("gave-up", A, UNANSWERED),
        told.dropped(UNANSWERED),
        told.nothing_lost(),
    ]);
    Ok(checks)
}

fn hook(hook: &Hook) -> Check {
    let reason = hook.reason.as_deref().unwrap_or("attached");
    let passed = hook.attached || reason.starts_with(NOT_IN_THIS_KERNEL);
    Check { name: format!("hook {}", hook.name), passed, detail: reason.to_owned() }
}

struct Told {
    events: Vec<Value>,
}

impl Told {
    /// What a pod's socket did; `port` is the one that was called.
    fn of<'a>(&'a self, uid: &'a str, port: u64) -> impl Iterator<Item = &'a Value> {
        self.events.iter().filter(move |event| {
            let called = event["remote"]["port"] == port || event["local"]["port"] == port;
            event["local"]["uid"] == uid && called
        })
    }

    fn happened(&self, what: &str, uid: &str, port: u64) -> Check {
        let times = self.of(uid, port).filter(|event| event["event"] == what).count();
        Check {
            name: format!("{what}, port {port}, {}", name(uid)),
            passed: times > 0,
            detail: times.to_string(),
        }
    }

    fn bytes(&self, label: &str, field: &str, uid: &str, port: u64, truth: u64) -> Check {
        let told: u64 = self.of(uid, port).filter_map(|event| event[field].as_u64()).sum();
        let passed = (truth..=truth + SEQUENCE_BYTES).contains(&told);
        Check { name: label.to_owned(), passed, detail: format!("{told} bytes of {truth}") }
    }

    fn round_trips(&self, uid: &str, port: u64) -> Check {
        let measured: Vec<u64> = self.of(uid, port).filter_map(|event| event["rtt_us"].as_u64()).collect();
        Check {
            name: format!("round trips, port {port}, {}", name(uid)),
            passed: !measured.is_empty() && measured.iter().all(|us| (1..10_000_000).contains(us)),
            detail: format!("{measured:?} us"),
        }
    }

    fn dropped(&self, port: u64) -> Check {
        let drops = self.events.iter().filter(|e| e["event"] == "drops" && e["dst"]["port"] == port);
        let (mut packets, mut reasons) = (0, Vec::new());
        for drop in drops {
            packets += drop["packets"].as_u64().unwrap_or(0);
            let reason = drop["reason"].as_str().unwrap_or("none").to_owned();
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        let retried = self.of(A, port).filter(|event| event["event"] == "retried").count() as u64;
        Check {
            name: format!("drops, port {port}"),
            passed: packets == retried + 1,
            detail: format!("{packets} of {} SYNs: {}", retried + 1, reasons.join(", ")),
        }
    }

    fn nothing_lost(&self) -> Check {
        let lost = self.events.iter().filter(|event| event["event"] == "lost").count();
        Check { name: "nothing lost".to_owned(), passed: lost == 0, detail: format!("{lost} losses") }
    }
}

fn name(uid: &str) -> &'static str {
    if uid == A { "a" } else { "b" }
}

#[cfg(test)]
mod tests {
    use super::super::{OBJECTS, SCRIPT};
    use super::*;

    const READY: &str = r#"{"sources":[{"hooks":[{"name":"x","attached":true,"reason":null},
        {"name":"y","attached":false,"reason":"this kernel does not have it (6.3 and later do)"}]}]}"#;

    fn failed(readyz: &str, recording: &str) -> Vec<String> {
        let checks = judge(readyz, recording).unwrap();
        checks.into_iter().filter(|check| !check.passed).map(|check| check.name).collect()
    }

    fn recording() -> String {
        let line = |event: &str, uid: &str, local: u64, remote: u64, rest: &str| {
            format!(
                r#"{{"event":"{event}","local":{{"port":{local},"uid":"{uid}"}},"remote":{{"port":{remote}}}{rest}}}"#
            )
        };
        let rest = r#","sent":1000007,"received":1,"rtt_us":50"#;
        [
            line("opening", A, 0, WHOLE, ""),
            line("established", A, 4, WHOLE, ""),
            line("established", B, WHOLE, 4, ""),
            line("closed", A, 4, WHOLE, rest),
            line("closed", B, WHOLE, 4, r#","sent":0,"received":1000006"#),
            line("carried", A, 5, OLDER, r#","sent":150000,"received":0"#),
            line("closed", A, 5, OLDER, r#","sent":50000,"received":0"#),
            line("closed", B, OLDER, 5, r#","sent":0,"received":200001"#),
            line("refused", A, 6, REFUSED, ""),
            line("retried", A, 7, UNANSWERED, ""),
            line("gave-up", A, 7, UNANSWERED, ""),
            r#"{"event":"drops","dst":{"port":29503},"packets":2,"reason":"X"}"#.to_owned(),
        ]
        .join("\n")
    }

    #[test]
    fn a_good_recording_passes_and_each_fault_is_seen() {
        let good = recording();
        assert_eq!(failed(READY, &good), Vec::<String>::new());
        for (from, to, fault) in [
            ("1000007", "1000003", "whole connection, sent"),
            ("1000006", "0", "whole connection, received"),
            ("200001", "0", "older connection, received"),
            ("\"rtt_us\":50", "\"rtt_us\":0", "round trips, port 29500, a"),
            ("\"packets\":2", "\"packets\":1", "drops, port 29503"),
            ("\"refused\"", "\"gave-up\"", "refused, port 29502, a"),
        ] {
            assert_eq!(failed(READY, &good.replace(from, to)), [fault]);
        }
        assert_eq!(failed(READY, &format!("{good}\n{{\"event\":\"lost\"}}")), ["nothing lost"]);
        let refused = READY.replace("this kernel does not have it", "Operation not permitted");
        assert_eq!(failed(&refused, &good), ["hook y"]);
        assert_eq!(failed(r#"{"sources":[{"source":"ebpf"}]}"#, &good), ["hooks"]);
        assert!(judge("{}", &good).is_err());
        assert!(judge(READY, "{").is_err());
    }

    #[test]
    fn script_objects_and_truth_are_of_the_same_pods() {
        for uid in [A, B] {
            assert!(SCRIPT.contains(uid) && OBJECTS.contains(uid));
        }
        for port in [WHOLE, OLDER, REFUSED, UNANSWERED] {
            assert!(SCRIPT.contains(&port.to_string()));
        }
    }
}
