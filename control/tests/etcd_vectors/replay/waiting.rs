//! Calls that wait for an event (locks, elections) while further steps run.

use std::{collections::HashMap, time::Duration};

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tonic::Status;

use super::{Run, calls::answer, expected};

/// Calls in flight, by their name in the vectors.
pub(super) type Calls = HashMap<String, JoinHandle<Result<Value, Status>>>;

impl Run {
    pub(super) async fn start(&mut self, name: &str, step: &Value) {
        let call = self.invocation(step, "rpc").await;
        self.calls.insert(name.into(), tokio::spawn(call));
    }

    /// The call must not return for some milliseconds.
    pub(super) async fn pending(&mut self, label: &str, name: &str, step: &Value) {
        let ms = Duration::from_millis(step["ms"].as_u64().unwrap());
        let mut got = json!("returned before");
        if let Some(mut call) = self.calls.remove(name) {
            let returned = tokio::time::timeout(ms, &mut call).await.ok();
            if returned.is_none() {
                self.calls.insert(name.into(), call);
            }
            got = returned.map_or(json!("pending"), |response| answer(response.unwrap()));
        }
        self.compare(&format!("{label} {name}"), &json!("pending"), &got);
    }

    /// The call's answer; none if a `pending` step found the call returned.
    pub(super) async fn wait(&mut self, label: &str, name: &str, step: &Value) {
        let got = match self.calls.remove(name) {
            Some(call) => answer(call.await.unwrap()),
            None => json!("returned before"),
        };
        self.compare(&format!("{label} {name}"), &expected(step), &got);
    }

    /// Cancels the call; its stream is reset when its task has ended.
    pub(super) async fn cancel(&mut self, name: &str) {
        if let Some(call) = self.calls.remove(name) {
            call.abort();
            // A call that returned just before is of no interest either.
            let _ = call.await;
        }
    }
}
