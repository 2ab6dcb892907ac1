//! The accept loop of one port.

use std::net::{SocketAddr, SocketAddrV6};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;
use tracing::{info, warn};

use crate::connection;
use crate::footprint;
use crate::metrics::Reason;
use crate::ports::OpenedPort;
use crate::refusal::TOO_MANY_CONNECTIONS;
use crate::shared::Shared;

/// Pause after a failed accept: out of file descriptors, other connections have to close first.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Accepts connections until the port's last app is removed or the activator shuts down.
pub(crate) async fn accept(shared: Arc<Shared>, opened: OpenedPort) {
    let OpenedPort {
        port,
        listener,
        closed,
    } = opened;
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            warn!(port, %error, "failed to accept for apps");
            return;
        }
    };
    info!(port, "accepting for apps");
    let mut refused = false;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = closed.cancelled() => return,
            () = shared.draining.cancelled() => return,
        };
        match accepted {
            Ok((stream, SocketAddr::V6(client))) => {
                let admitted = admit(&shared, stream, client);
                if !admitted && !std::mem::replace(&mut refused, true) {
                    let max = shared.core.config.connections_max;
                    warn!(port, max, "refusing clients: too many connections are open");
                }
            }
            Ok((_, SocketAddr::V4(_))) => {}
            Err(error) => {
                warn!(port, %error, "failed to accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves a connection, or refuses it and returns false.
fn admit(shared: &Arc<Shared>, stream: TcpStream, client: SocketAddrV6) -> bool {
    let permit = Arc::clone(&shared.connections).try_acquire_owned();
    let bytes = shared.open_bytes.claim(footprint::OPEN_BYTES);
    let (Ok(permit), Some(bytes)) = (permit, bytes) else {
        shared.core.metrics.refused(Reason::connections);
        // Best effort: if the socket takes no data at once, the client only sees a closed connection.
        drop(stream.try_write(TOO_MANY_CONNECTIONS));
        return false;
    };
    let serve = connection::serve(Arc::clone(shared), stream, client);
    shared.tracker.spawn(async move {
        serve.await;
        drop((permit, bytes));
    });
    true
}
