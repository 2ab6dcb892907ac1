//! A small API server in the test's network namespace: lists, pages, watches and streaming lists of objects in memory, over
//! HTTP or TLS.

mod answer;
mod request;
mod state;

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use dormouse_rig::wait;
use parking_lot::{Condvar, Mutex};
use serde_json::Value;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned, crypto::ring};

use crate::objects::{service, slice};
use state::State;

pub(crate) const SERVICES: &str = "/api/v1/services";
pub(crate) const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";
pub(crate) const NODES: &str = "/api/v1/nodes";

/// The folder of the server's certificate, its authority's and that of another authority with the same name.
pub(crate) const TLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kubernetes/tls");

/// The server.
pub(crate) struct Server {
    shared: Arc<Shared>,
    scheme: &'static str,
    port: u16,
}

/// A client's connection.
trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Server {
    /// Starts it, with streaming lists.
    pub(crate) fn streaming() -> Self {
        Self::serve(true, "http", |stream| Ok(Box::new(stream)))
    }

    /// Starts it without streaming lists.
    pub(crate) fn paged() -> Self {
        Self::serve(false, "http", |stream| Ok(Box::new(stream)))
    }

    /// Starts it with TLS.
    pub(crate) fn with_tls() -> Self {
        let certificate = CertificateDer::from_pem_file(format!("{TLS}/server.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_file(format!("{TLS}/server.key")).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key);
        let config = Arc::new(config.unwrap());
        Self::serve(true, "https", move |stream| {
            let session = ServerConnection::new(Arc::clone(&config)).map_err(io::Error::other)?;
            Ok(Box::new(StreamOwned::new(session, stream)))
        })
    }

    fn serve<F>(streams: bool, scheme: &'static str, accept: F) -> Self
    where
        F: Fn(TcpStream) -> io::Result<Box<dyn Stream>> + Clone + Send + 'static,
    {
        let listener = TcpListener::bind("[::1]:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared::default());
        {
            let mut state = shared.state.lock();
            (state.streams, state.version) = (streams, 1_000);
        }
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (shared, accept) = (Arc::clone(&serving), accept.clone());
                thread::spawn(move || {
                    // A client that has gone is no failure.
                    let _ = accept(stream).and_then(|stream| shared.answer(stream));
                });
            }
        });
        Self {
            shared,
            scheme,
            port,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("{}://[::1]:{}", self.scheme, self.port)
    }

    /// Closes all connections, and accepts only requests with this token.
    pub(crate) fn accept_only(&self, token: &str) {
        self.change(|state| {
            state.token = Some(token.to_owned());
            state.broken = None;
            state.epoch += 1;
        });
    }

    /// Refuses the next writes with these codes, the last one first.
    pub(crate) fn refuse_writes(&self, codes: &[u16]) {
        self.change(|state| state.refusals.extend(codes));
    }

    /// The object of this name, as it is now.
    pub(crate) fn object(&self, path: &str, name: &str) -> Value {
        let state = self.shared.state.lock();
        state.objects[&(path.to_owned(), name.to_owned())].clone()
    }

    /// The objects that clients have created at a path.
    pub(crate) fn created(&self, path: &str) -> Vec<Value> {
        let state = self.shared.state.lock();
        let of = state.created.iter().filter(|(known, _)| known == path);
        of.map(|(_, object)| object.clone()).collect()
    }

    /// All requests since the start: method, path, and whether they are watches.
    pub(crate) fn requests(&self) -> BTreeSet<(String, String, bool)> {
        self.shared.state.lock().requests.clone()
    }

    /// Creates or replaces an object.
    pub(crate) fn put(&self, path: &str, object: Value) {
        self.change(|state| state.put(path, object));
    }

    pub(crate) fn delete(&self, path: &str, name: &str) {
        self.change(|state| state.delete(path, name));
    }

    /// Replaces an object; open watches of the path get only the first half of the event.
    pub(crate) fn break_off(&self, path: &str, object: Value) {
        self.change(|state| {
            state.put(path, object);
            state.broken = Some(path.to_owned());
            state.epoch += 1;
        });
    }

    /// Closes all connections, and accepts none.
    pub(crate) fn go_away(&self) {
        self.change(|state| {
            state.away = true;
            state.broken = None;
            state.epoch += 1;
        });
    }

    /// Accepts connections again, without the events from before.
    pub(crate) fn come_back(&self) {
        self.change(|state| {
            state.away = false;
            state.version += 1;
            state.oldest = state.version;
            state.events.clear();
        });
    }

    /// Goes back to old versions, and makes these changes there.
    pub(crate) fn restore(&self, change: impl FnOnce(&Self)) {
        self.go_away();
        self.change(|state| {
            (state.version, state.oldest) = (1, 1);
            state.events.clear();
        });
        change(self);
        self.change(|state| state.away = false);
    }

    /// Waits until clients watch these paths since the last time that connections were closed.
    pub(crate) fn wait_for_watches(&self, paths: &[&str]) {
        wait("watches to be open", || {
            let state = self.shared.state.lock();
            let is_watched = |path: &&str| state.watched.get(*path) == Some(&state.epoch);
            paths.iter().all(is_watched)
        });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.shared.state.lock());
        self.shared.changed.notify_all();
    }
}

/// Sets a service with these backends.
pub(crate) fn put(server: &Server, number: u16, hosts: &[u16]) {
    server.put(SERVICES, service(number));
    server.put(SLICES, slice(number, hosts));
}

/// Deletes a service and its slice.
pub(crate) fn delete(server: &Server, number: u16) {
    server.delete(SERVICES, &format!("s{number}"));
    server.delete(SLICES, &format!("s{number}-a"));
}
