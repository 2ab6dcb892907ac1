//! Build script: compiles the .proto files to Rust and to a descriptor set, by which messages are described and decoded.

use std::{env, path::PathBuf};

/// The files with services; protoc finds the messages that they import.
const SERVICES: [&str; 6] = [
    "proto/rpc.proto",
    "proto/cluster.proto",
    "proto/maintenance.proto",
    "proto/auth.proto",
    "proto/v3lock.proto",
    "proto/v3election.proto",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    tonic_prost_build::configure()
        .build_client(false)
        .bytes(".")
        .codec_path("crate::server::codec::Codec")
        // Key-value pairs and events stay encoded.
        .extern_path(".mvccpb", "crate::wire")
        .file_descriptor_set_path(out.join("etcd.bin"))
        .compile_protos(&SERVICES, &["proto"])?;
    Ok(())
}
