//! The programs that tests start: ours as cargo builds them, others as `cargo xtask setup` installs them.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Debian's folder of the reference CNI plugins.
const REFERENCE: &str = "/usr/lib/cni";
/// Names another folder of reference plugins, to run a newer release of them.
const REFERENCE_FOLDER: &str = "DORMOUSE_CNI_REFERENCE";

/// The folder of the profile that this test was built with: `target/debug`.
fn profile() -> PathBuf {
    let test = env::current_exe().expect("the running test");
    test.ancestors().nth(2).expect("target/PROFILE/deps").into()
}

/// The agent's binary. Cargo builds it before the tests of its package.
pub fn agent() -> PathBuf {
    built("dormouse-agent")
}

fn built(name: &str) -> PathBuf {
    let path = profile().join(name);
    assert!(path.exists(), "{}: cargo build -p {name}", path.display());
    path
}

/// The CNI plugin's binary, built first: cargo builds binaries only for tests of their own package.
pub fn plugin() -> &'static Path {
    static PLUGIN: OnceLock<PathBuf> = OnceLock::new();
    PLUGIN.get_or_init(|| build("dormouse-cni"))
}

/// The binary of control, built first.
pub fn control() -> &'static Path {
    static CONTROL: OnceLock<PathBuf> = OnceLock::new();
    CONTROL.get_or_init(|| build("dormouse"))
}

/// Builds the binary of a package; both have this name.
fn build(package: &str) -> PathBuf {
    let profile = profile();
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
    let mut build = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build
        .args(["build", "--quiet", "--package", package])
        .args(["--manifest-path", manifest, "--target-dir"])
        .arg(profile.parent().expect("target"));
    if profile.ends_with("release") {
        build.arg("--release");
    }
    let done = build.status().expect("cargo runs");
    assert!(done.success(), "cargo build --package {package}");
    profile.join(package)
}

/// The folder of the reference plugins `bridge` and `host-local`.
pub fn reference_plugins() -> PathBuf {
    let named = env::var_os(REFERENCE_FOLDER);
    let folder = named.map_or_else(|| REFERENCE.into(), PathBuf::from);
    for plugin in ["bridge", "host-local"] {
        assert!(
            folder.join(plugin).is_file(),
            "no reference plugin `{plugin}` in {}: cargo xtask setup",
            folder.display()
        );
    }
    folder
}

/// A program on the PATH that the set-up installs. Fails with the command to run where it is missing.
pub fn installed(name: &'static str) -> &'static str {
    let found = Command::new(name).arg("--version").output();
    assert!(found.is_ok(), "{name} is not installed: cargo xtask setup");
    name
}
