//! A kubeconfig's exec plugin: a program that prints credentials. Enters: how to run it; leaves: a token or a
//! certificate, and until when they are good. It may hang, talk without end and print nonsense. Must not know clients.
//!
//! <https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins>

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use kube::config::{ExecConfig, ExecInteractiveMode};
use serde::Deserialize;
use serde_json::{Value, json};

use firedoor_core::time::Timestamp;

/// Credentials are no longer than this, in bytes.
const MOST_OUTPUT: usize = 1 << 20;
/// What a plugin complains of, as far as it is passed on, in bytes.
const MOST_COMPLAINT: usize = 300;
/// How often it is looked whether it has ended.
const LOOK: Duration = Duration::from_millis(20);

/// Why a plugin gave nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum PluginFault {
    /// There is nothing to run.
    #[error("its exec plugin has no command")]
    Nameless,
    /// It needs a person.
    #[error("its exec plugin {0} has interactiveMode Always, and here is nobody to ask: use another user")]
    Interactive(String),
    /// It cannot be started.
    #[error("its exec plugin {command} cannot be run: {why}. Is it installed where the agent runs?")]
    Start {
        /// The program.
        command: String,
        /// Why not.
        why: std::io::Error,
    },
    /// It hangs.
    #[error(
        "its exec plugin {command} did not answer within {} s. Run it by hand and see what it waits for",
        limit.as_secs_f32().ceil()
    )]
    Silent {
        /// The program.
        command: String,
        /// How long it was waited for.
        limit: Duration,
    },
    /// It says so.
    #[error("its exec plugin {command} failed with {status}: {said}")]
    Failed {
        /// The program.
        command: String,
        /// How it ended.
        status: ExitStatus,
        /// What it complained of.
        said: String,
    },
    /// It does not come to an end.
    #[error("its exec plugin {0} printed more than {MOST_OUTPUT} bytes")]
    TooMuch(String),
    /// It prints something else.
    #[error("its exec plugin {command} did not print an ExecCredential: {why}")]
    Malformed {
        /// The program.
        command: String,
        /// What is wrong. Nothing of the output itself: it may be secret.
        why: &'static str,
    },
}

/// What a plugin gave.
#[derive(PartialEq, Eq, Default)]
pub(super) struct Issued {
    pub(super) token: Option<String>,
    /// A certificate and its key, in PEM.
    pub(super) certificate: Option<(String, String)>,
    /// Until when they are good; `None`: until they are refused.
    pub(super) until: Option<Timestamp>,
}

#[derive(Deserialize)]
struct ExecCredential {
    status: Option<Status>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    expiration_timestamp: Option<String>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

/// Runs it, for no longer than this. Blocks.
pub(super) fn run(plugin: &ExecConfig, limit: Duration) -> Result<Issued, PluginFault> {
    let command = plugin.command.clone().ok_or(PluginFault::Nameless)?;
    if plugin.interactive_mode == Some(ExecInteractiveMode::Always) {
        return Err(PluginFault::Interactive(command));
    }
    let mut program = Command::new(&command);
    program.args(plugin.args.iter().flatten());
    for variable in plugin.env.iter().flatten() {
        if let (Some(name), Some(value)) = (variable.get("name"), variable.get("value")) {
            program.env(name, value);
        }
    }
    program.env("KUBERNETES_EXEC_INFO", told(plugin).to_string());
    program.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A group of its own, so that what it starts can be ended with it.
    program.process_group(0);
    let mut child = match program.spawn() {
        Ok(child) => child,
        Err(why) => return Err(PluginFault::Start { command, why }),
    };
    let printed = printed(&mut child, &command, limit);
    if printed.is_err() {
        // What has ended already is no trouble.
        let _ = rustix::process::kill_process_group(
            rustix::process::Pid::from_child(&child),
            rustix::process::Signal::KILL,
        );
        let _ = child.kill();
        let _ = child.wait();
    }
    issued(&printed?).map_err(|why| PluginFault::Malformed { command, why })
}

/// What a plugin is told of its task.
fn told(plugin: &ExecConfig) -> Value {
    let version = plugin.api_version.as_deref().unwrap_or("client.authentication.k8s.io/v1");
    let mut spec = json!({"interactive": false});
    if plugin.provide_cluster_info
        && let Some(cluster) = &plugin.cluster
    {
        spec["cluster"] = json!(cluster);
    }
    json!({"apiVersion": version, "kind": "ExecCredential", "spec": spec})
}

/// All it prints until it ends. Its end counts and not that of its output, which a program that it left behind may hold.
fn printed(child: &mut Child, command: &str, limit: Duration) -> Result<Vec<u8>, PluginFault> {
    let failed = |why: std::io::Error| PluginFault::Start { command: command.to_owned(), why };
    let (Some(output), Some(complaint)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(failed(std::io::Error::other("it has no output")));
    };
    let mut output = Pipe::new(output).map_err(failed)?;
    let mut complaint = Pipe::new(complaint).map_err(failed)?;
    let begun = Instant::now();
    loop {
        // In this order: what it printed before it ended is there once it has.
        let ended = child.try_wait().map_err(failed)?;
        output.drain();
        complaint.drain();
        complaint.bytes.truncate(MOST_COMPLAINT);
        if output.bytes.len() > MOST_OUTPUT {
            return Err(PluginFault::TooMuch(command.to_owned()));
        }
        match ended {
            Some(status) if status.success() => return Ok(output.bytes),
            Some(status) => {
                let said = String::from_utf8_lossy(&complaint.bytes).trim().to_owned();
                return Err(PluginFault::Failed { command: command.to_owned(), status, said });
            }
            None if begun.elapsed() >= limit => {
                return Err(PluginFault::Silent { command: command.to_owned(), limit });
            }
            None => std::thread::sleep(LOOK),
        }
    }
}

/// One end of a pipe that is never waited for.
struct Pipe<R> {
    from: R,
    bytes: Vec<u8>,
}

impl<R: Read + AsFd> Pipe<R> {
    fn new(from: R) -> Result<Self, std::io::Error> {
        rustix::io::ioctl_fionbio(&from, true)?;
        Ok(Self { from, bytes: Vec::new() })
    }

    /// What there is now, and not more than is taken in.
    fn drain(&mut self) {
        let mut piece = [0; 8192];
        while self.bytes.len() <= MOST_OUTPUT {
            match self.from.read(&mut piece) {
                Ok(read) if read > 0 => self.bytes.extend_from_slice(&piece[..read]),
                _ => return,
            }
        }
    }
}

/// Reads what it printed: JSON, or YAML as some do.
fn issued(printed: &[u8]) -> Result<Issued, &'static str> {
    let credential: ExecCredential =
        serde_saphyr::from_slice(printed).map_err(|_| "it is neither JSON nor YAML of that form")?;
    let status = credential.status.ok_or("it has no status")?;
    let until = match &status.expiration_timestamp {
        Some(text) => Some(Timestamp::parse(text).ok_or("its expirationTimestamp is no time")?),
        None => None,
    };
    let token = status.token.filter(|token| !token.is_empty());
    let certificate = status.client_certificate_data.zip(status.client_key_data);
    if token.is_none() && certificate.is_none() {
        return Err("it has neither a token nor a certificate with its key");
    }
    Ok(Issued { token, certificate, until })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> ExecConfig {
        let args = vec!["-c".to_owned(), script.to_owned()];
        ExecConfig { command: Some("sh".to_owned()), args: Some(args), ..ExecConfig::default() }
    }

    fn fault(script: &str, limit: Duration) -> String {
        run(&shell(script), limit).map(|_| ()).unwrap_err().to_string()
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_plugin_gives_a_token_or_a_certificate() {
        let printed = r#"echo '{"status": {"token": "t", "expirationTimestamp": "2026-11-01T09:00:00Z"}}'"#;
        let issued = run(&shell(printed), LONG).unwrap();
        assert_eq!(issued.token.as_deref(), Some("t"));
        assert_eq!(issued.until, Timestamp::parse("2026-11-01T09:00:00Z"));
        let printed = "printf 'status:\n  clientCertificateData: c\n  clientKeyData: k\n'";
        let issued = run(&shell(printed), LONG).unwrap();
        assert_eq!(issued.certificate, Some(("c".to_owned(), "k".to_owned())));
        // It is told that nobody can be asked, and may leave something behind that holds its output.
        let asks = r#"sleep 1000 & echo "$KUBERNETES_EXEC_INFO" | grep -q '"interactive":false' && echo '{"status": {"token": "t"}}'; kill $!"#;
        assert_eq!(run(&shell(asks), LONG).unwrap().token.as_deref(), Some("t"));
    }

    #[test]
    fn a_plugin_that_gives_none_is_told_with_its_reason() {
        assert!(fault("echo no ticket >&2; exit 3", LONG).contains("exit status: 3: no ticket"));
        assert!(fault("echo '{}'", LONG).contains("no status"));
        assert!(fault("echo '{\"status\": {}}'", LONG).contains("neither a token"));
        let secret = fault("echo '{\"status\": {\"token\": \"secret'", LONG);
        assert!(secret.contains("neither JSON nor YAML") && !secret.contains("secret"), "{secret}");
        assert!(fault("yes", LONG).contains("printed more than"));
        let missing = ExecConfig { command: Some("/nowhere/plugin".to_owned()), ..ExecConfig::default() };
        let missing = run(&missing, LONG).map(|_| ()).unwrap_err().to_string();
        assert!(missing.contains("/nowhere/plugin cannot be run"), "{missing}");
    }

    #[test]
    fn a_plugin_that_hangs_is_ended_with_all_it_started() {
        let directory = tempfile::tempdir().unwrap();
        let pids = directory.path().join("pids");
        let script = format!("sleep 1000 & echo $$ $! > {}; wait", pids.display());
        let told = fault(&script, Duration::from_millis(500));
        assert!(told.contains("sh did not answer within 1 s"), "{told}");
        let pids = std::fs::read_to_string(pids).unwrap();
        let lives = |pid: &str| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/stat"));
            status.is_ok_and(|status| !status.contains(") Z "))
        };
        let begun = Instant::now();
        while pids.split_whitespace().any(lives) {
            assert!(begun.elapsed() < LONG, "one of {pids} lives");
            std::thread::yield_now();
        }
    }
}
