//! The image of a node as `cargo xtask image` makes it, of this test's own build of the programs: they are not linked statically, so the
//! image has the libraries that they need, too. `DORMOUSE_NODE_IMAGE` names an archive of that command to be started in place of it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use dormouse_image::{Entry, Image, architecture};
use dormouse_rig::binaries;

use crate::machine::succeed;

/// Name of the image, as the DaemonSet has it.
pub(crate) const NAME: &str = concat!("localhost/dormouse-node:", env!("CARGO_PKG_VERSION"));
const MODE: u32 = 0o755;

/// The variable that names an archive.
const GIVEN: &str = "DORMOUSE_NODE_IMAGE";
/// Name of the next version's image.
pub(crate) const NEXT: &str = "localhost/dormouse-node:next";

/// Writes the archive of the image with this name in `folder`.
pub(crate) fn node(folder: &Path, name: &str) -> PathBuf {
    if name == NAME
        && let Some(given) = env::var_os(GIVEN)
    {
        return given.into();
    }
    let version = folder.join("version");
    fs::write(&version, name).unwrap();
    let mut files = vec![entry("version", &version)];
    let mut libraries = Vec::new();
    for program in [binaries::agent().as_path(), binaries::plugin()] {
        let file = program.file_name().unwrap().to_str().unwrap();
        let stripped = folder.join(file);
        succeed(
            Command::new("strip")
                .arg("--strip-debug")
                .arg("-o")
                .arg(&stripped)
                .arg(program),
        );
        files.push(entry(file, &stripped));
        libraries.extend(libraries_of(program));
    }
    libraries.sort();
    libraries.dedup();
    let libraries = libraries.iter();
    files.extend(libraries.map(|path| entry(path.trim_start_matches('/'), Path::new(path))));
    let image = Image {
        name: name.to_owned(),
        architecture: architecture(env::consts::ARCH),
        files,
        entrypoint: vec!["/dormouse-agent".to_owned()],
    };
    let archive = folder.join("node.tar");
    fs::write(&archive, image.archive()).unwrap();
    archive
}

fn entry(path: &str, file: &Path) -> Entry {
    Entry {
        path: path.to_owned(),
        mode: MODE,
        bytes: fs::read(file).unwrap(),
    }
}

/// The libraries and the loader of a program, by their absolute paths.
fn libraries_of(program: &Path) -> Vec<String> {
    let listed = succeed(Command::new("ldd").arg(program));
    let words = listed.split_whitespace();
    words
        .filter(|word| word.starts_with('/'))
        .map(str::to_owned)
        .collect()
}
