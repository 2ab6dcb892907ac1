//! Replay of one scenario: a new server, the steps in order, the differences.

use std::{collections::HashMap, fmt, time::Duration};

use dormouse_store::{Limits, Store, server};
use futures::{StreamExt, channel::mpsc};
use serde_json::{Map, Value, json};
use tokio::{net::TcpListener, time::Instant};
use tokio_util::sync::CancellationToken;
use tonic::{
    Status,
    transport::{Channel, Endpoint},
};

use crate::{
    json::short,
    matching::matches,
    messages::{self, Vars, decode, encode},
    rpc::{self, Meta},
    watching::WatchStream,
};

#[derive(Default)]
pub(crate) struct Outcome {
    scenarios: usize,
    responses: usize,
    /// Steps with a method that the store does not implement.
    out_of_scope: usize,
    pub(crate) differences: Vec<String>,
}

impl Outcome {
    pub(crate) fn add(&mut self, other: Self) {
        self.scenarios += other.scenarios;
        self.responses += other.responses;
        self.out_of_scope += other.out_of_scope;
        self.differences.extend(other.differences);
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let differences = self.differences.len();
        write!(
            f,
            "{} scenarios, {} responses, {differences} differences",
            self.scenarios, self.responses
        )?;
        write!(
            f,
            " ({} steps with methods out of scope skipped)",
            self.out_of_scope
        )
    }
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
    outcome: Outcome,
}

impl Scenario {
    pub(crate) fn new(text: Value) -> Self {
        Self { text }
    }

    pub(crate) fn name(&self) -> &str {
        self.text["name"].as_str().unwrap()
    }

    fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        for flag in self.text["flags"].as_array().into_iter().flatten() {
            match flag.as_str().unwrap().split_once('=').unwrap() {
                ("--max-request-bytes", bytes) => limits.request_bytes_max = bytes.parse().unwrap(),
                ("--max-txn-ops", ops) => limits.txn_ops_max = ops.parse().unwrap(),
                ("--watch-progress-notify-interval", "1s") => {
                    limits.progress_interval = Duration::from_secs(1);
                }
                (flag, _) => panic!("unknown flag {flag}"),
            }
        }
        limits
    }

    pub(crate) async fn replay(self) -> Outcome {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let shutdown = CancellationToken::new();
        let store = Store::with_limits(self.limits());
        let server = tokio::spawn(server::serve(listener, store, shutdown.clone()));
        let mut run = Run {
            name: self.name().into(),
            address,
            channels: HashMap::new(),
            vars: Vars::new(),
            watches: HashMap::new(),
            outcome: Outcome {
                scenarios: 1,
                ..Outcome::default()
            },
        };
        for (number, step) in self.text["steps"].as_array().unwrap().iter().enumerate() {
            run.step(number, step).await;
        }
        shutdown.cancel();
        let Run { outcome, .. } = run;
        server.await.unwrap().unwrap();
        outcome
    }
}

impl Run {
    fn compare(&mut self, step: &str, expected: &Value, got: &Value) {
        self.outcome.responses += 1;
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

    async fn step(&mut self, number: usize, step: &Value) {
        let label = format!("step {number} {}", short(&step["req"]));
        if let Some(ms) = step["sleep"].as_u64() {
            tokio::time::sleep(Duration::from_millis(ms)).await;
        } else if step.get("watch").is_some() {
            self.watch(number, step).await;
        } else if step.get("poll").is_some() {
            self.poll(&label, step).await;
        } else if step.get("reqs").is_some() {
            self.exchange(&label, step).await;
        } else {
            self.call(&label, step).await;
        }
    }

    async fn call(&mut self, label: &str, step: &Value) {
        let Some(response) = self.invoke(step, "rpc").await else {
            self.outcome.out_of_scope += 1;
            return;
        };
        let label = format!("{label} {}", step["rpc"]);
        match response {
            Ok(mut got) => {
                self.store_vars(step, &got);
                if let Some(Value::Array(keys)) = got.get_mut("keys") {
                    keys.sort_by_key(Value::to_string);
                }
                let expected = step
                    .get("res")
                    .cloned()
                    .unwrap_or_else(|| json!({"err": step["err"]}));
                self.compare(&label, &expected, &got);
            }
            Err(status) => {
                let mut got = json!({"code": format!("{:?}", status.code())});
                got["message"] = match step["err"].get("message") {
                    Some(Value::Null) => Value::Null,
                    _ => json!(status.message()),
                };
                self.compare(&label, &step["err"], &got);
            }
        }
    }

    /// Calls the method that the member `rpc` names; `None` if the store does not implement it.
    async fn invoke(&mut self, step: &Value, rpc: &str) -> Option<Result<Value, Status>> {
        let method = messages::method(step[rpc].as_str().unwrap())?;
        let message = encode(&step["req"], &method.input(), &self.vars);
        let channel = self.channel(step).await;
        let response = rpc::call(&channel, &method, &message, &meta(step)).await;
        Some(response.map(|message| decode(&message)))
    }

    fn store_vars(&mut self, step: &Value, got: &Value) {
        for (field, name) in step["vars"].as_object().into_iter().flatten() {
            let value = got
                .pointer(&format!("/{}", field.replace('.', "/")))
                .unwrap()
                .clone();
            self.vars
                .entry(name.as_str().unwrap().into())
                .or_insert(value);
        }
        if let Some(pair) = step["differs"].as_array() {
            let [a, b] = [0, 1].map(|i| self.vars[pair[i].as_str().unwrap()].clone());
            self.compare("differs", &json!(true), &json!(a != b));
        }
    }

    async fn poll(&mut self, label: &str, step: &Value) {
        let started = Instant::now();
        let before = Duration::from_millis(step["before_ms"].as_u64().unwrap());
        let after = Duration::from_millis(step["after_ms"].as_u64().unwrap());
        loop {
            let got = self.invoke(step, "poll").await.unwrap().unwrap();
            let zero = json!(0);
            let mut until = step["until"].as_object().unwrap().iter();
            let done = until.all(|(name, value)| got.get(name).unwrap_or(&zero) == value);
            if done || started.elapsed() > before {
                let in_time = done && started.elapsed() >= after;
                self.compare(&format!("{label} in time"), &json!(true), &json!(in_time));
                self.compare(label, &step["res"], &got);
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Several messages on one stream: sends one, then reads one.
    async fn exchange(&mut self, label: &str, step: &Value) {
        let method = messages::method(step["rpc"].as_str().unwrap()).unwrap();
        let channel = self.channel(step).await;
        let (requests, incoming) = mpsc::unbounded();
        let mut responses = rpc::stream(&channel, &method, incoming, &meta(step))
            .await
            .unwrap();
        let pairs = step["reqs"]
            .as_array()
            .unwrap()
            .iter()
            .zip(step["ress"].as_array().unwrap());
        for (request, expected) in pairs {
            requests
                .unbounded_send(encode(request, &method.input(), &self.vars))
                .unwrap();
            let got = decode(&responses.next().await.unwrap().unwrap());
            self.compare(label, expected, &got);
        }
    }

    async fn watch(&mut self, number: usize, step: &Value) {
        let name = step["watch"].as_str().unwrap().to_owned();
        if !self.watches.contains_key(&name) {
            let channel = self.channel(step).await;
            let stream = WatchStream::open(&channel, &meta(step)).await;
            self.watches.insert(name.clone(), stream);
        }
        let stream = self.watches.get_mut(&name).unwrap();
        let mut checks = stream.step(step, &self.vars).await;
        if stream.is_closed() {
            self.watches.remove(&name);
        }
        for check in checks.drain(..) {
            self.compare(
                &format!("step {number} watch {name} {}", check.label),
                &check.expected,
                &check.got,
            );
        }
    }
}

fn meta(step: &Value) -> Meta {
    let empty = Map::new();
    let meta = step["meta"].as_object().unwrap_or(&empty);
    meta.iter()
        .map(|(name, value)| (name.clone(), value.as_str().unwrap().into()))
        .collect()
}
