//! The threads that take the plugin's requests from the socket and serve them. Each waits in accept itself, so that a
//! request wakes one thread and is served there: every hand-over to another would cost some 50 µs.

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

use super::connection;
use dormouse_agent_pod::Network;

/// Requests served at one time; more wait in the socket's own queue, first come, first served.
const SERVED_MAX: usize = 128;
/// Threads that wait for a request at one time: whoever would be one more ends.
const WAITING_MAX: usize = 4;
/// A pause after an error of accept, such as too many open files, so that it does not become a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What the threads share. Each has a reference, and so has [`End`].
struct Threads {
    listener: UnixListener,
    network: Arc<Network>,
    stop: CancellationToken,
    /// Those that wait for a request.
    waiting: AtomicUsize,
    alive: TaskTracker,
}

/// Takes no more requests once dropped.
struct End(Arc<Threads>);

/// Serves until `stop`, then finishes what has begun. When it is given up, what has begun goes on, and nothing new begins.
pub(super) async fn serve(
    listener: UnixListener,
    network: Arc<Network>,
    stop: CancellationToken,
) -> io::Result<()> {
    let (stop, alive) = (stop.child_token(), TaskTracker::new());
    let end = End(Arc::new(Threads {
        listener,
        network,
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
        // Wakes those that wait; whoever comes from now on is refused.
        if let Err(error) = shutdown(self.0.listener.as_raw_fd(), Shutdown::Both) {
            tracing::warn!(%error, "failed to close the plugin's socket");
        }
    }
}

impl Threads {
    /// One more, in the network namespace of the caller.
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
                    if let Err(error) = connection::serve(&stream, &self.network) {
                        tracing::warn!(%error, "a request of the plugin was not answered");
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

    /// Nobody waits for the next request.
    fn replace(self: &Arc<Self>) {
        let threads = Arc::strong_count(self) - 1;
        if threads < SERVED_MAX
            && let Err(error) = self.spawn()
        {
            tracing::warn!(%error, threads, "requests of the plugin wait for a thread");
        }
    }
}
