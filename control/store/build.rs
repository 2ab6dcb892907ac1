//! Compiles the .proto files; the descriptor set beside them lets tests read messages by name.

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
