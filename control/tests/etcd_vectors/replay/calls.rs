//! Unary calls, repeated calls, and exchanges on one stream.

use std::time::Duration;

use futures::{StreamExt, channel::mpsc, future::BoxFuture};
use prost_reflect::{DynamicMessage, MethodDescriptor};
use serde_json::{Value, json};
use tokio::time::Instant;
use tonic::Status;

use super::{CALL_TIMEOUT, Run, expected};
use crate::{
    messages::{self, decode, encode},
    rpc,
};

/// Interval of the calls of a `poll` step.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// An answer in the form of the vectors.
pub(super) fn answer(response: Result<Value, Status>) -> Value {
    response.unwrap_or_else(
        |status| json!({"err": {"code": format!("{:?}", status.code()), "message": status.message()}}),
    )
}

impl Run {
    /// The call of a step, to be awaited; it ends with an error after [`CALL_TIMEOUT`].
    pub(super) async fn invocation(
        &mut self,
        step: &Value,
        rpc: &str,
    ) -> BoxFuture<'static, Result<Value, Status>> {
        let rpc = step[rpc].as_str().unwrap();
        let Some(method) = messages::method(rpc) else {
            let missing = Status::unimplemented(format!("the .proto files have no {rpc}"));
            return Box::pin(async { Err(missing) });
        };
        let message = encode(&step["req"], &method.input(), &self.vars);
        let (channel, meta) = (self.channel(step).await, self.meta(step));
        Box::pin(async move {
            let call = rpc::call(&channel, &method, &message, &meta);
            let response = tokio::time::timeout(CALL_TIMEOUT, call).await;
            let response = response.unwrap_or_else(|_| Err(Status::deadline_exceeded("timeout")));
            response.map(|message| decode(&message))
        })
    }

    pub(super) async fn call(&mut self, label: &str, step: &Value) {
        let response = self.invocation(step, "rpc").await.await;
        if let Ok(got) = &response {
            self.store_vars(label, step, got);
        }
        self.compare(label, &expected(step), &answer(response));
    }

    /// Sets the variables of a step; one that is set already must be equal.
    fn store_vars(&mut self, label: &str, step: &Value, got: &Value) {
        for (field, name) in step["vars"].as_object().into_iter().flatten() {
            let path = format!("/{}", field.replace('.', "/"));
            let value = got.pointer(&path).unwrap_or(&Value::Null).clone();
            let variable = self.vars.entry(name.as_str().unwrap().into());
            let first = variable.or_insert_with(|| value.clone()).clone();
            self.compare(&format!("{label} {name}"), &first, &value);
        }
        if let Some(pair) = step["differs"].as_array() {
            let [a, b] = [0, 1].map(|i| self.vars[pair[i].as_str().unwrap()].clone());
            self.compare(&format!("{label} differs"), &json!(true), &json!(a != b));
        }
    }

    /// Repeats a call until fields of its answer have the values of `until`.
    pub(super) async fn poll(&mut self, label: &str, step: &Value) {
        let started = Instant::now();
        let before = Duration::from_millis(step["before_ms"].as_u64().unwrap());
        let after = Duration::from_millis(step["after_ms"].as_u64().unwrap());
        let zero = json!(0);
        loop {
            let got = answer(self.invocation(step, "poll").await.await);
            let mut until = step["until"].as_object().unwrap().iter();
            let done = until.all(|(name, value)| got.get(name).unwrap_or(&zero) == value);
            if done || started.elapsed() > before {
                let in_time = done && self.waited.elapsed() >= after;
                self.compare(&format!("{label} in time"), &json!(true), &json!(in_time));
                self.compare(label, &step["res"], &got);
                return;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Several messages on one stream: sends one, then reads one. A recorded error is the answer to
    /// the first.
    pub(super) async fn exchange(&mut self, label: &str, step: &Value) {
        let method = messages::method(step["rpc"].as_str().unwrap()).unwrap();
        let (channel, meta) = (self.channel(step).await, self.meta(step));
        let requests: Vec<DynamicMessage> = step["reqs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|request| encode(request, &method.input(), &self.vars))
            .collect();
        let count = requests.len();
        let exchange = exchange(&channel, &method, requests, &meta);
        let timeout = || (0..count).map(|_| json!({"err": "timeout"})).collect();
        let answers: Vec<Value> = tokio::time::timeout(CALL_TIMEOUT, exchange)
            .await
            .unwrap_or_else(|_| timeout());
        match step["ress"].as_array() {
            Some(ress) => self.compare(label, &json!(ress), &json!(answers)),
            None => self.compare(label, &json!([expected(step)]), &json!(answers)),
        }
    }
}

/// The answers to the requests of a stream, up to its end.
async fn exchange(
    channel: &tonic::transport::Channel,
    method: &MethodDescriptor,
    requests: Vec<DynamicMessage>,
    meta: &rpc::Meta,
) -> Vec<Value> {
    let (sender, incoming) = mpsc::unbounded();
    let mut responses = match rpc::stream(channel, method, incoming, meta).await {
        Ok(responses) => responses,
        Err(status) => return vec![answer(Err(status))],
    };
    let mut answers = Vec::new();
    for request in requests {
        // An ended stream accepts no request; its status is read below.
        let _ = sender.unbounded_send(request);
        let Some(response) = responses.next().await else {
            break;
        };
        let ended = response.is_err();
        answers.push(answer(response.map(|message| decode(&message))));
        if ended {
            break;
        }
    }
    answers
}
