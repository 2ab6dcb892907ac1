//! Operations on single keys, combined: while requests are in flight, further operations are gathered, and one transaction
//! carries them. A lone operation is sent at once. Each has its own conditions, in a transaction inside that one, and its own
//! outcome.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
};

use etcd_client::{Compare, GetOptions, KvClient, Txn, TxnOp, TxnOpResponse};
use tokio::{
    sync::{Semaphore, mpsc, oneshot},
    time::timeout,
};

use super::{REQUEST_TIMEOUT, revision_of};

/// Operations of one transaction. etcd accepts 128 (`--max-txn-ops`), less those of the longest transaction inside.
const OPERATIONS_MAX: usize = 64;
/// Bytes of the values in one transaction; a larger value goes alone. etcd accepts requests of 1.5 MiB.
const BYTES_MAX: usize = 512 << 10;
/// What a read counts for, as its value is not known: a response has at most 16 values, each of up to 1.5 MiB.
const READ_BYTES: usize = BYTES_MAX / 16;
/// Requests in flight. With one, the store would have nothing to do between a response and the next request.
const REQUESTS_MAX: usize = 2;
/// Operations that are gathered; the callers of further ones wait.
const GATHERED_MAX: usize = 1_024;
const _: () = assert!(OPERATIONS_MAX <= GATHERED_MAX);

/// An operation on one key.
pub(super) struct Operation {
    path: String,
    /// Of a write. If they do not hold, the response has the key's revision.
    conditions: Vec<Compare>,
    kind: Kind,
}

enum Kind {
    Read,
    Put(Vec<u8>),
    Delete,
}

impl Operation {
    /// Reads the key.
    pub(super) fn read(path: String) -> Self {
        Self {
            path,
            conditions: Vec::new(),
            kind: Kind::Read,
        }
    }

    /// Puts `value` if the conditions hold.
    pub(super) fn put(path: String, conditions: Vec<Compare>, value: Vec<u8>) -> Self {
        Self {
            path,
            conditions,
            kind: Kind::Put(value),
        }
    }

    /// Deletes the key if the conditions hold.
    pub(super) fn delete(path: String, conditions: Vec<Compare>) -> Self {
        Self {
            path,
            conditions,
            kind: Kind::Delete,
        }
    }

    /// What it counts for in a transaction.
    fn bytes(&self) -> usize {
        match &self.kind {
            Kind::Read => READ_BYTES,
            Kind::Put(value) => value.len(),
            Kind::Delete => 0,
        }
    }

    /// The operation of a transaction. It is made for each request, which consumes it, and seldom twice.
    fn of_txn(&self) -> TxnOp {
        let path = self.path.as_str();
        let write = match &self.kind {
            Kind::Read => return TxnOp::get(path, None),
            Kind::Put(value) => TxnOp::put(path, value.as_slice(), None),
            Kind::Delete => TxnOp::delete(path, None),
        };
        let exists = GetOptions::new().with_keys_only();
        let txn = Txn::new()
            .when(self.conditions.as_slice())
            .and_then([write])
            .or_else([TxnOp::get(path, Some(exists))]);
        TxnOp::txn(txn)
    }
}

/// The response to one operation.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) response: TxnOpResponse,
    /// The store's revision after it.
    pub(super) revision: u64,
}

/// The error of a request, for each of its operations. Without one, there was no response in time.
type Outcome = Result<Answer, Option<Arc<etcd_client::Error>>>;

/// An operation and its caller.
struct Pending {
    operation: Operation,
    caller: oneshot::Sender<Outcome>,
}

/// A sender of combined operations; clones share its requests. Its task ends with the last clone.
#[derive(Clone)]
pub(super) struct Batches {
    pending: mpsc::Sender<Pending>,
}

impl Batches {
    /// Starts the task that sends the requests.
    pub(super) fn start(kv: KvClient) -> Self {
        let (pending, received) = mpsc::channel(GATHERED_MAX);
        tokio::spawn(run(received, kv));
        Self { pending }
    }

    /// Runs an operation; an error without a cause means that there was no response. A caller that does not wait for the
    /// response may have caused the write.
    pub(super) async fn run(&self, operation: Operation) -> Outcome {
        let (caller, outcome) = oneshot::channel();
        let pending = Pending { operation, caller };
        self.pending.send(pending).await.map_err(|_ended| None)?;
        outcome.await.map_err(|_unanswered| None)?
    }
}

async fn run(mut received: mpsc::Receiver<Pending>, kv: KvClient) {
    let requests = Arc::new(Semaphore::new(REQUESTS_MAX));
    let mut gathered = VecDeque::new();
    loop {
        // Operations gather while this waits. Never an error: the semaphore is not closed.
        let Ok(request) = Arc::clone(&requests).acquire_owned().await else {
            return;
        };
        if gathered.is_empty() {
            let Some(first) = received.recv().await else {
                return;
            };
            gathered.push_back(first);
            // Tasks that are ready add theirs first.
            tokio::task::yield_now().await;
        }
        while gathered.len() < GATHERED_MAX
            && let Ok(next) = received.try_recv()
        {
            gathered.push_back(next);
        }
        let batch = take(&mut gathered);
        let kv = kv.clone();
        tokio::spawn(async move {
            send(kv, batch).await;
            drop(request);
        });
    }
}

/// The operations of the next request: the first ones, each on another key, since a transaction writes no key twice.
fn take(gathered: &mut VecDeque<Pending>) -> Vec<Pending> {
    let (mut batch, mut later) = (Vec::new(), VecDeque::new());
    let (mut paths, mut bytes) = (HashSet::new(), 0);
    while batch.len() < OPERATIONS_MAX
        && let Some(next) = gathered.pop_front()
    {
        if next.caller.is_closed() {
            continue;
        }
        let size = next.operation.bytes();
        let fits = batch.is_empty() || bytes + size <= BYTES_MAX;
        if fits && paths.insert(next.operation.path.clone()) {
            bytes += size;
            batch.push(next);
        } else {
            later.push_back(next);
        }
    }
    later.append(gathered);
    *gathered = later;
    batch
}

/// Sends a request and passes its outcome to the callers. If the store refuses it, each operation is sent alone: one of
/// them does not fail the others.
async fn send(kv: KvClient, batch: Vec<Pending>) {
    let operations = batch.iter().map(|pending| pending.operation.of_txn());
    match request(kv.clone(), operations.collect()).await {
        Err(Some(refusal)) if batch.len() > 1 && super::error::is_refusal(&refusal) => {
            for Pending { operation, caller } in batch {
                let outcome = request(kv.clone(), vec![operation.of_txn()]).await;
                answer([caller], outcome);
            }
        }
        outcome => answer(batch.into_iter().map(|pending| pending.caller), outcome),
    }
}

async fn request(
    mut kv: KvClient,
    operations: Vec<TxnOp>,
) -> Result<Vec<Answer>, Option<Arc<etcd_client::Error>>> {
    let txn = Txn::new().and_then(operations);
    let reply = timeout(REQUEST_TIMEOUT, kv.txn(txn)).await;
    let reply = reply
        .map_err(|_elapsed| None)?
        .map_err(|error| Some(Arc::new(error)))?;
    let revision = revision_of(&reply);
    let responses = reply.op_responses().into_iter();
    Ok(responses
        .map(|response| Answer { response, revision })
        .collect())
}

fn answer(
    callers: impl IntoIterator<Item = oneshot::Sender<Outcome>>,
    outcome: Result<Vec<Answer>, Option<Arc<etcd_client::Error>>>,
) {
    // A caller may have given up.
    match outcome {
        Ok(answers) => {
            for (caller, answer) in callers.into_iter().zip(answers) {
                drop(caller.send(Ok(answer)));
            }
        }
        Err(error) => {
            for caller in callers {
                drop(caller.send(Err(error.clone())));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use dormouse_store::{
        Store,
        server::{Options, Server},
    };
    use etcd_client::CompareOp;
    use futures::FutureExt;
    use tokio::net::TcpListener;
    use tokio_util::sync::CancellationToken;
    use tower::{BoxError, ServiceExt, util::BoxCloneSyncService as CustomChannel};

    use super::*;
    use crate::channel;

    fn pending(path: &str, bytes: usize) -> (Pending, oneshot::Receiver<Outcome>) {
        let (caller, outcome) = oneshot::channel();
        let operation = Operation::put(path.to_owned(), Vec::new(), vec![0; bytes]);
        (Pending { operation, caller }, outcome)
    }

    fn paths(batch: &[Pending]) -> Vec<&str> {
        batch
            .iter()
            .map(|next| next.operation.path.as_str())
            .collect()
    }

    #[test]
    fn a_request_has_no_key_twice_and_leaves_the_rest_in_order() {
        let (all, _callers): (VecDeque<_>, Vec<_>) = ["a", "b", "a", "c", "b"]
            .map(|path| pending(path, 1))
            .into_iter()
            .unzip();
        let mut gathered = all;
        assert_eq!(paths(&take(&mut gathered)), ["a", "b", "c"]);
        assert_eq!(paths(&take(&mut gathered)), ["a", "b"]);
        assert!(gathered.is_empty());
    }

    #[test]
    fn a_request_has_a_limit_of_operations_and_of_bytes() {
        let many = (0..100).map(|number| pending(&format!("{number:03}"), 1));
        let (mut gathered, _callers): (VecDeque<_>, Vec<_>) = many.unzip();
        assert_eq!(take(&mut gathered).len(), OPERATIONS_MAX);
        assert_eq!(take(&mut gathered).len(), 100 - OPERATIONS_MAX);
        let reads = (0..20).map(|number| {
            let (caller, outcome) = oneshot::channel();
            let operation = Operation::read(format!("{number:03}"));
            (Pending { operation, caller }, outcome)
        });
        let (mut gathered, _callers): (VecDeque<_>, Vec<_>) = reads.unzip();
        assert_eq!(take(&mut gathered).len(), 16);
        let large = ["a", "b", "c"].map(|path| pending(path, BYTES_MAX));
        let (mut gathered, _callers): (VecDeque<_>, Vec<_>) = large.into_iter().unzip();
        for path in ["a", "b", "c"] {
            assert_eq!(paths(&take(&mut gathered)), [path]);
        }
    }

    #[test]
    fn an_operation_whose_caller_has_given_up_is_not_sent() {
        let (mut gathered, mut callers): (VecDeque<_>, Vec<_>) =
            ["a", "b"].map(|path| pending(path, 1)).into_iter().unzip();
        callers.remove(0);
        assert_eq!(paths(&take(&mut gathered)), ["b"]);
    }

    /// The client of a store without a connection.
    async fn kv(store: &Store) -> KvClient {
        let server = Server::new::<TcpListener>(
            Vec::new(),
            store.clone(),
            Options::default(),
            CancellationToken::new(),
        );
        let channel = CustomChannel::new(
            channel::in_process(server.unwrap().in_process()).map_err(BoxError::from),
        );
        let channel = etcd_client::Channel::Custom(channel);
        let client = etcd_client::Client::from_channel(channel, None).await;
        client.unwrap().kv_client()
    }

    fn written(outcome: oneshot::Receiver<Outcome>) -> bool {
        let answer = outcome.now_or_never().unwrap().unwrap().unwrap();
        matches!(answer.response, TxnOpResponse::Txn(reply) if reply.succeeded())
    }

    #[tokio::test]
    async fn each_operation_has_its_own_conditions_and_outcome() {
        let store = Store::new();
        let absent = |path: &str| Compare::create_revision(path, CompareOp::Equal, 0);
        let put = |path: &str| Operation::put(path.to_owned(), vec![absent(path)], b"x".to_vec());
        let batches = Batches::start(kv(&store).await);
        batches.run(put("b")).await.unwrap();
        let before = store.revision();
        let (batch, outcomes): (Vec<_>, Vec<_>) = ["a", "b", "c"]
            .map(|path| {
                let (caller, outcome) = oneshot::channel();
                let operation = put(path);
                (Pending { operation, caller }, outcome)
            })
            .into_iter()
            .unzip();
        send(kv(&store).await, batch).await;
        let outcomes: Vec<_> = outcomes.into_iter().map(written).collect();
        assert_eq!(outcomes, [true, false, true]);
        assert_eq!(store.revision(), before + 1, "more than one transaction");
    }

    #[tokio::test]
    async fn an_operation_that_the_store_refuses_fails_no_other() {
        let store = Store::new();
        let (batch, outcomes): (Vec<_>, Vec<_>) =
            ["", "a"].map(|path| pending(path, 1)).into_iter().unzip();
        send(kv(&store).await, batch).await;
        let [refused, accepted] = outcomes.try_into().unwrap();
        let refused = refused.now_or_never().unwrap().unwrap();
        assert!(matches!(refused, Err(Some(error)) if super::super::error::is_refusal(&error)));
        assert!(written(accepted));
    }

    #[tokio::test]
    async fn operations_gather_while_requests_are_in_flight() {
        let store = Store::new();
        let batches = Batches::start(kv(&store).await);
        let put = |number: usize| Operation::put(format!("{number}"), Vec::new(), b"x".to_vec());
        let before = store.revision();
        let all = (0..OPERATIONS_MAX).map(|number| batches.run(put(number)));
        let outcomes = futures::future::join_all(all).await;
        assert!(outcomes.iter().all(Result::is_ok));
        let requests = usize::try_from(store.revision() - before).unwrap();
        assert!(requests <= REQUESTS_MAX + 1, "{requests} requests");
    }
}
