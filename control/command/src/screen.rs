//! The width of the screen, and text that is wrapped at words to fit it.

use std::os::fd::AsFd;

use rustix::termios::{isatty, tcgetwinsize};

/// Text is not made narrower than this, in characters: a word a line is not easier to read.
const WIDTH_MIN: usize = 20;

/// Width in characters of the screen to which this stream is written; none if it is no terminal, so that a program gets whole lines.
/// A terminal that does not know its width (a serial line) has that of `COLUMNS`, if it is set.
pub fn screen_width(stream: impl AsFd) -> Option<usize> {
    if !isatty(&stream) {
        return None;
    }
    // The number of lines does not matter: `stty cols 40` on a new terminal leaves it 0.
    let known = tcgetwinsize(&stream).map_or(0, |size| size.ws_col);
    let width = Some(usize::from(known)).filter(|width| *width > 0);
    width.or_else(|| std::env::var("COLUMNS").ok()?.parse().ok())
}

/// The lines of a text that is wrapped at words to this width in characters. A longer word is wrapped after its commas, and otherwise has
/// a line of its own: what is copied from the screen is whole. Spaces between words of a line are kept.
pub fn wrap(text: &str, width: Option<usize>) -> Vec<String> {
    let text = printable(text);
    let Some(width) = width.map(|width| width.max(WIDTH_MIN)) else {
        return vec![text];
    };
    let mut lines = vec![String::new()];
    let mut used = 0;
    let words = text.split_inclusive(' ');
    for word in words.flat_map(|word| parts(word, width)) {
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

/// A text for a line of the screen: control characters become spaces, because a terminal executes them.
pub(crate) fn printable(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// A word, or the parts of a list that is longer than a line.
fn parts(word: &str, width: usize) -> Vec<&str> {
    if word.trim_end().chars().count() <= width {
        return vec![word];
    }
    word.split_inclusive(',').collect()
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use rustix::termios::{Winsize, tcsetwinsize};

    use super::*;

    #[test]
    fn the_width_of_a_terminal_counts_also_if_its_height_is_unknown() {
        let terminal = File::options().read(true).write(true).open("/dev/ptmx");
        let terminal = terminal.unwrap();
        let size = Winsize {
            ws_row: 0,
            ws_col: 40,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&terminal, size).unwrap();
        assert_eq!(screen_width(&terminal), Some(40));
        assert_eq!(screen_width(File::open("/dev/null").unwrap()), None);
    }

    #[test]
    fn text_is_wrapped_at_words() {
        let text = "one two  three four five, six";
        assert_eq!(wrap(text, Some(20)), ["one two  three four", "five, six"]);
        assert_eq!(wrap(text, Some(3)), wrap(text, Some(WIDTH_MIN)));
        assert_eq!(wrap(text, None), [text]);
        assert_eq!(wrap("", Some(40)), [""]);
        let evil = "a\u{1b}]0;title\u{7}b\nc\rd\u{9b}2J";
        assert_eq!(wrap(evil, Some(40)), ["a ]0;title b c d 2J"]);
        assert_eq!(wrap(evil, None), ["a ]0;title b c d 2J"]);
    }

    #[test]
    fn a_word_is_not_cut() {
        let word = "2001:db8:d0:0:0:1::/96-and-more";
        let text = format!("see {word} there");
        assert_eq!(wrap(&text, Some(20)), ["see", word, "there"]);
    }

    #[test]
    fn a_list_that_is_longer_than_a_line_is_wrapped_after_its_commas() {
        let list = "shop-web-11=90,shop-web-12=9,shop-web-13=1";
        let lines = ["shop-web-11=90,", "shop-web-12=9,", "shop-web-13=1"];
        assert_eq!(wrap(list, Some(20)), lines);
        assert_eq!(wrap(list, Some(60)), [list]);
    }
}
