//! `cargo xtask image`: the container image of a node as an OCI archive. Only its own programs are in it, linked statically; no base
//! image is pulled.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, ensure};
use dormouse_image::{Entry, Image, architecture};

use crate::binaries;
use crate::progress;

/// The image's programs, which are also its packages.
const PROGRAMS: [&str; 2] = ["dormouse-agent", "dormouse-cni"];
const NAME: &str = "localhost/dormouse-node";
/// The tag, unless another is given.
const VERSION: &str = env!("CARGO_PKG_VERSION");
const PROGRAM_MODE: u32 = 0o755;

/// Builds the programs and writes the archive, by default to `target/dormouse-node.tar`.
pub(crate) fn run(to: Option<PathBuf>, tag: Option<&str>) -> anyhow::Result<()> {
    let programs = PROGRAMS.map(|name| (name, binaries::build_static(name)));
    let mut files = Vec::new();
    for (name, path) in programs {
        let path = path?;
        let bytes =
            fs::read(&path).with_context(|| format!("failed to read {}", path.display()))?;
        ensure!(
            !needs_loader(&bytes),
            "{} is not linked statically: install the static C library (apt-get install libc6-dev)",
            path.display()
        );
        files.push(Entry {
            path: name.to_owned(),
            mode: PROGRAM_MODE,
            bytes,
        });
    }
    let image = image(files, tag.unwrap_or(VERSION));
    let (name, archive) = (&image.name, image.archive());
    let to = to.unwrap_or_else(|| binaries::root().join("target/dormouse-node.tar"));
    fs::write(&to, &archive).with_context(|| format!("failed to write {}", to.display()))?;
    progress::say(&format!(
        "{name}: {} ({} bytes)",
        to.display(),
        archive.len()
    ));
    progress::say(&format!(
        "on a node: ctr --namespace k8s.io images import {}",
        to.display()
    ));
    Ok(())
}

fn image(files: Vec<Entry>, tag: &str) -> Image {
    Image {
        name: format!("{NAME}:{tag}"),
        architecture: architecture(std::env::consts::ARCH),
        files,
        entrypoint: vec![format!("/{}", PROGRAMS[0])],
    }
}

/// Whether a program (ELF, 64 bits, little endian) names a dynamic loader, which the image does not have.
fn needs_loader(program: &[u8]) -> bool {
    const INTERPRETER: u64 = 3;
    let number = |at: usize, len: usize| {
        let bytes = program.get(at..at + len).unwrap_or_default();
        bytes
            .iter()
            .rev()
            .fold(0, |number, byte| number << 8 | u64::from(*byte))
    };
    let (table, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    (0..count).any(|index| {
        let at = usize::try_from(table + index * size).unwrap_or(usize::MAX - 8);
        number(at, 4) == INTERPRETER
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_containerfile_has_the_programs_and_the_entrypoint_of_the_image() {
        let text = fs::read_to_string(binaries::root().join("Containerfile")).unwrap();
        let lines: Vec<_> = text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .collect();
        let copied = format!("COPY {} /", PROGRAMS.join(" "));
        let entrypoint = format!("ENTRYPOINT {:?}", image(Vec::new(), VERSION).entrypoint);
        assert_eq!(lines, ["FROM scratch", &copied, &entrypoint]);
    }

    #[test]
    fn a_program_that_needs_a_loader_is_found() {
        let mut program = vec![0; 64 + 2 * 56];
        program[32] = 64;
        program[54] = 56;
        program[56] = 2;
        program[64] = 1;
        assert!(!needs_loader(&program));
        program[64 + 56] = 3;
        assert!(needs_loader(&program));
        assert!(needs_loader(&fs::read("/bin/sh").unwrap()));
    }
}
