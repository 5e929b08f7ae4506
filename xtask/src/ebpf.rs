//! `ebpf`: the kernel probes, built. Enters: the checkout; leaves: the object where the agent's build looks for it.
//! Two toolchains can do it: Debian's rustc, which comes with a core library for the BPF target, or a nightly one
//! that builds the core library from its source. Whichever is there is used, and said.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::command::{command, output, succeed, typed};
use crate::setup;

/// Debian's compiler, whatever else stands in the path.
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
/// Its packages: a compiler new enough and its core library for BPF.
const DEBIAN_PACKAGES: [&str; 2] = ["rustc-web", "libstd-rust-web-dev-bpf"];
const TARGET: &str = "bpfel-unknown-none";
const LINKER: &str = "bpf-linker";
const LINKER_VERSION: &str = "0.13.0";
/// The LLVM of Debian's compiler; the linker must be built with the same one.
const DEBIAN_LLVM: &str = "22";
/// Where the probes are built: apart from everything else, for another compiler writes there.
const TARGET_DIR: &str = "target/bpf";

/// What compiles for BPF here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Toolchain {
    Debian,
    Nightly,
}

impl Toolchain {
    /// The one that is there.
    fn here(root: &Path) -> Option<Self> {
        if debian_core(root).is_some() {
            return Some(Self::Debian);
        }
        let mut sysroot = command(root, "rustup", &["run", "nightly", "rustc", "--print", "sysroot"]);
        let sysroot = output(&mut sysroot)?;
        let source = Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/core");
        source.is_dir().then_some(Self::Nightly)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Debian => "Debian's rustc",
            Self::Nightly => "the nightly toolchain with its sources",
        }
    }
}

/// Debian's core library for BPF.
fn debian_core(root: &Path) -> Option<PathBuf> {
    let directory =
        output(&mut command(root, DEBIAN_RUSTC, &["--print", "target-libdir", "--target", TARGET]))?;
    Some(PathBuf::from(directory.trim())).filter(|directory| directory.is_dir())
}

/// Installs what building the probes needs.
///
/// # Errors
/// When it is missing and cannot be installed from here: the message says what to install.
pub(crate) fn ensure(root: &Path) -> Result<()> {
    toolchain(root)?;
    Ok(())
}

fn toolchain(root: &Path) -> Result<Toolchain> {
    let found = match Toolchain::here(root) {
        Some(found) => found,
        None => {
            println!("BPF compiler: missing. Needed for: the kernel probes");
            setup::install_packages(root, &DEBIAN_PACKAGES).with_context(|| {
                format!(
                    "please install by hand a nightly Rust toolchain with rust-src (rustup toolchain install \
                     nightly --component rust-src) and {LINKER} (cargo install {LINKER})"
                )
            })?;
            Toolchain::here(root).context("the BPF compiler was installed but is still not there")?
        }
    };
    if linker(root).is_none() {
        install_linker(root, found)?;
    }
    Ok(found)
}

/// The linker: this checkout's own, or one in the path.
fn linker(root: &Path) -> Option<PathBuf> {
    let own = setup::tool(root, LINKER);
    let works = |program: &Path| output(Command::new(program).arg("--version")).is_some();
    if works(&own) {
        return Some(own);
    }
    // One in the path is built with its own LLVM, which fits the nightly compiler only.
    (debian_core(root).is_none() && works(Path::new(LINKER))).then(|| PathBuf::from(LINKER))
}

fn install_linker(root: &Path, toolchain: Toolchain) -> Result<()> {
    println!("{LINKER}: missing. Needed for: the kernel probes");
    let mut install = command(
        root,
        "cargo",
        &["install", LINKER, "--version", LINKER_VERSION, "--locked", "--root", "tools"],
    );
    if toolchain == Toolchain::Debian {
        let llvm = root.join("tools/llvm");
        provide_llvm(&llvm)?;
        install.args(["--no-default-features", "--features", &format!("llvm-{DEBIAN_LLVM}")]);
        install.env("LLVM_PREFIX", &llvm);
    }
    println!("{LINKER}: {}", typed(&install));
    succeed(&mut install).with_context(|| format!("{LINKER} could not be installed"))
}

/// Debian's LLVM has no development files at hand; the linker needs no more than the library under its plain name.
fn provide_llvm(prefix: &Path) -> Result<()> {
    let library = find_llvm().with_context(|| format!("the library of LLVM {DEBIAN_LLVM} is not there"))?;
    let directory = prefix.join("lib");
    std::fs::create_dir_all(&directory)?;
    let link = directory.join("libLLVM.so");
    if std::fs::symlink_metadata(&link).is_ok() {
        std::fs::remove_file(&link)?;
    }
    std::os::unix::fs::symlink(&library, &link)
        .with_context(|| format!("cannot link to {}", library.display()))
}

fn find_llvm() -> Option<PathBuf> {
    let wanted = format!("libLLVM.so.{DEBIAN_LLVM}.");
    let directories = std::fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path());
    let mut files = directories.filter_map(|directory| std::fs::read_dir(directory).ok()).flatten().flatten();
    files.find(|file| file.file_name().to_string_lossy().starts_with(&wanted)).map(|file| file.path())
}

/// Builds the probes.
///
/// # Errors
/// When there is no toolchain for it, or the build fails.
pub(crate) fn build(root: &Path) -> Result<()> {
    let toolchain = toolchain(root)?;
    let linker = linker(root).context("the BPF linker is not there")?;
    let mut build = command(root, "cargo", &[]);
    if toolchain == Toolchain::Nightly {
        build.arg("+nightly");
    }
    build.args(["build", "--release", "--package", "firedoor-ebpf", "--features", "probes", "--bins"]);
    build.args(["--target", TARGET, "--target-dir", TARGET_DIR]);
    match toolchain {
        // Stable by its number, nightly by its sources: the BPF target is not stable yet.
        Toolchain::Debian => build.env("RUSTC", DEBIAN_RUSTC).env("RUSTC_BOOTSTRAP", "1"),
        Toolchain::Nightly => build.args(["-Z", "build-std=core"]),
    };
    // Version 3 of the instruction set: atomic additions that return a value (kernel 5.12).
    let flags = [
        format!("--cfg=bpf_target_arch=\"{}\"", std::env::consts::ARCH),
        "-Cdebuginfo=2".to_owned(),
        "-Ctarget-cpu=v3".to_owned(),
        format!("-Clinker={}", linker.display()),
        "-Clink-arg=--btf".to_owned(),
    ];
    build.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    build.env_remove("RUSTUP_TOOLCHAIN");
    succeed(&mut build).with_context(|| format!("the probes could not be built with {}", toolchain.name()))
}

/// Builds them and says with what.
///
/// # Errors
/// As [`build`].
pub(crate) fn run(root: &Path) -> Result<()> {
    let toolchain = toolchain(root)?;
    println!("building the probes with {}", toolchain.name());
    build(root)?;
    println!("{}", object(root, "firedoor-ebpf").display());
    Ok(())
}

/// Where an object lies once it is built.
pub(crate) fn object(root: &Path, name: &str) -> PathBuf {
    root.join(TARGET_DIR).join(TARGET).join("release").join(name)
}
