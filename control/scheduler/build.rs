//! Build script: compiles `scheduler.proto` to Rust.

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=scheduler.proto");
    tonic_prost_build::configure().compile_protos(&["scheduler.proto"], &["."])
}
