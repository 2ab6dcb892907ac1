//! The two threads of a journal: one syncs, so that no runtime thread waits for the disk, and one
//! writes what no task waits for.

use std::{
    io,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use parking_lot::{Condvar, Mutex};

use crate::journal::Core;

/// Time for which a `buffered` record stays unwritten, at most, besides the write itself; half of
/// what is promised for the mode.
const FLUSH_DELAY: Duration = Duration::from_millis(5);

/// A request to a thread: work is due, or the thread must end.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    state: Mutex<Requested>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Requested {
    due: bool,
    end: bool,
}

impl Signal {
    /// Requests work; requests that are not taken yet are one.
    pub(crate) fn request(&self) {
        let mut state = self.state.lock();
        if !std::mem::replace(&mut state.due, true) {
            self.changed.notify_all();
        }
    }

    fn end(&self) {
        self.state.lock().end = true;
        self.changed.notify_all();
    }

    /// Waits for a request; returns whether there is one, `false` at the end.
    fn wait(&self) -> bool {
        let mut state = self.state.lock();
        self.changed
            .wait_while(&mut state, |state| !state.due && !state.end);
        std::mem::take(&mut state.due)
    }

    /// Waits for the delay, or for the end.
    fn pause(&self, delay: Duration) {
        let mut state = self.state.lock();
        self.changed
            .wait_while_for(&mut state, |state| !state.end, delay);
    }

    fn is_ended(&self) -> bool {
        self.state.lock().end
    }
}

/// The running threads; dropping it ends them after the work that is requested.
#[derive(Debug)]
pub(crate) struct Threads {
    core: Arc<Core>,
    handles: Vec<JoinHandle<()>>,
}

impl Threads {
    pub(crate) fn start(core: &Arc<Core>) -> io::Result<Self> {
        let mut threads = Self {
            core: Arc::clone(core),
            handles: Vec::new(),
        };
        threads.spawn("wal-flush", flush)?;
        threads.spawn("wal-sync", sync)?;
        Ok(threads)
    }

    fn spawn(&mut self, name: &str, run: fn(&Core)) -> io::Result<()> {
        let core = Arc::clone(&self.core);
        let thread = thread::Builder::new().name(name.to_owned());
        self.handles.push(thread.spawn(move || run(&core))?);
        Ok(())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.core.flush.end();
        self.core.sync.end();
        // The last handle of the caller may be dropped by the observer, on one of these threads.
        let current = thread::current().id();
        let others = self
            .handles
            .drain(..)
            .filter(|handle| handle.thread().id() != current);
        for handle in others {
            // A panic of the thread is reported by the panic hook.
            let _ = handle.join();
        }
    }
}

fn flush(core: &Core) {
    while core.flush.wait() {
        while !core.group.is_empty() && core.group.failure().is_none() {
            core.flush.pause(FLUSH_DELAY);
            if core.group.lead() {
                core.write();
            } else if core.flush.is_ended() {
                return;
            }
        }
    }
}

fn sync(core: &Core) {
    while core.sync.wait() {
        core.sync_now();
    }
}
