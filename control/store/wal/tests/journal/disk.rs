//! A disk in memory that knows what is written and what is synced, and fails on request.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Cursor, Read},
    sync::Arc,
};

use dormouse_wal::files::{AppendFile, Files};
use parking_lot::Mutex;

/// Bytes that a power loss keeps or loses together.
const BLOCK_BYTES: usize = 32;

#[derive(Debug, Default, Clone)]
struct Content {
    bytes: Vec<u8>,
    synced: usize,
    /// Length of the file if it has reserved zeros behind the bytes.
    reserved: usize,
    /// The same, as of the last sync.
    synced_reserved: usize,
}

impl Content {
    fn of(bytes: Vec<u8>) -> Self {
        Self {
            synced: bytes.len(),
            bytes,
            ..Self::default()
        }
    }

    /// The bytes of the file, the first `kept` of those that were appended, and the reserved zeros.
    fn file(&self, kept: usize, reserved: usize) -> Vec<u8> {
        let mut file = self.bytes[..kept].to_vec();
        file.resize(reserved.max(kept), 0);
        file
    }

    fn whole(&self) -> Vec<u8> {
        self.file(self.bytes.len(), self.reserved)
    }

    fn sync(&mut self) {
        self.synced = self.bytes.len();
        self.synced_reserved = self.reserved;
    }
}

type Names = BTreeMap<String, Arc<Mutex<Content>>>;

/// The opening of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opening {
    Read,
    Create,
}

/// Faults to inject.
#[derive(Debug, Default, Clone)]
pub(crate) struct Faults {
    /// Bytes that can still be written before the disk is full.
    pub(crate) space: Option<usize>,
    /// Whether syncs of files fail.
    pub(crate) sync_fails: bool,
    /// Whether syncs of files do not return.
    pub(crate) sync_stalls: bool,
    /// The opening of files that fails.
    pub(crate) refused: Option<Opening>,
    /// Bytes that one write takes at most.
    pub(crate) write_max: Option<usize>,
    /// The number of writes that are interrupted by a signal.
    pub(crate) interrupts: usize,
}

#[derive(Debug, Default)]
struct State {
    names: Names,
    /// The directory as of its last sync.
    synced_names: Names,
    faults: Faults,
}

/// The disk; clones share it.
#[derive(Debug, Default, Clone)]
pub(crate) struct Disk {
    state: Arc<Mutex<State>>,
}

impl Disk {
    pub(crate) fn with_faults(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.state.lock().faults);
    }

    /// The disk as the next process finds it after the end of this one.
    pub(crate) fn after_kill(&self) -> Self {
        let state = self.state.lock();
        Self::of(&state.names, Content::whole)
    }

    /// The disk after a power loss: of each file, the synced bytes and up to `kept` bytes more.
    pub(crate) fn after_power_loss(&self, kept: usize) -> Self {
        let state = self.state.lock();
        Self::of(&state.synced_names, |content| {
            let kept = content.bytes.len().min(content.synced + kept);
            content.file(kept, content.synced_reserved)
        })
    }

    /// A disk after a power loss: of what was not synced, any blocks of files, and any changes of names
    /// may be lost.
    pub(crate) fn after_power_loss_with_holes(&self, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let state = self.state.lock();
        let all = state.synced_names.keys().chain(state.names.keys());
        let all: BTreeSet<_> = all.cloned().collect();
        let after = Self::default();
        for name in all {
            let either = [&state.synced_names, &state.names];
            if let Some(content) = random.choice(either).and_then(|names| names.get(&name)) {
                after.set(&name, with_holes(&content.lock(), &mut random));
            }
        }
        after.sync_directory().unwrap();
        after
    }

    fn of(names: &Names, file: impl Fn(&Content) -> Vec<u8>) -> Self {
        let copy = |content: &Arc<Mutex<Content>>| {
            let content = content.lock();
            let synced = content.synced;
            let copy = Content::of(file(&content));
            Arc::new(Mutex::new(Content {
                synced: synced.min(copy.synced),
                ..copy
            }))
        };
        let names: Names = names
            .iter()
            .map(|(name, content)| (name.clone(), copy(content)))
            .collect();
        let state = State {
            synced_names: names.clone(),
            names,
            faults: Faults::default(),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.state.lock().names.keys().cloned().collect()
    }

    pub(crate) fn names_with(&self, suffix: &str) -> Vec<String> {
        let mut names = self.names();
        names.retain(|name| name.strip_suffix(suffix).is_some());
        names
    }

    pub(crate) fn last_segment(&self) -> String {
        self.names_with(".wal").pop().unwrap()
    }

    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        let content = self.content(name).unwrap();
        let content = content.lock();
        content.whole()
    }

    pub(crate) fn set(&self, name: &str, bytes: Vec<u8>) {
        let content = Arc::new(Mutex::new(Content::of(bytes)));
        self.state.lock().names.insert(name.to_owned(), content);
    }

    fn content(&self, name: &str) -> io::Result<Arc<Mutex<Content>>> {
        let state = self.state.lock();
        let found = state.names.get(name).cloned();
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// The bytes of a file after a power loss.
fn with_holes(content: &Content, random: &mut fastrand::Rng) -> Vec<u8> {
    let length = random.usize(content.synced..=content.bytes.len());
    let whole = random.bool();
    let reserved = random.choice([content.synced_reserved, content.reserved]);
    let mut bytes = content.file(
        if whole { content.bytes.len() } else { length },
        reserved.unwrap_or_default(),
    );
    for block in bytes[content.synced..].chunks_mut(BLOCK_BYTES) {
        if random.u8(..4) == 0 {
            block.fill(0);
        }
    }
    bytes
}

#[derive(Debug)]
struct OpenFile {
    disk: Disk,
    content: Arc<Mutex<Content>>,
}

impl AppendFile for OpenFile {
    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.disk.state.lock();
        let faults = &mut state.faults;
        if faults.interrupts > 0 {
            faults.interrupts -= 1;
            return Err(io::ErrorKind::Interrupted.into());
        }
        let mut taken = bytes.len().min(faults.write_max.unwrap_or(usize::MAX));
        if let Some(space) = &mut faults.space {
            taken = taken.min(*space);
            *space -= taken;
            if taken == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        self.content.lock().bytes.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn sync(&self) -> io::Result<()> {
        while self.disk.state.lock().faults.sync_stalls {
            std::thread::yield_now();
        }
        if self.disk.state.lock().faults.sync_fails {
            return Err(io::Error::other("injected EIO"));
        }
        self.content.lock().sync();
        Ok(())
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        let mut content = self.content.lock();
        content.reserved = content.bytes.len() + usize::try_from(bytes).unwrap();
        Ok(())
    }

    fn release(&self) -> io::Result<()> {
        self.content.lock().reserved = 0;
        Ok(())
    }
}

impl Files for Disk {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.names())
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        if self.state.lock().faults.refused == Some(Opening::Read) {
            return Err(io::Error::other("injected EIO"));
        }
        let bytes = self.content(name)?.lock().whole();
        Ok(Box::new(Cursor::new(bytes)))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn AppendFile>> {
        let mut state = self.state.lock();
        if state.faults.refused == Some(Opening::Create) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if state.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let content = Arc::<Mutex<Content>>::default();
        state.names.insert(name.to_owned(), Arc::clone(&content));
        Ok(Arc::new(OpenFile {
            disk: self.clone(),
            content,
        }))
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        self.content(name)?.lock().sync();
        Ok(())
    }

    fn truncate(&self, name: &str, length: u64) -> io::Result<()> {
        let content = self.content(name)?;
        let mut content = content.lock();
        let mut bytes = content.whole();
        bytes.truncate(usize::try_from(length).unwrap());
        *content = Content::of(bytes);
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        let content = state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.names.insert(to.to_owned(), content);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let removed = self.state.lock().names.remove(name);
        removed
            .map(|_| ())
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync_directory(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        state.synced_names = state.names.clone();
        Ok(())
    }
}
