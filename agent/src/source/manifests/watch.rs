//! The inotify watch of the folder: when a look is needed, and which files are being written.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::inotify::{
    AddWatchFlags as Flags, InitFlags, Inotify, InotifyEvent, WatchDescriptor,
};

/// A watch on the folder, or, while it does not exist, on its nearest existing parent.
#[derive(Debug)]
pub(crate) struct Watch {
    inotify: Inotify,
    folder: PathBuf,
    on: Option<(WatchDescriptor, PathBuf)>,
    /// Files that were created or written, and not closed by their writer: incomplete files must not be read.
    writing: BTreeSet<OsString>,
}

/// The events since the last read.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// Whether a look at the folder is needed.
    pub(crate) look: bool,
    /// Files that were written to.
    pub(crate) written: BTreeSet<OsString>,
    /// Whether the kernel dropped events: any file may have been written to.
    pub(crate) lost: bool,
}

impl Watch {
    /// Watches the folder, which must exist.
    pub(crate) fn open(folder: &Path) -> Result<Self, Errno> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        let descriptor = inotify.add_watch(folder, interests())?;
        Ok(Self {
            inotify,
            folder: folder.to_owned(),
            on: Some((descriptor, folder.to_owned())),
            writing: BTreeSet::new(),
        })
    }

    /// Watches the folder, or, until it exists, its nearest existing parent.
    pub(crate) fn open_awaiting(folder: &Path) -> Result<Self, Errno> {
        let mut watch = Self {
            inotify: Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?,
            folder: folder.to_owned(),
            on: None,
            writing: BTreeSet::new(),
        };
        watch.watch_again()?;
        Ok(watch)
    }

    /// A descriptor that is readable when there are events.
    pub(crate) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.inotify.as_fd().try_clone_to_owned()
    }

    /// Whether the file was created or written to and not closed yet.
    pub(crate) fn is_written(&self, file: &OsStr) -> bool {
        self.writing.contains(file)
    }

    /// Reads all events since the last call.
    pub(crate) fn events(&mut self) -> Result<Events, Errno> {
        let mut events = Events::default();
        loop {
            match self.inotify.read_events() {
                Ok(read) => {
                    for event in read {
                        self.take(event, &mut events)?;
                    }
                }
                Err(Errno::EAGAIN) => return Ok(events),
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn take(&mut self, event: InotifyEvent, events: &mut Events) -> Result<(), Errno> {
        if event.mask.contains(Flags::IN_Q_OVERFLOW) {
            self.writing.clear();
            (events.look, events.lost) = (true, true);
            return Ok(());
        }
        let Some((descriptor, watched)) = &self.on else {
            return Ok(());
        };
        if *descriptor != event.wd {
            return Ok(());
        }
        if *watched != self.folder || event.mask.intersects(ends()) {
            events.look = true;
            return self.watch_again();
        }
        let Some(name) = event.name else {
            // Of the folder itself: its permissions.
            events.look = true;
            return Ok(());
        };
        if event.mask.contains(Flags::IN_MODIFY) {
            events.written.insert(name.clone());
            self.writing.insert(name);
        } else if event.mask.contains(Flags::IN_CREATE) && self.is_empty(&name) {
            self.writing.insert(name);
        } else {
            // A file's mode may change while it is written.
            if !event.mask.contains(Flags::IN_ATTRIB) {
                self.writing.remove(&name);
            }
            events.look = true;
        }
        Ok(())
    }

    /// Whether a new file has nothing in it yet. Of a link or a folder no writer's end is an event.
    fn is_empty(&self, file: &OsStr) -> bool {
        let found = fs::symlink_metadata(self.folder.join(file));
        found.is_ok_and(|found| found.is_file() && found.len() == 0)
    }

    /// Watches the folder, or its nearest existing parent.
    fn watch_again(&mut self) -> Result<(), Errno> {
        self.writing.clear();
        loop {
            if let Some((descriptor, _)) = self.on.take() {
                // The kernel has removed the watch itself if its target was deleted.
                let _ = self.inotify.rm_watch(descriptor);
            }
            let missing = self.watch_nearest()?;
            // A change between the check and the watch of the parent would be missed: check again.
            if !missing.is_some_and(|folder| folder.is_dir()) {
                return Ok(());
            }
        }
    }

    /// Returns the missing folder below the watched one, if the watched one is not the folder itself.
    fn watch_nearest(&mut self) -> Result<Option<PathBuf>, Errno> {
        let mut missing = None;
        for folder in self.folder.ancestors() {
            let is_here = folder.as_os_str().is_empty();
            let folder = if is_here { Path::new(".") } else { folder };
            match self.inotify.add_watch(folder, interests()) {
                Ok(descriptor) => {
                    self.on = Some((descriptor, folder.to_owned()));
                    return Ok(missing);
                }
                Err(Errno::ENOENT | Errno::ENOTDIR) => missing = Some(folder.to_owned()),
                Err(error) => return Err(error),
            }
        }
        Err(Errno::ENOENT)
    }
}

/// The watched events. A file is read when its writer closes it: `IN_MODIFY` only marks it as being written. The writer of a
/// file that was deleted or replaced meanwhile (`IN_EXCL_UNLINK`, not in nix) does not matter.
fn interests() -> Flags {
    Flags::IN_MODIFY
        | Flags::IN_CLOSE_WRITE
        | Flags::IN_ATTRIB
        | Flags::IN_CREATE
        | Flags::IN_DELETE
        | Flags::IN_MOVE
        | Flags::IN_DELETE_SELF
        | Flags::IN_MOVE_SELF
        | Flags::IN_ONLYDIR
        | Flags::from_bits_retain(libc::IN_EXCL_UNLINK)
}

/// The events after which the folder is no longer at its path.
fn ends() -> Flags {
    Flags::IN_DELETE_SELF | Flags::IN_MOVE_SELF | Flags::IN_IGNORED | Flags::IN_UNMOUNT
}
