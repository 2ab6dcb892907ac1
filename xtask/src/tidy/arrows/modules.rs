//! Arrows between the modules of the agent's package: each uses only those that come before it.

/// The folder of the package's sources.
const ROOT: &str = "agent/src/";

/// The modules, each after all that it uses.
const ORDER: [&str; 26] = [
    "addresses",
    "regular_file",
    "metadata",
    "profile",
    "own_node",
    "source",
    "membership",
    "deny",
    "host_ports",
    "health",
    "capabilities",
    "confinement",
    "runtime",
    "ndp",
    "readiness",
    "services_sync",
    "node",
    "install",
    "leftovers",
    "doctor",
    "node_status",
    "cni",
    "metrics",
    "offline",
    "uninstall",
    "cli",
];

/// The package's crate roots: they name every module.
const ROOTS: [&str; 2] = ["lib", "main"];

/// The uses in a file of the agent's package that go against the order.
pub(super) fn check(path: &str, text: &str) -> Vec<String> {
    let Some(module) = module(path).filter(|module| !ROOTS.contains(module)) else {
        return Vec::new();
    };
    let Some(at) = place(module) else {
        return vec![format!(
            "give the module `{module}` a place in the order of `xtask/src/tidy/arrows/modules.rs`"
        )];
    };
    let against = |used: &&str| place(used).is_none_or(|used| used > at);
    let code = code(text);
    let used = uses(&code).into_iter().filter(against);
    used.map(|used| format!("`{module}` uses `crate::{used}`, which comes after it"))
        .collect()
}

/// The module that a file belongs to.
fn module(path: &str) -> Option<&str> {
    let below = path.strip_prefix(ROOT)?.strip_suffix(".rs")?;
    below.split('/').next()
}

fn place(module: &str) -> Option<usize> {
    ORDER.iter().position(|known| *known == module)
}

/// The modules that follow `crate::`, alone or in braces, each once.
fn uses(code: &str) -> Vec<&str> {
    let mut used = Vec::new();
    for rest in code.split("crate::").skip(1) {
        match rest.strip_prefix('{') {
            Some(group) => used.extend(first_names(group)),
            None => used.extend(name(rest)),
        }
    }
    used.sort_unstable();
    used.dedup();
    used
}

/// The text without its comments.
fn code(text: &str) -> String {
    let lines = text.lines().map(|line| line.split("//").next());
    lines.flatten().collect::<Vec<_>>().join("\n")
}

/// The names at the head of each part of a group: `a::b, c` names `a` and `c`.
fn first_names(group: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let mut names = Vec::new();
    let mut is_head = true;
    for (at, letter) in group.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => is_head = true,
            _ if is_head && depth == 0 && !letter.is_whitespace() => {
                names.extend(name(&group[at..]));
                is_head = false;
            }
            _ => {}
        }
    }
    names
}

/// The name of a module that the text begins with; types and macros are none.
fn name(text: &str) -> Option<&str> {
    let end = text.find(|letter: char| !(letter.is_alphanumeric() || letter == '_'));
    let name = &text[..end.unwrap_or(text.len())];
    name.starts_with(|first: char| first.is_lowercase())
        .then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_uses_those_before_it_and_itself() {
        let text = "use crate::source::fleet::Source;\nuse crate::node::Node;\n";
        assert!(check("agent/src/node/apply.rs", text).is_empty());
        assert!(check("agent/src/cli.rs", text).is_empty());
    }

    #[test]
    fn a_use_against_the_order_is_found_alone_in_a_group_and_in_code() {
        for text in [
            "use crate::cli;\n",
            "use crate::{source::{a, b}, cli};\n",
            "use crate::{\n    source,\n    cli,\n};\n",
            "fn f() { crate::cli::run(); }\n",
        ] {
            assert_eq!(
                check("agent/src/node.rs", text),
                ["`node` uses `crate::cli`, which comes after it"],
                "{text}"
            );
        }
    }

    #[test]
    fn a_comment_and_another_package_use_nothing() {
        assert!(check("agent/src/node.rs", "// crate::cli\n").is_empty());
        assert!(check("agent/pod/src/names.rs", "use crate::cli;\n").is_empty());
        assert!(check("agent/src/main.rs", "use crate::cli;\n").is_empty());
    }

    #[test]
    fn a_module_without_a_place_is_found() {
        assert_eq!(check("agent/src/novel/part.rs", "").len(), 1);
        let text = "use crate::novel::Part;\n";
        assert_eq!(check("agent/src/node.rs", text).len(), 1);
    }
}
