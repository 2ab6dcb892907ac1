//! Build script: compiles the .proto files to Rust and to a descriptor set, by which the tests decode messages.

use std::{env, path::PathBuf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    tonic_prost_build::configure()
        .build_client(false)
        .bytes(".")
        .file_descriptor_set_path(out.join("etcd.bin"))
        .compile_protos(&["proto/kv.proto", "proto/rpc.proto"], &["proto"])?;
    Ok(())
}
