//! Replay of one scenario: a new process of the store, the steps in order, the differences.

mod calls;
mod streams;
mod waiting;

use std::{
    collections::HashMap,
    path::Path,
    time::{Duration, Instant},
};

use dormouse_store_checker::process::StoreProcess;
use serde_json::{Value, json};
use tempfile::TempDir;
use tonic::transport::{Channel, Endpoint};

use crate::{
    json::short, matching::matches, messages::Vars, outcome::Outcome, rpc::Meta,
    watching::WatchStream,
};
use streams::Observation;
use waiting::Calls;

/// Longer than any call takes on a busy machine.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);

/// Where a store has its state.
#[derive(Clone, Copy)]
pub(crate) enum Home {
    /// In a new data directory.
    Directory,
    /// In memory only, from the first revision of a new etcd on.
    Memory,
}

pub(crate) struct Scenario {
    text: Value,
}

/// A running scenario.
struct Run {
    name: String,
    address: String,
    channels: HashMap<String, Channel>,
    vars: Vars,
    watches: HashMap<String, WatchStream>,
    observations: HashMap<String, Observation>,
    calls: Calls,
    /// When the last step that waits ended: leases granted since are younger, on slow hosts too.
    waited: Instant,
    outcome: Outcome,
}

impl Scenario {
    pub(crate) fn new(text: Value) -> Self {
        Self { text }
    }

    pub(crate) fn name(&self) -> &str {
        self.text["name"].as_str().unwrap()
    }

    /// Runs the program with the scenario's flags.
    async fn store(&self, state: &str) -> StoreProcess {
        let flags = self.text["flags"].as_array().into_iter().flatten();
        let flags = flags.map(|flag| flag.as_str().unwrap());
        let program = Path::new(env!("CARGO_BIN_EXE_dormouse"));
        let started = StoreProcess::start(program, flags.chain([state]));
        started.await.unwrap()
    }

    pub(crate) async fn replay(self, home: Home) -> Outcome {
        let folder = TempDir::new().unwrap();
        let state = match home {
            Home::Directory => format!("--data-dir={}", folder.path().display()),
            Home::Memory => "--initial-revision=1".into(),
        };
        let store = self.store(&state).await;
        let mut run = Run::new(self.name(), store.endpoint.clone());
        for (number, step) in self.text["steps"].as_array().unwrap().iter().enumerate() {
            run.step(number, step).await;
        }
        let Run { outcome, .. } = run;
        let ended = store.stop().await.unwrap();
        assert!(ended.success(), "{}: {ended}", self.name());
        outcome
    }
}

impl Run {
    fn new(name: &str, address: String) -> Self {
        Self {
            name: name.into(),
            address,
            channels: HashMap::new(),
            vars: Vars::new(),
            watches: HashMap::new(),
            observations: HashMap::new(),
            calls: Calls::new(),
            waited: Instant::now(),
            outcome: Outcome {
                scenarios: 1,
                ..Outcome::default()
            },
        }
    }

    fn compare(&mut self, step: &str, expected: &Value, got: &Value) {
        self.outcome.decisions += 1;
        if !matches(expected, got, &self.vars) {
            let (expected, got) = (short(expected), short(got));
            let text = format!(
                "{} {step}\n  etcd: {expected}\n  dormouse: {got}",
                self.name
            );
            self.outcome.differences.push(text);
        }
    }

    async fn channel(&mut self, step: &Value) -> Channel {
        let name = step["client"].as_str().unwrap_or_default();
        if !self.channels.contains_key(name) {
            let endpoint = Endpoint::from_shared(self.address.clone()).unwrap();
            let channel = endpoint.connect().await.unwrap();
            self.channels.insert(name.into(), channel);
        }
        self.channels[name].clone()
    }

    /// Metadata of the step's requests: the token named by `as`, and `meta`.
    fn meta(&self, step: &Value) -> Meta {
        let token = step["as"].as_str().map(|name| {
            let token = self.vars.get(name).and_then(Value::as_str);
            ("token".to_owned(), token.unwrap_or(name).to_owned())
        });
        let further = step["meta"].as_object().into_iter().flatten();
        let further = further.map(|(name, value)| (name.clone(), value.as_str().unwrap().into()));
        token.into_iter().chain(further).collect()
    }

    async fn step(&mut self, number: usize, step: &Value) {
        let label = format!("step {number} {} {}", step["rpc"], short(&step["req"]));
        if let Some(ms) = step["sleep"].as_u64() {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            self.waited = Instant::now();
        } else if step.get("watch").is_some() {
            self.watch(&label, step).await;
        } else if step.get("observe").is_some() {
            self.observe(&label, step).await;
        } else if step.get("snapshot").is_some() {
            self.snapshot(&label, step).await;
        } else if let Some(name) = step["call"].as_str() {
            self.start(name, step).await;
        } else if let Some(name) = step["pending"].as_str() {
            self.pending(&label, name, step).await;
        } else if let Some(name) = step["wait"].as_str() {
            self.wait(&label, name, step).await;
        } else if let Some(name) = step["cancel"].as_str() {
            self.cancel(name).await;
        } else if step.get("poll").is_some() {
            self.poll(&label, step).await;
            self.waited = Instant::now();
        } else if step.get("reqs").is_some() {
            self.exchange(&label, step).await;
        } else {
            self.call(&label, step).await;
        }
    }
}

/// The recorded answer of a step.
fn expected(step: &Value) -> Value {
    step.get("res")
        .cloned()
        .unwrap_or_else(|| json!({"err": step["err"]}))
}
