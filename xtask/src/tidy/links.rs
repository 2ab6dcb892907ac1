//! Links in documents: their targets in this repository must exist.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

/// The broken links of the Markdown file `path`. `paths` are all files of the repository.
pub(super) fn check(path: &str, text: &str, paths: &BTreeSet<String>) -> Vec<String> {
    if Path::new(path)
        .extension()
        .is_none_or(|extension| extension != "md")
    {
        return Vec::new();
    }
    let broken = targets(text)
        .into_iter()
        .filter(|target| !exists(path, target, paths));
    broken
        .map(|target| format!("the link to `{target}` is broken"))
        .collect()
}

/// The targets in `](…)` and in `src="…"`, outside of code blocks.
fn targets(text: &str) -> Vec<&str> {
    let mut code = false;
    let mut targets = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            code = !code;
        } else if !code {
            targets.extend(between(line, "](", ')'));
            targets.extend(between(line, "src=\"", '"'));
        }
    }
    targets
}

fn between<'a>(line: &'a str, open: &'a str, close: char) -> impl Iterator<Item = &'a str> {
    line.split(open)
        .skip(1)
        .filter_map(move |rest| rest.split_once(close))
        .map(|(inside, _)| inside)
}

fn exists(from: &str, target: &str, paths: &BTreeSet<String>) -> bool {
    let file = target.split(['#', ' ', '?']).next().unwrap_or_default();
    if file.is_empty() || file.contains("://") || file.starts_with("mailto:") {
        return true;
    }
    let folder = Path::new(from).parent().unwrap_or(Path::new(""));
    let Some(resolved) = resolve(&folder.join(file)) else {
        return false;
    };
    let below = format!("{resolved}/");
    paths.contains(&resolved) || paths.iter().any(|path| path.starts_with(&below))
}

/// The path without `.` and `..`; `None` if it leaves the repository.
fn resolve(path: &Path) -> Option<String> {
    let mut resolved = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => resolved.push(name),
            Component::CurDir => {}
            Component::ParentDir => {
                if !resolved.pop() {
                    return None;
                }
            }
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(resolved.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_text(path: &str, text: &str) -> Vec<String> {
        let paths = ["README.md", "docs/BENCHMARKS.md", "docs/picture.svg"].map(str::to_owned);
        check(path, text, &BTreeSet::from(paths))
    }

    #[test]
    fn links_to_files_folders_anchors_and_other_sites_are_valid() {
        let text = "[a](docs/BENCHMARKS.md#wake) [b](docs) [c](docs/) [d](#here) [e](https://e.org/x) \
                    <img src=\"docs/picture.svg\">";
        assert_eq!(check_text("README.md", text), [""; 0]);
        assert_eq!(
            check_text(
                "docs/BENCHMARKS.md",
                "[up](../README.md) [pic](picture.svg)"
            ),
            [""; 0]
        );
    }

    #[test]
    fn broken_links_are_found() {
        let text = "[a](docs/GONE.md), [b](/etc/passwd) and [c](../outside.md)";
        assert_eq!(
            check_text("README.md", text),
            ["docs/GONE.md", "/etc/passwd", "../outside.md"]
                .map(|target| format!("the link to `{target}` is broken"))
        );
    }

    #[test]
    fn links_in_code_are_ignored() {
        assert_eq!(check_text("README.md", "```\n[a](gone.md)\n```\n"), [""; 0]);
        assert_eq!(check_text("notes.txt", "[a](gone.md)"), [""; 0]);
    }
}
