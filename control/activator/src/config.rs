//! The activator's configuration and the routes of its apps.

use std::net::{Ipv6Addr, SocketAddrV6};
use std::time::Duration;

use dormouse_proxy::Limits;

use crate::split::Split;

/// Default of the longest time for which a request is parked while its app has no ready pod.
pub const WAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// The activator's address and limits. A request that meets a limit is answered with an error that names it.
#[derive(Clone, Debug)]
pub struct Config {
    /// The acting prefix, a /96; the low 32 bits are zero.
    pub acting_prefix: Ipv6Addr,
    /// Limit of parked requests, all apps together.
    pub parked_max: usize,
    /// Limit of the memory of parked requests, all apps together.
    pub parked_bytes_max: usize,
    /// Limit of one app's parked requests (Knative's queue depth).
    pub queue_per_app_max: usize,
    /// Limit of the memory of one app's parked requests, so that no app uses up the total.
    pub queue_bytes_per_app_max: usize,
    /// Limit of open client connections, all apps together.
    pub connections_max: usize,
    /// Limit of the memory of open client connections, all apps together, besides that of parked requests.
    pub connection_bytes_max: usize,
    /// Limit of the ports on which the activator listens; apps with further ones are not reached.
    pub ports_max: usize,
    /// Limit of one app's open client connections.
    pub connections_per_app_max: usize,
    /// Limit of connections to backends, all apps together. Idle ones are closed while less than a quarter is left.
    pub backend_connections_max: usize,
    /// Timeout for a complete request head, also between two requests of a connection.
    pub header_timeout: Duration,
    /// Timeout for requests in flight at shutdown.
    pub drain_timeout: Duration,
    /// Limit of the time for which requests of an unknown VIP wait for control's answer; then they are answered 503.
    pub wake_timeout: Duration,
    /// Capacity of the channel of reports. A want or demand that does not fit is repeated a second later.
    pub reports_max: usize,
    /// Connections to each backend.
    pub backend: Limits,
}

impl Config {
    /// The defaults, for `acting_prefix`.
    pub fn new(acting_prefix: Ipv6Addr) -> Self {
        Self {
            acting_prefix,
            parked_max: 100_000,
            parked_bytes_max: 1 << 30,
            queue_per_app_max: 10_000,
            queue_bytes_per_app_max: 1 << 28,
            connections_max: 120_000,
            connection_bytes_max: 1 << 30,
            ports_max: 1 << 16,
            connections_per_app_max: 20_000,
            backend_connections_max: 120_000,
            header_timeout: Duration::from_mins(1),
            drain_timeout: Duration::from_secs(30),
            wake_timeout: WAKE_TIMEOUT,
            reports_max: 16_384,
            backend: Limits::default(),
        }
    }

    /// Lowers the limits of connections to `max` clients, as many connections to backends and as many ports; one app's clients
    /// have half.
    pub fn limit_connections(&mut self, max: usize) {
        self.connections_max = self.connections_max.min(max);
        self.backend_connections_max = self.backend_connections_max.min(max);
        self.ports_max = self.ports_max.min(max);
        self.connections_per_app_max = self.connections_per_app_max.min(max.div_ceil(2));
    }
}

/// The route of one app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// `namespace/name`, for messages.
    pub name: String,
    /// The namespace, where budgets are counted.
    pub tenant: String,
    /// The store's revision of the app's last publication.
    pub version: u64,
    /// Port of the VIP and of the acting address.
    pub port: u16,
    /// Limit of requests in flight per backend; 0: none.
    pub container_concurrency: u32,
    /// Longest time from a request's head to the end of its response.
    pub timeout: Duration,
    /// The VIP is in serve mode: clients are asked to reconnect, which connects them directly to pods: by
    /// `Connection: close` on the next response, or by GOAWAY on HTTP/2. Idle connections stay open.
    pub serving: bool,
    /// Ready pods, with their ports.
    pub backends: Vec<SocketAddrV6>,
    /// Longest time for which a request is parked while there is no backend.
    pub wake_timeout: Duration,
    /// Why there is no backend, if control knows a reason.
    pub problem: Option<Problem>,
    /// Requests go to these apps, of which it may be one itself; none: to its own backends.
    pub split: Option<Split>,
}

/// Why an app has no ready pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The reason and its details, in one line: clients get it.
    pub message: String,
    /// The app's pods fail one after another: requests are refused at once, and may be repeated after this time.
    pub retry_after: Option<Duration>,
}

impl Route {
    /// Whether activators get the route without asking for it: that of a sleeping app is sent on request only.
    pub fn is_held(&self) -> bool {
        !self.backends.is_empty() || self.problem.is_some() || self.split.is_some()
    }

    /// Whether requests are refused, because no pod is expected to become ready soon.
    pub(crate) fn refuses(&self) -> bool {
        let problem = self.problem.as_ref();
        self.backends.is_empty() && problem.is_some_and(|problem| problem.retry_after.is_some())
    }
}
