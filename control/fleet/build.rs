//! Turns `fleet.proto` into Rust, so that the messages have one definition.

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=fleet.proto");
    tonic_prost_build::configure().compile_protos(&["fleet.proto"], &["."])
}
