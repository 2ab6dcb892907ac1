//! Watch streams: the received responses, and a barrier by which all events up to a revision must
//! have been received.

use std::{mem, sync::Arc, time::Duration};

use futures::{StreamExt, channel::mpsc, lock::Mutex, stream};
use prost_reflect::{DynamicMessage, MethodDescriptor};
use serde_json::{Map, Value, json};
use tokio::{task::JoinHandle, time::Instant};
use tonic::transport::Channel;

use crate::{
    messages::{Vars, decode, encode, method},
    rpc::{self, Meta},
};

/// One comparison of a step.
pub(crate) struct Check {
    pub(crate) label: String,
    /// The value recorded from etcd.
    pub(crate) expected: Value,
    /// The value received from the store.
    pub(crate) got: Value,
}

impl Check {
    fn new(label: &str, expected: &Value, got: Value) -> Self {
        Self {
            label: label.into(),
            expected: expected.clone(),
            got,
        }
    }
}

/// Time after which a progress request is repeated.
const PROGRESS_RETRY: Duration = Duration::from_millis(130);
/// Time in which the responses to repeated progress requests are received and dropped.
const LATE_PROGRESS: Duration = Duration::from_millis(60);
/// Time without a response after which a stream is quiet.
const QUIET: Duration = Duration::from_millis(150);
/// Longer than any step takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Default)]
struct Received {
    responses: Vec<Value>,
    creates: usize,
    cancels: usize,
    progress: Option<i64>,
    end: Option<Value>,
}

pub(crate) struct WatchStream {
    method: MethodDescriptor,
    requests: Option<mpsc::UnboundedSender<DynamicMessage>>,
    received: Arc<Mutex<Received>>,
    reader: JoinHandle<()>,
    creates: usize,
    cancels: usize,
    closed: bool,
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl WatchStream {
    pub(crate) async fn open(channel: &Channel, meta: &Meta) -> Self {
        let method = method("Watch/Watch").unwrap();
        let (requests, incoming) = mpsc::unbounded();
        let mut responses = match rpc::stream(channel, &method, incoming, meta).await {
            Ok(responses) => responses,
            Err(status) => stream::iter([Err(status)]).boxed(),
        };
        let received = Arc::new(Mutex::new(Received::default()));
        let into = Arc::clone(&received);
        let reader = tokio::spawn(async move {
            while let Some(response) = responses.next().await {
                let mut received = into.lock().await;
                match response {
                    Ok(response) => received.take(decode(&response)),
                    Err(status) => received.end = Some(json!(format!("{:?}", status.code()))),
                }
            }
        });
        let (requests, closed) = (Some(requests), false);
        Self {
            method,
            requests,
            received,
            reader,
            creates: 0,
            cancels: 0,
            closed,
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    fn send(&self, request: &Value, vars: &Vars) {
        let message = encode(request, &self.method.input(), vars);
        // An ended stream accepts no request; its status is compared.
        let _ = self.requests.as_ref().unwrap().unbounded_send(message);
    }

    pub(crate) async fn step(&mut self, step: &Value, vars: &Vars) -> Vec<Check> {
        let mut checks = Vec::new();
        for request in step["send"].as_array().into_iter().flatten() {
            self.creates += usize::from(request.get("create_request").is_some());
            self.send(request, vars);
        }
        self.cancels += usize::try_from(step["canceled"].as_u64().unwrap_or(0)).unwrap();
        if step["half_close"] == json!(true) {
            self.requests = None;
        }
        self.closed = step["close"] == json!(true);
        if let Some(ms) = step["noprogress"].as_u64() {
            self.send(&json!({"progress_request": {}}), vars);
            tokio::time::sleep(Duration::from_millis(ms)).await;
            let answered = self.received.lock().await.progress.take().is_some();
            checks.push(Check::new("answered", &step["answered"], json!(answered)));
        }
        if let Some(revision) = step["sync"].as_i64() {
            let progress = if step["by"] == json!("quiet") {
                self.quiet(&step["got"]).await;
                None
            } else {
                self.barrier(revision, vars).await
            };
            let mut received = self.received.lock().await;
            let (got, violations) = received.fold();
            drop(received);
            checks.push(Check::new("got", &step["got"], got));
            let violations = violations.iter();
            checks.extend(violations.map(|label| Check::new(label, &json!("no"), json!("yes"))));
            if let Some(expected) = step.get("progress") {
                checks.push(Check::new("progress", expected, json!(progress)));
            }
        }
        checks
    }

    /// Waits for a condition; false if the stream ends or the time is over before.
    async fn wait(&self, timeout: Duration, ready: impl Fn(&Received) -> bool) -> bool {
        let deadline = Instant::now() + timeout;
        loop {
            let received = self.received.lock().await;
            if ready(&received) {
                return true;
            }
            if received.end.is_some() || Instant::now() > deadline {
                return false;
            }
            drop(received);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Waits for the responses to all create and cancel requests.
    async fn controls(&self) {
        let (creates, cancels) = (self.creates, self.cancels);
        self.wait(TIMEOUT, |a| a.creates >= creates && a.cancels >= cancels)
            .await;
    }

    /// Returns when a progress response shows that all events up to the revision were sent.
    async fn barrier(&self, revision: i64, vars: &Vars) -> Option<i64> {
        self.controls().await;
        let deadline = Instant::now() + TIMEOUT;
        let mut requests = 0;
        while Instant::now() < deadline && self.received.lock().await.end.is_none() {
            requests += 1;
            self.send(&json!({"progress_request": {}}), vars);
            let reached = |received: &Received| received.progress >= Some(revision);
            if self.wait(PROGRESS_RETRY, reached).await {
                let progress = self.received.lock().await.progress.take();
                if requests > 1 {
                    tokio::time::sleep(LATE_PROGRESS).await;
                    self.received.lock().await.progress = None;
                }
                return progress;
            }
        }
        None
    }

    /// Returns when as much as recorded was received, and then nothing for [`QUIET`].
    async fn quiet(&self, expected: &Value) {
        self.controls().await;
        let wanted = weight(expected);
        self.wait(TIMEOUT, |received| weight(&received.peek()) >= wanted)
            .await;
        let mut count = self.received.lock().await.responses.len();
        loop {
            tokio::time::sleep(QUIET).await;
            let now = self.received.lock().await.responses.len();
            if now == count {
                return;
            }
            count = now;
        }
    }
}

/// Number of control responses and events that a step received.
fn weight(got: &Value) -> usize {
    let elements = got
        .as_object()
        .unwrap()
        .values()
        .filter_map(Value::as_array)
        .flatten();
    elements
        .map(|element| element["events"].as_array().map_or(1, Vec::len))
        .sum()
}

impl Received {
    fn take(&mut self, response: Value) {
        let control = response.get("created").is_some() || response.get("canceled").is_some();
        let has_events = response.get("events").is_some();
        self.creates += usize::from(response.get("created").is_some());
        let compacted = response.get("compact_revision").is_some();
        let confirms = response.get("created").is_none() && !compacted;
        self.cancels += usize::from(response.get("canceled").is_some() && confirms);
        if !control && !has_events && response["watch_id"] == json!(-1) {
            self.progress = response["header"]["revision"].as_i64();
        } else {
            self.responses.push(response);
        }
    }

    fn peek(&self) -> Value {
        let copy = Self {
            responses: self.responses.clone(),
            ..Self::default()
        };
        let mut copy = copy;
        copy.fold().0
    }

    /// The responses since the last step by watcher, and violations of etcd's guarantees on batches.
    fn fold(&mut self) -> (Value, Vec<String>) {
        let mut got: Map<String, Value> = Map::new();
        let mut violations = Vec::new();
        for response in mem::take(&mut self.responses) {
            let id = response["watch_id"].as_i64().unwrap_or(0).to_string();
            let list = got
                .entry(id)
                .or_insert_with(|| json!([]))
                .as_array_mut()
                .unwrap();
            fold_one(list, response, &mut violations);
        }
        for list in got.values_mut() {
            for element in list.as_array_mut().unwrap() {
                let fields = element.as_object_mut().unwrap();
                fields.remove("open");
            }
        }
        if let Some(end) = &self.end {
            got.insert("end".into(), end.clone());
        }
        (Value::Object(got), violations)
    }
}

fn fold_one(list: &mut Vec<Value>, mut response: Value, violations: &mut Vec<String>) {
    let fields = response.as_object_mut().unwrap();
    fields.remove("watch_id");
    let fragment = fields.remove("fragment").is_some();
    let Some(events) = fields.remove("events") else {
        if !fields.contains_key("created") && !fields.contains_key("canceled") {
            fields.insert("progress".into(), json!(true));
            if list
                .last()
                .is_some_and(|last| last.get("progress").is_some())
            {
                list.pop();
            }
        }
        list.push(response);
        return;
    };
    let events = events.as_array().unwrap().clone();
    let revision_of = |event: &Value| event["kv"]["mod_revision"].as_i64();
    if response["header"]["revision"].as_i64() < events.last().and_then(revision_of) {
        violations.push("header revision below the last event".into());
    }
    if list.last().is_none_or(|last| last.get("events").is_none()) {
        list.push(json!({"events": []}));
    }
    let element = list.last_mut().unwrap();
    let joined = element["events"].as_array_mut().unwrap();
    let split = joined.last().and_then(revision_of) == revision_of(&events[0]);
    joined.extend(events);
    let open = element["open"] == json!(true);
    if split && element["events"].as_array().unwrap().len() > 1 && !open {
        violations.push("a revision split over responses without fragments".into());
    }
    element["open"] = json!(fragment);
    if fragment {
        element["fragmented"] = json!(true);
    }
}
