//! Whose socket is it? A socket belongs to a pod through its control group, whose path carries the pod's UID,
//! whatever the driver and the runtime; where the kernel cannot tell control groups (version 1 alone), through its
//! network namespace. Enters: inodes; leaves: pod UIDs. Looks at the host's file systems when it meets something
//! new, and not too often.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The least time between two searches of the control groups. What a search did not find is not searched again.
const PAUSE: Duration = Duration::from_millis(50);
/// The least time between two searches of the processes, which cost more.
const PROCESS_PAUSE: Duration = Duration::from_secs(2);
/// Directories looked at in one search, at most: a node has some hundred.
const MOST_DIRECTORIES: usize = 65_536;
/// Processes looked at in one search, at most.
const MOST_PROCESSES: usize = 65_536;
/// The root of the control groups: it says nothing.
const ROOT_CGROUP: u64 = 1;

/// Who owns a socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Owner {
    /// The pod with this UID.
    Pod(Arc<str>),
    /// No pod.
    Nobody,
    /// Cannot be known, at least not yet.
    Unknown,
}

type ByInode = HashMap<u64, Owner, foldhash::fast::RandomState>;
type PodByNamespace = HashMap<u32, Arc<str>, foldhash::fast::RandomState>;

/// Knows the owners of control groups and network namespaces.
pub struct Owners {
    cgroups: Option<PathBuf>,
    processes: PathBuf,
    by_cgroup: ByInode,
    by_netns: PodByNamespace,
    host_netns: Vec<u32>,
    /// Monotonic nanoseconds.
    searched_cgroups: Option<u64>,
    searched_processes: Option<u64>,
}

impl Owners {
    /// With the host's control groups (version 2) and processes, and the namespaces that belong to no pod.
    #[must_use]
    pub fn new(cgroups: Option<PathBuf>, processes: PathBuf, host_netns: Vec<u32>) -> Self {
        Self {
            cgroups,
            processes,
            by_cgroup: ByInode::default(),
            by_netns: PodByNamespace::default(),
            host_netns,
            searched_cgroups: None,
            searched_processes: None,
        }
    }

    /// The owner of a socket in this control group (0: not known) and network namespace. `now` is monotonic, in
    /// nanoseconds.
    pub fn of(&mut self, cgroup: u64, netns: u32, now: u64) -> Owner {
        if cgroup > ROOT_CGROUP {
            if !self.by_cgroup.contains_key(&cgroup) && due(self.searched_cgroups, now, PAUSE) {
                self.searched_cgroups = Some(now);
                self.search_cgroups();
                self.by_cgroup.entry(cgroup).or_insert(Owner::Unknown);
            }
            match self.by_cgroup.get(&cgroup) {
                Some(Owner::Pod(uid)) => {
                    if netns != 0 && !self.host_netns.contains(&netns) {
                        self.by_netns.insert(netns, Arc::clone(uid));
                    }
                    return Owner::Pod(Arc::clone(uid));
                }
                Some(Owner::Nobody) => return Owner::Nobody,
                Some(Owner::Unknown) | None => {}
            }
        }
        self.of_netns(netns, now)
    }

    /// The pod whose network namespace this is.
    pub fn of_netns(&mut self, netns: u32, now: u64) -> Owner {
        if netns == 0 || self.host_netns.contains(&netns) {
            return Owner::Unknown;
        }
        if !self.by_netns.contains_key(&netns) && due(self.searched_processes, now, PROCESS_PAUSE) {
            self.searched_processes = Some(now);
            self.search_processes();
        }
        self.by_netns.get(&netns).map_or(Owner::Unknown, |uid| Owner::Pod(Arc::clone(uid)))
    }

    fn search_cgroups(&mut self) {
        let Some(root) = self.cgroups.clone() else { return };
        let mut found = ByInode::default();
        let mut waiting: Vec<(PathBuf, Option<Arc<str>>)> = vec![(root, None)];
        while let Some((directory, pod)) = waiting.pop() {
            if found.len() >= MOST_DIRECTORIES {
                break;
            }
            let Ok(entries) = std::fs::read_dir(&directory) else { continue };
            for entry in entries.flatten() {
                if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    continue;
                }
                let Ok(metadata) = entry.metadata() else { continue };
                let own = entry.file_name().to_str().and_then(pod_uid).map(Arc::from);
                let pod = own.or_else(|| pod.clone());
                found.insert(metadata.ino(), pod.clone().map_or(Owner::Nobody, Owner::Pod));
                waiting.push((entry.path(), pod));
            }
        }
        // Control groups that are gone keep their owner until there are too many: their sockets may live on.
        if self.by_cgroup.len() > 2 * MOST_DIRECTORIES {
            self.by_cgroup.clear();
        }
        self.by_cgroup.extend(found);
    }

    /// Which pod's processes live in which network namespace.
    fn search_processes(&mut self) {
        let Ok(processes) = std::fs::read_dir(&self.processes) else { return };
        for process in processes.flatten().take(MOST_PROCESSES) {
            if !process.file_name().to_str().is_some_and(|name| name.bytes().all(|b| b.is_ascii_digit())) {
                continue;
            }
            let path = process.path();
            let Some(netns) = namespace_inode(&path.join("ns/net")) else { continue };
            if self.host_netns.contains(&netns) || self.by_netns.contains_key(&netns) {
                continue;
            }
            let Ok(groups) = std::fs::read_to_string(path.join("cgroup")) else { continue };
            if let Some(uid) = groups.lines().find_map(|line| line.split('/').rev().find_map(pod_uid)) {
                self.by_netns.insert(netns, uid.into());
            }
        }
    }
}

fn due(last: Option<u64>, now: u64, pause: Duration) -> bool {
    last.is_none_or(|last| u128::from(now.saturating_sub(last)) >= pause.as_nanos())
}

/// The inode of a namespace, from its file.
#[must_use]
pub fn namespace_inode(file: &Path) -> Option<u32> {
    u32::try_from(std::fs::metadata(file).ok()?.ino()).ok()
}

/// Where the control groups of version 2 are mounted, as this process sees it.
#[must_use]
pub fn cgroup2_mount(mountinfo: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        kind.starts_with("cgroup2 ").then(|| mount.split(' ').nth(4)).flatten().map(PathBuf::from)
    })
}

/// The pod's UID in one part of a control group's path, in the forms of the kubelet's drivers: `pod<uid>`
/// (cgroupfs) and `...-pod<uid with underscores>.slice` (systemd, also below another slice). Static pods have a
/// hash of 32 hexadecimal digits.
#[must_use]
pub fn pod_uid(part: &str) -> Option<String> {
    let name = part.strip_suffix(".slice").unwrap_or(part);
    let (before, uid) = name.rsplit_once("pod")?;
    if !before.is_empty() && !before.ends_with('-') {
        return None;
    }
    let uid = uid.replace('_', "-");
    let digits = uid.bytes().filter(u8::is_ascii_hexdigit).count();
    let dashes: Vec<usize> = uid.match_indices('-').map(|(at, _)| at).collect();
    let shaped = dashes.is_empty() || dashes == [8, 13, 18, 23];
    (digits == 32 && digits + dashes.len() == uid.len() && shaped).then_some(uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0f6b1c2e-4a1d-4c55-9d8e-2f1f6f0a7b11";

    #[test]
    fn all_forms_of_path() {
        let underscored = UID.replace('-', "_");
        for part in [
            format!("pod{UID}"),
            format!("kubepods-pod{underscored}.slice"),
            format!("kubepods-burstable-pod{underscored}.slice"),
            format!("kubelet-kubepods-besteffort-pod{underscored}.slice"),
        ] {
            assert_eq!(pod_uid(&part).as_deref(), Some(UID), "{part}");
        }
        assert_eq!(
            pod_uid("pod0123456789abcdef0123456789abcdef").as_deref(),
            Some("0123456789abcdef0123456789abcdef")
        );
        for other in [
            "kubepods.slice",
            "kubepods",
            "pod",
            "podman-1234.scope",
            "libpod-abc.scope",
            "besteffort",
            "xpod",
        ] {
            assert_eq!(pod_uid(other), None, "{other}");
        }
        assert_eq!(pod_uid(&format!("xpod{UID}")), None);
        assert_eq!(pod_uid(&format!("pod{}", &UID[1..])), None);
    }

    #[test]
    fn containers_inherit_their_pod() {
        let root = tempfile::tempdir().unwrap();
        let forms = [
            format!(
                "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{}.slice/cri-containerd-{:064x}.scope",
                UID.replace('-', "_"),
                1
            ),
            format!("kubepods/besteffort/pod{UID}/{:064x}", 2),
            format!(
                "kubepods.slice/kubepods-pod{}.slice/crio-{:064x}.scope/container",
                UID.replace('-', "_"),
                3
            ),
        ];
        let mut owners = Owners::new(Some(root.path().to_owned()), root.path().join("proc"), vec![7]);
        for form in &forms {
            std::fs::create_dir_all(root.path().join(form)).unwrap();
        }
        std::fs::create_dir_all(root.path().join("system.slice/sshd.service")).unwrap();
        let inode = |path: &str| std::fs::metadata(root.path().join(path)).unwrap().ino();
        for form in &forms {
            assert_eq!(owners.of(inode(form), 9, 1), Owner::Pod(UID.into()), "{form}");
        }
        assert_eq!(owners.of(inode("system.slice/sshd.service"), 7, 1), Owner::Nobody);
        // Learnt from the sockets: whose network namespace this is.
        assert_eq!(owners.of(0, 9, 1), Owner::Pod(UID.into()));
        assert_eq!(owners.of(0, 7, 1), Owner::Unknown);
        assert_eq!(owners.of(ROOT_CGROUP, 8, 1), Owner::Unknown);
    }

    #[test]
    fn new_control_groups_are_found() {
        let root = tempfile::tempdir().unwrap();
        let mut owners = Owners::new(Some(root.path().to_owned()), root.path().join("proc"), vec![]);
        assert_eq!(owners.of(u64::MAX, 0, 1), Owner::Unknown);
        assert_eq!(owners.of(ROOT_CGROUP, 0, 1), Owner::Unknown);
        let path = root.path().join(format!("kubepods/pod{UID}"));
        std::fs::create_dir_all(&path).unwrap();
        let inode = std::fs::metadata(&path).unwrap().ino();
        assert_eq!(owners.of(inode, 0, 2), Owner::Unknown, "not searched again so soon");
        assert_eq!(owners.of(inode, 0, 2_000_000_000), Owner::Pod(UID.into()));
    }

    #[test]
    fn version_one_tells_by_process() {
        let root = tempfile::tempdir().unwrap();
        let process = root.path().join("41");
        std::fs::create_dir_all(process.join("ns")).unwrap();
        std::fs::write(process.join("ns/net"), "").unwrap();
        std::fs::write(process.join("cgroup"), format!("11:cpu:/kubepods/burstable/pod{UID}/{:064x}\n", 5))
            .unwrap();
        let netns = namespace_inode(&process.join("ns/net")).unwrap();
        let mut owners = Owners::new(None, root.path().to_owned(), vec![]);
        assert_eq!(owners.of(ROOT_CGROUP, netns, 1), Owner::Pod(UID.into()));
    }

    #[test]
    fn the_mount_is_found() {
        let mountinfo = "25 30 0:22 / /sys rw - sysfs sysfs rw\n\
                         31 25 0:27 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n";
        assert_eq!(cgroup2_mount(mountinfo), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        assert_eq!(cgroup2_mount("25 30 0:22 / /sys rw - sysfs sysfs rw\n"), None);
    }
}
