//! Watch streams: what came, and the barrier before which all events up to a revision must come.

use std::{mem, sync::Arc, time::Duration};

use futures::{StreamExt, channel::mpsc, lock::Mutex};
use prost_reflect::{DynamicMessage, MethodDescriptor};
use serde_json::{Map, Value, json};
use tokio::{task::JoinHandle, time::Instant};
use tonic::transport::Channel;

use crate::{
    messages::{Vars, decode, encode, method},
    wire::{self, Meta},
};

/// What a step checks: a label, what etcd gave, what we gave.
pub(crate) type Checks = Vec<(String, Value, Value)>;

const PROGRESS_AGAIN: Duration = Duration::from_millis(130);
const STRAGGLERS: Duration = Duration::from_millis(60);
const QUIET: Duration = Duration::from_millis(150);
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Default)]
struct Arrived {
    responses: Vec<Value>,
    creates: usize,
    cancels: usize,
    progress: Option<i64>,
    end: Option<Value>,
}

pub(crate) struct WatchStream {
    method: MethodDescriptor,
    requests: Option<mpsc::UnboundedSender<DynamicMessage>>,
    arrived: Arc<Mutex<Arrived>>,
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
        let mut responses = wire::stream(channel, &method, incoming, meta)
            .await
            .unwrap();
        let arrived = Arc::new(Mutex::new(Arrived::default()));
        let into = Arc::clone(&arrived);
        let reader = tokio::spawn(async move {
            while let Some(response) = responses.next().await {
                let mut arrived = into.lock().await;
                match response {
                    Ok(response) => arrived.take(decode(&response)),
                    Err(status) => arrived.end = Some(json!(format!("{:?}", status.code()))),
                }
            }
        });
        let (requests, closed) = (Some(requests), false);
        Self {
            method,
            requests,
            arrived,
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
        self.requests
            .as_ref()
            .unwrap()
            .unbounded_send(message)
            .unwrap();
    }

    pub(crate) async fn step(&mut self, step: &Value, vars: &Vars) -> Checks {
        let mut checks = Checks::new();
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
            let answered = self.arrived.lock().await.progress.take().is_some();
            checks.push(("answered".into(), step["answered"].clone(), json!(answered)));
        }
        if let Some(revision) = step["sync"].as_i64() {
            let progress = if step["by"] == json!("quiet") {
                self.quiet(&step["got"]).await;
                None
            } else {
                self.barrier(revision, vars).await
            };
            let mut arrived = self.arrived.lock().await;
            let (got, faults) = arrived.fold();
            drop(arrived);
            checks.push(("got".into(), step["got"].clone(), got));
            checks.extend(
                faults
                    .into_iter()
                    .map(|fault| (fault, json!("no"), json!("yes"))),
            );
            if let Some(expected) = step.get("progress") {
                checks.push(("progress".into(), expected.clone(), json!(progress)));
            }
        }
        checks
    }

    async fn wait(&self, patience: Duration, ready: impl Fn(&Arrived) -> bool) -> bool {
        let deadline = Instant::now() + patience;
        loop {
            if ready(&*self.arrived.lock().await) {
                return true;
            }
            if Instant::now() > deadline {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn controls(&self) {
        let (creates, cancels) = (self.creates, self.cancels);
        self.wait(PATIENCE, |a| a.creates >= creates && a.cancels >= cancels)
            .await;
    }

    /// Returns once all events up to the revision must have come.
    async fn barrier(&self, revision: i64, vars: &Vars) -> Option<i64> {
        self.controls().await;
        let deadline = Instant::now() + PATIENCE;
        let mut requests = 0;
        while Instant::now() < deadline {
            requests += 1;
            self.send(&json!({"progress_request": {}}), vars);
            let reached = |arrived: &Arrived| arrived.progress >= Some(revision);
            if self.wait(PROGRESS_AGAIN, reached).await {
                let progress = self.arrived.lock().await.progress.take();
                if requests > 1 {
                    tokio::time::sleep(STRAGGLERS).await;
                    self.arrived.lock().await.progress = None;
                }
                return progress;
            }
        }
        None
    }

    /// Returns once as much as recorded has come, and nothing more for a while.
    async fn quiet(&self, expected: &Value) {
        self.controls().await;
        let wanted = weight(expected);
        self.wait(PATIENCE, |arrived| weight(&arrived.peek()) >= wanted)
            .await;
        let mut count = self.arrived.lock().await.responses.len();
        loop {
            tokio::time::sleep(QUIET).await;
            let now = self.arrived.lock().await.responses.len();
            if now == count {
                return;
            }
            count = now;
        }
    }
}

/// Controls and events in what a step got.
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

impl Arrived {
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

    /// What came since the last step, by watch, and which promises about batches were broken.
    fn fold(&mut self) -> (Value, Vec<String>) {
        let mut got: Map<String, Value> = Map::new();
        let mut faults = Vec::new();
        for response in mem::take(&mut self.responses) {
            let id = response["watch_id"].as_i64().unwrap_or(0).to_string();
            let list = got
                .entry(id)
                .or_insert_with(|| json!([]))
                .as_array_mut()
                .unwrap();
            fold_one(list, response, &mut faults);
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
        (Value::Object(got), faults)
    }
}

fn fold_one(list: &mut Vec<Value>, mut response: Value, faults: &mut Vec<String>) {
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
        faults.push("header below the last event".into());
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
        faults.push("a revision split without a fragment".into());
    }
    element["open"] = json!(fragment);
    if fragment {
        element["fragmented"] = json!(true);
    }
}
