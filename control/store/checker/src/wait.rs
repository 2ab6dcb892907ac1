//! Waiting with a deadline, for tests of servers and processes.

use std::time::Duration;

/// Longer than any single step takes on a busy machine.
pub const TIMEOUT: Duration = Duration::from_mins(1);

/// The interval at which a condition is looked at.
const INTERVAL: Duration = Duration::from_millis(2);

/// The output of a future.
///
/// # Panics
/// After [`TIMEOUT`].
pub async fn within<F: Future>(future: F) -> F::Output {
    let output = tokio::time::timeout(TIMEOUT, future).await;
    output.unwrap_or_else(|_elapsed| panic!("no result within {TIMEOUT:?}"))
}

/// Waits until a condition holds.
///
/// # Panics
/// After [`TIMEOUT`], naming the condition.
pub async fn until(condition: &str, mut holds: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !holds().await {
            tokio::time::sleep(INTERVAL).await;
        }
    };
    let held = tokio::time::timeout(TIMEOUT, wait).await;
    assert!(held.is_ok(), "timed out waiting until {condition}");
}
