//! Two upgraded connections joined: bytes pass both ways until both sides have closed.

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional_with_sizes;
use tracing::debug;

/// Bytes in flight each way: a slow side slows the other instead of filling memory.
const BUFFER_BYTES: usize = 16 * 1024;

/// Joins client and server; `guard` lives until they part.
pub(crate) async fn splice<G>(client: OnUpgrade, server: OnUpgrade, guard: G) {
    match tokio::try_join!(client, server) {
        Ok((client, server)) => {
            let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
            let copy =
                copy_bidirectional_with_sizes(&mut client, &mut server, BUFFER_BYTES, BUFFER_BYTES);
            if let Err(error) = copy.await {
                debug!(%error, "upgraded connection broke");
            }
        }
        Err(error) => debug!(%error, "protocol switch did not complete"),
    }
    drop(guard);
}
