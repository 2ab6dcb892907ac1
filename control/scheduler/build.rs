//! Build script: compiles the .proto files to Rust.

fn main() -> std::io::Result<()> {
    let files = ["scheduler.proto", "members.proto"];
    for file in files {
        println!("cargo::rerun-if-changed={file}");
    }
    tonic_prost_build::configure().compile_protos(&files, &["."])
}
