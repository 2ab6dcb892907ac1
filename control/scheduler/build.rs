//! Build script: compiles the .proto files to Rust.

fn main() -> std::io::Result<()> {
    let files = ["scheduler.proto", "members.proto"];
    for file in files {
        println!("cargo::rerun-if-changed={file}");
    }
    tonic_prost_build::configure()
        .bytes(".dormouse.scheduler.members.v1.Frame.message")
        .compile_protos(&files, &["."])
}
