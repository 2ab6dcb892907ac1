//! From records to lines: which lines a reader asks for, and their text. Pure.

use jiff::Timestamp;

use crate::record::{Record, Stream, complete, parse, time_text};

/// The part of a line that is held back until its end is read; of a longer line, what was read is passed on.
const HELD_MAX: usize = 64 * 1024;

/// The lines that a reader asks for; the default is all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Only the last lines.
    pub tail_lines: Option<u64>,
    /// Only lines that were read from the pod at this time or later.
    pub since: Option<Timestamp>,
    /// Begin each line with its time.
    pub timestamps: bool,
    /// Only the first bytes of what the other fields select.
    pub limit_bytes: Option<u64>,
}

/// The unfinished line of one stream.
#[derive(Debug, Default)]
struct Unfinished {
    text: Vec<u8>,
    /// The line's begin, with its time, is in `text` or was passed on.
    begun: bool,
}

/// Joins records to lines.
#[derive(Debug)]
pub(crate) struct Lines {
    since: Option<String>,
    timestamps: bool,
    bytes_left: u64,
    unfinished: [Unfinished; 2],
}

impl Lines {
    pub(crate) fn new(selection: &Selection) -> Self {
        Self {
            since: selection.since.map(time_text),
            timestamps: selection.timestamps,
            bytes_left: selection.limit_bytes.unwrap_or(u64::MAX),
            unfinished: Default::default(),
        }
    }

    /// Appends the lines that end with the records of `bytes`.
    pub(crate) fn add(&mut self, bytes: &[u8], to: &mut Vec<u8>) {
        for record in complete(bytes).filter_map(parse) {
            if self
                .since
                .as_deref()
                .is_none_or(|since| record.time >= since)
            {
                self.record(record, to);
            }
        }
    }

    fn record(&mut self, record: Record<'_>, to: &mut Vec<u8>) {
        let [stdout, stderr] = &mut self.unfinished;
        let line = match record.stream {
            Stream::Stdout => stdout,
            Stream::Stderr => stderr,
        };
        if self.timestamps && !line.begun {
            line.text.extend_from_slice(record.time.as_bytes());
            line.text.push(b' ');
        }
        line.begun = !record.ends_line;
        line.text.extend_from_slice(record.text);
        if record.ends_line {
            line.text.push(b'\n');
        }
        if record.ends_line || line.text.len() > HELD_MAX {
            let text = std::mem::take(&mut line.text);
            self.pass(text, to);
        }
    }

    /// Appends what there is of lines that did not end: the pod has ended.
    pub(crate) fn finish(&mut self, to: &mut Vec<u8>) {
        for line in std::mem::take(&mut self.unfinished) {
            self.pass(line.text, to);
        }
    }

    fn pass(&mut self, mut text: Vec<u8>, to: &mut Vec<u8>) {
        let room = usize::try_from(self.bytes_left).unwrap_or(usize::MAX);
        text.truncate(room);
        self.bytes_left -= u64::try_from(text.len()).unwrap_or(u64::MAX);
        to.append(&mut text);
    }

    /// Whether the limit of bytes is reached.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes_left == 0
    }
}

/// Counts lines from the end of a log, whose files are given from the newest to the oldest.
#[derive(Debug)]
pub(crate) struct TailStart {
    lines: u64,
    /// The last record of the log ends no line, but counts as one.
    is_last: bool,
}

impl TailStart {
    pub(crate) fn new(lines: u64) -> Self {
        Self {
            lines,
            is_last: true,
        }
    }

    /// The offset in this file at which the last lines begin; `None` if they begin before it.
    pub(crate) fn find(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut end = bytes
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        for line in complete(bytes).rev() {
            let ends_line = parse(line).is_some_and(|record| record.ends_line);
            if ends_line || self.is_last {
                if self.lines == 0 {
                    return Some(end);
                }
                self.lines -= 1;
            }
            self.is_last = false;
            end -= line.len() + 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::write;

    /// A log: each chunk is read one second after the one before it.
    fn log(chunks: &[(Stream, &str)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (second, (stream, chunk)) in (0..).zip(chunks) {
            write(
                chunk.as_bytes(),
                *stream,
                Timestamp::from_second(second).unwrap(),
                &mut bytes,
            );
        }
        bytes
    }

    fn read(log: &[u8], selection: &Selection) -> String {
        let mut lines = Lines::new(selection);
        let mut text = Vec::new();
        let mut tail = TailStart::new(selection.tail_lines.unwrap_or(u64::MAX));
        lines.add(&log[tail.find(log).unwrap_or(0)..], &mut text);
        lines.finish(&mut text);
        String::from_utf8(text).unwrap()
    }

    const OUT: Stream = Stream::Stdout;
    const ERR: Stream = Stream::Stderr;

    #[test]
    fn parts_of_a_line_are_joined_although_the_other_stream_writes_between_them() {
        let log = log(&[(OUT, "a\nhel"), (ERR, "oops\n"), (OUT, "lo\nend")]);
        assert_eq!(read(&log, &Selection::default()), "a\noops\nhello\nend");
    }

    #[test]
    fn a_line_has_the_time_of_its_first_part() {
        let log = log(&[(OUT, "hel"), (OUT, "lo\nx\n")]);
        let selection = Selection {
            timestamps: true,
            ..Selection::default()
        };
        assert_eq!(
            read(&log, &selection),
            "1970-01-01T00:00:00.000000000Z hello\n1970-01-01T00:00:01.000000000Z x\n"
        );
    }

    #[test]
    fn the_tail_counts_lines_and_not_parts() {
        let log = log(&[(OUT, "a\nb\n"), (OUT, "c1"), (OUT, "c2\n"), (ERR, "d")]);
        let tail = |lines| {
            read(
                &log,
                &Selection {
                    tail_lines: Some(lines),
                    ..Selection::default()
                },
            )
        };
        assert_eq!(tail(0), "");
        assert_eq!(tail(1), "d");
        assert_eq!(tail(2), "c1c2\nd");
        assert_eq!(tail(3), "b\nc1c2\nd");
        assert_eq!(tail(9), "a\nb\nc1c2\nd");
    }

    #[test]
    fn the_tail_continues_in_older_files() {
        let (older, newer) = (log(&[(OUT, "a\nb\n")]), log(&[(OUT, "c\n")]));
        let mut tail = TailStart::new(2);
        assert_eq!(tail.find(&newer), None);
        assert_eq!(tail.find(&older), Some(older.len() / 2));
    }

    #[test]
    fn lines_before_a_time_and_bytes_after_the_limit_are_left_out() {
        let log = log(&[(OUT, "a\n"), (OUT, "b\n"), (OUT, "c\n")]);
        let since = Selection {
            since: Some(Timestamp::from_second(1).unwrap()),
            ..Selection::default()
        };
        assert_eq!(read(&log, &since), "b\nc\n");
        let limit = Selection {
            limit_bytes: Some(3),
            ..Selection::default()
        };
        assert_eq!(read(&log, &limit), "a\nb");
    }

    #[test]
    fn a_line_without_end_is_passed_on_in_parts() {
        let part = "x".repeat(HELD_MAX);
        let log = log(&[(OUT, &part), (OUT, "y")]);
        let mut lines = Lines::new(&Selection {
            timestamps: true,
            ..Selection::default()
        });
        let mut text = Vec::new();
        lines.add(&log, &mut text);
        assert!(text.len() > HELD_MAX, "the first part is not held back");
        lines.finish(&mut text);
        assert!(text.ends_with(b"xy"), "and the second one gets no time");
    }
}
