//! Build script: compiles the store's .proto files to the client of the load and to the services of the no-op server.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    tonic_prost_build::configure()
        .bytes(".")
        .generate_default_stubs(true)
        .include_file("etcd.rs")
        .compile_protos(&["../proto/kv.proto", "../proto/rpc.proto"], &["../proto"])?;
    Ok(())
}
