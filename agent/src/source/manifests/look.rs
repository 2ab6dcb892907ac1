//! A look at the folder: reads the files that have changed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::mem;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dormouse_files::Stamp;

use super::Batch;
use super::folder::{Content, FileName, Folder, Update};
use super::problem::{ManifestsError, Problem};
use super::text::{Format, parse};
use super::watch::{Events, Watch};
use crate::regular_file;

/// Larger than any cluster's Services as text; a file is in memory while it is parsed.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// Maximum text per batch, or one file; its objects take several times as much memory.
const PART_BYTES: u64 = 8 << 20;

/// The result of a look.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) batch: Batch,
    /// Whether something happened meanwhile that requires another look.
    pub(super) again: bool,
}

/// The folder with the state of its files.
#[derive(Debug)]
pub(super) struct Looker {
    path: PathBuf,
    watch: Watch,
    known: BTreeMap<FileName, Stamp>,
    /// The files of the current look that were not read yet.
    rest: BTreeSet<FileName>,
    folder: Folder,
    is_gone: bool,
}

impl Looker {
    /// Watches the folder before reading it, so that no change is missed.
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

    /// The events since the last call.
    pub(super) fn events(&mut self) -> io::Result<Events> {
        Ok(self.watch.events()?)
    }

    /// A descriptor that is readable when there are events.
    pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.watch.descriptor()
    }

    /// The folder's path, for messages.
    pub(super) fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Reads changed files, one batch at a time: after a batch with [`Batch::more`], the next call continues the look.
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

    /// Fails with the problem to report; none if it was reported before.
    fn try_look(&mut self) -> Result<Look, Option<Problem>> {
        let mut contents = Vec::new();
        if self.rest.is_empty() {
            self.events().map_err(|error| self.blind(&error))?;
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
        // If one of them is being written, the next look reads it.
        for name in &names {
            self.known.insert(Arc::clone(name), Stamp::Young);
        }
        let names = names.into_iter();
        let read = names.filter_map(|name| self.read(name));
        let mut contents = read.map(|(content, _)| content).collect();
        let again = self.settle(&mut contents)?;
        Ok((self.take(contents), again))
    }

    /// Removes files that may have changed while they were read; returns whether an event requires another look.
    fn settle(&mut self, contents: &mut Vec<(FileName, Stamp, Content)>) -> Result<bool, Problem> {
        let events = self.events().map_err(|error| self.blind(&error))?;
        contents.retain(|(name, _, content)| {
            let is_gone = matches!(content, Content::Gone);
            is_gone || !(events.lost || events.written.contains(&**name))
        });
        Ok(events.look)
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

    /// Reads files of the current look, up to a batch.
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

    /// Reads a file with its size, unless it is unchanged or being written.
    fn read(&self, name: FileName) -> Option<((FileName, Stamp, Content), u64)> {
        if self.watch.is_written(&name) {
            return None;
        }
        let path = self.path.join(&*name);
        let file = path.display().to_string();
        let metadata = fs::metadata(&path).ok();
        let stamp = metadata.as_ref().map_or(Stamp::Absent, Stamp::of);
        if !stamp.differs(self.known.get(&name).copied()) {
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

/// The format by the file's name; none if it is not a manifest. Hidden files belong to editors and kubelet.
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

fn text(path: &Path) -> io::Result<String> {
    let file = regular_file::open(path)?;
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other("larger than 1 GiB; split the file"));
    }
    Ok(text)
}
