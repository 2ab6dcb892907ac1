//! The threads that serve the plugin's requests. Each calls accept itself, so a request wakes one thread and is served there:
//! handing it over to another thread would take some 50 µs.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::socket::{Shutdown, shutdown};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{Parts, connection};

/// Maximum number of requests that are served at a time; more wait in the socket's backlog, in order.
const SERVED_MAX: usize = 128;
/// Maximum number of threads that wait in accept; a thread beyond it ends.
const WAITING_MAX: usize = 4;
/// Pause after an error of accept, such as too many open files, to avoid a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The state that the threads share. Each thread holds a reference, and so does [`End`].
struct Threads {
    listener: UnixListener,
    parts: Parts,
    stop: CancellationToken,
    /// Number of threads that wait in accept.
    waiting: AtomicUsize,
    alive: TaskTracker,
}

/// Ends the acceptance of requests when dropped.
struct End(Arc<Threads>);

/// Serves until `stop`, then finishes the open requests. If the future is dropped, open requests finish and no new ones start.
pub(super) async fn serve(
    listener: UnixListener,
    parts: Parts,
    stop: CancellationToken,
) -> io::Result<()> {
    let (stop, alive) = (stop.child_token(), TaskTracker::new());
    let end = End(Arc::new(Threads {
        listener,
        parts,
        stop: stop.clone(),
        waiting: AtomicUsize::new(0),
        alive: alive.clone(),
    }));
    end.0.spawn()?;
    stop.cancelled().await;
    drop(end);
    alive.close();
    alive.wait().await;
    Ok(())
}

impl Drop for End {
    fn drop(&mut self) {
        self.0.stop.cancel();
        // Wakes the threads in accept; later connections are refused.
        if let Err(error) = shutdown(self.0.listener.as_raw_fd(), Shutdown::Both) {
            tracing::warn!(%error, "failed to close the plugin's socket");
        }
    }
}

impl Threads {
    /// Starts a thread, in the caller's network namespace.
    fn spawn(self: &Arc<Self>) -> io::Result<()> {
        let (threads, alive) = (Arc::clone(self), self.alive.token());
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let spawned = thread::Builder::new()
            .name("cni".to_owned())
            .spawn(move || {
                threads.work();
                drop(alive);
            });
        if spawned.is_err() {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        spawned.map(drop)
    }

    fn work(self: &Arc<Self>) {
        loop {
            let accepted = self.listener.accept();
            let is_last = self.waiting.fetch_sub(1, Ordering::Relaxed) == 1;
            if self.stop.is_cancelled() {
                return;
            }
            match accepted {
                Ok((stream, _)) => {
                    if is_last {
                        self.replace();
                    }
                    if let Err(error) = connection::serve(&stream, &self.parts) {
                        tracing::warn!(%error, "failed to reply to a request of the plugin");
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "failed to accept a request of the plugin");
                    thread::sleep(ACCEPT_PAUSE);
                }
            }
            if self.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING_MAX {
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                return;
            }
        }
    }

    /// Starts a thread if none is left in accept.
    fn replace(self: &Arc<Self>) {
        let threads = Arc::strong_count(self) - 1;
        if threads < SERVED_MAX
            && let Err(error) = self.spawn()
        {
            tracing::warn!(%error, threads, "failed to start a thread; requests of the plugin wait");
        }
    }
}
