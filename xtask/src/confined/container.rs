//! The container: a root file system with nothing but the agent, and the configuration that an OCI runtime gets from
//! Kubernetes for a DaemonSet with `hostNetwork`, `hostPID`, a read-only root and `capabilities: {drop: [ALL]}`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::libraries;
use crate::pods::{NODE, OBJECTS};

/// What the agent needs: the first to load its programs and make its maps, the second to let them read the kernel's
/// memory and trace it.
pub(super) const NEEDED: [&str; 2] = ["CAP_BPF", "CAP_PERFMON"];
/// Where the host's control groups are inside: `/sys/fs/cgroup` shows a container only its own.
const CONTROL_GROUPS: &str = "/host/cgroup";
const CONFIG: &str = "[kernel]\ncgroups = \"/host/cgroup\"\nsampleMilliseconds = 500\n";

/// What the runtimes' default profile denies a container without further capabilities, by name; `bpf` and
/// `perf_event_open` come with the two capabilities.
const DENIED: [&str; 61] = [
    "acct",
    "add_key",
    "clock_adjtime",
    "clock_settime",
    "create_module",
    "delete_module",
    "fanotify_init",
    "finit_module",
    "fsconfig",
    "fsmount",
    "fsopen",
    "fspick",
    "get_kernel_syms",
    "init_module",
    "io_uring_enter",
    "io_uring_register",
    "io_uring_setup",
    "ioperm",
    "iopl",
    "kcmp",
    "kexec_file_load",
    "kexec_load",
    "keyctl",
    "lookup_dcookie",
    "mount",
    "mount_setattr",
    "move_mount",
    "move_pages",
    "name_to_handle_at",
    "nfsservctl",
    "open_by_handle_at",
    "open_tree",
    "pivot_root",
    "process_vm_readv",
    "process_vm_writev",
    "ptrace",
    "query_module",
    "quotactl",
    "quotactl_fd",
    "reboot",
    "request_key",
    "setdomainname",
    "sethostname",
    "setns",
    "settimeofday",
    "swapoff",
    "swapon",
    "syslog",
    "umount",
    "umount2",
    "unshare",
    "uselib",
    "userfaultfd",
    "ustat",
    "vhangup",
    "vm86",
    "vm86old",
    "sysfs",
    "_sysctl",
    "stime",
    "mbind",
];

/// A container that can be run.
pub(super) struct Container {
    directory: PathBuf,
    name: String,
}

impl Container {
    /// Lays everything out below `directory`.
    pub(super) fn prepare(
        directory: &Path,
        agent: &Path,
        capabilities: &[String],
        address: &str,
    ) -> Result<Self> {
        let image = directory.join("rootfs");
        for place in ["proc", "sys", "dev", "inventory", "recording", "etc/firedoor", "host/cgroup"] {
            std::fs::create_dir_all(image.join(place))
                .with_context(|| format!("cannot create {}", image.display()))?;
        }
        for place in ["inventory", "recording"] {
            std::fs::create_dir_all(directory.join(place))?;
        }
        libraries::install(agent, "firedoor", &image)?;
        std::fs::write(image.join("etc/firedoor/firedoor.toml"), CONFIG)?;
        std::fs::write(directory.join("inventory/objects.yaml"), OBJECTS)?;
        let config = config(directory, capabilities, address);
        std::fs::write(directory.join("config.json"), serde_json::to_vec_pretty(&config)?)?;
        Ok(Self { directory: directory.to_owned(), name: format!("firedoor-{}", std::process::id()) })
    }

    /// The runtime and the options it always gets.
    pub(super) fn runtime(&self) -> Vec<String> {
        let state = self.directory.join("state").display().to_string();
        ["crun", "--root", &state, "--cgroup-manager", "cgroupfs"].map(str::to_owned).into()
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Where the runtime finds the configuration.
    pub(super) fn bundle(&self) -> &Path {
        &self.directory
    }

    /// What runtime and agent say.
    pub(super) fn log(&self) -> PathBuf {
        self.directory.join("agent.log")
    }

    /// What the agent recorded.
    pub(super) fn recording(&self) -> Result<String> {
        let path = self.directory.join("recording/capture/sockets.jsonl");
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }
}

fn config(directory: &Path, capabilities: &[String], address: &str) -> Value {
    let mut denied = DENIED.to_vec();
    for (call, capability) in [("bpf", "CAP_BPF"), ("perf_event_open", "CAP_PERFMON")] {
        if !capabilities.iter().any(|name| name == capability) {
            denied.push(call);
        }
    }
    let bind = |to: &str, from: &str, access: &str| json!({"destination": to, "type": "bind", "source": from, "options": ["rbind", "rprivate", access]});
    let own = |name: &str| directory.join(name).display().to_string();
    json!({
        "ociVersion": "1.0.2",
        "hostname": NODE,
        "process": {
            "terminal": false,
            "user": {"uid": 0, "gid": 0},
            "args": ["/bin/firedoor", "agent", "--node", NODE, "--inventory", "/inventory",
                "--record", "/recording/capture", "--listen", address, "--config", "/etc/firedoor/firedoor.toml"],
            "env": ["PATH=/bin"],
            "cwd": "/",
            // As Kubernetes: neither inheritable nor ambient ones.
            "capabilities": {"bounding": capabilities, "effective": capabilities, "permitted": capabilities},
            "noNewPrivileges": true,
        },
        "root": {"path": "rootfs", "readonly": true},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"]},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=65536k"]},
            {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid", "noexec", "nodev", "ro"]},
            {"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup",
                "options": ["nosuid", "noexec", "nodev", "relatime", "ro"]},
            bind(CONTROL_GROUPS, "/sys/fs/cgroup", "ro"),
            bind("/inventory", &own("inventory"), "ro"),
            bind("/recording", &own("recording"), "rw"),
        ],
        "linux": {
            // No `network` and no `pid`: those are the host's.
            "namespaces": [{"type": "mount"}, {"type": "uts"}, {"type": "ipc"}, {"type": "cgroup"}],
            "seccomp": {
                "defaultAction": "SCMP_ACT_ALLOW",
                "syscalls": [{"names": denied, "action": "SCMP_ACT_ERRNO"}],
            },
            "maskedPaths": ["/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
                "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware"],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_the_given_capabilities() {
        let needed = NEEDED.map(str::to_owned);
        let full = config(Path::new("/x"), &needed, "127.0.0.1:1");
        let capabilities = full["process"]["capabilities"].as_object().unwrap();
        assert!(capabilities.values().all(|set| *set == json!(NEEDED)));
        assert!(!capabilities.contains_key("ambient") && !capabilities.contains_key("inheritable"));
        let denied = |config: &Value| config["linux"]["seccomp"]["syscalls"][0]["names"].to_string();
        assert!(!denied(&full).contains("\"bpf\"") && denied(&full).contains("\"setns\""));
        let less = config(Path::new("/x"), &needed[..1], "127.0.0.1:1");
        assert!(denied(&less).contains("\"perf_event_open\"") && !denied(&less).contains("\"bpf\""));
    }
}
