//! Streams of responses: watches, the leaders of an election, a snapshot.

use std::time::Duration;

use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use prost_reflect::DynamicMessage;
use serde_json::{Value, json};
use tokio::time::Instant;
use tonic::Status;

use super::{CALL_TIMEOUT, Run, calls::answer};
use crate::{
    messages::{self, decode, encode},
    rpc,
    watching::WatchStream,
};

/// Time after the expected responses in which no further one may follow.
const QUIET: Duration = Duration::from_millis(300);

/// The responses of `Election/Observe`.
pub(super) type Observation = BoxStream<'static, Result<DynamicMessage, Status>>;

impl Run {
    pub(super) async fn watch(&mut self, label: &str, step: &Value) {
        let name = step["watch"].as_str().unwrap().to_owned();
        if !self.watches.contains_key(&name) {
            let (channel, meta) = (self.channel(step).await, self.meta(step));
            let stream = WatchStream::open(&channel, &meta).await;
            self.watches.insert(name.clone(), stream);
        }
        let stream = self.watches.get_mut(&name).unwrap();
        let checks = stream.step(step, &self.vars).await;
        if stream.is_closed() {
            self.watches.remove(&name);
        }
        for check in checks {
            let label = format!("{label} watch {name} {}", check.label);
            self.compare(&label, &check.expected, &check.got);
        }
    }

    /// A stream of responses to one request.
    async fn responses(&mut self, step: &Value, rpc: &str) -> Observation {
        let Some(method) = messages::method(rpc) else {
            let missing = Status::unimplemented(format!("the .proto files have no {rpc}"));
            return stream::iter([Err(missing)]).boxed();
        };
        let empty = json!({});
        let request = step.get("req").unwrap_or(&empty);
        let request = encode(request, &method.input(), &self.vars);
        let (channel, meta) = (self.channel(step).await, self.meta(step));
        // The call starts only when the server answers with its first response or its headers.
        let call = async move {
            match rpc::stream(&channel, &method, stream::iter([request]), &meta).await {
                Ok(responses) => responses,
                Err(status) => stream::iter([Err(status)]).boxed(),
            }
        };
        call.await
    }

    /// Opens `Election/Observe`, or compares its next responses.
    pub(super) async fn observe(&mut self, label: &str, step: &Value) {
        let name = step["observe"].as_str().unwrap();
        let Some(count) = step["count"].as_u64() else {
            let observation = self.responses(step, "Election/Observe").await;
            self.observations.insert(name.into(), observation);
            return;
        };
        let observation = self.observations.get_mut(name).unwrap();
        let got = received(observation, usize::try_from(count).unwrap()).await;
        self.compare(
            &format!("{label} observe {name}"),
            &step["got"],
            &json!(got),
        );
    }

    /// `Maintenance/Snapshot`: at least one byte, and nothing remains at the end.
    pub(super) async fn snapshot(&mut self, label: &str, step: &Value) {
        let mut responses = self.responses(step, "Maintenance/Snapshot").await;
        let mut got = json!({"bytes": false, "remaining_bytes": null});
        while let Ok(Some(response)) = tokio::time::timeout(CALL_TIMEOUT, responses.next()).await {
            let response = answer(response.map(|message| decode(&message)));
            if let Some(error) = response.get("err") {
                got["err"] = error.clone();
                break;
            }
            got["bytes"] = json!(got["bytes"] == true || response.get("blob").is_some());
            got["remaining_bytes"] = json!(response["remaining_bytes"].as_u64().unwrap_or(0));
        }
        let whole = json!({"bytes": true, "remaining_bytes": 0});
        self.compare(&format!("{label} snapshot"), &whole, &got);
    }
}

/// The next responses: as many as expected, and those that follow within [`QUIET`].
async fn received(observation: &mut Observation, count: usize) -> Vec<Value> {
    let mut got = Vec::new();
    let mut deadline = Instant::now() + if count == 0 { QUIET } else { CALL_TIMEOUT };
    while let Ok(Some(response)) = tokio::time::timeout_at(deadline, observation.next()).await {
        got.push(answer(response.map(|message| decode(&message))));
        if got.len() >= count {
            deadline = Instant::now() + QUIET;
        }
    }
    got
}
