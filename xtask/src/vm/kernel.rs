//! A kernel of Debian's, from its package. Enters: which one; leaves: its image and its modules in a directory. The
//! package manager gets a configuration of its own, so that it neither installs anything nor learns of other suites.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command::{output, succeed};

/// The smaller one of Debian's variants: for virtual machines.
const PACKAGE: &str = "linux-image-cloud-amd64";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// A kernel that is known here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(super) enum Release {
    /// Debian 12's.
    #[value(name = "6.1")]
    Bookworm,
    /// Debian 13's, also in Debian 12's backports.
    #[value(name = "6.12")]
    Backports,
}

impl Release {
    pub(super) const ALL: [Self; 2] = [Self::Bookworm, Self::Backports];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bookworm => "6.1",
            Self::Backports => "6.12",
        }
    }

    fn suite(self) -> &'static str {
        match self {
            Self::Bookworm => "bookworm",
            Self::Backports => "bookworm-backports",
        }
    }
}

/// An unpacked kernel.
pub(super) struct Kernel {
    directory: PathBuf,
    package: String,
}

impl Kernel {
    /// Downloads and unpacks it below `directory`, unless it lies there.
    pub(super) fn provide(release: Release, directory: &Path) -> Result<Self> {
        let kernel = directory.join("kernel");
        let name = directory.join("package");
        if let Ok(package) = std::fs::read_to_string(&name) {
            return Ok(Self { directory: kernel, package: package.trim().to_owned() });
        }
        let apt = Apt::new(release, &directory.join("apt"))?;
        let package = apt.download(directory)?;
        for entry in std::fs::read_dir(directory)?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(&format!("{package}_")) {
                succeed(Command::new("dpkg").arg("-x").arg(entry.path()).arg(&kernel))?;
                std::fs::remove_file(entry.path())?;
                std::fs::write(&name, &package)?;
                return Ok(Self { directory: kernel, package });
            }
        }
        bail!("the package manager left no {package} in {}", directory.display());
    }

    /// Its package's name.
    pub(super) fn package(&self) -> &str {
        &self.package
    }

    /// The file to boot.
    pub(super) fn image(&self) -> Result<PathBuf> {
        let entries = std::fs::read_dir(self.directory.join("boot"))?.flatten();
        let mut files = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("vmlinuz-"));
        Ok(files.next().context("the package has no kernel")?.path())
    }

    /// A module, uncompressed; its name without an ending.
    pub(super) fn module(&self, name: &str) -> Result<Vec<u8>> {
        let modules = self.directory.join("lib/modules");
        let release = std::fs::read_dir(&modules)?.flatten().next().context("the package has no modules")?;
        let path = release.path().join("kernel").join(name);
        let plain = path.with_extension("ko");
        if plain.is_file() {
            return Ok(std::fs::read(&plain)?);
        }
        let packed = path.with_extension("ko.xz");
        let unpacked = Command::new("xz").args(["--decompress", "--stdout"]).arg(&packed).output()?;
        if !unpacked.status.success() {
            bail!("cannot unpack {}", packed.display());
        }
        Ok(unpacked.stdout)
    }
}

/// The package manager, for one suite.
struct Apt {
    options: Vec<String>,
}

impl Apt {
    fn new(release: Release, directory: &Path) -> Result<Self> {
        for place in ["lists/partial", "archives/partial"] {
            std::fs::create_dir_all(directory.join(place))?;
        }
        let known = output(Command::new("apt-cache").args(["policy", "base-files"]));
        let mirror = known.as_deref().and_then(mirror).context("this machine knows no mirror of Debian")?;
        let list = format!("deb [signed-by={KEYRING}] {mirror} {} main\n", release.suite());
        std::fs::write(directory.join("sources.list"), list)?;
        std::fs::write(directory.join("status"), "")?;
        let option = |name: &str, value: String| ["-o".to_owned(), format!("{name}={value}")];
        let own = |name: &str| directory.join(name).display().to_string();
        let options = [
            option("Dir::Etc::SourceList", own("sources.list")),
            option("Dir::Etc::SourceParts", "/dev/null".to_owned()),
            option("Dir::State::Lists", own("lists")),
            option("Dir::State::Status", own("status")),
            option("Dir::Cache", directory.display().to_string()),
            option("APT::Sandbox::User", "root".to_owned()),
        ];
        Ok(Self { options: options.concat() })
    }

    fn command(&self, program: &str, words: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(&self.options).args(words);
        command
    }

    /// Downloads the kernel's package into `directory`; its name.
    fn download(&self, directory: &Path) -> Result<String> {
        succeed(&mut self.command("apt-get", &["update", "--quiet=2"]))?;
        let depends = output(&mut self.command("apt-cache", &["depends", PACKAGE]));
        let package = depends.as_deref().and_then(dependency).context("the suite has no kernel")?;
        succeed(self.command("apt-get", &["download", "--quiet=2", &package]).current_dir(directory))?;
        Ok(package)
    }
}

/// Where this machine's own packages come from, in what `apt-cache policy` prints.
fn mirror(policy: &str) -> Option<String> {
    let urls = policy.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip_while(|word| !word.contains("://"));
        let (url, suite) = (words.next()?, words.next()?);
        (suite.ends_with("/main") && !suite.contains("security")).then(|| url.to_owned())
    });
    urls.into_iter().next()
}

/// The package that the general name stands for now.
fn dependency(depends: &str) -> Option<String> {
    depends.lines().find_map(|line| line.trim().strip_prefix("Depends: ")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_apt_prints() {
        let policy = "base-files:\n  Installed: 12.4\n  Version table:\n *** 12.4 500\n        \
                      500 http://mirror/debian-security bookworm-security/main amd64 Packages\n        \
                      500 http://mirror/debian bookworm/main amd64 Packages\n        100 /var/lib/dpkg/status\n";
        assert_eq!(mirror(policy).as_deref(), Some("http://mirror/debian"));
        assert_eq!(mirror("base-files:\n"), None);
        let depends = "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-50-cloud-amd64\n";
        assert_eq!(dependency(depends).as_deref(), Some("linux-image-6.1.0-50-cloud-amd64"));
    }
}
