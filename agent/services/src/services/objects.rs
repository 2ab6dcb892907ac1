//! Application of events: stores objects, and marks the affected services.

use std::sync::Arc;

use k8s_openapi::api::core::v1;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::change::{Event, Object};
use crate::key::ServiceKey;
use crate::problem::Problem;
use crate::service;
use crate::slice::{self, Mark, Slice};

use super::Services;
use super::entry::Entry;
use super::namespace::shared;

/// The Node label with the zone.
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

impl Services {
    /// Applies an event, which takes effect with the next [`Services::sync`]. Returns the object's problems.
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
            // A node that runs without a Node object keeps its zone.
            Event::Deleted(Object::Node(_)) => Vec::new(),
        }
    }

    fn apply_service(&mut self, object: &v1::Service, present: bool) -> Vec<Problem> {
        let Some((namespace, name)) = service::names(object) else {
            return vec![Problem::Nameless { kind: "Service" }];
        };
        let (mut spec, problems) = if present {
            service::read(object, self.strictness)
        } else {
            (None, Vec::new())
        };
        for port in spec.iter_mut().flat_map(|spec| spec.ports.iter_mut()) {
            self.port_names.share(&mut port.name);
        }
        let known = self.entry(namespace, name);
        if known.and_then(|entry| entry.spec.as_ref()) != spec.as_ref() {
            let (key, entry) = self.entry_mut(namespace, name);
            entry.spec = spec;
            self.touched.entry(key).or_default();
        }
        problems
    }

    fn apply_slice(&mut self, object: &EndpointSlice, present: bool) -> Vec<Problem> {
        let Some((namespace, name)) = slice::names(object) else {
            let kind = "EndpointSlice";
            return vec![Problem::Nameless { kind }];
        };
        let owner = slice::owner(object).filter(|_| present);
        let space = self.namespaces.get_mut(namespace);
        let former = space.and_then(|space| {
            let former = space.owners.get(name)?;
            let left = Some(&**former) != owner;
            left.then(|| space.owners.remove_entry(name)).flatten()
        });
        if let Some((name, former)) = former {
            self.hold((namespace, &former), &name, None);
        }
        let Some(owner) = owner else {
            return Vec::new();
        };
        let (mut read, problems) = slice::read(&self.node.name, object);
        if let Some(slice) = &mut read {
            slice.set_zone(self.zone.as_deref());
            for port in slice.ports.iter_mut() {
                self.port_names.share(&mut port.name);
            }
        }
        let slice = read.map(|slice| (slice, Mark::of(object)));
        let space = self.namespaces.get(namespace);
        let name = space.map_or_else(|| name.into(), |space| shared(&space.owners, name));
        let owner = self.hold((namespace, owner), &name, slice);
        let space = self.namespaces.entry(owner.namespace).or_default();
        space.owners.insert(name, owner.name);
        problems
    }

    /// Sets or removes a slice of a Service. Returns the Service's key.
    fn hold(
        &mut self,
        (namespace, owner): (&str, &str),
        name: &Arc<str>,
        slice: Option<(Slice, Mark)>,
    ) -> ServiceKey {
        let (key, entry) = self.entry_mut(namespace, owner);
        let families = entry.hold(name, slice);
        let touched = self.touched.entry(key.clone()).or_default();
        touched[0] |= families[0];
        touched[1] |= families[1];
        key
    }

    /// The entry of a Service, created if needed, and its key with stored names.
    fn entry_mut(&mut self, namespace: &str, name: &str) -> (ServiceKey, &mut Entry) {
        let namespace = shared(&self.namespaces, namespace);
        let space = self.namespaces.entry(Arc::clone(&namespace)).or_default();
        let name = shared(&space.entries, name);
        let entry = space.entries.entry(Arc::clone(&name)).or_default();
        (ServiceKey { namespace, name }, entry)
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
        // The zone changes at most once in a node's life: then all services with hints are updated.
        for (namespace, space) in &mut self.namespaces {
            let hinted = space.entries.iter_mut();
            for (name, entry) in hinted.filter(|(_, entry)| entry.has_zone_hints()) {
                entry.set_zone(self.zone.as_deref());
                let (namespace, name) = (Arc::clone(namespace), Arc::clone(name));
                let key = ServiceKey { namespace, name };
                self.touched.entry(key).or_default();
            }
        }
    }
}
