//! The threads of TLS handshakes. A handshake computes for a large part of a millisecond: thousands of them, as after a restart of control, would
//! delay every task of the runtime that serves the open streams. These threads have a lower priority, are a part of the cores, and wait after each
//! step until that runtime has nothing else to do: what a new connection begins there is work, too.

use std::future::poll_fn;
use std::num::NonZero;
use std::pin::pin;
use std::sync::LazyLock;
use std::sync::mpsc::sync_channel;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use rustix::process::nice;
use tokio::runtime::{Builder, Handle, Runtime};
use tracing::warn;

/// Their niceness: beside busy threads of the usual priority they get about a tenth of a core each (sched(7)).
const NICE: i32 = 10;
/// The part of the cores for which there are threads.
const CORES: usize = 2;
/// Longest wait for a turn of the runtime that serves: one that is never idle, or a slow host, delays a handshake by a few of these.
const TURN_MAX: Duration = Duration::from_millis(2);
/// A turn that took no longer found the runtime idle: a thread was woken for it.
const AT_ONCE: Duration = Duration::from_micros(200);

/// They live as long as the process. None: they could not be started.
static RUNTIME: LazyLock<Option<Runtime>> = LazyLock::new(|| {
    let cores = available_parallelism().map_or(1, NonZero::get);
    let runtime = Builder::new_multi_thread()
        .worker_threads((cores / CORES).max(1))
        .thread_name("handshakes")
        .on_thread_start(|| {
            // Without it, they are only less polite.
            let _ = nice(NICE);
        })
        .enable_all()
        .build();
    runtime
        .inspect_err(|error| warn!(%error, "handshakes have no threads of their own"))
        .ok()
});

/// A future that goes on when the runtime that serves has nothing else to do. Its thread waits for that, so that no other handshake goes on
/// meanwhile.
pub(crate) async fn politely<F: Future>(serving: Handle, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|cx| {
        let polled = future.as_mut().poll(cx);
        wait_for_turn(&serving);
        polled
    })
    .await
}

/// Waits until a runtime has nothing else to do: a task that it is given runs at once.
fn wait_for_turn(serving: &Handle) {
    let began = Instant::now();
    loop {
        let (done, turn) = sync_channel(1);
        let given = Instant::now();
        serving.spawn(async move {
            // The other end may be gone.
            let _ = done.send(());
        });
        let left = TURN_MAX.saturating_sub(began.elapsed());
        // A runtime that ends drops the task, and so the channel's end.
        if turn.recv_timeout(left).is_err() || given.elapsed() < AT_ONCE {
            return;
        }
    }
}

/// The runtime on which handshakes run, if it could be started.
pub(crate) fn handle() -> Option<&'static Handle> {
    RUNTIME.as_ref().map(Runtime::handle)
}
