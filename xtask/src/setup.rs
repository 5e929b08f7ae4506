//! `setup`: what the other commands need. Enters: this machine; leaves: the same machine with nothing missing,
//! or a list of what a person has to install. Does nothing where nothing is missing.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command::{command, output, succeed, typed};
use crate::deploy::tools;
use crate::ebpf;

/// The version of cargo-deny that the checks were written for.
const CARGO_DENY: &str = "0.20.2";

/// What a requirement is for: a command asks only for what it needs itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// Building firedoor.
    Build,
    /// `cargo xtask test`.
    Checks,
    /// `cargo xtask test`: what may come into the build.
    Supply,
    /// Steady numbers from `cargo xtask bench`.
    Bench,
    /// `cargo xtask lab`.
    Lab,
    /// `cargo xtask lab --workload torch`: large, and installed only when that is asked for.
    LabTorch,
    /// The small pods of `cargo xtask confined` and `cargo xtask vm`.
    Pods,
    /// `cargo xtask confined`.
    Confined,
    /// `cargo xtask vm`: large, and installed only when that is asked for.
    Vm,
    /// `cargo xtask deploy`.
    Deploy,
}

/// Something that must be on the machine.
struct Requirement {
    name: &'static str,
    /// The program to ask for its version, and what the answer must contain.
    probe: Probe,
    install: Install,
    purpose: Purpose,
    needed_for: &'static str,
}

/// How to see whether it is there.
struct Probe {
    program: &'static str,
    arguments: &'static [&'static str],
    says: &'static str,
}

/// How to get it.
enum Install {
    /// A package of the system, by its Debian name.
    System { package: &'static str },
    /// A component of the Rust toolchain.
    Rustup { component: &'static str },
    /// A Rust program, built into `tools/` in this checkout.
    Cargo { package: &'static str, version: &'static str },
    /// Put into `tools/` in this checkout by commands of its own, some of which need Debian's package manager.
    Own { commands: fn(&Path) -> Vec<Command>, by_hand: &'static str },
}

const REQUIREMENTS: [Requirement; 25] = [
    Requirement {
        name: "git",
        probe: Probe { program: "git", arguments: &["--version"], says: "git version" },
        install: Install::System { package: "git" },
        purpose: Purpose::Checks,
        needed_for: "tidy looks at the files that git knows",
    },
    Requirement {
        name: "C compiler",
        probe: Probe { program: "cc", arguments: &["--version"], says: "" },
        install: Install::System { package: "gcc" },
        purpose: Purpose::Build,
        needed_for: "linking, and building zstd",
    },
    Requirement {
        name: "rustfmt",
        probe: Probe { program: "cargo", arguments: &["fmt", "--version"], says: "rustfmt" },
        install: Install::Rustup { component: "rustfmt" },
        purpose: Purpose::Checks,
        needed_for: "the format of the source",
    },
    Requirement {
        name: "clippy",
        probe: Probe { program: "cargo", arguments: &["clippy", "--version"], says: "clippy" },
        install: Install::Rustup { component: "clippy" },
        purpose: Purpose::Checks,
        needed_for: "lints",
    },
    Requirement {
        name: "cargo-deny",
        probe: Probe { program: "tools/bin/cargo-deny", arguments: &["--version"], says: CARGO_DENY },
        install: Install::Cargo { package: "cargo-deny", version: CARGO_DENY },
        purpose: Purpose::Supply,
        needed_for: "licences, sources and advisories of what is built in",
    },
    Requirement {
        name: "taskset",
        probe: Probe { program: "taskset", arguments: &["--version"], says: "taskset" },
        install: Install::System { package: "util-linux" },
        purpose: Purpose::Bench,
        needed_for: "pinning a measurement to one core",
    },
    Requirement {
        name: "ip",
        probe: Probe { program: "ip", arguments: &["-Version"], says: "iproute2" },
        install: Install::System { package: "iproute2" },
        purpose: Purpose::Lab,
        needed_for: "the lab's network namespaces",
    },
    Requirement {
        name: "tc",
        probe: Probe { program: "tc", arguments: &["-Version"], says: "iproute2" },
        install: Install::System { package: "iproute2" },
        purpose: Purpose::Lab,
        needed_for: "the lab's programs on interfaces",
    },
    Requirement {
        name: "ss",
        probe: Probe { program: "ss", arguments: &["-Version"], says: "iproute2" },
        install: Install::System { package: "iproute2" },
        purpose: Purpose::Lab,
        needed_for: "a second look at the lab's sockets",
    },
    Requirement {
        name: "nft",
        probe: Probe { program: "nft", arguments: &["--version"], says: "nftables" },
        install: Install::System { package: "nftables" },
        purpose: Purpose::Lab,
        needed_for: "the lab's packet filters",
    },
    Requirement {
        name: "nsenter",
        probe: Probe { program: "nsenter", arguments: &["--version"], says: "util-linux" },
        install: Install::System { package: "util-linux" },
        purpose: Purpose::Lab,
        needed_for: "running the lab's processes in their namespaces",
    },
    Requirement {
        name: "python3",
        probe: Probe { program: "python3", arguments: &["--version"], says: "Python 3" },
        install: Install::System { package: "python3" },
        purpose: Purpose::Lab,
        needed_for: "clients in the probes' tests",
    },
    Requirement {
        name: "PyTorch",
        probe: Probe {
            program: "/usr/bin/python3",
            arguments: &["-c", "import torch; print('torch', torch.__version__)"],
            says: "torch",
        },
        install: Install::System { package: "python3-torch" },
        purpose: Purpose::LabTorch,
        needed_for: "the lab's workload in PyTorch",
    },
    Requirement {
        name: "busybox",
        probe: Probe { program: "/bin/busybox", arguments: &["--help"], says: "BusyBox" },
        install: Install::System { package: "busybox-static" },
        purpose: Purpose::Pods,
        needed_for: "pods that also stand in a virtual machine",
    },
    Requirement {
        name: "crun",
        probe: Probe { program: "crun", arguments: &["--version"], says: "crun version" },
        install: Install::System { package: "crun" },
        purpose: Purpose::Confined,
        needed_for: "the agent in a container",
    },
    Requirement {
        name: "qemu",
        probe: Probe { program: "qemu-system-x86_64", arguments: &["--version"], says: "QEMU" },
        install: Install::System { package: "qemu-system-x86" },
        purpose: Purpose::Vm,
        needed_for: "machines with other kernels",
    },
    Requirement {
        name: "xz",
        probe: Probe { program: "xz", arguments: &["--version"], says: "xz" },
        install: Install::System { package: "xz-utils" },
        purpose: Purpose::Vm,
        needed_for: "unpacking a kernel's modules",
    },
    Requirement {
        name: "Prometheus",
        probe: Probe { program: tools::PROMTOOL, arguments: &["--version"], says: "promtool" },
        install: Install::Own {
            commands: tools::prometheus,
            by_hand: "Prometheus in tools/prometheus/usr/bin",
        },
        purpose: Purpose::Deploy,
        needed_for: "rules and dashboard",
    },
    Requirement {
        name: "Alertmanager",
        probe: Probe { program: "sh", arguments: &["-c", tools::ALERTMANAGER_PROBE], says: "alertmanager" },
        install: Install::Own {
            commands: tools::prometheus,
            by_hand: "Alertmanager in tools/prometheus/usr/bin",
        },
        purpose: Purpose::Deploy,
        needed_for: "alerts on their way to a person",
    },
    Requirement {
        name: "python3 for deploy",
        probe: Probe {
            program: "python3",
            arguments: &["-c", "import ensurepip, venv; print('venv')"],
            says: "venv",
        },
        install: Install::System { package: "python3-venv" },
        purpose: Purpose::Deploy,
        needed_for: "validating manifests",
    },
    Requirement {
        name: "kubernetes-validate",
        probe: Probe { program: tools::KUBERNETES_VALIDATE, arguments: &["--version"], says: "1.37" },
        install: Install::Own {
            commands: tools::kubernetes_validate,
            by_hand: "the packages of xtask/src/deploy/requirements.txt in a Python environment in tools/python",
        },
        purpose: Purpose::Deploy,
        needed_for: "validating manifests",
    },
    Requirement {
        name: "Helm 3",
        probe: Probe { program: tools::HELM[0].1, arguments: &["version", "--short"], says: "v3." },
        install: Install::Own { commands: tools::helm, by_hand: "Helm 3 as tools/helm/3/helm" },
        purpose: Purpose::Deploy,
        needed_for: "rendering the chart",
    },
    Requirement {
        name: "Helm 4",
        probe: Probe { program: tools::HELM[1].1, arguments: &["version", "--short"], says: "v4." },
        install: Install::Own { commands: tools::helm, by_hand: "Helm 4 as tools/helm/4/helm" },
        purpose: Purpose::Deploy,
        needed_for: "rendering the chart",
    },
    Requirement {
        name: "npm",
        probe: Probe { program: "npm", arguments: &["--version"], says: "." },
        install: Install::System { package: "npm" },
        purpose: Purpose::Deploy,
        needed_for: "validating resources of Prometheus Operator",
    },
    Requirement {
        name: "schemas of Prometheus Operator",
        probe: Probe {
            program: "npm",
            arguments: &["ls", "--prefix", tools::NODE_MODULES, "@kubernetes-models/prometheus-operator"],
            says: "@kubernetes-models/prometheus-operator@6.0.0",
        },
        install: Install::Own {
            commands: tools::schemas,
            by_hand: "the packages of xtask/src/deploy/npm/package.json in tools/npm",
        },
        purpose: Purpose::Deploy,
        needed_for: "validating resources of Prometheus Operator",
    },
];

/// Installs everything that is missing.
///
/// # Errors
/// When something is missing and cannot be installed from here: the message says what to install.
pub(crate) fn run(root: &Path) -> Result<()> {
    let large = |requirement: &&Requirement| matches!(requirement.purpose, Purpose::LabTorch | Purpose::Vm);
    provide(root, REQUIREMENTS.iter().filter(|requirement| !large(requirement)), true)?;
    ebpf::ensure(root)?;
    println!("BPF compiler and linker: there");
    Ok(())
}

/// Installs packages of the system.
///
/// # Errors
/// When this machine does not let it, or the package manager fails.
pub(crate) fn install_packages(root: &Path, packages: &[&'static str]) -> Result<()> {
    for package in packages {
        let install = Install::System { package };
        let Some(commands) = installation(root, &install, Machine::here()) else {
            bail!("{} cannot be installed from here", by_hand_hint(&install));
        };
        for mut command in commands {
            println!("{}", typed(&command));
            succeed(&mut command).with_context(|| format!("{package} could not be installed"))?;
        }
    }
    Ok(())
}

/// Installs what is missing for one purpose; says nothing when nothing is.
///
/// # Errors
/// As [`run`].
pub(crate) fn ensure(root: &Path, purpose: Purpose) -> Result<()> {
    provide(root, REQUIREMENTS.iter().filter(|requirement| requirement.purpose == purpose), false)
}

/// The program that a Rust requirement was built into.
pub(crate) fn tool(root: &Path, name: &str) -> PathBuf {
    root.join("tools/bin").join(name)
}

fn provide<'a>(
    root: &Path,
    requirements: impl Iterator<Item = &'a Requirement>,
    verbose: bool,
) -> Result<()> {
    let mut by_hand = Vec::new();
    for requirement in requirements {
        let Requirement { name, needed_for, .. } = requirement;
        if present(root, &requirement.probe) {
            if verbose {
                println!("{name}: there");
            }
            continue;
        }
        println!("{name}: missing. Needed for: {needed_for}");
        let Some(commands) = installation(root, &requirement.install, Machine::here()) else {
            by_hand.push(format!("{name} ({})", by_hand_hint(&requirement.install)));
            continue;
        };
        for mut command in commands {
            println!("{name}: {}", typed(&command));
            succeed(&mut command).with_context(|| format!("{name} could not be installed"))?;
        }
        if !present(root, &requirement.probe) {
            bail!("{name} was installed but is still not there");
        }
    }
    if !by_hand.is_empty() {
        bail!("please install by hand: {}", by_hand.join(", "));
    }
    Ok(())
}

fn present(root: &Path, probe: &Probe) -> bool {
    // A relative program is one of this checkout's own tools.
    let program =
        if probe.program.contains('/') { root.join(probe.program) } else { PathBuf::from(probe.program) };
    let mut command = command(root, &program.to_string_lossy(), probe.arguments);
    output(&mut command).is_some_and(|said| said.contains(probe.says))
}

/// What this machine lets `setup` do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Machine {
    /// Debian's package manager, and the right to use it.
    AptAsRoot,
    /// Anything else: a person has to do it.
    Other,
}

impl Machine {
    fn here() -> Self {
        let root = output(Command::new("id").arg("-u")).is_some_and(|id| id.trim() == "0");
        let apt = output(Command::new("apt-get").arg("--version")).is_some();
        if root && apt { Self::AptAsRoot } else { Self::Other }
    }
}

/// The commands that install it; `None` where only a person can.
fn installation(root: &Path, install: &Install, machine: Machine) -> Option<Vec<Command>> {
    match *install {
        Install::System { package } if machine == Machine::AptAsRoot => {
            let mut install =
                command(root, "apt-get", &["install", "--yes", "--no-install-recommends", package]);
            install.env("DEBIAN_FRONTEND", "noninteractive");
            Some(vec![command(root, "apt-get", &["update", "--quiet"]), install])
        }
        Install::System { .. } => None,
        Install::Rustup { component } => {
            Some(vec![command(root, "rustup", &["component", "add", component])])
        }
        Install::Cargo { package, version } => {
            let arguments = ["install", "--locked", "--root", "tools", "--version", version, package];
            Some(vec![command(root, "cargo", &arguments)])
        }
        Install::Own { commands, .. } => {
            let commands = commands(root);
            let apt = commands.iter().any(|command| command.get_program() == "apt-get");
            (!apt || machine == Machine::AptAsRoot).then_some(commands)
        }
    }
}

fn by_hand_hint(install: &Install) -> String {
    match *install {
        Install::System { package } => format!("Debian's package {package}"),
        Install::Rustup { component } => format!("rustup component add {component}"),
        Install::Cargo { package, version } => format!("cargo install {package} --version {version}"),
        Install::Own { by_hand, .. } => by_hand.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_counts_only_when_it_says_the_right_thing() {
        let root = Path::new("/");
        let probe = |program, says| present(root, &Probe { program, arguments: &["--version"], says });
        assert!(probe("cargo", "cargo"));
        assert!(!probe("cargo", "no such words"));
        assert!(!probe("no-such-program", ""));
        assert!(!probe("tools/bin/no-such-program", ""));
    }

    #[test]
    fn each_requirement_can_be_had_on_debian_and_is_explained_elsewhere() {
        for requirement in &REQUIREMENTS {
            let commands = installation(Path::new("/"), &requirement.install, Machine::AptAsRoot).unwrap();
            assert!(commands.iter().all(|command| !typed(command).is_empty()), "{}", requirement.name);
            assert!(!by_hand_hint(&requirement.install).is_empty());
            assert!(!requirement.needed_for.is_empty());
        }
        assert!(installation(Path::new("/"), &Install::System { package: "git" }, Machine::Other).is_none());
    }
}
