//! Takes objects in, and notes which services they touch.

use k8s_openapi::api::core::v1;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::change::{Event, Object};
use crate::key::ServiceKey;
use crate::problem::Problem;
use crate::service;
use crate::slice::{self, Mark, Slice};

use super::{Services, SliceName};

/// The label of a node that names its zone.
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

impl Services {
    /// Takes an event in; it is in force after the next [`Services::sync`]. Says what is wrong with the object.
    pub fn apply(&mut self, event: &Event<'_>) -> Vec<Problem> {
        match *event {
            Event::Applied(Object::Service(service)) => self.apply_service(service, true),
            Event::Deleted(Object::Service(service)) => self.apply_service(service, false),
            Event::Applied(Object::EndpointSlice(slice)) => self.apply_slice(slice, true),
            Event::Deleted(Object::EndpointSlice(slice)) => self.apply_slice(slice, false),
            Event::Applied(Object::Node(node)) => {
                self.apply_node(node);
                Vec::new()
            }
            // A node that still runs without its object keeps the zone it had.
            Event::Deleted(Object::Node(_)) => Vec::new(),
        }
    }

    fn apply_service(&mut self, object: &v1::Service, present: bool) -> Vec<Problem> {
        let Some(key) = service::key(object) else {
            return vec![Problem::Nameless { kind: "Service" }];
        };
        let (spec, problems) = if present {
            service::read(&key, object, self.strictness)
        } else {
            (None, Vec::new())
        };
        let known = self.entries.get(&key).and_then(|entry| entry.spec.as_ref());
        if known != spec.as_ref() {
            self.entries.entry(key.clone()).or_default().spec = spec;
            self.touched.entry(key).or_default();
        }
        problems
    }

    fn apply_slice(&mut self, object: &EndpointSlice, present: bool) -> Vec<Problem> {
        let Some((namespace, name)) = slice::names(object) else {
            let kind = "EndpointSlice";
            return vec![Problem::Nameless { kind }];
        };
        let id: SliceName = (namespace.into(), name.into());
        let owner = slice::owner(namespace, object).filter(|_| present);
        let former = self
            .owners
            .get(&id)
            .filter(|former| Some(*former) != owner.as_ref());
        if let Some(former) = former.cloned() {
            self.hold(&former, &id.1, None);
            self.owners.remove(&id);
        }
        let Some(owner) = owner else {
            return Vec::new();
        };
        let (read, problems) = slice::read(&self.node.name, object);
        self.hold(&owner, &id.1, read.map(|slice| (slice, Mark::of(object))));
        self.owners.insert(id, owner);
        problems
    }

    /// Puts a slice under a service, or takes it away.
    fn hold(&mut self, owner: &ServiceKey, name: &str, slice: Option<(Slice, Mark)>) {
        let entry = self.entries.entry(owner.clone()).or_default();
        let families = entry.hold(name, slice);
        let touched = self.touched.entry(owner.clone()).or_default();
        touched[0] |= families[0];
        touched[1] |= families[1];
    }

    fn apply_node(&mut self, object: &v1::Node) {
        if object.metadata.name.as_deref() != Some(self.node.name.as_str()) {
            return;
        }
        let labels = object.metadata.labels.as_ref();
        let zone = labels.and_then(|labels| labels.get(ZONE_LABEL));
        let zone = zone.filter(|zone| !zone.is_empty());
        if self.zone.as_deref() == zone.map(String::as_str) {
            return;
        }
        self.zone = zone.map(|zone| zone.as_str().into());
        // A node changes its zone once in its life: then every service with hints is looked at.
        for (key, entry) in &self.entries {
            if entry.has_zone_hints() {
                self.touched.entry(key.clone()).or_default();
            }
        }
    }
}
