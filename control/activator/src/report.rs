//! Reports of the activator to control: demands for pods, and the load of each app.

use dormouse_fleet::clock::Boottime;

/// A request is parked for an app that has no ready pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The app's VIP index.
    pub vip: u32,
    /// Time at which the request was parked, or the demand repeated.
    pub at: Boottime,
}

/// An app's load since the previous call of [`crate::Handle::take_stats`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stat {
    /// Average number of concurrent requests, parked ones included.
    pub concurrency: f64,
    /// Number of requests that arrived.
    pub requests: f64,
    /// Number of requests parked now.
    pub parked: u32,
    /// Number of responses that backends have begun, since the app was configured.
    pub responses_total: u64,
}
