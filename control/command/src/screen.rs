//! The width of the screen, and text that is wrapped at words to fit it.

use std::io::{IsTerminal as _, stdout};

/// Text is not made narrower than this, in characters: a word a line is not easier to read.
const WIDTH_MIN: usize = 20;

/// Width of the screen in characters; none if standard output is not a terminal, so that a program gets whole lines.
pub fn screen_width() -> Option<usize> {
    if !stdout().is_terminal() {
        return None;
    }
    let (width, _height) = terminal_size::terminal_size()?;
    Some(usize::from(width.0))
}

/// The lines of a text that is wrapped at words to this width in characters. A longer word has a line of its own; spaces between words
/// of a line are kept.
pub fn wrap(text: &str, width: Option<usize>) -> Vec<String> {
    let Some(width) = width.map(|width| width.max(WIDTH_MIN)) else {
        return vec![text.to_owned()];
    };
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split_inclusive(' ') {
        let len = word.trim_end().chars().count();
        if used > 0 && used + len > width {
            lines.push(String::new());
            used = 0;
        }
        if let Some(line) = lines.last_mut() {
            line.push_str(word);
        }
        used += word.chars().count();
    }
    lines
        .iter()
        .map(|line| line.trim_end().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_wrapped_at_words() {
        let text = "one two  three four five, six";
        assert_eq!(wrap(text, Some(20)), ["one two  three four", "five, six"]);
        assert_eq!(wrap(text, Some(3)), wrap(text, Some(WIDTH_MIN)));
        assert_eq!(wrap(text, None), [text]);
        assert_eq!(wrap("", Some(40)), [""]);
    }

    #[test]
    fn a_word_is_not_cut() {
        let word = "2001:db8:d0:0:0:1::/96-and-more";
        let text = format!("see {word} there");
        assert_eq!(wrap(&text, Some(20)), ["see", word, "there"]);
    }
}
