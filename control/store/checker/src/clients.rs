//! Concurrent clients of a server, whose calls are recorded: reads, writes, compare-and-swaps and transactions of two
//! keys.

pub(crate) mod call;
mod choice;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use etcd_client::Client;
use futures::future::join_all;

use crate::history::{Ending, Key, Nanos, Operation, Request, Value};
use choice::Chooser;

/// Time after which a call is recorded as lost.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);

/// The clock and the values of one history.
#[derive(Debug)]
pub struct Recorder {
    started: Instant,
    last_value: AtomicU64,
    answers: AtomicU64,
}

/// The work of concurrent clients.
#[derive(Clone, Debug)]
pub struct Load {
    /// The URL of the server.
    pub endpoint: String,
    /// The number of clients, each with a connection of its own.
    pub clients: usize,
    /// Operations of each client; a client whose call is lost ends.
    pub operations: usize,
    /// The keys. Each two neighbours (0 and 1, 2 and 3, …) share transactions.
    pub keys: Vec<Key>,
    /// The seed of the clients' choices.
    pub seed: u64,
}

impl Default for Recorder {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            last_value: AtomicU64::new(0),
            answers: AtomicU64::new(0),
        }
    }
}

impl Recorder {
    /// Time since the recorder was created.
    pub fn now(&self) -> Nanos {
        Nanos::try_from(self.started.elapsed().as_nanos()).unwrap_or(Nanos::MAX)
    }

    /// A value that no other put of this history writes.
    fn value(&self) -> Value {
        self.last_value.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The number of responses that all clients received.
    pub fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// Runs the clients to their end; returns their operations. A client that cannot connect has none.
    pub async fn run(self: &Arc<Self>, load: &Load) -> Vec<Operation> {
        let clients = (0..load.clients).map(|number| {
            let (recorder, load) = (Arc::clone(self), load.clone());
            tokio::spawn(async move { recorder.client(number, &load).await })
        });
        let mut operations = Vec::new();
        for ended in join_all(clients).await {
            match ended {
                Ok(recorded) => operations.extend(recorded),
                Err(panic) => std::panic::resume_unwind(panic.into_panic()),
            }
        }
        operations
    }

    async fn client(&self, number: usize, load: &Load) -> Vec<Operation> {
        let mut operations = Vec::new();
        let Ok(mut client) = Client::connect([&load.endpoint], None).await else {
            return operations;
        };
        let seed = load.seed.wrapping_mul(1_000).wrapping_add(number as u64);
        let mut chooser = Chooser::new(&load.keys, seed);
        for _ in 0..load.operations {
            let request = chooser.next(|| self.value());
            let operation = self.call(&mut client, number, request).await;
            let lost = operation.answer().is_none();
            chooser.learn(&operation);
            operations.push(operation);
            if lost {
                break;
            }
        }
        operations
    }

    /// Calls the server and records the call as one of the client with a number.
    pub async fn call(&self, client: &mut Client, number: usize, request: Request) -> Operation {
        let called = self.now();
        let response = tokio::time::timeout(CALL_TIMEOUT, call::call(client, &request)).await;
        let ending = match response {
            Ok(Ok(response)) => {
                let at = self.now();
                self.answers.fetch_add(1, Ordering::Relaxed);
                Ending::Answered { at, response }
            }
            Ok(Err(_)) | Err(_) => Ending::Lost { until: Nanos::MAX },
        };
        Operation {
            client: number,
            called,
            request,
            ending,
        }
    }
}
