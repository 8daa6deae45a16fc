//! Compiles the contract with a compiler in Rust, so that no protoc is needed anywhere.

use std::path::PathBuf;

use prost::Message as _;

const FILES: &[&str] = &["cloudstack/broker/v1/broker.proto"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=cloudstack");
    let descriptors = protox::Compiler::new(["."])?
        .include_imports(true)
        .include_source_info(true)
        .open_files(FILES)?
        .file_descriptor_set();
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    std::fs::write(out.join("broker.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
