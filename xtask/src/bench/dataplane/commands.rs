//! Programs that configure the network, run inside a namespace or in the present one.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};

use crate::setup::path::search_path;

/// Runs a program in the namespace of the file `netns`, with text on its standard input. Returns its standard output.
pub(in crate::bench) fn run(netns: Option<&Path>, words: &[&str], input: &str) -> Result<String> {
    let [program, arguments @ ..] = words else {
        bail!("there is no program to run");
    };
    let mut command = Command::new(program);
    command.args(arguments).env("PATH", search_path());
    finish(netns, &mut command, input)
}

/// As [`run`], for a prepared command.
pub(super) fn finish(netns: Option<&Path>, command: &mut Command, input: &str) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = || format!("failed to run `{program}`");
    let output = match netns {
        Some(netns) => dormouse_world::enter(netns, || feed(command, input))?,
        None => feed(command, input),
    };
    let output = output.with_context(failed)?;
    let written = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(written);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    bail!("`{program}` failed: {} {}", errors.trim(), written.trim())
}

fn feed(command: &mut Command, input: &str) -> std::io::Result<Output> {
    let piped = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = piped.spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program may end without reading its input; its exit status counts.
        let _ = stdin.write_all(input.as_bytes());
    }
    child.wait_with_output()
}

/// Runs lines of `ip -batch`.
pub(in crate::bench) fn ip(netns: Option<&Path>, lines: &[String]) -> Result<()> {
    run(netns, &["ip", "-6", "-batch", "-"], &lines.join("\n")).map(drop)
}

/// Writes a sysctl of a namespace; one that this kernel does not have is ignored.
pub(in crate::bench) fn set(netns: &Path, name: &str, value: &str) -> Result<()> {
    let path = PathBuf::from("/proc/sys/net").join(name);
    let write = || {
        if path.exists() {
            std::fs::write(&path, value)
        } else {
            Ok(())
        }
    };
    dormouse_world::enter(netns, write)?
        .with_context(|| format!("failed to set {} to {value}", path.display()))
}
