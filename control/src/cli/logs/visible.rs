//! Lines of a log as a terminal shows them: a pod's control characters cannot move the cursor, retitle the window or hide text.

/// Ends all colours.
const RESET: &[u8] = b"\x1b[0m";

/// The line with its colours; other control characters are written as `^X`, bytes that are no UTF-8 as U+FFFD. A colour ends with
/// the line.
pub(super) fn line(line: &[u8]) -> Vec<u8> {
    let (text, end) = without_end(line);
    let text = String::from_utf8_lossy(text);
    let mut shown = Vec::with_capacity(line.len());
    let mut is_coloured = false;
    let mut rest = text.as_ref();
    while let Some(first) = rest.chars().next() {
        let len = if let Some(len) = colour_len(rest) {
            is_coloured = true;
            shown.extend_from_slice(&rest.as_bytes()[..len]);
            len
        } else {
            push(first, &mut shown);
            first.len_utf8()
        };
        rest = &rest[len..];
    }
    shown.extend_from_slice(if is_coloured { RESET } else { b"" });
    shown.extend_from_slice(end);
    shown
}

/// A line, and its line end.
fn without_end(line: &[u8]) -> (&[u8], &[u8]) {
    let end = [b"\r\n".as_slice(), b"\n"]
        .into_iter()
        .find(|end| line.ends_with(end));
    line.split_at(line.len() - end.map_or(0, <[u8]>::len))
}

/// Length of the sequence that sets colours (`SGR` of ECMA-48) with which the text begins.
fn colour_len(text: &str) -> Option<usize> {
    let parameters = text.strip_prefix("\x1b[")?;
    let end = parameters.find(|c: char| !c.is_ascii_digit() && c != ';' && c != ':')?;
    parameters[end..]
        .starts_with('m')
        .then_some("\x1b[".len() + end + 1)
}

/// Appends one character; a control character as `less` and `cat -v` show it.
fn push(one: char, shown: &mut Vec<u8>) {
    match one {
        '\t' => shown.push(b'\t'),
        '\0'..='\x1f' | '\x7f' => {
            let code = u8::try_from(u32::from(one)).unwrap_or_default();
            shown.extend_from_slice(&[b'^', code ^ 0x40]);
        }
        // C1 control characters: terminals take U+009B for ESC [.
        '\u{80}'..='\u{9f}' => {
            shown.extend_from_slice(format!("<U+{:04X}>", u32::from(one)).as_bytes());
        }
        one => shown.extend_from_slice(one.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(written: &[u8], want: &str) {
        assert_eq!(String::from_utf8(line(written)).unwrap(), want);
    }

    #[test]
    fn colours_are_kept_and_end_with_the_line() {
        check(b"plain \xc3\xa4\ttext\n", "plain ä\ttext\n");
        check(
            b"\x1b[1;31mred\x1b[m x\r\n",
            "\x1b[1;31mred\x1b[m x\x1b[0m\r\n",
        );
        check(b"\x1b[38:5:9mred", "\x1b[38:5:9mred\x1b[0m");
    }

    #[test]
    fn other_control_characters_are_shown_and_do_nothing() {
        check(b"a\x1b[2Jb\n", "a^[[2Jb\n");
        check(b"\x1b]0;title\x07\x1b[12\n", "^[]0;title^G^[[12\n");
        check(b"10%\r20%\x7f\x00\n", "10%^M20%^?^@\n");
        check(b"\xc2\x9b2J \xff\n", "<U+009B>2J \u{fffd}\n");
    }
}
