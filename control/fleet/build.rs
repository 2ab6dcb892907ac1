//! Turns `fleet.proto` and `join.proto` into Rust, so that the messages have one definition.

use std::path::PathBuf;

/// The files, and their packages.
const PROTOS: [(&str, &str); 2] = [
    ("fleet.proto", "dormouse.fleet.v1"),
    ("join.proto", "dormouse.join.v1"),
];

fn main() -> std::io::Result<()> {
    let out: PathBuf = std::env::var_os("OUT_DIR").unwrap_or_default().into();
    for (proto, package) in PROTOS {
        println!("cargo::rerun-if-changed={proto}");
        tonic_prost_build::configure().compile_protos(&[proto], &["."])?;
        let generated = out.join(format!("{package}.rs"));
        // The generator silences lints with `allow`, which the workspace forbids; the module that includes it expects them.
        let source = std::fs::read_to_string(&generated)?
            .replace("#[allow(clippy::all)]", "")
            .replace("#[allow(non_camel_case_types)]", "");
        std::fs::write(generated, source)?;
    }
    Ok(())
}
