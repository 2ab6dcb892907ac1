//! The Services, pods, nodes and slices of the cluster, and the Services whose slices may have to change. Pure.

use std::collections::{BTreeSet, HashMap, HashSet};

use dormouse_cluster::Key;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::endpoints::groups;
use crate::plan::{Action, plan};
use crate::pod::Member;
use crate::service::{MANAGED_BY, MANAGER, SERVICE_NAME, Selecting};

/// The label of a node with its zone.
const ZONE: &str = "topology.kubernetes.io/zone";

/// A label of pods in a namespace: namespace, name and value.
type Label = (String, String, String);

/// What is known of the cluster.
#[derive(Debug, Default)]
pub struct State {
    /// The Services; of one without a selector only that it exists.
    services: HashMap<Key, Option<Selecting>>,
    /// The Services by one label that they select.
    selecting: HashMap<Label, HashSet<Key>>,
    pods: HashMap<Key, Member>,
    /// The pods by each of their labels.
    labelled: HashMap<Label, HashSet<Key>>,
    /// The pods by their nodes.
    placed: HashMap<String, HashSet<Key>>,
    zones: HashMap<String, String>,
    /// The slices that this writer manages, by Service.
    slices: HashMap<Key, HashMap<String, EndpointSlice>>,
    /// The Service of each such slice.
    owners: HashMap<Key, Key>,
    /// Services whose slices may have to change.
    dirty: BTreeSet<Key>,
}

impl State {
    /// Takes the new state of a Service; none: it is deleted.
    pub fn service(&mut self, key: Key, service: Option<&Service>) {
        let new = service.map(Selecting::of);
        if self.services.get(&key) == new.as_ref() {
            return;
        }
        let old = match new {
            Some(new) => {
                let label = new.as_ref().and_then(|new| chosen(&key, new));
                let old = self.services.insert(key.clone(), new);
                if let Some(label) = label {
                    self.selecting.entry(label).or_default().insert(key.clone());
                }
                old
            }
            None => self.services.remove(&key),
        };
        if let Some(old) = old.flatten().and_then(|old| chosen(&key, &old)) {
            let now = self.services.get(&key).and_then(Option::as_ref);
            if now.and_then(|now| chosen(&key, now)).as_ref() != Some(&old) {
                remove(&mut self.selecting, &old, &key);
            }
        }
        self.dirty.insert(key);
    }

    /// Takes the new state of a pod; none: it is deleted.
    pub fn pod(&mut self, key: Key, pod: Option<&Pod>) {
        let new = pod.and_then(Member::of);
        if self.pods.get(&key) == new.as_ref() {
            return;
        }
        if let Some(old) = self.pods.remove(&key) {
            self.touch(&key, &old);
            for label in labels(&key, &old) {
                remove(&mut self.labelled, &label, &key);
            }
            if let Some(node) = &old.node {
                remove(&mut self.placed, node, &key);
            }
        }
        if let Some(new) = new {
            self.touch(&key, &new);
            for label in labels(&key, &new) {
                self.labelled.entry(label).or_default().insert(key.clone());
            }
            if let Some(node) = &new.node {
                self.placed
                    .entry(node.clone())
                    .or_default()
                    .insert(key.clone());
            }
            self.pods.insert(key, new);
        }
    }

    /// Takes the new state of a node; none: it is deleted.
    pub fn node(&mut self, name: &str, node: Option<&Node>) {
        let labels = node.and_then(|node| node.metadata.labels.as_ref());
        let zone = labels.and_then(|labels| labels.get(ZONE)).cloned();
        let old = match &zone {
            Some(zone) => self.zones.insert(name.to_owned(), zone.clone()),
            None => self.zones.remove(name),
        };
        if old == zone {
            return;
        }
        let pods = self.placed.get(name).into_iter().flatten();
        let pods: Vec<(Key, Member)> = pods
            .filter_map(|key| Some((key.clone(), self.pods.get(key)?.clone())))
            .collect();
        for (key, pod) in pods {
            self.touch(&key, &pod);
        }
    }

    /// Takes the new state of a slice; none: it is deleted. Slices of other writers do not count.
    pub fn slice(&mut self, key: &Key, slice: Option<EndpointSlice>) {
        if let Some(owner) = self.owners.remove(key) {
            if let Some(slices) = self.slices.get_mut(&owner) {
                slices.remove(&key.name);
                if slices.is_empty() {
                    self.slices.remove(&owner);
                }
            }
            self.dirty.insert(owner);
        }
        let Some(slice) = slice else { return };
        let Some(owner) = service_of(key, &slice) else {
            return;
        };
        self.owners.insert(key.clone(), owner.clone());
        self.dirty.insert(owner.clone());
        let slices = self.slices.entry(owner).or_default();
        slices.insert(key.name.clone(), slice);
    }

    /// The Services whose slices may have to change; they are not named again before a further change.
    pub fn take_dirty(&mut self) -> BTreeSet<Key> {
        std::mem::take(&mut self.dirty)
    }

    /// Names Services again.
    pub fn put_back(&mut self, services: impl IntoIterator<Item = Key>) {
        self.dirty.extend(services);
    }

    /// The writes that bring a Service's slices to its endpoints.
    pub fn plan(&self, key: &Key) -> Vec<Action> {
        let slices = self.slices.get(key).into_iter().flat_map(HashMap::values);
        let mut slices: Vec<EndpointSlice> = slices.cloned().collect();
        slices.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        match self.services.get(key) {
            None => slices.into_iter().map(Action::Delete).collect(),
            Some(None) => Vec::new(),
            Some(Some(service)) => {
                let groups = groups(service, self.selected(key, service), |node| {
                    self.zones.get(node).cloned()
                });
                plan(service, groups, slices)
            }
        }
    }

    /// The pods that a Service selects, found by the label of its that the fewest have.
    fn selected(&self, key: &Key, service: &Selecting) -> impl Iterator<Item = (&Key, &Member)> {
        let with = |(name, value): (&String, &String)| {
            let label = (key.namespace.clone(), name.clone(), value.clone());
            self.labelled.get(&label)
        };
        let sets: Option<Vec<_>> = service.selector.iter().map(with).collect();
        let fewest = sets.and_then(|sets| sets.into_iter().min_by_key(|set| set.len()));
        let pods = fewest.into_iter().flatten();
        let pods = pods.filter_map(|key| Some((key, self.pods.get(key)?)));
        pods.filter(|(_, pod)| service.selects(&pod.labels))
    }

    /// The slices of the Services that select a pod may have to change.
    fn touch(&mut self, key: &Key, pod: &Member) {
        for label in labels(key, pod) {
            for service in self.selecting.get(&label).into_iter().flatten() {
                let selecting = self.services.get(service).and_then(Option::as_ref);
                if selecting.is_some_and(|selecting| selecting.selects(&pod.labels)) {
                    self.dirty.insert(service.clone());
                }
            }
        }
    }
}

/// The label by which the pods of a Service find it.
fn chosen(key: &Key, service: &Selecting) -> Option<Label> {
    let (name, value) = service.selector.first_key_value()?;
    Some((key.namespace.clone(), name.clone(), value.clone()))
}

fn labels<'a>(key: &'a Key, pod: &'a Member) -> impl Iterator<Item = Label> + use<'a> {
    let labels = pod.labels.iter();
    labels.map(|(name, value)| (key.namespace.clone(), name.clone(), value.clone()))
}

fn remove<K: std::hash::Hash + Eq>(sets: &mut HashMap<K, HashSet<Key>>, of: &K, key: &Key) {
    if let Some(set) = sets.get_mut(of) {
        set.remove(key);
        if set.is_empty() {
            sets.remove(of);
        }
    }
}

/// The Service of a slice that this writer manages.
fn service_of(key: &Key, slice: &EndpointSlice) -> Option<Key> {
    let labels = slice.metadata.labels.as_ref()?;
    let is_managed = labels.get(MANAGED_BY).is_some_and(|by| by == MANAGER);
    let service = labels.get(SERVICE_NAME).filter(|_| is_managed)?;
    Some(Key::new(key.namespace.clone(), service))
}

#[cfg(test)]
mod tests;
