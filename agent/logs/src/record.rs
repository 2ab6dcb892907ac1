//! Records of the CRI log format: `TIME stdout|stderr F|P TEXT`, F at the end of a line and P before it. Pure.
//!
//! What was read from a pod is written at once: a line whose end was not read yet becomes a record P, and the rest of the line further
//! ones. So the writer keeps nothing between two reads.

use std::io::Write as _;

use jiff::Timestamp;

/// Length of a record's time: RFC 3339 in UTC with nanoseconds, so that times compare as text.
pub(crate) const TIME_LEN: usize = 30;

/// Where a pod wrote to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) time: &'a str,
    pub(crate) stream: Stream,
    /// Whether the line ends with this record.
    pub(crate) ends_line: bool,
    pub(crate) text: &'a [u8],
}

/// A time as records have it.
pub(crate) fn time_text(at: Timestamp) -> String {
    format!("{at:.9}")
}

/// Appends the records of a chunk that was read at this time.
pub(crate) fn write(chunk: &[u8], stream: Stream, at: Timestamp, to: &mut Vec<u8>) {
    let name = match stream {
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
    };
    let time = time_text(at);
    for line in chunk.split_inclusive(|byte| *byte == b'\n') {
        let (text, tag) = match line.strip_suffix(b"\n") {
            Some(text) => (text, "F"),
            None => (line, "P"),
        };
        // A vector takes everything.
        let _ = write!(to, "{time} {name} {tag} ");
        to.extend_from_slice(text);
        to.push(b'\n');
    }
}

/// Parses a record without its line end; `None` if it is none, as after a crash of the machine.
pub(crate) fn parse(line: &[u8]) -> Option<Record<'_>> {
    let (time, rest) = line.split_at_checked(TIME_LEN)?;
    let rest = rest.strip_prefix(b" ")?;
    let (stream, rest) = match rest.split_at_checked(7)? {
        (b"stdout ", rest) => (Stream::Stdout, rest),
        (b"stderr ", rest) => (Stream::Stderr, rest),
        _ => return None,
    };
    let (ends_line, text) = match rest.split_at_checked(2)? {
        (b"F ", text) => (true, text),
        (b"P ", text) => (false, text),
        _ => return None,
    };
    Some(Record {
        time: std::str::from_utf8(time).ok()?,
        stream,
        ends_line,
        text,
    })
}

/// The records of a file, each without its line end. What follows the last line end is not complete and left out.
pub(crate) fn complete(bytes: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    let end = bytes.iter().rposition(|byte| *byte == b'\n');
    let lines = end.map(|end| bytes[..end].split(|byte| *byte == b'\n'));
    lines.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: &str = "2026-11-23T10:00:00.000000007Z";

    fn written(chunk: &[u8], stream: Stream) -> String {
        let mut bytes = Vec::new();
        write(chunk, stream, AT.parse().unwrap(), &mut bytes);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn each_line_is_a_record_and_an_unfinished_one_is_partial() {
        assert_eq!(
            written(b"one\n\ntwo", Stream::Stdout),
            format!("{AT} stdout F one\n{AT} stdout F \n{AT} stdout P two\n")
        );
        assert_eq!(written(b"\n", Stream::Stderr), format!("{AT} stderr F \n"));
        assert_eq!(written(b"", Stream::Stderr), "");
        assert_eq!(AT.len(), TIME_LEN);
    }

    #[test]
    fn a_record_is_read_back() {
        let text = written(b"a b\nrest", Stream::Stderr);
        let records: Vec<_> = complete(text.as_bytes())
            .map(|line| parse(line).unwrap())
            .collect();
        let record = |ends_line, text| Record {
            time: AT,
            stream: Stream::Stderr,
            ends_line,
            text,
        };
        assert_eq!(records, [record(true, &b"a b"[..]), record(false, b"rest")]);
    }

    #[test]
    fn a_torn_record_is_left_out_and_a_foreign_line_is_none() {
        let text = format!("{AT} stdout F one\n{AT} stdout F tw");
        assert_eq!(complete(text.as_bytes()).count(), 1);
        assert_eq!(complete(b"").count() + complete(b"torn").count(), 0);
        assert_eq!(complete(b"\n").count(), 1);
        for foreign in [
            "",
            "hello",
            &format!("{AT} stdin F x"),
            &format!("{AT} stdout X x"),
            &format!("{AT} stdout"),
        ] {
            assert_eq!(parse(foreign.as_bytes()), None, "{foreign}");
        }
    }
}
