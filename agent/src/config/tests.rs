//! Layers, their order, and what is refused.

use std::ffi::OsString;
use std::time::Duration;

use firedoor_core::policy::Cni;
use firedoor_core::prices::{Billed, Crossing, Price};

use super::keys::KEYS;
use super::layers::variable;
use super::*;

fn layered(file: &str, environment: &[(&str, &str)], flags: &[(&str, &str)]) -> Result<Effective, String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("firedoor.toml");
    std::fs::write(&path, file).unwrap();
    let environment = environment.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let flags: Vec<(String, String)> =
        flags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    Effective::of(Some(&path), environment, &flags).map_err(|error| error.to_string())
}

fn parsed(file: &str) -> Result<Config, String> {
    layered(file, &[], &[]).map(|effective| effective.config)
}

#[test]
fn files_are_read() {
    let config = parsed("[jobs]\ngroupBy = [\"app\"]\n[diagnosis]\nquietSeconds = 10\n").unwrap();
    assert_eq!(config.grouping.group_by, ["app"]);
    assert_eq!(config.settings.quiet, Duration::from_secs(10));
    let policy = parsed("[policy]\nciliumVersion = \"1.15.6\"\ncni = \"cilium\"\n").unwrap().settings.policy;
    assert_eq!((policy.cilium_version, policy.cni), (Some((1, 15)), Cni::Cilium));
    assert!(parsed("[policy]\nciliumVersion = \"new\"\n").unwrap_err().contains("ciliumVersion"));
    assert!(parsed("[diagnosis]\nlatencyRatio = nan\n").unwrap_err().contains("latencyRatio"));
    assert_eq!(parsed("[diagnosis]\nlatencyRatio = 3\n").unwrap().settings.latency_ratio, 3.0);
    assert!(parsed("[diagnosis]\ndeniedAttempts = 0\n").unwrap_err().contains("from 1 on"));
    assert!(parsed("[agent]\nsources = [\"hubble\", \"ebpf\"]\n").unwrap().agent.sources.len() == 2);
    assert!(parsed("[agent]\nsources = [\"hubbel\"]\n").unwrap_err().contains("hubbel"));
    assert!(parsed("jobs = 3\n").is_err());
    assert!(parsed("[jobs\n").unwrap_err().contains("line 1"));
}

#[test]
fn prices_are_overridden_piece_by_piece() {
    let priced = parsed(
        "[prices.openstack]\nzoneBilled = \"both-ends\"\nzoneUsdPerGb = 0.5\n[prices.aws]\nzoneUsdPerGb = 0.015\n",
    )
    .unwrap();
    let of = |provider: &str| priced.settings.prices.of(provider, Crossing::Zone).cloned();
    assert_eq!(of("aws"), Some(Price { usd_per_gb: 0.015, billed: Billed::BothEnds }));
    assert_eq!(of("openstack"), Some(Price { usd_per_gb: 0.5, billed: Billed::BothEnds }));
    assert!(parsed("[prices.aws]\nzoneUsdPerGb = -1\n").unwrap_err().contains("prices.aws.zoneUsdPerGb"));
    assert!(parsed("[prices.mine]\nzoneBilled = \"sender\"\n").unwrap_err().contains("no price"));
}

#[test]
fn unknown_keys_are_refused_with_the_nearest_name() {
    let error = parsed("[diagnosis]\nquietSeconds = 1\n[jobs]\ngroupby = [\"app\"]\n").unwrap_err();
    assert!(
        error.contains("line 4") && error.contains("groupby") && error.contains("jobs.groupBy"),
        "{error}"
    );
    let error = parsed("[diagnose]\nquietSeconds = 10\n").unwrap_err();
    assert!(error.contains("did you mean diagnosis?"), "{error}");
    let error = parsed("[prices.aws]\nzoneUsdPerGB = 1\n").unwrap_err();
    assert!(error.contains("prices.aws.zoneUsdPerGb"), "{error}");
    let error = layered("", &[("FIREDOOR_DIAGNOSIS_QUIT_SECONDS", "1")], &[]).unwrap_err();
    assert!(error.contains("FIREDOOR_DIAGNOSIS_QUIET_SECONDS"), "{error}");
    let error = layered("", &[], &[("diagnosis.quiet", "1")]).unwrap_err();
    assert!(error.contains("diagnosis.quietSeconds"), "{error}");
}

#[test]
fn later_layers_overrule_earlier_ones() {
    let effective = layered(
        "[diagnosis]\nquietSeconds = 1\nrecentSeconds = 1\nlatencyRatio = 1.5\n",
        &[
            ("FIREDOOR_DIAGNOSIS_QUIET_SECONDS", "2"),
            ("FIREDOOR_DIAGNOSIS_RECENT_SECONDS", "2"),
            ("FIREDOOR_JOBS_GROUP_BY", "app, team"),
            ("FIREDOOR_PRICES_AWS_ZONE_USD_PER_GB", "0.25"),
            ("PATH", "/bin"),
        ],
        &[("diagnosis.quietSeconds", "3")],
    )
    .unwrap();
    let settings = &effective.config.settings;
    let seconds = Duration::from_secs;
    assert_eq!((settings.quiet, settings.recent, settings.latency_ratio), (seconds(3), seconds(2), 1.5));
    assert_eq!(effective.config.grouping.group_by, ["app", "team"]);
    let origin = |key: &str| effective.origins.get(key);
    assert_eq!(origin("diagnosis.quietSeconds"), Some(&Origin::Flag));
    let variable = Origin::Environment("FIREDOOR_DIAGNOSIS_RECENT_SECONDS".to_owned());
    assert_eq!(origin("diagnosis.recentSeconds"), Some(&variable));
    assert!(matches!(origin("diagnosis.latencyRatio"), Some(Origin::File(_, 4))));
    assert_eq!(origin("diagnosis.latencySamples"), None);
}

#[test]
fn addresses_of_services_are_no_settings() {
    let links = [
        ("FIREDOOR_SERVICE_HOST", "10.0.0.1"),
        ("FIREDOOR_SERVICE_PORT_HTTP", "9745"),
        ("FIREDOOR_PORT", "tcp://10.0.0.1:9745"),
        ("FIREDOOR_PORT_9745_TCP_ADDR", "10.0.0.1"),
        ("FIREDOOR_AGENT_PORT_9745_TCP", "tcp://10.0.0.1:9745"),
    ];
    assert_eq!(layered("", &links, &[]).unwrap().config, Config::default());
}

#[test]
fn what_is_shown_can_be_read_again() {
    let before = layered(
        "[jobs]\ngroupBy = [\"a\\\"b\"]\n[agent]\nnode = [\"n=/run/netns/n\"]\n[prices.\"my cloud\"]\nzoneUsdPerGb = 1\n",
        &[],
        &[("hubble.tlsCa", "/etc/ca.pem"), ("policy.cni", "other")],
    )
    .unwrap();
    let mut text = Vec::new();
    before.write(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert_eq!(parsed(&text).unwrap(), before.config, "{text}");
    for key in KEYS {
        assert!(text.contains(key.name), "{}", key.name);
    }
    let mut json = Vec::new();
    before.write_json(&mut json).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["hubble.tlsCa"]["origin"], "flag");
    assert_eq!(json["diagnosis.quietSeconds"]["environment"], variable("diagnosis.quietSeconds"));
}

#[test]
fn variables_are_distinct() {
    let mut variables: Vec<String> =
        KEYS.iter().map(|key| variable(&format!("{}.{}", key.section, key.name))).collect();
    variables.sort();
    let count = variables.len();
    variables.dedup();
    assert_eq!(variables.len(), count);
}
