//! The store of the simulation: objects, one revision for each write, the log that controls watch, and the epoch.

use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse_cluster::{App, AppSpec, Change, Key, Object, Revision, StoredApp, history};
use dormouse_fleet::Boottime;
use k8s_openapi::api::core::v1::{Node, Pod};

/// A write, as watches get it.
pub(super) struct Written {
    pub(super) at: Boottime,
    pub(super) revision: u64,
    pub(super) change: Change,
}

#[derive(Default)]
pub(super) struct Store {
    revision: u64,
    /// The newest control's epoch.
    pub(super) epoch: u64,
    pub(super) apps: BTreeMap<Key, App>,
    pub(super) revisions: BTreeMap<Key, Revision>,
    pub(super) pods: BTreeMap<Key, Arc<Pod>>,
    pub(super) nodes: BTreeMap<Key, Node>,
    pub(super) log: Vec<Written>,
}

impl Store {
    fn written(&mut self, at: Boottime, change: Change) -> u64 {
        let revision = self.revision;
        self.log.push(Written {
            at,
            revision,
            change,
        });
        revision
    }

    fn next(&mut self) -> u64 {
        self.revision += 1;
        self.revision
    }

    /// Creates an app or writes another manifest.
    pub(super) fn configure(&mut self, at: Boottime, name: &str, spec: AppSpec) {
        let key = Key::new("default", name);
        let uid = format!("uid-{}", self.revision + 1);
        let app = self.apps.entry(key.clone()).or_insert_with(|| {
            let mut app = App::new(name, spec.clone());
            app.metadata.namespace = Some("default".into());
            app.metadata.uid = Some(uid);
            app
        });
        let old = app.clone();
        app.spec = spec;
        if old.spec.template() != app.spec.template() {
            let known = self.revisions.values();
            let known: Vec<_> = known.filter(|one| one.spec.app == name).cloned().collect();
            let change = history::change(&old, app.clone(), &known);
            *app = change.app;
            let written = change.written.into_iter();
            self.revisions.extend(written.map(|one| (one.key(), one)));
        }
        self.app_written(at, &key);
    }

    /// Writes an app's status; returns the revision. None: there is no such app.
    pub(super) fn write_status(
        &mut self,
        at: Boottime,
        key: &Key,
        write: impl FnOnce(&mut App),
    ) -> Option<u64> {
        write(self.apps.get_mut(key)?);
        Some(self.app_written(at, key))
    }

    fn app_written(&mut self, at: Boottime, key: &Key) -> u64 {
        let revision = self.next();
        let app = self.apps.get_mut(key).unwrap();
        app.metadata.resource_version = Some(revision.to_string());
        let stored = Some(Box::new(stored(app)));
        self.written(at, Change::App(key.clone(), stored))
    }

    pub(super) fn remove_app(&mut self, at: Boottime, key: &Key) {
        if self.apps.remove(key).is_some() {
            self.revisions.retain(|_, one| one.spec.app != key.name);
            self.next();
            self.written(at, Change::App(key.clone(), None));
        }
    }

    /// Creates a pod; false: one of its name exists.
    pub(super) fn create_pod(&mut self, at: Boottime, pod: Pod) -> bool {
        let key = pod.key();
        if self.pods.contains_key(&key) {
            return false;
        }
        self.pod_written(at, key, pod);
        true
    }

    /// Changes a pod, if it exists and the change changes anything.
    pub(super) fn change_pod(
        &mut self,
        at: Boottime,
        key: &Key,
        change: impl FnOnce(&mut Pod) -> bool,
    ) {
        let Some(pod) = self.pods.get(key) else {
            return;
        };
        let mut pod = Pod::clone(pod);
        if change(&mut pod) {
            self.pod_written(at, key.clone(), pod);
        }
    }

    fn pod_written(&mut self, at: Boottime, key: Key, pod: Pod) {
        self.next();
        let pod = Arc::new(pod);
        self.pods.insert(key.clone(), Arc::clone(&pod));
        self.written(at, Change::Pod(key, Some(pod)));
    }

    pub(super) fn delete_pod(&mut self, at: Boottime, key: &Key) {
        if self.pods.remove(key).is_some() {
            self.next();
            self.written(at, Change::Pod(key.clone(), None));
        }
    }

    pub(super) fn change_node(
        &mut self,
        at: Boottime,
        name: &str,
        change: impl FnOnce(&mut Node) -> bool,
    ) {
        let key = Key::cluster_scoped(name);
        let mut node = self.nodes.get(&key).cloned().unwrap_or_default();
        if change(&mut node) {
            self.next();
            self.nodes.insert(key.clone(), node.clone());
            self.written(at, Change::Node(key, Some(Arc::new(node))));
        }
    }

    /// A list of the cluster, and the place in the log from which a watch continues.
    pub(super) fn list(&self) -> (Vec<(u64, Change)>, usize) {
        let apps = self.apps.iter().map(|(key, app)| {
            let stored = Some(Box::new(stored(app)));
            (app.revision(), Change::App(key.clone(), stored))
        });
        let pods = self.pods.iter().map(|(key, pod)| {
            let pod = Some(Arc::clone(pod));
            (self.revision, Change::Pod(key.clone(), pod))
        });
        let nodes = self.nodes.iter().map(|(key, node)| {
            let node = Some(Arc::new(node.clone()));
            (self.revision, Change::Node(key.clone(), node))
        });
        let mut all = vec![(self.revision, Change::Listing)];
        all.extend(nodes.chain(apps).chain(pods));
        all.push((self.revision, Change::Listed));
        (all, self.log.len())
    }
}

/// An app as watches get it.
fn stored(app: &App) -> StoredApp {
    StoredApp::decode(serde_json::to_vec(app).unwrap(), app.revision()).unwrap()
}
