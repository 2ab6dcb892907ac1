//! Rules about the path and the text of a single file.

use super::source::{self, Kind};

/// Words in paths that do not describe a file's purpose.
const PATH_WORDS: [&str; 6] = ["util", "utils", "common", "misc", "helper", "helpers"];

/// Files and folders (ending in `/`) in which `unsafe` is allowed.
const UNSAFE_PLACES: [&str; 4] = [
    "agent/sys/src/",
    "control/allocator/src/",
    "control/src/stdout.rs",
    "ebpf/src/",
];

/// Marks of unfinished work, which belongs in the tracker. Split, so that this file does not break the rule itself.
const TEXT_WORDS: [(&str, &str); 4] = [
    (concat!("TO", "DO"), "finish it or file it"),
    (concat!("FIX", "ME"), "fix it or file it"),
    (concat!("XX", "X"), "say what is meant"),
    (concat!("unimple", "mented!"), "write it or leave it out"),
];

/// All violations in this file.
pub(super) fn check(path: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    findings.extend(path_word(path));
    if has_extension(path, "rs") {
        findings.extend(opening(text));
        findings.extend(module_file(path));
        findings.extend(unsafe_place(path, text));
        findings.extend(text_words(text));
        findings.extend(debug_fields(text));
    }
    findings
}

fn has_extension(path: &str, wanted: &str) -> bool {
    path.rsplit_once('.')
        .is_some_and(|(_, extension)| extension == wanted)
}

fn path_word(path: &str) -> Option<String> {
    let mut words = path.split(['/', '.', '_', '-']);
    let word = words.find(|word| PATH_WORDS.contains(word))?;
    Some(format!(
        "`{word}` in a path: name the file's purpose instead"
    ))
}

fn opening(text: &str) -> Option<String> {
    let opens = text
        .lines()
        .next()
        .and_then(|line| line.strip_prefix("//! "));
    let describes = opens.is_some_and(|sentence| !sentence.trim().is_empty());
    (!describes).then(|| "the first line must be `//! ` and describe the file".to_owned())
}

fn module_file(path: &str) -> Option<String> {
    let module = path.strip_suffix("/mod.rs")?;
    Some(format!("call it {module}.rs, beside the folder"))
}

fn unsafe_place(path: &str, text: &str) -> Option<String> {
    let allowed = UNSAFE_PLACES.iter().any(|place| {
        if place.ends_with('/') {
            path.starts_with(place)
        } else {
            path == *place
        }
    });
    let used = text.lines().position(uses_unsafe).filter(|_| !allowed)?;
    Some(format!(
        "line {}: `unsafe` is allowed only in {}",
        used + 1,
        UNSAFE_PLACES.join(", ")
    ))
}

/// Whether the line's code, without comments and string literals, contains the keyword.
fn uses_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    let plain = code.replace("\\\"", "");
    let unquoted: String = plain.split('"').step_by(2).collect::<Vec<_>>().join(" ");
    unquoted
        .split(|letter: char| !(letter.is_alphanumeric() || letter == '_'))
        .any(|word| word == "unsafe")
}

fn text_words(text: &str) -> Vec<String> {
    let lines = text.lines().enumerate();
    let found = lines.flat_map(|(number, line)| {
        let words = TEXT_WORDS
            .iter()
            .filter(move |(word, _)| line.contains(word));
        words.map(move |(word, right)| format!("line {}: `{word}`: {right}", number + 1))
    });
    found.collect()
}

/// Fields of log lines with their `Debug` text: people read them.
fn debug_fields(text: &str) -> Vec<String> {
    let code = source::pieces(text).into_iter();
    let code = code.filter(|piece| piece.kind == Kind::Code);
    let lines = code.flat_map(|piece| {
        let marks = piece.text.match_indices('?');
        let fields = marks.filter(move |(at, _)| is_debug_field(piece.text, *at));
        fields.map(move |(at, _)| piece.line + piece.text[..at].matches('\n').count())
    });
    let finding = |line| {
        format!("line {line}: `?field` logs the Debug text: give a number with its unit, or %field")
    };
    lines.map(finding).collect()
}

/// Whether the question mark at `at` begins a field of a log line, as in `field = ?value` or `info!(?value, …)`.
fn is_debug_field(code: &str, at: usize) -> bool {
    let begins = code[..at].trim_end().ends_with(['=', '(', ',']);
    let name = code[at + 1..].chars().next();
    begins && name.is_some_and(|first| first == '_' || first.is_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPENING: &str = "//! A file.\n";

    fn check_code(path: &str, code: &str) -> Vec<String> {
        check(path, &format!("{OPENING}{code}"))
    }

    #[test]
    fn a_good_file_has_no_findings() {
        assert_eq!(check_code("agent/src/ndp.rs", "fn answer() {}\n"), [""; 0]);
    }

    #[test]
    fn a_file_opens_with_a_description() {
        for text in ["", "fn main() {}\n", "\n//! Late.\n", "//!\n", "//!   \n"] {
            assert_eq!(check("build.rs", text).len(), 1, "{text:?}");
        }
        assert_eq!(check("build.sh", "exit\n"), [""; 0]);
    }

    #[test]
    fn debug_text_in_log_lines_is_found_with_its_line() {
        let log = "fn f() {\n    info!(took = ?took, \"done\");\n    warn!(\n        ?error,\n    );\n}\n";
        let lines = ["line 3: ", "line 5: "];
        let found = check_code("agent/src/ndp.rs", log);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found
                .iter()
                .zip(lines)
                .all(|(one, line)| one.starts_with(line))
        );
        let fine = "fn f<T: ?Sized>(a: T) { info!(%a, \"why?\"); g(a?, b()?) }\n";
        assert_eq!(check_code("agent/src/ndp.rs", fine), [""; 0]);
    }

    #[test]
    fn vague_words_in_paths_are_found() {
        assert_eq!(check_code("agent/src/utils.rs", "").len(), 1);
        assert_eq!(check_code("agent/common/src/lib.rs", "").len(), 1);
        assert_eq!(check("docs/misc-notes.md", "").len(), 1);
        assert_eq!(check_code("agent/src/commons.rs", ""), [""; 0]);
    }

    #[test]
    fn a_module_file_is_beside_its_folder() {
        assert_eq!(
            check_code("agent/src/pod/mod.rs", ""),
            ["call it agent/src/pod.rs, beside the folder"]
        );
    }

    #[test]
    fn unsafe_code_is_allowed_in_few_places() {
        let code = "fn read() { unsafe { peek() } }\n";
        assert!(check_code("control/src/main.rs", code)[0].starts_with("line 2: `unsafe`"));
        assert_eq!(check_code("agent/sys/src/words.rs", code), [""; 0]);
        assert_eq!(check_code("agent/sys/tests/words.rs", code).len(), 1);
        assert_eq!(check_code("control/allocator/src/lib.rs", code), [""; 0]);
    }

    #[test]
    fn the_word_unsafe_in_text_is_not_its_use() {
        for code in [
            "#![forbid(unsafe_code)]",
            "// unsafe",
            "let word = \"unsafe\";",
        ] {
            assert_eq!(check_code("control/src/main.rs", code), [""; 0], "{code}");
        }
    }

    #[test]
    fn unfinished_work_is_found_with_its_line() {
        let code = format!("\n// {}: later\n", TEXT_WORDS[0].0);
        assert!(check_code("control/src/main.rs", &code)[0].starts_with("line 3: "));
    }
}
