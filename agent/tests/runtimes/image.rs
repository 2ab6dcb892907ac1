//! The pause image: a static program that only waits, in the archive format of `docker save`, which all runtimes import.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::machine::succeed;

/// Name of the image.
pub(crate) const PAUSE: &str = "localhost/pause:test";
const PROGRAM: &str = "#include <unistd.h>\nint main(void) { for (;;) pause(); }\n";

/// Makes the archive in `folder`.
pub(crate) fn pause(folder: &Path) -> PathBuf {
    let folder = folder.join("image");
    fs::create_dir(&folder).unwrap();
    let at = |name: &str| folder.join(name);
    fs::write(at("pause.c"), PROGRAM).unwrap();
    succeed(
        Command::new("cc")
            .args(["-static", "-Os", "-o"])
            .args([at("pause"), at("pause.c")]),
    );
    tar(&folder, "layer.tar", &["pause"]);
    let digest = succeed(Command::new("sha256sum").arg(at("layer.tar")));
    let digest = digest.split(' ').next().unwrap();
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let config = json!({
        "architecture": architecture, "os": "linux", "config": {"Entrypoint": ["/pause"]},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]},
    });
    let manifest = json!([{"Config": "config.json", "RepoTags": [PAUSE], "Layers": ["layer.tar"]}]);
    fs::write(at("config.json"), config.to_string()).unwrap();
    fs::write(at("manifest.json"), manifest.to_string()).unwrap();
    tar(
        &folder,
        "pause.tar",
        &["manifest.json", "config.json", "layer.tar"],
    );
    at("pause.tar")
}

fn tar(folder: &Path, archive: &str, files: &[&str]) {
    let mut tar = Command::new("tar");
    tar.arg("-C")
        .arg(folder)
        .args(["--owner=0", "--group=0", "-cf"]);
    succeed(tar.arg(folder.join(archive)).args(files));
}
