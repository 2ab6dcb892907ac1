//! The replies of a node that wires no pods: because its prefix is not known yet, or because another plugin wires them.

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};

use dormouse_cni::error::{CniError, code};
use dormouse_cni::message::{Reply, Request};
use dormouse_cni::wire;
use tokio::sync::watch;

use super::connection;

/// Why pods are not wired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason.
    pub reason: String,
    /// Whether it ends by itself.
    pub is_temporary: bool,
}

/// Replies to all requests with the present refusal, until the future is dropped. A request that is in progress then is finished.
pub async fn turn_away(
    listener: &UnixListener,
    refusal: watch::Receiver<Refusal>,
) -> io::Result<()> {
    let _blocking = Blocking(listener);
    listener.set_nonblocking(true)?;
    let waiting = tokio::net::UnixListener::from_std(listener.try_clone()?)?;
    loop {
        let (stream, _) = waiting.accept().await?;
        let stream = stream.into_std()?;
        let refusal = refusal.borrow().clone();
        tokio::task::spawn_blocking(move || {
            if let Err(error) = reply(&stream, &refusal) {
                tracing::warn!(%error, "failed to reply to a request of the plugin");
            }
        });
    }
}

/// Makes a listener blocking again: the flag is that of the socket, not of one descriptor.
struct Blocking<'a>(&'a UnixListener);

impl Drop for Blocking<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.0.set_nonblocking(false) {
            tracing::warn!(%error, "failed to set the plugin's socket to blocking");
        }
    }
}

fn reply(stream: &UnixStream, refusal: &Refusal) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    let Some((request, _)) = connection::receive(stream)? else {
        return Ok(());
    };
    wire::send_reply(stream, &answer(&request, refusal))
}

/// A node that never wires a pod has none to remove.
fn answer(request: &Request, refusal: &Refusal) -> Reply {
    let code = match request {
        Request::Del { .. } | Request::Gc { .. } if !refusal.is_temporary => return Reply::Done,
        Request::Status {} => code::NOT_AVAILABLE,
        _ => code::TRY_AGAIN,
    };
    Reply::Failed(CniError::new(code, refusal.reason.clone()))
}
