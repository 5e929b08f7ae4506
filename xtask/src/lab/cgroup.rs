//! Cgroups as a kubelet makes them. Enters: a pod; leaves: a directory whose path bears the pod's UID in one of the
//! forms that cgroup drivers and container runtimes use. The forms differ from pod to pod, so that each scenario has
//! all of them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::cast::{Pod, hex};

/// Makes the cgroup of a pod's container below `parent`.
pub(super) fn create(parent: &Path, pod: &Pod) -> Result<PathBuf> {
    let directory = parent.join(path(pod));
    fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
    Ok(directory)
}

/// Where a pod's container is. systemd's driver nests slices and turns the dashes of a UID into underscores;
/// cgroupfs' driver does neither.
fn path(pod: &Pod) -> PathBuf {
    let container = hex(&["container", &pod.uid], 64);
    let (uid, flat) = (&pod.uid, pod.uid.replace('-', "_"));
    PathBuf::from(match pod.seat % 4 {
        0 => format!(
            "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{flat}.slice/cri-containerd-{container}.scope"
        ),
        1 => format!("kubepods/burstable/pod{uid}/{container}"),
        2 => format!("kubepods.slice/kubepods-pod{flat}.slice/crio-{container}.scope"),
        _ => format!("kubepods/besteffort/pod{uid}/{container}"),
    })
}
