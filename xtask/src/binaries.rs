//! Builds of the workspace's programs, and their paths from cargo's messages.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use serde_json::Value;

use crate::progress::{self, Output};
use crate::setup::path;

/// The cargo profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Profile {
    /// Fast to compile, for tests and the demo.
    Dev,
    /// Optimised, for measurements and installation.
    Release,
}

impl Profile {
    /// The profile for the flag `--release`.
    pub(crate) fn from_release(release: bool) -> Self {
        if release { Self::Release } else { Self::Dev }
    }
}

/// Paths of the programs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Binaries {
    /// Control, and the commands for users.
    pub(crate) dormouse: PathBuf,
    /// The node's agent, with the BPF object in it.
    pub(crate) agent: PathBuf,
    /// The CNI plugin.
    pub(crate) cni: PathBuf,
    /// A small app that replies with its pod, its node and the client's address.
    pub(crate) hello: PathBuf,
}

impl fmt::Display for Binaries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths = [&self.dormouse, &self.agent, &self.cni, &self.hello];
        let lines: Vec<_> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        f.write_str(&lines.join("\n"))
    }
}

/// Builds every program of the workspace (the agent's build script builds the BPF object first).
pub(crate) fn build(profile: Profile) -> anyhow::Result<Binaries> {
    let mut command = cargo();
    command.args([
        "build",
        "--workspace",
        "--bins",
        "--message-format=json-render-diagnostics",
    ]);
    let title = match profile {
        Profile::Dev => "build the BPF objects and the programs",
        Profile::Release => {
            command.arg("--release");
            "build the BPF objects and the programs, optimised"
        }
    };
    let messages = progress::run(title, &mut command, Output::ErrorsOnFailure)?;
    if profile == Profile::Release {
        // It is started for each pod, and without shared libraries it starts in two thirds of the time.
        build_static("dormouse-cni")?;
    }
    find(&messages)
}

/// A program of tests: a package's unit tests, or one of its integration tests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TestProgram {
    /// Its source file, from the repository's root.
    pub(crate) name: String,
    /// The executable.
    pub(crate) path: PathBuf,
    /// The package's folder, in which it runs.
    pub(crate) folder: PathBuf,
}

/// Builds every program and every test of the workspace, with the same features: once.
pub(crate) fn build_with_tests() -> anyhow::Result<(Binaries, Vec<TestProgram>)> {
    let mut command = cargo();
    command.args(["build", "--workspace", "--all-targets"]);
    command.arg("--message-format=json-render-diagnostics");
    let title = "build the BPF objects, the programs and the tests";
    let messages = progress::run(title, &mut command, Output::ErrorsOnFailure)?;
    let root = root();
    let tests = artifacts(&messages).filter_map(|artifact| test_program(&artifact, &root));
    Ok((find(&messages)?, tests.collect()))
}

/// Builds the program of a package, optimised; both have this name.
pub(crate) fn build_package(name: &str) -> anyhow::Result<PathBuf> {
    let mut command = cargo();
    command.args(["build", "--release", "--package", name]);
    command.arg("--message-format=json-render-diagnostics");
    let title = format!("build {name}, optimised");
    let messages = progress::run(&title, &mut command, Output::ErrorsOnFailure)?;
    path_of(&executables(&messages), name)
}

/// Builds the program of a package, optimised and linked statically; both have this name. Only `cargo rustc` accepts such a flag
/// for a single program.
pub(crate) fn build_static(name: &str) -> anyhow::Result<PathBuf> {
    let mut command = cargo();
    command.args(["rustc", "--release", "--package", name, "--bin", name]);
    command.arg("--message-format=json-render-diagnostics");
    command.args(["--", "-C", "target-feature=+crt-static"]);
    let title = format!("build {name}, optimised and linked statically");
    let messages = progress::run(&title, &mut command, Output::ErrorsOnFailure)?;
    path_of(&executables(&messages), name)
}

/// The cargo that runs xtask, in the repository's root and with the PATH of setup.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).env("PATH", path::search_path());
    command
}

/// The root of the checkout for which cargo runs xtask; its target folder may be shared with another checkout.
pub(crate) fn root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR");
    let package = package.map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    package
        .parent()
        .map_or_else(|| package.clone(), PathBuf::from)
}

/// Parses cargo's messages, one JSON object per line; other lines are output of build scripts.
fn find(messages: &str) -> anyhow::Result<Binaries> {
    let built = executables(messages);
    Ok(Binaries {
        dormouse: path_of(&built, "dormouse")?,
        agent: path_of(&built, "dormouse-agent")?,
        cni: path_of(&built, "dormouse-cni")?,
        hello: path_of(&built, "dormouse-hello")?,
    })
}

fn executables(messages: &str) -> Vec<(String, PathBuf)> {
    artifacts(messages)
        .filter(|artifact| !is_test(artifact))
        .filter_map(|artifact| executable(&artifact))
        .collect()
}

fn artifacts(messages: &str) -> impl Iterator<Item = Value> {
    let values = messages
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    values.filter(|value: &Value| value["reason"] == "compiler-artifact")
}

fn is_test(artifact: &Value) -> bool {
    artifact["profile"]["test"] == true
}

/// Benchmarks are built, and not run as tests.
fn test_program(artifact: &Value, root: &Path) -> Option<TestProgram> {
    if artifact["target"]["kind"][0] == "bench" {
        return None;
    }
    let path = PathBuf::from(
        artifact["executable"]
            .as_str()
            .filter(|_| is_test(artifact))?,
    );
    let folder = Path::new(artifact["manifest_path"].as_str()?).parent()?;
    let source = Path::new(artifact["target"]["src_path"].as_str()?);
    let source = source.strip_prefix(root).unwrap_or(source);
    Some(TestProgram {
        name: source.display().to_string(),
        path,
        folder: folder.to_owned(),
    })
}

fn path_of(built: &[(String, PathBuf)], name: &str) -> anyhow::Result<PathBuf> {
    let found = built.iter().find(|(built_name, _)| built_name == name);
    let path = found.map(|(_, path)| path.clone());
    path.with_context(|| format!("cargo built no program called `{name}`"))
}

fn executable(artifact: &Value) -> Option<(String, PathBuf)> {
    let path = artifact["executable"].as_str()?;
    let name = artifact["target"]["name"].as_str()?;
    Some((name.to_owned(), PathBuf::from(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(name: &str) -> String {
        let executable = format!("/elsewhere/debug/{name}");
        serde_json::json!({"reason": "compiler-artifact", "target": {"name": name}, "executable": executable})
            .to_string()
    }

    #[test]
    fn programs_are_found_at_the_paths_of_cargos_messages() {
        let lines = [
            "dormouse",
            "dormouse-agent",
            "dormouse-cni",
            "dormouse-hello",
        ]
        .map(artifact);
        let library = r#"{"reason": "compiler-artifact", "target": {"name": "dormouse"}, "executable": null}"#;
        let found = find(&format!("{library}\nnot json\n{}", lines.join("\n"))).unwrap();
        assert_eq!(found.dormouse, PathBuf::from("/elsewhere/debug/dormouse"));
        assert_eq!(
            found.hello,
            PathBuf::from("/elsewhere/debug/dormouse-hello")
        );
    }

    #[test]
    fn a_programs_own_tests_are_not_the_program() {
        let tests = serde_json::json!({
            "reason": "compiler-artifact", "profile": {"test": true}, "manifest_path": "/here/agent/Cargo.toml",
            "target": {"name": "dormouse-agent", "src_path": "/here/agent/src/main.rs"}, "executable": "/target/agent-1",
        });
        assert!(executables(&tests.to_string()).is_empty());
        let mut bench = tests.clone();
        bench["target"]["kind"] = serde_json::json!(["bench"]);
        assert_eq!(test_program(&bench, Path::new("/here")), None);
        let found = test_program(&tests, Path::new("/here")).unwrap();
        let expected = TestProgram {
            name: "agent/src/main.rs".to_owned(),
            path: PathBuf::from("/target/agent-1"),
            folder: PathBuf::from("/here/agent"),
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn a_program_that_was_not_built_is_named() {
        let error = find(&artifact("dormouse")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cargo built no program called `dormouse-agent`"
        );
    }
}
