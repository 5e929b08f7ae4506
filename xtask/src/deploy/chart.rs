//! The Helm chart. Enters: the chart and the values for platforms; leaves: whether both majors of Helm render the same
//! from it, whether Kubernetes would take every document, and whether they are as confined as they should be.

mod agreement;
mod manifest;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::quietly;
use super::rules::RULES;
use super::tools::{HELM, KUBERNETES_VALIDATE, NODE_MODULES};
use crate::command::{command, succeed, target, typed};

const CHART: &str = "deploy/helm/firedoor";
const SCHEMA: &str = "deploy/helm/firedoor/values.schema.json";
const RIGHTS: &str = "docs/kubernetes.md";
const EXAMPLES: &str = "deploy/examples";
/// The group whose schemas Kubernetes does not have itself.
const OPERATOR: &str = "monitoring.coreos.com/";
const RELEASE: &str = "example";
/// The oldest and the newest Kubernetes that the chart is validated for.
const KUBERNETES: [&str; 2] = ["1.25", "1.37"];

/// What the chart must refuse, and the word that tells why.
const REFUSED: [(&str, &str); 15] = [
    ("surces.ebpf.enabled=true", "surces"),
    ("sources.ebpf.enabld=true", "enabld"),
    ("sources.ebpf.enabled=yes", "boolean"),
    ("sources.hubble.address=somewhere", "address"),
    ("config.diagnosys.quietSeconds=5", "diagnosys"),
    ("config.diagnosis.quiet-seconds=5", "quiet-seconds"),
    ("config.diagnosis.quietSecond=5", "quietSecond"),
    ("config.diagnosis.quietSeconds=soon", "integer"),
    ("config.prices.aws.zoneUsdPerGB=5", "zoneUsdPerGB"),
    ("image.digest=sha256:1", "digest"),
    ("listen.port=0", "port"),
    (
        "rbac.extraRules[0].verbs[0]=delete,rbac.extraRules[0].apiGroups[0]=x,rbac.extraRules[0].resources[0]=y",
        "verbs",
    ),
    ("sources.ebpf.enabled=false", "enable ebpf, hubble, or both"),
    ("hostNetwork=false", "hostNetwork: false does not go with sources.ebpf"),
    ("serviceMonitor.enabled=true,podMonitor.enabled=true", "not both"),
];

/// A rendering to check.
#[derive(Clone)]
struct Case {
    name: String,
    values: Vec<PathBuf>,
    set: Vec<String>,
}

/// Checks the shipped chart.
///
/// # Errors
/// What is wrong with it.
pub(super) fn run(root: &Path) -> Result<()> {
    let folder = target(root)?.join("deploy");
    std::fs::create_dir_all(&folder)?;
    let chart = root.join(CHART);
    let rules = manifest::yaml(&std::fs::read_to_string(root.join(RULES))?)?;
    succeed(&mut command(root, "cargo", &["build", "--quiet", "--package", "firedoor"]))?;
    let agent = target(root)?.join("debug/firedoor");
    let (mut files, mut operated) = (Vec::new(), Vec::new());
    let wrong = settings(root, &agent)?;
    if !wrong.is_empty() {
        bail!("{SCHEMA}:\n  {}", wrong.join("\n  "));
    }
    let cases = cases(root)?;
    for case in &cases {
        let renderings = HELM.iter().map(|(major, helm)| {
            lint(root, helm, &chart, case)?;
            let text = render(root, helm, &chart, case)?;
            manifest::documents(&text).with_context(|| format!("{} by Helm {major}", case.name))
        });
        let renderings = renderings.collect::<Result<Vec<_>>>()?;
        let [first, rest @ ..] = &renderings[..] else { bail!("there is no Helm") };
        if rest.iter().any(|other| other != first) {
            bail!("{}: Helm's majors do not render the same", case.name);
        }
        let mut wrong = manifest::wrong(first, &rules);
        if case.name == "default" {
            let role = first.iter().find(|document| document["kind"] == "ClusterRole");
            let told = std::fs::read_to_string(root.join(RIGHTS))?;
            wrong.extend(agreement::rights(role.context("there is no ClusterRole")?, &told));
        }
        if !wrong.is_empty() {
            bail!("{}:\n  {}", case.name, wrong.join("\n  "));
        }
        accepted(&agent, first, &folder.join(format!("{}.toml", case.name)))
            .with_context(|| case.name.clone())?;
        let (of_operator, of_kubernetes) = split(first);
        operated.extend(of_operator);
        let file = folder.join(format!("{}.yaml", case.name));
        std::fs::write(&file, joined(&of_kubernetes))?;
        files.push(file);
    }
    validate(root, &files)?;
    validate_operated(root, &operated)?;
    refusals(root, &chart)?;
    println!("chart: {} renderings by Helm {}", cases.len(), HELM.map(|(major, _)| major).join(" and "));
    Ok(())
}

/// The values' schema knows the agent's settings, and no others.
fn settings(root: &Path, agent: &Path) -> Result<Vec<String>> {
    let schema = serde_json::from_str(&std::fs::read_to_string(root.join(SCHEMA))?)?;
    // In an environment of its own: a setting of whoever runs this would have a value.
    let output = Command::new(agent).args(["config", "--format", "json"]).env_clear().output()?;
    let listed = serde_json::from_slice(&output.stdout).context("`firedoor config` prints no JSON")?;
    Ok(agreement::settings(&schema, &listed))
}

/// The default, every platform's values, and what none of them switches on.
fn cases(root: &Path) -> Result<Vec<Case>> {
    let case = |name: &str, set: &[&str]| Case {
        name: name.to_owned(),
        values: Vec::new(),
        set: set.iter().map(|set| (*set).to_owned()).collect(),
    };
    let mut cases = vec![
        case("default", &[]),
        case(
            "everything",
            &[
                "sources.hubble.enabled=true,sources.hubble.tls.secretName=certificates",
                "sources.hubble.address=tls://relay:443,hostPID=false,priorityClassName=system-node-critical",
                "serviceMonitor.enabled=true,prometheusRule.enabled=true,dashboard.enabled=true,dashboard.namespace=grafana",
                "env[0].name=FIREDOOR_POLICY_CNI,env[0].value=cilium,podLabels.team=net,podAnnotations.a=b",
                "image.tag=x,imagePullSecrets[0].name=registry,nodeSelector.gpu=yes,fullnameOverride=doors",
                "rbac.extraRules[0].verbs[0]=get,rbac.extraRules[0].apiGroups[0]=x.io,rbac.extraRules[0].resources[0]=ys",
            ],
        ),
        case("no-accounts", &["serviceAccount.create=false,serviceAccount.name=mine,rbac.create=false"]),
        case("closed", &["sources.ebpf.enabled=false,sources.hubble.enabled=true,networkPolicy.from=null"]),
    ];
    let folder = root.join(EXAMPLES);
    let entries = std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut values = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    values.sort();
    if values.is_empty() {
        bail!("{EXAMPLES} is empty");
    }
    for file in values {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        cases.push(Case { name, values: vec![file], set: Vec::new() });
    }
    Ok(cases)
}

fn helm(root: &Path, helm: &str, words: &[&str], chart: &Path, case: &Case) -> Command {
    let mut command = command(root, helm, words);
    command.arg(chart).args(["--namespace", "firedoor"]);
    for values in &case.values {
        command.arg("--values").arg(values);
    }
    for set in &case.set {
        command.args(["--set", set]);
    }
    command
}

fn lint(root: &Path, program: &str, chart: &Path, case: &Case) -> Result<()> {
    let mut lint = helm(root, program, &["lint", "--strict", "--quiet"], chart, case);
    quietly(&mut lint)
}

fn render(root: &Path, program: &str, chart: &Path, case: &Case) -> Result<String> {
    let mut template = helm(root, program, &["template", RELEASE], chart, case);
    let output = template.output().with_context(|| format!("cannot run `{}`", typed(&template)))?;
    if !output.status.success() {
        bail!("`{}` failed: {}", typed(&template), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// The agent takes the arguments and the configuration that its container gets, and sees the sources that it should.
fn accepted(agent: &Path, documents: &[Value], file: &Path) -> Result<()> {
    let of_kind = |kind: &'static str| documents.iter().filter(move |document| document["kind"] == kind);
    let settings = of_kind("ConfigMap").find_map(|config| config["data"]["firedoor.toml"].as_str());
    std::fs::write(file, settings.context("there is no firedoor.toml")?)?;
    let container = of_kind("DaemonSet").next().map(|set| &set["spec"]["template"]["spec"]["containers"][0]);
    let container = container.context("there is no DaemonSet")?;
    let mut words = container["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
    if words.next() != Some("agent") {
        bail!("the container does not run `agent`");
    }
    let mut config = Command::new(agent);
    // The same flags, and what the kubelet fills in.
    config.arg("config").args(words.map(|word| {
        let word = word.replace("$(NODE_NAME)", "node-a").replace("$(HOST_IP)", "192.0.2.1");
        word.replace("/etc/firedoor/firedoor.toml", &file.display().to_string())
    }));
    for variable in container["env"].as_array().into_iter().flatten() {
        if let (Some(name), Some(value)) = (variable["name"].as_str(), variable["value"].as_str()) {
            config.env(name, value);
        }
    }
    quietly(&mut config)
}

/// Documents of the operator, and of Kubernetes itself.
fn split(documents: &[Value]) -> (Vec<Value>, Vec<Value>) {
    let of_operator =
        |document: &Value| document["apiVersion"].as_str().is_some_and(|v| v.starts_with(OPERATOR));
    documents.iter().cloned().partition(of_operator)
}

/// JSON is YAML.
fn joined(documents: &[Value]) -> String {
    documents.iter().map(|document| format!("---\n{document:#}\n")).collect()
}

/// Against the schemas of Kubernetes: no unknown field, and no kind without a schema.
fn validate(root: &Path, files: &[PathBuf]) -> Result<()> {
    for version in KUBERNETES {
        let words = ["--strict", "--quiet", "--kubernetes-version", version];
        let mut validate = command(root, KUBERNETES_VALIDATE, &words);
        validate.args(files);
        let output = validate.output().with_context(|| format!("cannot run `{}`", typed(&validate)))?;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        // A kind without a schema is a warning, and no failure.
        if !output.status.success() || !said.trim().is_empty() {
            bail!("`{}`: {}", typed(&validate), said.trim());
        }
    }
    Ok(())
}

/// Against the schemas of Prometheus Operator.
fn validate_operated(root: &Path, documents: &[Value]) -> Result<()> {
    use std::io::Write as _;
    if documents.is_empty() {
        bail!("no rendering has a resource of Prometheus Operator");
    }
    let mut node = command(root, "node", &["xtask/src/deploy/monitors.mjs", NODE_MODULES]);
    let mut child = node
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run `{}`", typed(&node)))?;
    child.stdin.take().context("node has no standard input")?.write_all(&serde_json::to_vec(documents)?)?;
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success()
        || said.lines().filter(|line| line.ends_with(": valid")).count() != documents.len()
    {
        bail!("`{}`: {}", typed(&node), said.trim());
    }
    Ok(())
}

/// Typing errors and contradictions are refused, by both majors, with a word that tells why.
fn refusals(root: &Path, chart: &Path) -> Result<()> {
    for (_, program) in HELM {
        for (set, word) in REFUSED {
            let case = Case { name: set.to_owned(), values: Vec::new(), set: vec![set.to_owned()] };
            match render(root, program, chart, &case) {
                Ok(_) => bail!("{program} accepts --set {set}"),
                Err(why) if !format!("{why:#}").contains(word) => {
                    bail!("{program} does not say `{word}` to --set {set}: {why:#}");
                }
                Err(_) => {}
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "runs Helm and validators; `cargo xtask deploy` runs it"]
    fn a_broken_chart_is_found() {
        let root = crate::root();
        let folder = tempfile::tempdir().unwrap();
        let agent = target(&root).unwrap().join("debug/firedoor");
        let chart = folder.path().join("firedoor");
        let case = Case { name: "default".to_owned(), values: Vec::new(), set: Vec::new() };
        let mut copy = Command::new("cp");
        quietly(copy.arg("-r").arg(root.join(CHART)).arg(&chart)).unwrap();
        let template = chart.join("templates/daemonset.yaml");
        let sound = std::fs::read_to_string(&template).unwrap();
        for (major, program) in HELM {
            let renders = |from: &str, to: &str| {
                let changed = sound.replace(from, to);
                assert!(from == to || changed != sound, "{from}");
                std::fs::write(&template, changed).unwrap();
                render(&root, program, &chart, &case)
            };
            lint(&root, program, &chart, &case).unwrap();
            let documents = manifest::documents(&renders("", "").unwrap()).unwrap();
            let file = folder.path().join("out.yaml");
            let valid = |documents: &[Value]| {
                std::fs::write(&file, joined(documents)).unwrap();
                validate(&root, std::slice::from_ref(&file))
            };
            valid(&documents).unwrap();
            renders("{{- toYaml .Values.resources", "{{- toYaml .Values.resources.x.y").unwrap_err();
            lint(&root, program, &chart, &case).unwrap_err();
            let misspelt =
                renders("terminationGracePeriodSeconds:", "terminationGracePeriodSecond:").unwrap();
            valid(&manifest::documents(&misspelt).unwrap()).unwrap_err();
            println!("Helm {major}");
            let settings = folder.path().join("firedoor.toml");
            accepted(&agent, &documents, &settings).unwrap();
            let unknown = renders("--node=", "--nodename=").unwrap();
            accepted(&agent, &manifest::documents(&unknown).unwrap(), &settings).unwrap_err();
            let mut misspelt = case.clone();
            misspelt.set.push("config.diagnosis.quietSecond=5".to_owned());
            render(&root, program, &chart, &misspelt).unwrap_err();
            let misspelt = renders("--listen=", "--config=/none --listen=").unwrap();
            accepted(&agent, &manifest::documents(&misspelt).unwrap(), &settings).unwrap_err();
            std::fs::write(&template, &sound).unwrap();
        }
        let unknown =
            serde_json::json!({"apiVersion": "example.com/v1", "kind": "Nothing", "metadata": {"name": "x"}});
        std::fs::write(folder.path().join("unknown.yaml"), joined(std::slice::from_ref(&unknown))).unwrap();
        validate(&root, &[folder.path().join("unknown.yaml")]).unwrap_err();
        let monitor = |interval: &str| {
            serde_json::json!({"apiVersion": "monitoring.coreos.com/v1", "kind": "ServiceMonitor", "metadata": {"name": "x"},
                "spec": {"selector": {}, "endpoints": [{"port": "http", "interval": interval}]}})
        };
        validate_operated(&root, &[monitor("15s")]).unwrap();
        validate_operated(&root, &[monitor("15 seconds")]).unwrap_err();
        validate_operated(&root, &[unknown]).unwrap_err();
    }
}
