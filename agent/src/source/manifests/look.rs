//! Looks at the folder: reads the files that changed, and no other.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::mem;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::Batch;
use super::folder::{Content, FileName, Folder, Update};
use super::problem::{ManifestsError, Problem};
use super::text::{Format, parse};
use super::watch::{Heard, Watch};

/// Larger than any cluster's Services written out; a file is held in memory while it is read.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// So much text is read at a time, or one file: its objects take several times as much.
const PART_BYTES: u64 = 8 << 20;

/// Two writes within one tick of the kernel's clock (at most 10 ms) give a file the same times: what was written so
/// recently may have changed again without a trace.
const CLOCK_TICK: Duration = Duration::from_millis(20);

/// What a file is known by without being read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stamp {
    /// Device, inode, size in bytes, and the times of its content and of its inode in nanoseconds.
    Seen([u64; 2], u64, [i64; 2]),
    /// It was read so soon after it was written that a later write might not show, or it has to be read again anyway.
    Young,
    /// There is nothing at the end of its link.
    Absent,
}

/// What one look found.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) batch: Batch,
    /// Whether something happened meanwhile that asks for another look.
    pub(super) again: bool,
}

/// The folder, and all that is known of it.
#[derive(Debug)]
pub(super) struct Looker {
    path: PathBuf,
    watch: Watch,
    known: BTreeMap<FileName, Stamp>,
    /// The files that the look under way has not come to.
    rest: BTreeSet<FileName>,
    folder: Folder,
    is_gone: bool,
}

impl Looker {
    /// Watches the folder before anything is read of it: no change can fall between.
    pub(super) fn open(path: &Path) -> Result<(Self, Look), ManifestsError> {
        let folder = path.to_owned();
        if let Err(source) = fs::read_dir(path) {
            return Err(ManifestsError::Folder { folder, source });
        }
        let watch = Watch::open(path).map_err(|error| ManifestsError::Watch {
            folder,
            source: error.into(),
        })?;
        let mut looker = Self {
            path: path.to_owned(),
            watch,
            known: BTreeMap::new(),
            rest: BTreeSet::new(),
            folder: Folder::of(path),
            is_gone: false,
        };
        let look = looker.look();
        Ok((looker, look))
    }

    /// What happened since the last time.
    pub(super) fn hear(&mut self) -> io::Result<Heard> {
        Ok(self.watch.hear()?)
    }

    /// A descriptor that can be read when there is something to hear.
    pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.watch.descriptor()
    }

    /// The folder's path, for people.
    pub(super) fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Reads what changed, a part at a time: as long as there is [`Batch::more`], the next look goes on with this one.
    pub(super) fn look(&mut self) -> Look {
        match self.try_look() {
            Ok(look) => look,
            Err(problem) => {
                self.rest.clear();
                Look {
                    batch: Batch {
                        problems: Vec::from_iter(problem),
                        ..Batch::default()
                    },
                    again: false,
                }
            }
        }
    }

    /// Fails with what is to be told, which is nothing if it was told before.
    fn try_look(&mut self) -> Result<Look, Option<Problem>> {
        let mut contents = Vec::new();
        if self.rest.is_empty() {
            self.hear().map_err(|error| self.blind(&error))?;
            self.rest = self.list()?;
            contents = self.removed(&self.rest);
        }
        contents.extend(self.read_part());
        let mut again = self.settle(&mut contents)?;
        let mut update = self.take(contents);
        while !update.again.is_empty() {
            match self.read_again(mem::take(&mut update.again)) {
                Ok((next, look)) => {
                    update.then(next);
                    again |= look;
                }
                Err(problem) => update.problems.push(problem),
            }
        }
        Ok(Look {
            batch: Batch {
                more: !self.rest.is_empty(),
                ..update.batch()
            },
            again,
        })
    }

    fn read_again(&mut self, names: BTreeSet<FileName>) -> Result<(Update, bool), Problem> {
        // If somebody is writing one of them, the next look reads it.
        for name in &names {
            self.known.insert(Arc::clone(name), Stamp::Young);
        }
        let names = names.into_iter();
        let read = names.filter_map(|name| self.read(name));
        let mut contents = read.map(|(content, _)| content).collect();
        let again = self.settle(&mut contents)?;
        Ok((self.take(contents), again))
    }

    /// Leaves out what may have changed while it was read; returns whether something happened that asks for a look.
    fn settle(&mut self, contents: &mut Vec<(FileName, Stamp, Content)>) -> Result<bool, Problem> {
        let heard = self.hear().map_err(|error| self.blind(&error))?;
        contents.retain(|(name, _, content)| {
            let is_gone = matches!(content, Content::Gone);
            is_gone || !(heard.lost || heard.written.contains(&**name))
        });
        Ok(heard.look)
    }

    fn blind(&self, error: &io::Error) -> Problem {
        Problem::Blind {
            folder: self.name(),
            what: error.to_string(),
        }
    }

    fn list(&mut self) -> Result<BTreeSet<FileName>, Option<Problem>> {
        let was_gone = self.is_gone;
        let names = fs::read_dir(&self.path).and_then(|entries| {
            let names = entries.map(|entry| Ok(FileName::new(entry?.file_name())));
            names.collect::<io::Result<BTreeSet<_>>>()
        });
        self.is_gone = names.is_err();
        let problem = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Problem::FolderGone {
                folder: self.path.display().to_string(),
            },
            _ => Problem::Unreadable {
                file: self.path.display().to_string(),
                what: error.to_string(),
            },
        };
        let mut names = names.map_err(|error| (!was_gone).then(|| problem(error)))?;
        names.retain(|name| format(name).is_some());
        Ok(names)
    }

    fn removed(&self, names: &BTreeSet<FileName>) -> Vec<(FileName, Stamp, Content)> {
        let gone = self.known.keys().filter(|name| !names.contains(*name));
        gone.map(|name| (Arc::clone(name), Stamp::Absent, Content::Gone))
            .collect()
    }

    /// Reads files of the look under way, as many as are worth a part.
    fn read_part(&mut self) -> Vec<(FileName, Stamp, Content)> {
        let (mut contents, mut bytes) = (Vec::new(), 0);
        while bytes < PART_BYTES
            && let Some(name) = self.rest.pop_first()
        {
            if let Some((content, size)) = self.read(name) {
                contents.push(content);
                bytes += size;
            }
        }
        contents
    }

    /// Reads a file, unless it is as it was or somebody is writing it; with its size in bytes.
    fn read(&self, name: FileName) -> Option<((FileName, Stamp, Content), u64)> {
        if self.watch.is_written(&name) {
            return None;
        }
        let path = self.path.join(&*name);
        let file = path.display().to_string();
        let metadata = fs::metadata(&path).ok();
        let stamp = metadata.as_ref().map_or(Stamp::Absent, stamp_of);
        if self.known.get(&name) == Some(&stamp) && stamp != Stamp::Young {
            return None;
        }
        let size = metadata.map_or(0, |metadata| metadata.size());
        let content = match text(&path) {
            Ok(text) => Content::Read(parse(&file, format(&name)?, &text)),
            Err(error) => Content::Unreadable(Problem::Unreadable {
                file,
                what: error.to_string(),
            }),
        };
        Some(((name, stamp, content), size))
    }

    fn take(&mut self, contents: Vec<(FileName, Stamp, Content)>) -> Update {
        let mut update = Vec::with_capacity(contents.len());
        for (name, stamp, content) in contents {
            match &content {
                Content::Gone => self.known.remove(&name),
                _ => self.known.insert(Arc::clone(&name), stamp),
            };
            update.push((name, content));
        }
        self.folder.update(update)
    }
}

/// How a file of that name is written; none if it is no manifest. Hidden files are editors' and kubelet's own.
fn format(name: &OsStr) -> Option<Format> {
    if name.as_encoded_bytes().starts_with(b".") {
        return None;
    }
    match Path::new(name).extension()?.to_str()? {
        "yaml" | "yml" => Some(Format::Yaml),
        "json" => Some(Format::Json),
        _ => None,
    }
}

fn stamp_of(metadata: &Metadata) -> Stamp {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.map_or(0, |since| i64::try_from(since.as_nanos()).unwrap_or(0));
    let ns = |seconds: i64, ns: i64| seconds.saturating_mul(1_000_000_000).saturating_add(ns);
    let times = [
        ns(metadata.mtime(), metadata.mtime_nsec()),
        ns(metadata.ctime(), metadata.ctime_nsec()),
    ];
    let tick = i64::try_from(CLOCK_TICK.as_nanos()).unwrap_or(0);
    if times.iter().any(|time| now.saturating_sub(*time) < tick) {
        return Stamp::Young;
    }
    let inode = [metadata.dev(), metadata.ino()];
    Stamp::Seen(inode, metadata.size(), times)
}

fn text(path: &Path) -> io::Result<String> {
    // Whoever opens a pipe otherwise waits for its other end.
    let flags = libc::O_NONBLOCK;
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other("it is larger than 1 GiB; split it"));
    }
    Ok(text)
}
