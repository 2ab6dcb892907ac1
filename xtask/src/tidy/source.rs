//! A small lexer of Rust: splits a file into comments, string literals and code. Pure.

/// The kind of a piece of source text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// `//`, `//!` or `/* … */`.
    Comment,
    /// `///`, the documentation of an item.
    Doc,
    /// A string literal, with its quotes.
    Text,
    /// Everything else.
    Code,
}

/// A piece of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece<'a> {
    pub(super) kind: Kind,
    /// Line of its first character, from 1.
    pub(super) line: usize,
    pub(super) text: &'a str,
}

/// All pieces of a file, in order; together they are the whole text.
pub(super) fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while !rest.is_empty() {
        let code = code_length(rest);
        let (kind, length) = match code {
            0 => other(rest),
            length => (Kind::Code, length),
        };
        let (piece, after) = rest.split_at(length);
        pieces.push(Piece {
            kind,
            line,
            text: piece,
        });
        line += piece.matches('\n').count();
        rest = after;
    }
    pieces
}

/// Length of the code at the start of `text`, in bytes.
fn code_length(text: &str) -> usize {
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with("//") || rest.starts_with("/*") {
            break;
        }
        at += match literal(rest, text[..at].chars().next_back()) {
            Some((Kind::Text, _)) => break,
            Some((_, length)) => length,
            None => rest.chars().next().map_or(1, char::len_utf8),
        };
    }
    at
}

/// Kind and length, in bytes, of the comment or the string literal at the start of `text`.
fn other(text: &str) -> (Kind, usize) {
    let line = text.find('\n').unwrap_or(text.len());
    if text.starts_with("/*") {
        let end = text.find("*/").map_or(text.len(), |end| end + 2);
        return (Kind::Comment, end);
    }
    if text.starts_with("///") && !text.starts_with("////") {
        return (Kind::Doc, line);
    }
    if text.starts_with("//") {
        return (Kind::Comment, line);
    }
    literal(text, None).unwrap_or((Kind::Code, text.len()))
}

/// The string or character literal at the start of `text`, which follows `before`: characters count as code.
fn literal(text: &str, before: Option<char>) -> Option<(Kind, usize)> {
    let inside_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let prefix = if inside_word {
        0
    } else {
        text.len() - text.trim_start_matches(['b', 'c', 'r']).len()
    };
    let raw = text[..prefix].contains('r');
    let hashes = if raw {
        let after = &text[prefix..];
        after.len() - after.trim_start_matches('#').len()
    } else {
        0
    };
    let open = prefix + hashes;
    match text[open..].chars().next()? {
        '"' if prefix <= 2 => {
            let end = if raw {
                let close = format!("\"{}", "#".repeat(hashes));
                let found = text[open + 1..].find(&close);
                found.map(|at| open + 1 + at + close.len())
            } else {
                closing(&text[open + 1..], '"').map(|at| open + 1 + at)
            };
            Some((Kind::Text, end.unwrap_or(text.len())))
        }
        '\'' if open == prefix && prefix <= 1 => {
            character(&text[open + 1..]).map(|length| (Kind::Code, open + 1 + length))
        }
        _ => None,
    }
}

/// Length up to and including the first `quote` that is not escaped.
fn closing(text: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (at, letter) in text.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if letter == quote => return Some(at + letter.len_utf8()),
            _ => {}
        }
    }
    None
}

/// Length of the rest of a character literal; `None` for a lifetime.
fn character(text: &str) -> Option<usize> {
    if text.starts_with('\\') {
        return closing(text, '\'');
    }
    let first = text.chars().next()?.len_utf8();
    text[first..].starts_with('\'').then_some(first + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<(Kind, &str)> {
        let pieces = pieces(text);
        let whole: String = pieces.iter().map(|piece| piece.text).collect();
        assert_eq!(whole, text);
        pieces
            .into_iter()
            .filter(|piece| piece.kind != Kind::Code)
            .map(|piece| (piece.kind, piece.text))
            .collect()
    }

    #[test]
    fn comments_docs_and_strings_are_separated() {
        let text = "//! File.\n/// Item.\nfn f() { g(\"a // \\\" b\"); } // end\n/* block */ x";
        assert_eq!(
            kinds(text),
            [
                (Kind::Comment, "//! File."),
                (Kind::Doc, "/// Item."),
                (Kind::Text, "\"a // \\\" b\""),
                (Kind::Comment, "// end"),
                (Kind::Comment, "/* block */"),
            ]
        );
    }

    #[test]
    fn raw_and_byte_strings_end_at_their_own_quotes() {
        let text = "let a = br#\"one \" // two\"#; let b = r\"\\\"; let c = b\"x\"; bar\"y\"";
        assert_eq!(
            kinds(text),
            [
                (Kind::Text, "br#\"one \" // two\"#"),
                (Kind::Text, "r\"\\\""),
                (Kind::Text, "b\"x\""),
                (Kind::Text, "\"y\""),
            ]
        );
    }

    #[test]
    fn quotes_of_characters_and_lifetimes_begin_no_string() {
        let text = "fn f<'a>(x: &'a str) { ['\"', '\\'', b'\"', '\u{2019}'] } // \"";
        assert_eq!(kinds(text), [(Kind::Comment, "// \"")]);
    }

    #[test]
    fn a_piece_has_the_line_of_its_first_character() {
        let lines: Vec<_> = pieces("a\n\"b\nc\" // d\n// e")
            .iter()
            .filter(|piece| piece.kind != Kind::Code)
            .map(|piece| piece.line)
            .collect();
        assert_eq!(lines, [2, 3, 4]);
    }
}
