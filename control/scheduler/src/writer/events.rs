//! Events, which are recorded beside the writes that they are about: a binding does not wait for its event.

use std::sync::Arc;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::mpsc;

use super::{Occurred, Target};
use crate::metrics::Metrics;

/// Events that wait to be recorded; further ones are dropped. kube-scheduler's recorder has as many.
const EVENTS_MAX: usize = 1_000;
/// Events that are being recorded.
const WRITES_MAX: usize = 8;

/// The queue of events.
#[derive(Clone)]
pub(super) struct Events {
    queue: mpsc::Sender<(Arc<Pod>, Occurred)>,
    metrics: Metrics,
}

impl Events {
    /// Records events until all clones are dropped.
    pub(super) fn start(target: Target, metrics: Metrics) -> Self {
        let (queue, events) = mpsc::channel(EVENTS_MAX);
        tokio::spawn(record_all(target, events));
        Self { queue, metrics }
    }

    /// Queues an event, if there is room.
    pub(super) fn record(&self, about: Arc<Pod>, occurred: Occurred) {
        if self.queue.try_send((about, occurred)).is_err() {
            self.metrics.event_dropped();
        }
    }
}

async fn record_all(target: Target, events: mpsc::Receiver<(Arc<Pod>, Occurred)>) {
    let events = stream::unfold(events, async |mut events| {
        let event = events.recv().await?;
        Some((event, events))
    });
    let record = |(about, occurred): (Arc<Pod>, Occurred)| {
        let target = target.clone();
        async move { target.record(&about, &occurred).await }
    };
    events.for_each_concurrent(WRITES_MAX, record).await;
}
