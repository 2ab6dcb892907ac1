//! The rules of this repository that no compiler knows, each a pure judgement of one file.

mod arrows;
mod links;
mod rules;

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

use crate::binaries;
use crate::progress::Step;

/// One rule that one file breaks.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Finding {
    /// The file, from the repository's root.
    pub(crate) path: String,
    /// What is wrong, and what would be right.
    pub(crate) what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.what)
    }
}

/// Every file of the repository that git knows or would take.
struct Tree {
    paths: BTreeSet<String>,
}

/// Checks every file; an error lists all findings.
pub(crate) fn run() -> anyhow::Result<()> {
    let step = Step::begin("check the tidiness");
    let findings = check(&binaries::root())?;
    if findings.is_empty() {
        step.done();
        return Ok(());
    }
    step.failed();
    let lines: Vec<_> = findings.iter().map(Finding::to_string).collect();
    bail!("{} findings\n  {}", lines.len(), lines.join("\n  "))
}

fn check(root: &Path) -> anyhow::Result<Vec<Finding>> {
    let tree = list(root)?;
    let mut findings = Vec::new();
    for path in &tree.paths {
        let bytes = match fs::read(root.join(path)) {
            Ok(bytes) => bytes,
            // Deleted, but not yet for git.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error).with_context(|| format!("failed to read {path}")),
        };
        let text = String::from_utf8_lossy(&bytes);
        let broken = rules::check(path, &text)
            .into_iter()
            .chain(arrows::check(path, &text))
            .chain(links::check(path, &text, &tree.paths));
        findings.extend(broken.map(|what| Finding {
            path: path.clone(),
            what,
        }));
    }
    Ok(findings)
}

fn list(root: &Path) -> anyhow::Result<Tree> {
    let mut command = Command::new("git");
    command.current_dir(root).args([
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "-z",
    ]);
    let output = command.output().context("failed to start git")?;
    if !output.status.success() {
        bail!(
            "git cannot list the files: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    let names = String::from_utf8_lossy(&output.stdout);
    let paths = names
        .split('\0')
        .filter(|path| !path.is_empty())
        .map(str::to_owned)
        .collect();
    Ok(Tree { paths })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_is_read_as_git_sees_it() {
        let folder = tempfile::tempdir().unwrap();
        let git = Command::new("git")
            .current_dir(folder.path())
            .args(["init", "-q"])
            .status();
        assert!(git.unwrap().success());
        fs::write(folder.path().join(".gitignore"), "ignored.rs\n").unwrap();
        fs::write(folder.path().join("ignored.rs"), "fn main() {}\n").unwrap();
        fs::write(folder.path().join("seen.rs"), "fn main() {}\n").unwrap();
        let findings = check(folder.path()).unwrap();
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].path, "seen.rs");
    }

    #[test]
    fn a_folder_that_is_no_repository_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert!(
            check(folder.path())
                .unwrap_err()
                .to_string()
                .starts_with("git cannot list")
        );
    }
}
