//! Reports of the activator to control: what it was asked for, first bytes, and the load of each app.

use std::net::SocketAddrV6;

use dormouse_fleet::clock::Boottime;

/// A report that control should get at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// A request waits for the route of a VIP that the activator does not know: answered by
    /// [`Hub::publish`](crate::link::Hub::publish), also of a route without backends, or by
    /// [`Hub::absent`](crate::link::Hub::absent). If the port is the app's own, it is a demand too.
    Want {
        /// The VIP's index.
        vip: u32,
        /// The port that was dialled.
        port: u16,
        /// Time at which the request was parked, or the want repeated.
        at: Boottime,
    },
    /// A request is parked for an app that has no ready pod.
    Demand {
        /// The app's VIP index.
        vip: u32,
        /// Time at which the request was parked, or the demand repeated.
        at: Boottime,
    },
    /// The last request after a want or a demand has ended, and no response has begun.
    Unanswered {
        /// The app's VIP index.
        vip: u32,
        /// Time of its end.
        at: Boottime,
        /// Why it ended.
        how: Unanswered,
    },
    /// The first response after a want or a demand has begun.
    FirstByte {
        /// The app's VIP index.
        vip: u32,
        /// Time of its first byte.
        at: Boottime,
    },
    /// A ready pod has failed a request, or has answered one after that.
    Answer {
        /// The app's VIP index.
        vip: u32,
        /// The pod's socket.
        pod: SocketAddrV6,
        /// Time of the end of the request.
        at: Boottime,
        /// How it failed; none: it has answered.
        fault: Option<Fault>,
    },
}

/// How a ready pod failed a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kind of the failure.
    pub kind: FaultKind,
    /// Details, in one line that begins with a verb: its subject is the pod.
    pub message: String,
}

/// The kind of a pod's failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// There was no connection, or no response on it.
    NoResponse,
    /// What it sent is not a response.
    BadResponse,
}

/// Why a request ended without a response of its app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// Its client closed the connection.
    Abandoned,
    /// No pod was ready, or none responded, in time.
    TimedOut,
    /// It was refused because pods fail, or a pod failed it.
    Failed,
    /// A limit of the activator refused it.
    Refused,
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
