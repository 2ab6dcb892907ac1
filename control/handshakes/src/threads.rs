//! The threads of TLS handshakes. A handshake computes for a large part of a millisecond: thousands of them, as after a restart of control, would
//! delay every task of the runtime that serves the open streams. These threads have a lower priority, and are a part of the cores.

use std::future::poll_fn;
use std::num::NonZero;
use std::pin::pin;
use std::sync::LazyLock;
use std::thread::{available_parallelism, yield_now};

use rustix::process::nice;
use tokio::runtime::{Builder, Handle, Runtime};
use tracing::warn;

/// Their niceness: beside busy threads of the usual priority they get about a tenth of a core each (sched(7)).
const NICE: i32 = 10;
/// The part of the cores for which there are threads.
const CORES: usize = 2;

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

/// A future that gives its core to other threads after each step. The kernel lets a thread run for some milliseconds before it looks at priorities
/// again, unless the thread yields.
pub(crate) async fn politely<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|cx| {
        let polled = future.as_mut().poll(cx);
        yield_now();
        polled
    })
    .await
}

/// The runtime on which handshakes run.
pub(crate) fn handle() -> Handle {
    let own = RUNTIME.as_ref().map(|runtime| runtime.handle().clone());
    own.unwrap_or_else(Handle::current)
}
