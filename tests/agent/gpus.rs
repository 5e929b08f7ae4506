//! A GPU exporter beside the agent: what it tells is shown, and forgotten when it tells no more.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::process::Agent;
use crate::world::{NODE, Stage};
use crate::{block, is_blocked};

/// As dcgm-exporter answers: both workers' GPUs idle, one of a pod that nobody knows, one without a pod; and a sample that
/// nothing can measure.
const EXPOSITION: &str = r#"# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-0",device="nvidia0",modelName="NVIDIA H200",Hostname="gpu-node-a",container="pytorch",namespace="ml",pod="llama-worker-0"} 0
DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-1",device="nvidia1",modelName="NVIDIA H200",Hostname="gpu-node-a",container="pytorch",namespace="ml",pod="llama-worker-1"} 0
DCGM_FI_DEV_GPU_UTIL{gpu="2",UUID="GPU-2",device="nvidia2",modelName="NVIDIA H200",Hostname="gpu-node-a",container="x",namespace="ml",pod="nobody"} 100
DCGM_FI_DEV_GPU_UTIL{gpu="3",UUID="GPU-3",device="nvidia3",modelName="NVIDIA H200",Hostname="gpu-node-a"} 0
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-0",namespace="ml",pod="llama-worker-0"} NaN
"#;

struct Exporter {
    port: u16,
    answer: Arc<Mutex<String>>,
}

impl Exporter {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let exporter = Self { port: listener.local_addr().unwrap().port(), answer: Arc::default() };
        exporter.answer("200 OK", EXPOSITION);
        let answer = Arc::clone(&exporter.answer);
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut asked = [0; 4096];
                let _ = stream.read(&mut asked).await;
                let answer = answer.lock().unwrap().clone();
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        exporter
    }

    /// Its pod, as NVIDIA's GPU operator makes it.
    fn pod(&self) -> Value {
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "nvidia-dcgm-exporter-x", "namespace": "gpu-operator", "uid": "uid-exporter",
                "labels": {"app": "nvidia-dcgm-exporter"}},
            "spec": {"nodeName": NODE, "containers": [{"name": "nvidia-dcgm-exporter",
                "ports": [{"name": "metrics", "containerPort": self.port}]}]},
            "status": {"phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}})
    }

    fn answer(&self, status: &str, body: &str) {
        let length = body.len();
        let head =
            format!("HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\n\r\n");
        *self.answer.lock().unwrap() = head + body;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_gpus_do_supports_a_finding() {
    let (stage, exporter) = (Stage::new().await, Exporter::start().await);
    let setting = format!("gpu.exporter=http://127.0.0.1:{}/metrics", exporter.port);
    let agent = Agent::start(&stage, &["--set", &setting, "--set", "gpu.scrapeSeconds=1"]);
    agent.ready().await;
    block(&stage);
    let report = agent
        .until("the block with idle GPUs", |report| {
            is_blocked(report) && report["jobs"][0]["gpu"]["state"] == "idle"
        })
        .await;
    let evidence = report["jobs"][0]["findings"][0]["evidence"].to_string();
    assert!(evidence.contains("2 of 2 measured GPUs are idle"), "{evidence}");
    let metrics = agent.metrics().await;
    assert!(metrics.contains(r#"state="idle"} 16"#), "this node's: {metrics}");
    let told = agent.until_readiness("what the exporter tells", |told| told["gpus"]["up"] == true).await;
    assert_eq!(told["gpus"]["devices"], 2, "{told:#}");
    assert!(told["gpus"]["notes"].to_string().contains("taken as not measured"), "{told:#}");

    exporter.answer("503 Service Unavailable", "not now");
    let told =
        agent.until_readiness("the exporter to be told as gone", |told| told["gpus"]["up"] == false).await;
    assert!(told["gpus"]["why"].as_str().is_some_and(|why| why.contains("503")), "{told:#}");
    assert_eq!(told["ready"], true, "nothing depends on it");
    agent.until_log("what GPUs do is not known").await;
    exporter.answer("200 OK", "DCGM_FI_DEV_GPU_UTIL{gpu=\"0\"} 3\nwhat is this");
    let told = agent.until_readiness("the exporter to be back", |told| told["gpus"]["up"] == true).await;
    let notes = told["gpus"]["notes"].to_string();
    assert!(notes.contains("no Prometheus sample") && notes.contains("DCGM_EXPORTER_KUBERNETES"), "{notes}");
}

/// Nobody has to name it: its pod is known.
#[tokio::test(flavor = "multi_thread")]
async fn an_exporter_is_found_among_the_nodes_pods() {
    let (stage, exporter) = (Stage::new().await, Exporter::start().await);
    let agent = Agent::start(&stage, &["--set", "gpu.scrapeSeconds=1"]);
    agent.ready().await;
    agent.until_readiness("no exporter to be told of", |told| told["gpus"].is_null()).await;
    stage.kube.put(exporter.pod());
    agent.until_readiness("the exporter to be found", |told| told["gpus"]["devices"] == 2).await;
    block(&stage);
    agent.until("idle GPUs", |report| report["jobs"][0]["gpu"]["state"] == "idle").await;
    assert!(stage.kube.delete("pods", "gpu-operator", "nvidia-dcgm-exporter-x"));
    agent.until_readiness("the exporter to be gone", |told| told["gpus"].is_null()).await;
}
