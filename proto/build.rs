//! Compiles the `.proto` files without an external compiler. Enters: the files beside this one; leaves: one
//! generated module a package in `OUT_DIR`.

use std::error::Error;

const FILES: [&str; 4] =
    ["flow/flow.proto", "relay/relay.proto", "observer/observer.proto", "kubelet/podresources.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    for file in FILES {
        println!("cargo::rerun-if-changed={file}");
    }
    let descriptors = protox::compile(FILES, ["."])?;

    #[cfg(feature = "grpc")]
    tonic_prost_build::configure().compile_fds(descriptors)?;
    #[cfg(not(feature = "grpc"))]
    prost_build::Config::new().compile_fds(descriptors)?;
    Ok(())
}
