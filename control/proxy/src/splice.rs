//! The relay between two upgraded connections: copies bytes both ways until both sides have closed.

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional_with_sizes;
use tracing::debug;

/// Buffer of each direction, in bytes. A slow reader stops the other side's reads when it is full.
const BUFFER_BYTES: usize = 16 * 1024;

/// Relays between client and server; drops `guard` at the end.
pub(crate) async fn splice<G>(client: OnUpgrade, server: OnUpgrade, guard: G) {
    match tokio::try_join!(client, server) {
        Ok((client, server)) => {
            let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
            let copy =
                copy_bidirectional_with_sizes(&mut client, &mut server, BUFFER_BYTES, BUFFER_BYTES);
            if let Err(error) = copy.await {
                debug!(%error, "upgraded connection failed");
            }
        }
        Err(error) => debug!(%error, "protocol switch did not complete"),
    }
    drop(guard);
}
