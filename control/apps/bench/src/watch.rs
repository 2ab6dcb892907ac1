//! What the store shows of a run: when each app's pod was written, and how many pods and sleeping apps there are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dormouse_cluster::client::{KeyRange, Previous, WatchEvent};
use dormouse_cluster::{App, Client, Key, Object};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::app::IMAGES;

/// A part of the JSON of a ready pod's status.
const READY: &str = r#""ready":true"#;
/// A part of the JSON of a pod of a changed template.
const CHANGED: &str = IMAGES[1];
/// A part of the JSON of a sleeping app's status.
const ASLEEP: &str = r#""state":"Asleep""#;

/// Watches the store's pods and apps; ends when it is dropped.
pub(crate) struct Watch {
    seen: Arc<Mutex<Seen>>,
    changed: watch::Receiver<u64>,
    _tasks: JoinSet<()>,
}

/// The state of the store, and when it was seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The first pod of each app.
    first: BTreeMap<Key, Instant>,
    pods: BTreeSet<Key>,
    ready: BTreeSet<Key>,
    /// Ready pods of a changed template.
    changed: BTreeSet<Key>,
    /// Apps with a status that shows them awake or waking.
    awake: BTreeSet<Key>,
    /// The time of the last event.
    last: Option<Instant>,
}

impl Watch {
    /// Starts to watch what happens from now on.
    pub(crate) async fn start(client: &Client) -> Result<Self> {
        let (sender, changed) = watch::channel(0);
        let seen = Arc::new(Mutex::new(Seen::default()));
        let mut tasks = JoinSet::new();
        for prefix in [Pod::PREFIX, App::PREFIX] {
            let (_, revision) = client.range("/registry/dormouse.dev/none/", 0).await?;
            let range = KeyRange::of_prefix(prefix);
            let stream = client.watch(&range, revision, Previous::LeftOut).await?;
            let (seen, sender) = (Arc::clone(&seen), sender.clone());
            tasks.spawn(async move {
                let mut stream = Box::pin(stream);
                while let Some(Ok(events)) = stream.next().await {
                    seen.lock().apply(&events);
                    sender.send_modify(|count| *count += 1);
                }
            });
        }
        Ok(Self {
            seen,
            changed,
            _tasks: tasks,
        })
    }

    /// Waits until this holds. The error states what was awaited and how far it got.
    pub(crate) async fn until(
        &self,
        what: &str,
        limit: Duration,
        holds: impl Fn(&Seen) -> bool,
    ) -> Result<()> {
        let mut changed = self.changed.clone();
        let waiting = async {
            while !holds(&self.seen.lock()) {
                changed.changed().await?;
            }
            anyhow::Ok(())
        };
        let waited = tokio::time::timeout(limit, waiting).await;
        let far = || {
            let seen = self.seen.lock();
            let (pods, ready, awake) = (seen.pods.len(), seen.ready.len(), seen.awake.len());
            format!(
                "not reached within {limit:?}: {what} ({pods} pods, {ready} ready, {awake} apps awake, {} woken)",
                seen.first.len()
            )
        };
        waited.with_context(far)?.context("the watch has ended")
    }

    /// When the first pod of this app was written; none while there is none.
    pub(crate) fn first(&self, app: &Key) -> Option<Instant> {
        self.seen.lock().first.get(app).copied()
    }

    /// The time of the last event.
    pub(crate) fn last(&self) -> Option<Instant> {
        self.seen.lock().last
    }
}

impl Seen {
    /// Whether so many apps have had a pod.
    pub(crate) fn woken(&self, apps: usize) -> bool {
        self.first.len() >= apps
    }

    /// Whether each of these apps has had a pod.
    pub(crate) fn has_first(&self, apps: &[Key]) -> bool {
        apps.iter().all(|app| self.first.contains_key(app))
    }

    /// The number of pods of apps whose names begin like this.
    pub(crate) fn pods_of(&self, stem: &str) -> usize {
        let named = |pod: &&Key| pod.name.starts_with(stem);
        self.pods.iter().filter(named).count()
    }

    /// The number of ready pods.
    pub(crate) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Whether there are so many pods, all ready and of a changed template.
    pub(crate) fn are_replaced(&self, pods: usize) -> bool {
        (self.pods.len(), self.changed.len()) == (pods, pods)
    }

    /// Whether there are no pods, and every app's status shows it asleep.
    pub(crate) fn all_asleep(&self) -> bool {
        self.pods.is_empty() && self.awake.is_empty()
    }

    fn apply(&mut self, events: &[WatchEvent]) {
        let now = Instant::now();
        self.last = Some(now);
        for event in events {
            if let Some(pod) = Pod::parse_path(&event.path) {
                self.pod(pod, event.value.as_deref(), now);
            } else if let Some(app) = App::parse_path(&event.path) {
                let asleep = event
                    .value
                    .as_ref()
                    .is_none_or(|value| contains(value, ASLEEP));
                if asleep {
                    self.awake.remove(&app);
                } else {
                    self.awake.insert(app);
                }
            }
        }
    }

    fn pod(&mut self, pod: Key, value: Option<&[u8]>, now: Instant) {
        let Some(value) = value else {
            self.pods.remove(&pod);
            self.ready.remove(&pod);
            self.changed.remove(&pod);
            return;
        };
        // A pod's name is its app's, a hyphen and a suffix.
        if let Some((app, _)) = pod.name.rsplit_once('-') {
            let app = Key::new(pod.namespace.clone(), app);
            self.first.entry(app).or_insert(now);
        }
        if contains(value, READY) {
            self.ready.insert(pod.clone());
            if contains(value, CHANGED) {
                self.changed.insert(pod.clone());
            }
        }
        self.pods.insert(pod);
    }
}

fn contains(text: &[u8], part: &str) -> bool {
    str::from_utf8(text).is_ok_and(|text| text.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(path: &str, value: Option<&str>) -> WatchEvent {
        WatchEvent {
            path: path.into(),
            value: value.map(Into::into),
            previous: None,
            revision: 1,
        }
    }

    #[test]
    fn pods_and_apps_are_counted_from_their_events() {
        let mut seen = Seen::default();
        let (app, pod) = (
            "/registry/dormouse.dev/apps/t/app-1",
            "/registry/pods/t/app-1-abc",
        );
        seen.apply(&[
            event(pod, Some("{}")),
            event(app, Some(r#"{"state":"Waking"}"#)),
        ]);
        assert!(seen.woken(1) && !seen.woken(2) && !seen.all_asleep());
        assert!(seen.first.contains_key(&Key::new("t", "app-1")));
        seen.apply(&[event(pod, Some(r#"{"ready":true}"#))]);
        assert_eq!(seen.ready(), 1);
        assert!(!seen.are_replaced(1));
        let changed = format!(r#"{{"image":"{CHANGED}","ready":true}}"#);
        seen.apply(&[event(pod, Some(&changed))]);
        assert!(seen.are_replaced(1) && !seen.are_replaced(2));
        seen.apply(&[event(pod, None), event(app, Some(r#"{"state":"Asleep"}"#))]);
        assert!(seen.all_asleep() && seen.woken(1));
    }
}
