//! The two servers as child processes. Enters: a folder, and whom they talk to; leaves: servers that answer. Must not know
//! what they are asked.

use std::fmt::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::{Target, http};
use crate::command::{typed, wait_for};
use crate::deploy::rules::RULES;
use crate::deploy::tools::{ALERTMANAGER, PROMETHEUS};

/// How long a server may take to answer, on a busy machine.
const STARTING: Duration = Duration::from_secs(60);
/// A free port may be taken by somebody else before the server has it.
const TRIES: usize = 5;
/// The interval that the rules are shipped with.
const SHIPPED: &str = "interval: 15s\n";

/// A server that answers; it ends when this is dropped.
pub(super) struct Server {
    process: Child,
    address: SocketAddr,
}

impl Server {
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts it on a free port and waits for `ready`. The port's option comes last.
    fn start(
        name: &str,
        folder: &Path,
        command: impl Fn(SocketAddr) -> Command,
        ready: &str,
    ) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        for _ in 0..TRIES {
            let address = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?;
            let mut command = command(address);
            let output =
                std::fs::File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
            command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
            let process = command.spawn().with_context(|| format!("cannot run `{}`", typed(&command)))?;
            let mut server = Self { process, address };
            let answers = wait_for(&format!("{name} to be ready"), STARTING, || {
                if server.process.try_wait()?.is_some() {
                    return Ok(Some(false));
                }
                Ok(http::get(address, ready).is_ok_and(|(status, _)| status == 200).then_some(true))
            })?;
            if answers {
                return Ok(server);
            }
        }
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        bail!("{name} ends by itself: {}", said.trim());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The program; the kernel ends it should this process be killed.
fn program(root: &Path, program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(root.join(program));
    command
}

/// Alertmanager, telling everything at once to the webhook.
pub(super) fn alertmanager(root: &Path, folder: &Path, webhook: SocketAddr) -> Result<Server> {
    let config = json!({
        "route": {"receiver": "hook", "group_by": ["..."], "group_wait": "0s", "group_interval": "1s",
            "repeat_interval": "1h"},
        "receivers": [{"name": "hook", "webhook_configs": [{"url": format!("http://{webhook}/"), "send_resolved": true}]}],
    });
    let file = written(folder, "alertmanager.yaml", &config)?;
    let command = |address: SocketAddr| {
        let mut command = program(root, ALERTMANAGER);
        command.arg(format!("--config.file={file}"));
        command.arg(format!("--storage.path={}", folder.join("alertmanager").display()));
        command.arg("--cluster.listen-address=").arg(format!("--web.listen-address={address}"));
        command
    };
    Server::start("alertmanager", folder, command, "/-/ready")
}

/// Prometheus, with the shipped rules.
pub(super) fn prometheus(
    root: &Path,
    folder: &Path,
    targets: &[Target],
    alertmanager: SocketAddr,
    interval: Duration,
) -> Result<Server> {
    let interval = format!("{}s", interval.as_secs().max(1));
    let shipped =
        std::fs::read_to_string(root.join(RULES)).with_context(|| format!("cannot read {RULES}"))?;
    std::fs::write(folder.join("firedoor.rules.yaml"), evaluated_every(&shipped, &interval)?)?;
    let targets: Vec<Value> = targets
        .iter()
        .map(|target| json!({"targets": [target.address.to_string()], "labels": {"instance": target.node}}))
        .collect();
    let config = json!({
        "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
        "rule_files": [folder.join("firedoor.rules.yaml")],
        "scrape_configs": [{"job_name": "firedoor", "honor_labels": true, "static_configs": targets}],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager.to_string()]}]}]},
    });
    let file = written(folder, "prometheus.yaml", &config)?;
    let command = |address: SocketAddr| {
        let mut command = program(root, PROMETHEUS);
        command.arg(format!("--config.file={file}"));
        command.arg(format!("--storage.tsdb.path={}", folder.join("prometheus").display()));
        // Should Alertmanager miss one.
        command.arg("--rules.alert.resend-delay=5s").arg(format!("--web.listen-address={address}"));
        command
    };
    Server::start("prometheus", folder, command, "/-/ready")
}

/// JSON is YAML.
fn written(folder: &Path, name: &str, config: &Value) -> Result<String> {
    let mut text = String::new();
    write!(text, "{config:#}")?;
    let file = folder.join(name);
    std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file.display().to_string())
}

/// The rules with another interval of their groups, and nothing else changed.
fn evaluated_every(rules: &str, interval: &str) -> Result<String> {
    let groups = rules.matches("\n  - name: ").count();
    if groups == 0 || rules.matches(SHIPPED).count() != groups {
        bail!("{RULES}: not every group has `{}`", SHIPPED.trim());
    }
    Ok(rules.replace(SHIPPED, &format!("interval: {interval}\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_groups_interval_changes() {
        let shipped = std::fs::read_to_string(crate::root().join(RULES)).unwrap();
        let fast = evaluated_every(&shipped, "1s").unwrap();
        let different: Vec<(&str, &str)> =
            shipped.lines().zip(fast.lines()).filter(|(one, other)| one != other).collect();
        assert_eq!(different, [("    interval: 15s", "    interval: 1s"); 2]);
        assert!(evaluated_every(&shipped.replacen(SHIPPED, "interval: 30s\n", 1), "1s").is_err());
        assert!(evaluated_every("groups:\n", "1s").is_err());
    }
}
