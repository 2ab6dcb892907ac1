//! The build of the kernel programs, with the Rust toolchain for BPF that this machine has.
//!
//! The build script of the agent's data path calls [`build`]; `cargo xtask setup` calls [`Machine::look`] and [`choose`] to
//! find what is missing.

#![forbid(unsafe_code)]

pub mod toolchain;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

pub use toolchain::{Machine, Missing, Toolchain, choose};

/// The package whose binary is the BPF object.
const PACKAGE: &str = "dormouse-ebpf";

/// The target of the object: little endian, as x86-64 and arm64 are.
pub const TARGET: &str = "bpfel-unknown-none";

/// Variables that an outer cargo (or clippy) sets and that would change the inner build.
const OUTER: &[&str] = &[
    "RUSTC",
    "RUSTDOC",
    "RUSTFLAGS",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_BOOTSTRAP",
    "RUSTUP_TOOLCHAIN",
    "CLIPPY_ARGS",
    "CLIPPY_CONF_DIR",
    "CARGO",
    "CARGO_BUILD_TARGET",
    "CARGO_BUILD_TARGET_DIR",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_MAKEFLAGS",
    "CARGO_PRIMARY_PACKAGE",
    "CARGO_TARGET_DIR",
    "MAKEFLAGS",
    "__CARGO_DEFAULT_LIB_METADATA",
];

/// Builds the BPF object of the workspace at `root` and returns the object's path.
///
/// The build has a separate target folder (`target/bpf`), so that the host's build and this one do not invalidate each
/// other's output or wait for each other's lock.
pub fn build(root: &Path) -> Result<PathBuf> {
    let toolchain = choose(&Machine::look())?;
    let target_dir = root.join("target").join("bpf");
    let mut command = command(&toolchain, root, &target_dir);
    let output = command
        .output()
        .with_context(|| format!("failed to start {}", command.get_program().display()))?;
    if !output.status.success() {
        bail!(
            "the BPF programs do not build with {toolchain}:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let object = target_dir.join(TARGET).join("release").join(PACKAGE);
    if !object.is_file() {
        bail!("the BPF build left no object at {}", object.display());
    }
    Ok(object)
}

/// The inner cargo's command line and environment.
fn command(toolchain: &Toolchain, root: &Path, target_dir: &Path) -> Command {
    let mut command = match toolchain {
        Toolchain::Debian { .. } => Command::new("cargo"),
        Toolchain::Nightly { .. } => {
            let mut command = Command::new("rustup");
            command.args(["run", "nightly", "cargo"]);
            command
        }
    };
    for name in OUTER {
        command.env_remove(name);
    }
    command
        .args(["build", "--release", "--package", PACKAGE, "--bin", PACKAGE])
        .args(["--target", TARGET])
        .arg("--target-dir")
        .arg(target_dir)
        .current_dir(root)
        .env("PATH", path_with_linker(toolchain.linker()))
        .env("RUSTFLAGS", rustflags())
        // The linker takes bitcode and optimises the whole program itself.
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "2")
        .env("CARGO_PROFILE_RELEASE_PANIC", "abort");
    match toolchain {
        Toolchain::Debian { rustc, .. } => {
            command.env("RUSTC", rustc).env("RUSTC_BOOTSTRAP", "1");
        }
        Toolchain::Nightly { .. } => {
            command.args(["-Z", "build-std=core"]);
        }
    }
    command
}

/// Debug information becomes BTF; `v3` brings compare-and-exchange (Linux 5.12). Addresses have any alignment in packets and
/// maps: read by whole words, as x86-64 and arm64 allow, they cost an eighth of the time of reads by bytes.
fn rustflags() -> String {
    let arch = std::env::consts::ARCH;
    format!(
        "--cfg bpf_target_arch=\"{arch}\" -Ctarget-cpu=v3 -Cdebuginfo=2 -Clink-arg=--btf \
         -Clink-arg=--cpu-features=+allows-misaligned-mem-access,+alu32"
    )
}

fn path_with_linker(linker: &Path) -> OsString {
    let inherited = std::env::var_os("PATH").unwrap_or_default();
    let folders = linker
        .parent()
        .map(Path::to_path_buf)
        .into_iter()
        .chain(std::env::split_paths(&inherited));
    std::env::join_paths(folders).unwrap_or(inherited)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_an_outer_clippy_reaches_the_inner_build() {
        let toolchain = Toolchain::Debian {
            rustc: "/usr/bin/rustc".into(),
            linker: "/opt/bpf-linker".into(),
        };
        let command = command(&toolchain, Path::new("/w"), Path::new("/w/target/bpf"));
        let value = |name: &str| {
            command
                .get_envs()
                .find(|(key, _)| *key == name)
                .and_then(|(_, value)| value)
        };
        assert_eq!(value("RUSTC_WORKSPACE_WRAPPER"), None);
        assert_eq!(value("CARGO_ENCODED_RUSTFLAGS"), None);
        assert_eq!(value("RUSTC"), Some("/usr/bin/rustc".as_ref()));
        assert!(value("PATH").is_some_and(|path| path.to_string_lossy().starts_with("/opt:")));
    }
}
