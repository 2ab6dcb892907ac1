//! The repository's own rules, each a pure function of the files' paths and texts.

mod arrows;
mod links;
mod rules;
mod source;
mod words;

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, bail};

use crate::binaries;
use crate::progress::Step;

/// Files that a finding about the whole repository names, at most.
const FILES_SHOWN_MAX: usize = 12;

/// A violation of a rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Finding {
    /// The file, from the repository's root.
    pub(crate) path: String,
    /// The violation, and the fix.
    pub(crate) what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.what)
    }
}

/// Every file of the repository.
struct Tree {
    paths: BTreeSet<String>,
}

/// Checks every file; an error lists all findings.
pub(crate) fn run() -> anyhow::Result<()> {
    let step = Step::begin("check the repository's rules");
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
    let mut comments = Vec::new();
    for path in &tree.paths {
        let bytes = match fs::read(root.join(path)) {
            Ok(bytes) => bytes,
            // Deleted after the listing.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error).with_context(|| format!("failed to read {path}")),
        };
        let text = String::from_utf8_lossy(&bytes);
        let broken = rules::check(path, &text)
            .into_iter()
            .chain(arrows::check(path, &text))
            .chain(links::check(path, &text, &tree.paths))
            .chain(words::check(path, &text));
        findings.extend(broken.map(|what| Finding {
            path: path.clone(),
            what,
        }));
        comments.extend(
            Some((words::in_comments(path, &text), path.clone())).filter(|(count, _)| *count > 0),
        );
    }
    findings.extend(worded(comments));
    Ok(findings)
}

/// The finding about refused words in comments, from their number in each file.
fn worded(mut counts: Vec<(usize, String)>) -> Option<Finding> {
    let total = counts.iter().map(|(count, _)| count).sum();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    counts.truncate(FILES_SHOWN_MAX);
    let what = words::over_budget(total, &counts)?;
    Some(Finding {
        path: ".".to_owned(),
        what,
    })
}

/// Walks the folders, without git's and cargo's target folders (which have a cache tag).
fn list(root: &Path) -> anyhow::Result<Tree> {
    let mut paths = BTreeSet::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let unreadable = || format!("failed to list {}", folder.display());
        for entry in fs::read_dir(&folder).with_context(unreadable)? {
            let entry = entry.with_context(unreadable)?;
            let path = entry.path();
            if entry.file_type().with_context(unreadable)?.is_dir() {
                let skip = entry.file_name() == ".git" || path.join("CACHEDIR.TAG").exists();
                folders.extend((!skip).then_some(path));
            } else if let Ok(below) = path.strip_prefix(root) {
                paths.insert(below.to_string_lossy().into_owned());
            }
        }
    }
    Ok(Tree { paths })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_git_and_of_builds_are_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for part in [".git", "target", "src"] {
            fs::create_dir(root.join(part)).unwrap();
            fs::write(root.join(part).join("it.rs"), "fn main() {}\n").unwrap();
        }
        fs::write(root.join("target/CACHEDIR.TAG"), "").unwrap();
        let findings = check(root).unwrap();
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].path, "src/it.rs");
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error() {
        let error = check(Path::new("/no/such/folder"))
            .err()
            .map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some("failed to list /no/such/folder"));
    }
}
