//! Words that are not plain technical English: none in text for users, and a small number in comments. Pure.

use super::source::{Kind, Piece, pieces};

/// Occurrences in comments of the whole repository.
pub(super) const COMMENTS_MAX: usize = 40;

/// Single words. All lists are split, so that this file does not break the rule itself.
const WORDS: [&str; 13] = [
    concat!("to", "ld"),
    concat!("te", "ll"),
    concat!("te", "lls"),
    concat!("who", "ever"),
    concat!("some", "body"),
    concat!("every", "body"),
    concat!("no", "body"),
    concat!("he", "ir"),
    concat!("est", "ate"),
    concat!("he", "ar"),
    concat!("he", "ars"),
    concat!("ob", "ey"),
    concat!("ob", "eys"),
];
/// Words that are refused before `to`: packets are redirected or forwarded.
const BEFORE_TO: [&str; 3] = [
    concat!("le", "ad"),
    concat!("le", "ads"),
    concat!("l", "ed"),
];
/// The word for "again".
const AGAIN: &str = concat!("an", "ew");

/// Derives whose documentation clap prints as help.
const HELP: [&str; 4] = ["Parser", "Args", "Subcommand", "ValueEnum"];

/// The words in text for users: documents, help, and string literals of production code (errors, logs, metrics' help).
pub(super) fn check(path: &str, text: &str) -> Vec<String> {
    let found = match extension(path) {
        "md" => occurrences(text, 1),
        "rs" => in_source(path, text),
        _ => Vec::new(),
    };
    let findings = found.into_iter().map(|(line, word)| {
        format!("line {line}: `{word}` in text for users: use the field's term")
    });
    findings.collect()
}

/// Number of the words in comments of a file.
pub(super) fn in_comments(path: &str, text: &str) -> usize {
    let comments: Vec<&str> = match extension(path) {
        "rs" => pieces(text)
            .iter()
            .filter(|piece| matches!(piece.kind, Kind::Comment | Kind::Doc))
            .map(|piece| piece.text)
            .collect(),
        "proto" => after(text, "//"),
        "toml" | "yaml" | "yml" | "sh" => after(text, "#"),
        _ => Vec::new(),
    };
    occurrences(&comments.join("\n"), 1).len()
}

/// The violation if comments of the repository have `total` of the words, most of them in the files `most`.
pub(super) fn over_budget(total: usize, most: &[(usize, String)]) -> Option<String> {
    let files: Vec<_> = most
        .iter()
        .map(|(count, path)| format!("{path} ({count})"))
        .collect();
    (total > COMMENTS_MAX).then(|| {
        format!(
            "{total} refused words in comments, at most {COMMENTS_MAX}; most of them in {}",
            files.join(", ")
        )
    })
}

fn extension(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(_, extension)| extension)
}

/// What follows the mark of a comment, in each line with one.
fn after<'a>(text: &'a str, mark: &str) -> Vec<&'a str> {
    let comments = text.lines().filter_map(|line| line.split_once(mark));
    comments.map(|(_, comment)| comment).collect()
}

fn in_source(path: &str, text: &str) -> Vec<(usize, String)> {
    let all = pieces(text);
    let mut visible = help(&all);
    if !is_test(path) {
        let tests = test_module(text);
        let strings = all
            .iter()
            .filter(|piece| piece.kind == Kind::Text && piece.line < tests);
        visible.extend(strings);
    }
    let found = visible
        .into_iter()
        .flat_map(|piece| occurrences(piece.text, piece.line));
    found.collect()
}

fn is_test(path: &str) -> bool {
    let mut parts = path.split('/');
    parts.any(|part| matches!(part, "tests" | "benches" | "tests.rs"))
}

/// Line of the test module of a file; past the end if it has none.
fn test_module(text: &str) -> usize {
    let mut lines = text.lines().zip(1..).peekable();
    while let Some((line, number)) = lines.next() {
        let is_module = lines
            .peek()
            .is_some_and(|(next, _)| next.contains("mod ") && next.ends_with('{'));
        if line == "#[cfg(test)]" && is_module {
            return number;
        }
    }
    usize::MAX
}

/// The documentation of items that derive a trait of clap, and of their fields.
fn help<'a, 'b>(all: &'a [Piece<'b>]) -> Vec<&'a Piece<'b>> {
    let mut found = Vec::new();
    let mut before = Vec::new();
    let (mut derived, mut depth) = (false, 0_usize);
    for piece in all {
        match piece.kind {
            Kind::Doc if derived => found.push(piece),
            Kind::Doc => before.push(piece),
            Kind::Code => {
                if !derived && derives_help(piece.text) {
                    derived = true;
                    found.append(&mut before);
                } else if !piece.text.trim().is_empty() {
                    before.clear();
                }
                let was_inside = depth > 0;
                depth += piece.text.matches('{').count();
                depth = depth.saturating_sub(piece.text.matches('}').count());
                derived &= !(was_inside && depth == 0);
            }
            Kind::Comment | Kind::Text => {}
        }
        if !derived {
            depth = 0;
        }
    }
    found
}

fn derives_help(code: &str) -> bool {
    let lists = code.split("derive(").skip(1);
    let mut names = lists
        .filter_map(|rest| rest.split_once(')'))
        .flat_map(|(list, _)| list.split([',', ' ', ':']));
    names.any(|name| HELP.contains(&name))
}

/// The refused words of a text with their lines; its first line has the number `first`.
fn occurrences(text: &str, first: usize) -> Vec<(usize, String)> {
    let words: Vec<(usize, String)> = text
        .lines()
        .zip(first..)
        .flat_map(|(line, number)| {
            let words = line.split(|c: char| !(c.is_alphanumeric() || c == '_'));
            words
                .filter(|word| !word.is_empty())
                .map(move |word| (number, word.to_lowercase()))
        })
        .collect();
    let next = |at: usize| words.get(at + 1).map(|(_, word)| word.as_str());
    let refused = |(at, (_, word)): &(usize, &(usize, String))| {
        let word = word.as_str();
        WORDS.contains(&word)
            || word == AGAIN
            || BEFORE_TO.contains(&word) && next(*at) == Some("to")
    };
    let found = words.iter().enumerate().filter(refused);
    found.map(|(_, found)| found.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_have_none_of_the_words() {
        assert_eq!(
            check("docs/NETWORK.md", "Fine.\n\nNobody hears it, led\nto it.\n"),
            ["nobody", "hears", "led"]
                .map(|word| format!("line 3: `{word}` in text for users: use the field's term"))
        );
        assert_eq!(check("README.md", "An estate-wide lead; retold.").len(), 1);
        assert_eq!(check("notes.txt", "told"), [""; 0]);
    }

    #[test]
    fn strings_of_production_code_have_none_and_those_of_tests_may() {
        let code = "fn f() { warn!(\"nobody\") }\n#[cfg(test)]\nmod tests {\n    const A: &str = \"told\";\n}\n";
        assert!(check("agent/src/node.rs", code)[0].starts_with("line 1: `nobody`"));
        assert_eq!(check("agent/src/node.rs", code).len(), 1);
        assert_eq!(check("agent/tests/node/main.rs", code), [""; 0]);
        assert_eq!(check("agent/src/node/tests.rs", code), [""; 0]);
    }

    #[test]
    fn help_has_none_and_other_documentation_is_counted() {
        let code = "/// Tells.\n#[derive(Debug, clap::Args)]\npub struct Run {\n    /// Anew\n    #[arg(long)]\n    pub all: bool,\n}\n\n/// An heir.\nstruct Other;\n";
        let found = check("agent/src/cli.rs", code);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("line 1: `tells`"));
        assert!(found[1].starts_with("line 4: `anew`"));
        assert_eq!(in_comments("agent/src/cli.rs", code), 3);
    }

    #[test]
    fn words_in_comments_are_counted_in_every_language() {
        let code = "//! Somebody leads\n//! to it.\nlet told = \"told\"; // it obeys\n";
        assert_eq!(in_comments("ebpf/src/lib.rs", code), 3);
        assert_eq!(in_comments("a.proto", "string told = 1; // told\n"), 1);
        assert_eq!(in_comments("a.toml", "told = 1 # told\n"), 1);
        assert_eq!(in_comments("a.json", "\"told\""), 0);
    }

    #[test]
    fn comments_have_a_budget_for_the_whole_repository() {
        assert_eq!(over_budget(COMMENTS_MAX, &[]), None);
        let most = [(30, "a.rs".to_owned()), (11, "b.rs".to_owned())];
        assert_eq!(
            over_budget(COMMENTS_MAX + 1, &most).as_deref(),
            Some("41 refused words in comments, at most 40; most of them in a.rs (30), b.rs (11)")
        );
    }
}
