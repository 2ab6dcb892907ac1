//! Reads the log of one run from its files, also while it is written.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;

use crate::folder::Folder;
use crate::lines::{Lines, Selection, TailStart};
use crate::name::{Kind, Run};

/// Bytes that are read at once.
const BLOCK_BYTES: usize = 64 * 1024;

/// Reads a log from its first selected line on.
#[derive(Debug)]
pub struct Reader {
    folder: Folder,
    run: Run,
    /// The file that is read, and its number.
    file: Option<(File, u64)>,
    /// The number of the next file is at least this.
    next_number: u64,
    /// What was read after the last complete record.
    rest: Vec<u8>,
    lines: Lines,
    follow: bool,
}

/// What a reader has next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Text; not empty.
    Text(Vec<u8>),
    /// Nothing at present, but the run goes on: ask again later. Only for a reader that follows.
    Wait,
    /// Nothing more.
    End,
}

impl Reader {
    /// A reader of the selected lines; one that follows ends with the run, another one at the present end of the log.
    pub fn open(folder: Folder, run: Run, selection: &Selection, follow: bool) -> io::Result<Self> {
        let mut reader = Self {
            folder,
            run,
            file: None,
            next_number: 0,
            rest: Vec::new(),
            lines: Lines::new(selection),
            follow,
        };
        if let Some(lines) = selection.tail_lines {
            reader.seek_tail(lines)?;
        }
        Ok(reader)
    }

    /// Goes to where the last lines begin.
    fn seek_tail(&mut self, lines: u64) -> io::Result<()> {
        let mut start = TailStart::new(lines);
        for number in self.numbers()?.into_iter().rev() {
            let path = self.folder.file(&self.run, Kind::Records(number));
            let bytes = match fs::read(&path) {
                // Removed since it was listed, and so are all older ones.
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                bytes => bytes?,
            };
            if let Some(offset) = start.find(&bytes) {
                let mut file = File::open(path)?;
                file.seek(SeekFrom::Start(u64::try_from(offset).unwrap_or(u64::MAX)))?;
                (self.file, self.next_number) = (Some((file, number)), number + 1);
                return Ok(());
            }
        }
        Ok(())
    }

    /// The numbers of the run's files, in order.
    fn numbers(&self) -> io::Result<Vec<u64>> {
        let files = self.folder.files()?.into_iter();
        let mut numbers: Vec<u64> = files
            .filter_map(|(run, kind)| match kind {
                Kind::Records(number) if run == self.run => Some(number),
                _ => None,
            })
            .collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// The next text. Blocks only for the disk.
    pub fn read(&mut self) -> io::Result<Next> {
        loop {
            if self.lines.is_full() {
                return Ok(Next::End);
            }
            // Looked at before the read: what was written before the end, or before the next file was begun, is read.
            let (ended, next) = (self.has_ended(), self.next_file()?);
            let mut text = Vec::new();
            if self.read_block(&mut text)? {
                if !text.is_empty() {
                    return Ok(Next::Text(text));
                }
            } else if let Some(next) = next {
                self.rest.clear();
                self.next_number = next.1 + 1;
                self.file = Some(next);
            } else if ended {
                self.lines.finish(&mut text);
                self.follow = false;
                let is_empty = text.is_empty();
                return Ok(if is_empty {
                    Next::End
                } else {
                    Next::Text(text)
                });
            } else {
                return Ok(Next::Wait);
            }
        }
    }

    fn has_ended(&self) -> bool {
        !self.follow || self.folder.has_ended(&self.run)
    }

    /// Opens the file after the one that is read, if there is one.
    fn next_file(&self) -> io::Result<Option<(File, u64)>> {
        let open = |number| {
            let path = self.folder.file(&self.run, Kind::Records(number));
            match File::open(path) {
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                file => file.map(|file| Some((file, number))),
            }
        };
        // Files are removed from the oldest on: while the one that is read exists, so does the next one.
        let next = open(self.next_number)?;
        let is_there = match &self.file {
            Some((file, _)) => file.metadata()?.nlink() > 0,
            None => false,
        };
        if next.is_some() || is_there {
            return Ok(next);
        }
        let mut numbers = self.numbers()?.into_iter();
        let later = numbers.find(|number| *number >= self.next_number);
        later.map_or(Ok(None), open)
    }

    /// Reads a block; returns whether there was more in the file.
    fn read_block(&mut self, text: &mut Vec<u8>) -> io::Result<bool> {
        let Some((file, _)) = &mut self.file else {
            return Ok(false);
        };
        let begin = self.rest.len();
        self.rest.resize(begin + BLOCK_BYTES, 0);
        let read = file.read(&mut self.rest[begin..]);
        self.rest.truncate(begin + *read.as_ref().unwrap_or(&0));
        if read? == 0 {
            return Ok(false);
        }
        let complete = self
            .rest
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        self.lines.add(&self.rest[..complete], text);
        self.rest.drain(..complete);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use jiff::Timestamp;

    use super::*;
    use crate::folder::{Meta, Output};
    use crate::record::{Stream, write};

    struct Log {
        _dir: tempfile::TempDir,
        folder: Folder,
        run: Run,
        _output: Output,
    }

    fn log() -> Log {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path().to_owned());
        let meta = Meta {
            namespace: "shop".into(),
            name: "web".into(),
            app: String::new(),
        };
        let output = folder.begin("u1", &meta, false).unwrap();
        let run = folder.last("u1").unwrap().unwrap();
        Log {
            _dir: dir,
            folder,
            run,
            _output: output,
        }
    }

    impl Log {
        fn write(&self, file: u64, text: &str) {
            let mut bytes = Vec::new();
            write(
                text.as_bytes(),
                Stream::Stdout,
                Timestamp::UNIX_EPOCH,
                &mut bytes,
            );
            self.folder
                .append(&self.run, file)
                .unwrap()
                .write_all(&bytes)
                .unwrap();
        }

        fn end(&self) {
            for kind in [Kind::Stdout, Kind::Stderr] {
                fs::remove_file(self.folder.file(&self.run, kind)).unwrap();
            }
        }

        fn reader(&self, tail_lines: Option<u64>, follow: bool) -> Reader {
            let selection = Selection {
                tail_lines,
                ..Selection::default()
            };
            Reader::open(self.folder.clone(), self.run.clone(), &selection, follow).unwrap()
        }
    }

    fn all(reader: &mut Reader) -> (String, Next) {
        let mut all = Vec::new();
        loop {
            match reader.read().unwrap() {
                Next::Text(text) => all.extend(text),
                next => return (String::from_utf8(all).unwrap(), next),
            }
        }
    }

    #[test]
    fn a_log_is_read_through_its_files_also_when_the_oldest_are_gone() {
        let log = log();
        for (file, text) in [(2, "a\nb\n"), (3, "c\n"), (4, "d\ne")] {
            log.write(file, text);
        }
        assert_eq!(
            all(&mut log.reader(None, false)),
            ("a\nb\nc\nd\ne".into(), Next::End)
        );
        assert_eq!(all(&mut log.reader(Some(3), false)).0, "c\nd\ne");
        assert_eq!(all(&mut log.reader(Some(0), false)).0, "");
    }

    #[test]
    fn a_reader_that_follows_waits_for_lines_and_ends_with_the_run() {
        let log = log();
        let mut reader = log.reader(None, true);
        assert_eq!(all(&mut reader), (String::new(), Next::Wait));
        log.write(0, "a\nb");
        assert_eq!(
            all(&mut reader),
            ("a\n".into(), Next::Wait),
            "the line is not complete"
        );
        log.write(0, "b\n");
        log.write(1, "c\n");
        assert_eq!(all(&mut reader), ("bb\nc\n".into(), Next::Wait));
        log.write(1, "last");
        log.end();
        assert_eq!(all(&mut reader), ("last".into(), Next::End));
        assert_eq!(reader.read().unwrap(), Next::End);
    }

    #[test]
    fn a_record_that_is_half_written_is_read_when_it_is_complete() {
        let log = log();
        let mut reader = log.reader(None, true);
        let mut file = log.folder.append(&log.run, 0).unwrap();
        file.write_all(b"1970-01-01T00:00:00.000000000Z std")
            .unwrap();
        assert_eq!(all(&mut reader), (String::new(), Next::Wait));
        file.write_all(b"out F whole\n").unwrap();
        assert_eq!(all(&mut reader), ("whole\n".into(), Next::Wait));
    }
}
