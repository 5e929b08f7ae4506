//! Puts the probes' object where the source includes it. With the `ebpf` feature it must have been built before:
//! `cargo xtask ebpf`.

use std::path::Path;

#[expect(clippy::disallowed_methods, reason = "cargo tells build scripts through the environment")]
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_FEATURE_EBPF").is_none() {
        return;
    }
    let built = Path::new("../target/bpf/bpfel-unknown-none/release/firedoor-ebpf");
    println!("cargo::rerun-if-changed={}", built.display());
    let Some(out) = std::env::var_os("OUT_DIR") else { return };
    if let Err(why) = std::fs::copy(built, Path::new(&out).join("firedoor-ebpf")) {
        println!(
            "cargo::error=the kernel probes are not built ({}: {why}); run `cargo xtask ebpf` first",
            built.display()
        );
    }
}
