//! How long the policy engine takes for one large job: every ordered pair of its pods, against many policies of all
//! kinds, and how that grows with pods and with policies. Prints; fails when the engine is slower than it must be.
//! An unoptimised build only prints.

use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use firedoor_core::facts::{Namespace, Pod, Protocol};
use firedoor_core::object::Object;
use firedoor_core::policy::{
    Cni, Enforcement, Evaluator, Peer, PolicySet, Ports, Question, Settings, Verdict3,
};
use serde_json::{Value, json};

/// The job whose pairs must all be answered within [`LIMIT`], compiling the policies included.
const PODS: usize = 1000;
const POLICIES: usize = 500;
const LIMIT: Duration = Duration::from_secs(1);
const NAMESPACES: usize = 20;

/// What one round took.
struct Round {
    pods: usize,
    policies: usize,
    identities: usize,
    compile: Duration,
    evaluate: Duration,
    closed: usize,
}

/// Runs all rounds.
///
/// # Errors
/// When a made object is not one, or the engine is slower than it must be.
pub(crate) fn run() -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{:>6} {:>9} {:>11} {:>12} {:>12} {:>10}",
        "pods", "policies", "identities", "compile", "all pairs", "closed"
    )?;
    let by_pods = [250, 1000, 4000].map(|pods| (pods, POLICIES));
    let by_policies = [125, 500, 2000].map(|policies| (PODS, policies));
    for (pods, policies) in by_pods.into_iter().chain(by_policies) {
        let round = measure(pods, policies)?;
        let pairs = u32::try_from(round.pods * round.pods)?;
        writeln!(
            out,
            "{:>6} {:>9} {:>11} {:>10.1?} {:>10.1?} {:>9.0?} {:>10}",
            round.pods,
            round.policies,
            round.identities,
            round.compile,
            round.evaluate,
            round.evaluate / pairs,
            round.closed
        )?;
        if (pods, policies) == (PODS, POLICIES) && !cfg!(debug_assertions) {
            let took = round.compile + round.evaluate;
            ensure!(
                took < LIMIT,
                "{pods} pods against {policies} policies took {took:?}, more than {LIMIT:?}"
            );
        }
    }
    Ok(())
}

fn measure(pods: usize, policies: usize) -> anyhow::Result<Round> {
    let objects = (0..policies).map(policy).map(object).collect::<anyhow::Result<Vec<_>>>()?;
    let namespaces: Vec<Namespace> = (0..NAMESPACES).map(|n| Namespace::bare(&format!("team-{n}"))).collect();
    let pods = (0..pods).map(|index| pod(index, pods)).collect::<anyhow::Result<Vec<_>>>()?;
    let settings =
        Settings { cilium_version: Some((1, 18)), enforcement: Enforcement::Default, cni: Cni::Cilium };

    let start = Instant::now();
    let set = PolicySet::from_objects(&objects, &namespaces, settings);
    let compile = start.elapsed();
    ensure!(set.rejected().is_empty(), "{:?}", set.rejected());

    let start = Instant::now();
    let all: Vec<&Pod> = pods.iter().collect();
    let mut evaluator = Evaluator::new(&set, &all);
    let mut closed = 0;
    for src in &pods {
        for dst in &pods {
            let (src, dst) = (Peer::Pod(src), Peer::Pod(dst));
            let ports = Ports::Range(32_768, 60_999);
            let answer = evaluator.evaluate(&Question { src, dst, protocol: Protocol::Tcp, ports });
            closed += usize::from(answer.verdict() == Verdict3::Closed);
        }
    }
    let evaluate = start.elapsed();
    let identities = set.identities(&all).groups().len();
    Ok(Round { pods: pods.len(), policies, identities, compile, evaluate, closed })
}

fn object(value: Value) -> anyhow::Result<Object> {
    Object::from_value(value).ok().context("not an object")
}

/// A member of a job as a training operator makes it: most labels are the same, some differ from pod to pod.
fn pod(index: usize, of: usize) -> anyhow::Result<Pod> {
    let role = if index == 0 { "master" } else { "worker" };
    let object = object(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("llm-{role}-{index}"), "namespace": "team-0", "labels": {
            "training.kubeflow.org/job-name": "llm", "training.kubeflow.org/operator-name": "pytorchjob-controller",
            "training.kubeflow.org/replica-type": role, "training.kubeflow.org/replica-index": index.to_string(),
            "batch.kubernetes.io/job-completion-index": index.to_string(), "app": "llm", "team": "nlp",
            "zone": format!("zone-{}", index * 3 / of)}},
        "spec": {"nodeName": format!("gpu-{}", index / 8), "containers": [{"name": "train",
            "ports": [{"name": "rdzv", "containerPort": 29500}]}]},
        "status": {"phase": "Running", "podIP": format!("10.{}.{}.{}", index / 65_536, index / 256 % 256, index % 256)}}))?;
    Pod::from_object(&object).context("not a pod")
}

/// A policy of one of several kinds. Every fifth is about the job itself, one of those by replica index.
fn policy(number: usize) -> Value {
    let namespace = format!("team-{}", number % NAMESPACES);
    let name = format!("policy-{number}");
    let other = format!("app-{}", number / 2 % 97);
    match number % 5 {
        0 => cilium(
            &name,
            "team-0",
            json!({
            "endpointSelector": {"matchLabels": {"training.kubeflow.org/job-name": "llm", "zone": format!("zone-{}", number / 5 % 3)}},
            "ingress": [
                {"fromEndpoints": [{"matchLabels": {"app": "llm", "zone": format!("zone-{}", number / 5 % 3)}}]},
                {"fromEndpoints": [{"matchExpressions": [{"key": "training.kubeflow.org/replica-index", "operator": "In",
                    "values": [(number / 5).to_string()]}]}], "toPorts": [{"ports": [{"port": "rdzv", "protocol": "TCP"}]}]}],
            "egress": [{"toEndpoints": [{"matchLabels": {"app": "llm"}}]}, {"toEntities": ["kube-apiserver"]}]}),
        ),
        1 => cilium(
            &name,
            &namespace,
            json!({
            "endpointSelector": {"matchLabels": {"app": other}},
            "ingress": [{"fromEndpoints": [{"matchLabels": {"k8s:io.kubernetes.pod.namespace": "team-1", "app": "web"}}],
                "toPorts": [{"ports": [{"port": "8000", "endPort": 8100, "protocol": "TCP"}]}]}]}),
        ),
        2 => json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"podSelector": {"matchLabels": {"app": other}}, "policyTypes": ["Ingress", "Egress"],
                "ingress": [{"from": [{"namespaceSelector": {}}], "ports": [{"port": 443}]}],
                "egress": [{"to": [{"ipBlock": {"cidr": format!("10.{}.0.0/16", number % 256), "except": []}}]}]}}),
        3 => {
            json!({"apiVersion": "cilium.io/v2", "kind": "CiliumClusterwideNetworkPolicy", "metadata": {"name": name},
            "spec": {"endpointSelector": {"matchLabels": {"tier": other}}, "enableDefaultDeny": {"ingress": false},
                "ingressDeny": [{"fromEntities": ["world"]}]}})
        }
        _ => cilium(
            &name,
            &namespace,
            json!({
            "endpointSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}, {"key": "canary", "operator": "Exists"}]},
            "egressDeny": [{"toCIDRSet": [{"cidr": format!("172.16.{}.0/24", number % 256)}]}]}),
        ),
    }
}

fn cilium(name: &str, namespace: &str, spec: Value) -> Value {
    json!({"apiVersion": "cilium.io/v2", "kind": "CiliumNetworkPolicy",
        "metadata": {"name": name, "namespace": namespace}, "spec": spec})
}
