//! TLS handshakes of a listener: bounded in number so that one source of clients keeps no other out, on threads of a low priority, with a log of
//! those that fail. What a handshake is, its caller knows.
//!
//! Reading order: [`sources`] (whose handshake gives its place to whose; pure), [`refusals`] (the log), [`threads`].

#![forbid(unsafe_code)]

pub mod refusals;
pub mod sources;
mod threads;

use std::collections::HashMap;
use std::net::IpAddr;

use tokio::runtime::Handle;
use tokio::task::{self, AbortHandle, JoinSet};
use tokio::time::Instant;
use tracing::warn;

use refusals::Refusals;
use sources::{Number, Room, Sources};

/// The handshakes of one listener, each of which ends with a connection or a reason.
#[derive(Debug)]
pub struct Handshakes<T> {
    running: JoinSet<Result<T, Refused>>,
    /// Their number in `sources`, by task.
    numbers: HashMap<task::Id, Number>,
    sources: Sources<(AbortHandle, String)>,
    started: Instant,
    refusals: Refusals,
}

/// A client that is refused.
#[derive(Debug)]
struct Refused {
    client: String,
    reason: String,
}

impl<T: Send + 'static> Handshakes<T> {
    /// At most `max` handshakes at a time, at least one.
    pub fn new(max: usize) -> Self {
        Self {
            running: JoinSet::new(),
            numbers: HashMap::new(),
            sources: Sources::new(max),
            started: Instant::now(),
            refusals: Refusals::default(),
        }
    }

    /// Whether none runs.
    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Begins a handshake with a client, or refuses it: others of its source have too many. `client` is its name in the log.
    pub fn begin(
        &mut self,
        source: IpAddr,
        client: String,
        handshake: impl Future<Output = Result<T, String>> + Send + 'static,
    ) {
        let (source, now) = (sources::source(source), self.started.elapsed());
        match self.sources.make_room(source, now) {
            Room::Free => {}
            Room::Instead((slow, client)) => {
                slow.abort();
                let reason = "it has not ended its handshake, and its place was needed";
                self.refusals.log(&client, reason);
            }
            Room::None => {
                self.refusals.log(&client, "too many handshakes at a time");
                return;
            }
        }
        let name = client.clone();
        let refused = |reason| Refused { client, reason };
        let running = if let Some(threads) = threads::handle() {
            let handshake = threads::politely(Handle::current(), handshake);
            let ended = async { handshake.await.map_err(refused) };
            self.running.spawn_on(ended, threads)
        } else {
            let ended = async { handshake.await.map_err(refused) };
            self.running.spawn(ended)
        };
        let task = running.id();
        let number = self.sources.insert(source, now, (running, name));
        self.numbers.insert(task, number);
    }

    /// Waits for the end of a handshake; its connection if it succeeded. None if no handshake runs. Cancel safe.
    pub async fn ended(&mut self) -> Option<T> {
        let ended = self.running.join_next_with_id().await?;
        let task = match &ended {
            Ok((task, _)) => *task,
            Err(error) => error.id(),
        };
        if let Some(number) = self.numbers.remove(&task) {
            self.sources.remove(number);
        }
        match ended {
            Ok((_, Ok(connection))) => return Some(connection),
            Ok((_, Err(refused))) => self.refusals.log(&refused.client, &refused.reason),
            Err(error) if error.is_cancelled() => {}
            Err(panicked) => warn!(%panicked, "a TLS handshake panicked"),
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use futures::FutureExt;

    use super::*;

    const ONE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));

    #[tokio::test]
    async fn a_client_gets_the_place_of_a_source_that_has_them_all() {
        let mut handshakes = Handshakes::new(2);
        for _ in 0..3 {
            handshakes.begin(ONE, ONE.to_string(), std::future::pending());
        }
        handshakes.begin(OTHER, OTHER.to_string(), async { Ok("connected") });
        // The oldest one of the first source ends without a connection.
        let mut ended = [handshakes.ended().await, handshakes.ended().await];
        ended.sort_unstable();
        assert_eq!(ended, [None, Some("connected")]);
        assert!(!handshakes.is_empty());
        assert!(handshakes.ended().now_or_never().is_none());
    }

    #[tokio::test]
    async fn a_handshake_that_fails_or_panics_makes_room() {
        let mut handshakes = Handshakes::new(1);
        handshakes.begin(ONE, String::new(), async { Err("refused".to_owned()) });
        assert_eq!(handshakes.ended().await, None);
        handshakes.begin(ONE, String::new(), async { panic!("on purpose") });
        assert_eq!(handshakes.ended().await, None);
        handshakes.begin(ONE, String::new(), async { Ok(1) });
        assert_eq!(handshakes.ended().await, Some(1));
    }
}
