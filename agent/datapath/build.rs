//! Builds the BPF object that the agent embeds, and passes its path to the compiler.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

fn main() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .context("the data path lies in the workspace's folder `agent`")?;
    for part in ["ebpf/src", "ebpf/Cargo.toml"] {
        println!("cargo:rerun-if-changed={}", root.join(part).display());
    }
    // A copy of one's own: builds under several target folders never see each other's object.
    let out_dir = std::env::var_os("OUT_DIR").context("cargo sets OUT_DIR")?;
    let object = PathBuf::from(out_dir).join("dormouse-ebpf.o");
    std::fs::copy(dormouse_ebpf_build::build(root)?, &object)
        .context("failed to copy the BPF object")?;
    println!("cargo:rustc-env=DORMOUSE_EBPF_OBJECT={}", object.display());
    Ok(())
}
