//! Options of a server: TLS, and the member in the list of its cluster.

use std::{fmt, io, sync::Arc, time::Duration};

use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use super::{Listener, Tls, Trace, accept::Acceptor, descriptors};
use crate::metrics::Metrics;

/// A client that disappears without closing its connection is detected after this interval and the
/// timeout.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// The part of the connections that are in a handshake, and the most.
const HANDSHAKES: usize = 4;
const HANDSHAKES_MAX: usize = 4_096;

/// The reason of a failed handshake, for people.
#[derive(Clone, Copy)]
pub struct Diagnosis(pub fn(&io::Error) -> String);

impl Default for Diagnosis {
    fn default() -> Self {
        Self(ToString::to_string)
    }
}

impl fmt::Debug for Diagnosis {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Diagnosis")
    }
}

/// Calls in flight on one connection by default. etcd has no limit, and one connection can then use up the memory, at about 9 KiB each;
/// kube-apiserver shares a stream among the watches of a client, but others have one for each, so that this is far more than a client has.
pub const STREAMS_MAX: u32 = 16_384;

/// Options of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// `None`: connections without TLS.
    pub tls: Option<Tls>,
    /// Whether the common name of a client's certificate is its user, unless the request has a token;
    /// etcd's `--client-cert-auth`.
    pub certificate_users: bool,
    /// Name of the member; etcd's `--name`.
    pub name: String,
    /// URLs of the member in its cluster's list, etcd's `--advertise-client-urls`. Empty: those of the
    /// listeners.
    pub client_urls: Vec<String>,
    /// Calls in flight on one connection, watches included; etcd's `--max-concurrent-streams`. Further
    /// ones wait: a client whose calls all wait for a lock could then not release one.
    pub streams_max: u32,
    /// Interval of pings to a client, which detect that it is gone without having closed its
    /// connection; 0 sends none. etcd's `--grpc-keepalive-interval`.
    pub keepalive_interval: Duration,
    /// Time in which a client answers a ping; etcd's `--grpc-keepalive-timeout`.
    pub keepalive_timeout: Duration,
    /// An observer of all calls.
    pub trace: Option<Trace>,
    /// The reason of a failed handshake, for the log.
    pub diagnosis: Diagnosis,
    /// Connections that are served at a time; further ones wait. The default raises the limit of file
    /// descriptors of the process, and leaves some of these for the files of a store.
    pub connections_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            tls: None,
            certificate_users: false,
            name: "dormouse".into(),
            client_urls: Vec::new(),
            streams_max: STREAMS_MAX,
            keepalive_interval: KEEPALIVE_INTERVAL,
            keepalive_timeout: KEEPALIVE_TIMEOUT,
            trace: None,
            diagnosis: Diagnosis::default(),
            connections_max: descriptors::connections_max(),
        }
    }
}

impl Options {
    pub(super) fn acceptor(&self, metrics: &Metrics) -> Acceptor {
        let tls = self.tls.as_ref();
        let handshakes = match tls {
            Some(_) => (self.connections_max / HANDSHAKES).clamp(1, HANDSHAKES_MAX),
            None => 0,
        };
        let slots = self.connections_max.saturating_sub(handshakes).max(1);
        Acceptor {
            tls: tls.map(|tls| TlsAcceptor::from(tls.config.clone())),
            revoked: tls.and_then(|tls| tls.revoked.clone()),
            certificate_users: self.certificate_users,
            diagnosis: self.diagnosis,
            handshakes_max: handshakes,
            slots: Arc::new(Semaphore::new(slots)),
            received: metrics.calls.received.clone(),
            sent: metrics.calls.sent.clone(),
        }
    }

    /// The interval of pings, if there are any.
    pub(super) fn keepalive(&self) -> Option<Duration> {
        (!self.keepalive_interval.is_zero()).then_some(self.keepalive_interval)
    }

    /// The URLs of the member.
    pub(super) fn urls(&self, listeners: &[Listener]) -> Vec<String> {
        if !self.client_urls.is_empty() {
            return self.client_urls.clone();
        }
        let tls = self.tls.is_some();
        listeners.iter().map(|listener| listener.url(tls)).collect()
    }
}
