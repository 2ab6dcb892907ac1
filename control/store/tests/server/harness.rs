//! A gRPC server for one test.

use dormouse_store::{Limits, Store, server};
pub(crate) use dormouse_store_checker::wait::{until, within};
use etcd_client::{Client, WatchStream};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;

pub(crate) struct Served {
    pub(crate) store: Store,
    pub(crate) endpoint: String,
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), server::ServeError>>,
}

impl Served {
    pub(crate) async fn start() -> Self {
        Self::with_limits(Limits::default()).await
    }

    pub(crate) async fn with_limits(limits: Limits) -> Self {
        Self::with_options(Store::with_limits(limits), server::Options::default()).await
    }

    pub(crate) async fn with_options(store: Store, options: server::Options) -> Self {
        Self::at("[::1]:0", store, options).await
    }

    /// A server that listens at an address; its clients connect to [::1].
    pub(crate) async fn at(address: &str, store: Store, options: server::Options) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let scheme = if options.tls.is_some() {
            "https"
        } else {
            "http"
        };
        let endpoint = format!("{scheme}://[::1]:{port}");
        let shutdown = CancellationToken::new();
        let served = server::serve_with(vec![listener], store.clone(), options, shutdown.clone());
        let task = tokio::spawn(served);
        Self {
            store,
            endpoint,
            shutdown,
            task,
        }
    }

    /// A client with its own connection.
    pub(crate) async fn client(&self) -> Client {
        Client::connect([&self.endpoint], None).await.unwrap()
    }

    /// Shuts the server down as a process does on SIGTERM, and waits for it.
    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        within(self.task).await.unwrap().unwrap();
    }
}

/// Waits until the server has registered the stream's watcher: `watch` returns before that, and a watcher gets no event of
/// an earlier write.
pub(crate) async fn created(stream: &mut WatchStream) {
    let response = within(stream.message()).await.unwrap().unwrap();
    assert!(response.created(), "not created: {response:?}");
}

/// Revisions and values of the next events of a stream, until there are `count`.
pub(crate) async fn events(stream: &mut WatchStream, count: usize) -> Vec<(i64, String)> {
    let mut got = Vec::new();
    while got.len() < count {
        let response = within(stream.message()).await.unwrap().unwrap();
        assert!(!response.canceled(), "canceled: {response:?}");
        for event in response.events() {
            let kv = event.kv().unwrap();
            got.push((
                kv.mod_revision(),
                String::from_utf8_lossy(kv.value()).into_owned(),
            ));
        }
    }
    got
}
