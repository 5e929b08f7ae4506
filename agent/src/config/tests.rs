//! Layers, their order, and what is refused.

use std::ffi::OsString;
use std::time::Duration;

use firedoor_core::policy::Cni;
use firedoor_core::prices::{Billed, Crossing, Price};

use super::keys::KEYS;
use super::names::variable;
use super::*;

fn layered(file: &str, environment: &[(&str, &str)], flags: &[(&str, &str)]) -> Result<Effective, String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("firedoor.toml");
    std::fs::write(&path, file).unwrap();
    let environment = environment.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let given = |(key, value): &(&str, &str)| Given {
        key: (*key).to_owned(),
        value: (*value).to_owned(),
        written: format!("--set {key}={value}"),
    };
    let flags: Vec<Given> = flags.iter().map(given).collect();
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
fn what_was_meant_is_found_in_another_section_or_case() {
    let flag = |key: &str| layered("", &[], &[(key, "1")]).unwrap_err();
    for key in
        ["quietSeconds", "quietseconds", "QuietSeconds", "agent.quietSeconds", "Diagnosis.QUIETSECONDS"]
    {
        assert!(flag(key).contains("did you mean diagnosis.quietSeconds?"), "{}", flag(key));
    }
    assert!(flag("maxMember").contains("kubernetes.maxMembers"), "{}", flag("maxMember"));
    assert!(flag("group_by").contains("jobs.groupBy"), "{}", flag("group_by"));
    assert!(flag("colour").contains("lists all"), "{}", flag("colour"));
    let error = layered("", &[("FIREDOOR_GROUP_BY", "app")], &[]).unwrap_err();
    assert!(error.contains("did you mean FIREDOOR_JOBS_GROUP_BY?"), "{error}");
}

#[test]
fn all_that_is_wrong_is_told_in_order() {
    let file = "[jobs]\ngroupby = [\"a\"]\nroleLabels = 3\n[agnet]\nnode = 1\n[diagnosis]\nquietSeconds = -1\nx = 1\n";
    let error = layered(file, &[("FIREDOOR_X", "1")], &[("agent.listen", "x"), ("y", "1")]).unwrap_err();
    let lines: Vec<&str> = error.lines().collect();
    let told = [
        "these settings",
        "line 2",
        "line 3",
        "line 4",
        "line 7",
        "line 8",
        "FIREDOOR_X",
        "agent.listen=x",
        "y=1",
    ];
    assert_eq!(lines.len(), told.len(), "{error}");
    for (line, about) in lines.iter().zip(told) {
        assert!(line.contains(about), "{about}: {error}");
    }
    let many = "x1 = 1\n".to_owned() + &(2..200).map(|n| format!("x{n} = 1\n")).collect::<String>();
    let error = parsed(&many).unwrap_err();
    assert!(error.lines().count() == 22 && error.contains("and 179 keys more"), "{error}");
}

#[test]
fn sections_and_keys_are_not_mistaken_for_each_other() {
    for (file, about) in [
        ("agent = 5\n", "line 1: agent: must be a table: [agent]"),
        ("[[agent]]\n", "agent: must be a table"),
        ("[prices]\naws = 1\n", "line 2: prices.aws: must be a table: [prices.aws]"),
        ("[jobs.groupBy]\nx = 1\n", "jobs.groupBy: is one setting, and no table"),
    ] {
        let error = parsed(file).unwrap_err();
        assert!(error.contains(about), "{error}");
    }
    let error = layered("", &[], &[("agent", "5")]).unwrap_err();
    assert!(error.contains("--set agent=5: is a section"), "{error}");
}

#[test]
fn lists_are_written_with_commas_or_as_toml_does() {
    let list = |key: &str, text: &str| layered("", &[], &[(key, text)]).map(|effective| effective.config);
    let group_by = |text: &str| list("jobs.groupBy", text).map(|config| config.grouping.group_by);
    for text in
        ["app,role", " app , role ", "[\"app\", \"role\"]", "['app','role']", "[\n\"app\",\n\"role\",\n]"]
    {
        assert_eq!(group_by(text).unwrap(), ["app", "role"], "{text}");
    }
    assert_eq!(group_by("[]").unwrap(), [""; 0]);
    for text in ["[app]", "[\"app\"", "\"app\"", "app]", "[1]", "[[\"app\"]]", "['a']\nx = 1", "['a'],b"] {
        assert!(group_by(text).unwrap_err().contains("list"), "{text}");
    }
    let error = layered("", &[("FIREDOOR_JOBS_ROLE_LABELS", "[role]")], &[]).unwrap_err();
    assert!(error.contains("FIREDOOR_JOBS_ROLE_LABELS") && error.contains("app,role"), "{error}");
    let environment =
        [("FIREDOOR_AGENT_SOURCES", "[\"hubble\"]"), ("FIREDOOR_AGENT_NODE", "[\"a=/n\", \"b\"]")];
    let agent = layered("", &environment, &[]).unwrap().config.agent;
    assert_eq!((agent.sources.len(), agent.nodes.len()), (1, 2));
}

#[test]
fn addresses_are_checked_where_they_are_written() {
    let flag = |key: &str, value: &str| layered("", &[], &[(key, value)]).map(|effective| effective.config);
    let bad = "somewhere".parse::<crate::source::hubble::Written>().unwrap_err();
    assert!(flag("hubble.address", "somewhere").unwrap_err().contains(&bad.to_string()));
    assert!(flag("hubble.address", "tls://relay:443").is_ok());
    assert_eq!(flag("agent.listen", "localhost:9745").unwrap().agent.listen.to_string(), "127.0.0.1:9745");
    for address in ["node-a:9745", ":9745", "localhost", "localhost:x", "127.0.0.1"] {
        assert!(flag("agent.listen", address).unwrap_err().contains("127.0.0.1:9745"), "{address}");
    }
}

#[test]
fn a_file_is_a_regular_file_of_bounded_size() {
    let directory = tempfile::tempdir().unwrap();
    let read = |path: &std::path::Path| Config::read(path).unwrap_err().to_string();
    assert!(read(directory.path()).contains("no regular file"));
    let pipe = directory.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert!(read(&pipe).contains("no regular file"));
    let long = directory.path().join("long.toml");
    std::fs::write(&long, " ".repeat((1 << 20) + 1)).unwrap();
    assert!(read(&long).contains("larger than"));
}

#[test]
fn a_provider_that_the_table_lacks_is_told() {
    let shown = |provider: &str| {
        let mut text = Vec::new();
        layered(&format!("[prices.{provider}]\nzoneUsdPerGb = 1\n"), &[], &[])
            .unwrap()
            .write(&mut text)
            .unwrap();
        String::from_utf8(text).unwrap()
    };
    assert!(shown("awss").contains("[prices.awss]\n# not in the built-in table"), "{}", shown("awss"));
    assert!(shown("awss").contains("did you mean aws?") && shown("AWS").contains("did you mean aws?"));
    assert!(shown("metal").contains("metal://\n") && !shown("aws").contains("built-in table"));
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

#[test]
fn a_certificate_goes_with_its_key() {
    assert!(parsed("[hubble]\ntlsCert = \"/a\"\ntlsKey = \"/b\"\n").is_ok());
    let error = parsed("[hubble]\n\ntlsCert = \"/a\"\n").unwrap_err();
    assert!(
        error.contains("hubble.tlsCert (") && error.contains(":3) is set without hubble.tlsKey"),
        "{error}"
    );
    let flag = [("hubble.tlsKey", "/b")];
    let error = layered("", &[], &flag).unwrap_err();
    assert!(error.contains("hubble.tlsKey (flag) is set without hubble.tlsCert"), "{error}");
    assert!(layered("", &[("FIREDOOR_HUBBLE_TLS_CERT", "/a")], &flag).is_ok());
}
