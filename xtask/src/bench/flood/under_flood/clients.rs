//! The clients beside a flood: requests at a rate to the apps that serve, and one to each of a few apps that sleep.

use std::io;
use std::net::SocketAddrV6;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use super::super::super::percentile::percentile;
use super::{SERVING, SLEEPING, WAKES};
use crate::demo::load;

/// Length of a measurement, and the interval of wakes in it.
pub(super) const LENGTH: Duration = Duration::from_secs(4);
const WAKE_EVERY: Duration = Duration::from_millis(300);
const _: () = assert!(WAKE_EVERY.as_millis() * (WAKES as u128) < LENGTH.as_millis());
/// Requests in a second to all apps that serve, and the number of clients that send them.
const PER_SECOND: u32 = 500;
const CLIENTS: u32 = 16;

/// Times of requests, from when they were due until the whole response.
pub(super) struct Times {
    pub(super) served_p99_ms: f64,
    pub(super) woken_p99_ms: f64,
    /// Requests without a response, of both kinds.
    pub(super) failed: u64,
}

/// One request to each app that serves.
pub(super) fn each() -> io::Result<()> {
    (0..SERVING.count).try_for_each(|number| load::get(SERVING.address(number), "/").map(drop))
}

/// Sends requests, and wakes the sleeping apps from this number on.
pub(super) fn measure(first: u32) -> Times {
    let (began, taken) = (Instant::now(), AtomicU32::new(0));
    let (served, woken) = thread::scope(|scope| {
        let serve = || serve(began, &taken);
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(serve)).collect();
        let wakes: Vec<_> = (0..u32::from(WAKES))
            .map(|number| {
                let (app, due) = (first + number, began + WAKE_EVERY * number);
                scope.spawn(move || vec![get(SLEEPING.address(app), due)])
            })
            .collect();
        (all(clients), all(wakes))
    });
    Times {
        served_p99_ms: percentile(&served.0, 0.99),
        woken_p99_ms: percentile(&woken.0, 0.99),
        failed: served.1 + woken.1,
    }
}

/// Takes the next request until all are sent.
fn serve(began: Instant, taken: &AtomicU32) -> Vec<Option<f64>> {
    let mut times = Vec::new();
    loop {
        let number = taken.fetch_add(1, Ordering::Relaxed);
        let due = Duration::from_secs(1) * number / PER_SECOND;
        if due >= LENGTH {
            return times;
        }
        times.push(get(SERVING.address(number % SERVING.count), began + due));
    }
}

/// The time of a request that is sent when it is due, in milliseconds; none if it fails.
fn get(app: SocketAddrV6, due: Instant) -> Option<f64> {
    // Pacing, not synchronisation.
    thread::sleep(due.saturating_duration_since(Instant::now()));
    let answer = load::get(app, "/").ok()?;
    (answer.status == 200).then(|| due.elapsed().as_secs_f64() * 1e3)
}

/// The times of all clients, and the number of failed requests.
fn all(clients: Vec<ScopedJoinHandle<'_, Vec<Option<f64>>>>) -> (Vec<f64>, u64) {
    let (mut times, mut failed) = (Vec::new(), 0);
    for client in clients {
        // A client that panicked counts as one failed request.
        for time in client.join().unwrap_or_else(|_panic| vec![None]) {
            match time {
                Some(time) => times.push(time),
                None => failed += 1,
            }
        }
    }
    (times, failed)
}
