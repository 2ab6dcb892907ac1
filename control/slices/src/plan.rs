//! The writes that bring a Service's slices to the endpoints that it should have: as few as possible, since every node reads each. An
//! endpoint stays in its slice. Pure.

use std::collections::HashMap;

use dormouse_cluster::service::IpFamily;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::endpoints::Group;
use crate::service::Selecting;

/// Endpoints of one slice; the default of Kubernetes' controller.
pub const ENDPOINTS_MAX: usize = 100;

/// A write of one slice.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Stores a new slice, whose name is not chosen yet.
    Create(EndpointSlice),
    /// Stores a slice in place of the one with its resource version.
    Update(EndpointSlice),
    /// Removes a slice, unless it has another resource version by now.
    Delete(EndpointSlice),
}

/// An existing slice, and what is to become of it.
struct Slice {
    stored: EndpointSlice,
    endpoints: Vec<Endpoint>,
    changed: bool,
}

/// The writes after which `existing` slices of a Service have the endpoints of `groups`.
pub fn plan(service: &Selecting, groups: Vec<Group>, existing: Vec<EndpointSlice>) -> Vec<Action> {
    let mut rest = existing;
    let mut actions = Vec::new();
    for group in groups {
        let is_of_group = |slice: &EndpointSlice| is_of(slice, group.family, &group.ports);
        let (own, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(is_of_group);
        rest = others;
        fill(service, &group, own, &mut actions);
    }
    actions.extend(rest.into_iter().map(Action::Delete));
    actions
}

/// Whether a slice is for endpoints of this family with these ports.
fn is_of(slice: &EndpointSlice, family: IpFamily, ports: &[EndpointPort]) -> bool {
    let mut own = slice.ports.clone().unwrap_or_default();
    own.sort_by(|a, b| a.name.cmp(&b.name));
    slice.address_type == family.as_str() && own == ports
}

/// What an endpoint keeps over changes of its state: its pod's name and uid, and its address.
type Identity<'a> = (Option<&'a str>, Option<&'a str>, Option<&'a str>);

fn identity(endpoint: &Endpoint) -> Identity<'_> {
    let target = endpoint.target_ref.as_ref();
    let name = target.and_then(|target| target.name.as_deref());
    let uid = target.and_then(|target| target.uid.as_deref());
    (name, uid, endpoint.addresses.first().map(String::as_str))
}

/// Brings the slices of one group to its endpoints.
fn fill(service: &Selecting, group: &Group, slices: Vec<EndpointSlice>, actions: &mut Vec<Action>) {
    let wanted = Wanted::new(&group.endpoints);
    let mut is_kept = vec![false; group.endpoints.len()];
    let kept = slices
        .into_iter()
        .map(|slice| keep(service, slice, &wanted, &mut is_kept));
    let mut slices: Vec<Slice> = kept.collect();
    let all = group.endpoints.iter().zip(is_kept);
    let new = all.filter_map(|(endpoint, is_kept)| (!is_kept).then_some(endpoint));
    let mut new: Vec<Endpoint> = new.cloned().collect();
    // Slices that are written anyhow have room first.
    for slice in slices.iter_mut().filter(|slice| slice.changed) {
        let room = ENDPOINTS_MAX - slice.endpoints.len();
        slice.endpoints.extend(new.drain(..room.min(new.len())));
    }
    let mut made: Vec<Vec<Endpoint>> = Vec::new();
    while new.len() >= ENDPOINTS_MAX {
        made.push(new.drain(..ENDPOINTS_MAX).collect());
    }
    if !new.is_empty() {
        let mut room: Vec<&mut Slice> = slices.iter_mut().filter(|slice| !slice.changed).collect();
        room.retain(|slice| slice.endpoints.len() + new.len() <= ENDPOINTS_MAX);
        match room.into_iter().max_by_key(|slice| slice.endpoints.len()) {
            Some(slice) => {
                slice.endpoints.append(&mut new);
                slice.changed = true;
            }
            None => made.push(new),
        }
    }
    // A Service without endpoints has one empty slice, which shows it.
    let mut needs_empty = group.endpoints.is_empty();
    for slice in slices {
        if slice.endpoints.is_empty() && !std::mem::take(&mut needs_empty) {
            actions.push(Action::Delete(slice.stored));
        } else if slice.changed {
            actions.push(Action::Update(written(service, slice)));
        }
    }
    if needs_empty {
        made.push(Vec::new());
    }
    actions.extend(
        made.into_iter()
            .map(|endpoints| Action::Create(created(service, group, endpoints))),
    );
}

/// The endpoints that a group should have, by identity.
struct Wanted<'a> {
    endpoints: &'a [Endpoint],
    places: HashMap<Identity<'a>, usize>,
}

impl<'a> Wanted<'a> {
    fn new(endpoints: &'a [Endpoint]) -> Self {
        let places = endpoints.iter().enumerate();
        Self {
            endpoints,
            places: places.map(|(place, one)| (identity(one), place)).collect(),
        }
    }
}

/// The slice with those of its endpoints that are wanted and in no other slice, as they are wanted; marks them as kept.
fn keep(
    service: &Selecting,
    stored: EndpointSlice,
    wanted: &Wanted<'_>,
    is_kept: &mut [bool],
) -> Slice {
    let before = stored.endpoints.as_deref().unwrap_or_default();
    let places = before
        .iter()
        .filter_map(|one| wanted.places.get(&identity(one)));
    let first = places.filter(|place| !std::mem::replace(&mut is_kept[**place], true));
    let first = first
        .take(ENDPOINTS_MAX)
        .map(|place| wanted.endpoints[*place].clone());
    let endpoints: Vec<Endpoint> = first.collect();
    let meta = &stored.metadata;
    let owners = meta.owner_references.as_deref().unwrap_or_default();
    let changed = endpoints != before
        || meta.labels.as_ref() != Some(&service.labels)
        || owners != std::slice::from_ref(&service.owner);
    Slice {
        stored,
        endpoints,
        changed,
    }
}

fn written(service: &Selecting, slice: Slice) -> EndpointSlice {
    let mut written = slice.stored;
    written.metadata.labels = Some(service.labels.clone());
    written.metadata.owner_references = Some(vec![service.owner.clone()]);
    written.metadata.generation = written.metadata.generation.map(|number| number + 1);
    written.endpoints = Some(slice.endpoints);
    written
}

fn created(service: &Selecting, group: &Group, endpoints: Vec<Endpoint>) -> EndpointSlice {
    EndpointSlice {
        metadata: ObjectMeta {
            labels: Some(service.labels.clone()),
            owner_references: Some(vec![service.owner.clone()]),
            generation: Some(1),
            ..ObjectMeta::default()
        },
        address_type: group.family.as_str().to_owned(),
        ports: Some(group.ports.clone()),
        endpoints: Some(endpoints),
    }
}
