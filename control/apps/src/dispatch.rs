//! The dispatcher: passes what arrives to the shards of apps that it concerns, and keeps the [`Inventory`]. Pure.
//!
//! - An event of one VIP goes to its shard; so do changes of an app and of its pods, by the app's VIP. Those of one VIP keep
//!   their order. Outcomes of calls about an app do not come through here, and may be ahead of changes from before them: shards
//!   compare revisions and uids.
//! - The deletion of an app names no VIP and goes to all shards. The API keeps an app's VIP: one of the same name with
//!   another VIP follows a deletion, or is in a list, after which each shard removes the apps that were not in it. Until
//!   the shard of the old VIP has done so both exist, each with its own entry, pods and versions.
//! - A list begins and ends in all shards, and what follows it here follows it in each shard.
//! - What nodes run is decided here alone, in order: a node that connects gets its pods of all shards, and after them each
//!   change. The loss of a node goes to the shards of its pods; a later change of a pod on it is marked.
//! - Between shards there is no other order. No decision about an app reads another app, but for the limits
//!   ([`admission`](crate::admission)), which are exact at any time.

use dormouse_cluster::reflector::Batch;
use dormouse_cluster::{Change as Changed, VipRange, vip};
use dormouse_fleet::root::Event as FleetEvent;

use crate::action::Action;
use crate::event::{Change, Event, Input, ShardEvent};
use crate::inventory::Inventory;
use crate::shards::Shards;
use crate::traffic::family::{Families, Touch};

/// The dispatcher.
#[derive(Debug)]
pub(crate) struct Dispatch {
    inventory: Inventory,
    shards: Shards,
    ranges: Vec<VipRange>,
    families: Families,
    /// Apps to plan after the first list: a plan needs all children of an app.
    touched: Vec<Touch>,
    is_listed: bool,
}

/// What follows from one input: actions about nodes and pods, then events of shards, each with its shard's number.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Dispatched {
    pub(crate) actions: Vec<Action>,
    pub(crate) events: Vec<(usize, ShardEvent)>,
    /// Apps that divide their traffic, which have changed, or a child of them.
    pub(crate) families: Vec<Touch>,
}

impl Dispatch {
    /// No nodes and no pods: a list of the cluster is expected first.
    pub(crate) fn new(shards: Shards, ranges: Vec<VipRange>) -> Self {
        Self {
            inventory: Inventory::default(),
            shards,
            ranges,
            families: Families::default(),
            touched: Vec::new(),
            is_listed: false,
        }
    }

    /// Whether the first list of the cluster is complete. Before it is, only changes may be applied.
    pub(crate) fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// Handles one input.
    pub(crate) fn apply(&mut self, input: Input) -> Dispatched {
        let mut out = Dispatched::default();
        match input {
            Input::Changes(batch) => self.changes(batch, &mut out),
            Input::Fleet(event) => self.fleet(event, &mut out),
            Input::Load(loads) => {
                self.split(loads, |load| load.vip, ShardEvent::Load, &mut out);
            }
            Input::StatusWritten { pod } => {
                self.inventory.status_written(&pod, &mut out.actions);
            }
            Input::NodeWritten { node } => self.inventory.node_written(&node, &mut out.actions),
            Input::NodesOverdue => {
                for node in self.inventory.overdue() {
                    self.node_down(node, &mut out);
                }
            }
            Input::App(event) => out.events.push(self.of_app(event)),
        }
        out
    }

    fn changes(&mut self, batch: Batch, out: &mut Dispatched) {
        let mut parts = vec![Vec::new(); self.shards.count()];
        for (revision, change) in batch {
            match change {
                Changed::Node(key, node) => self.inventory.node(key.name, node.as_deref()),
                Changed::Pod(key, pod) => {
                    if let Some(change) = self.inventory.pod(key, pod, &mut out.actions) {
                        let part = &mut parts[self.shards.of(change.vip)];
                        part.push((revision, Change::Pod(change)));
                    }
                }
                Changed::App(key, Some(app)) => {
                    self.touched.extend(self.families.changed(&key, &app));
                    let vip = app.vip.and_then(|vip| vip::index_of(&self.ranges, vip));
                    let Some(vip) = vip else {
                        let vip = app.vip.map(tracing::field::display);
                        tracing::warn!(app = %key, vip, "the app's VIP is in no VIP range: the app is ignored");
                        continue;
                    };
                    let part = &mut parts[self.shards.of(vip.0)];
                    part.push((revision, Change::App(key, vip.0, app)));
                }
                Changed::App(key, None) => {
                    self.touched.extend(self.families.deleted(&key));
                    to_all(&mut parts, revision, &Change::Deleted(key));
                }
                Changed::Listing => {
                    self.families.listing();
                    to_all(&mut parts, revision, &Change::Listing);
                }
                Changed::Listed => {
                    self.touched.extend(self.families.listed());
                    self.is_listed = true;
                    to_all(&mut parts, revision, &Change::Listed);
                }
            }
        }
        out.events.extend(events(parts, ShardEvent::Changes));
        if self.is_listed {
            out.families.append(&mut self.touched);
        }
    }

    fn fleet(&mut self, event: FleetEvent, out: &mut Dispatched) {
        match event {
            FleetEvent::Woke {
                node,
                vip,
                at,
                port,
                protocol,
            } => {
                let woke = Event::Woke {
                    vip,
                    node,
                    at,
                    port,
                    protocol,
                };
                out.events.push(self.of_app(woke));
            }
            FleetEvent::Wanted { vips } => {
                self.split(vips, |vip| *vip, ShardEvent::Wanted, out);
            }
            FleetEvent::Counts { counts, .. } => {
                self.split(counts, |count| count.vip, ShardEvent::Counts, out);
            }
            FleetEvent::Settled { vip, version } => {
                out.events
                    .push(self.of_app(Event::Settled { vip, version }));
            }
            FleetEvent::Pod { node, status } => {
                let staged = self.inventory.reported(node, status, &mut out.actions);
                out.events.extend(staged.map(|event| self.of_app(event)));
            }
            FleetEvent::NodeUp {
                node,
                status,
                boot_id,
            } => self
                .inventory
                .node_up(node, status, boot_id, &mut out.actions),
            FleetEvent::NodeDown { node } => self.node_down(node, out),
        }
    }

    fn node_down(&mut self, node: String, out: &mut Dispatched) {
        let pods = self.inventory.node_down(node, &mut out.actions);
        self.split(pods, |(vip, _)| *vip, ShardEvent::PodsLost, out);
    }

    fn of_app(&self, event: Event) -> (usize, ShardEvent) {
        (self.shards.of(event.vip()), ShardEvent::App(event))
    }

    /// One event for each shard that has items.
    fn split<T>(
        &self,
        items: Vec<T>,
        vip_of: impl Fn(&T) -> u32,
        event: impl Fn(Vec<T>) -> ShardEvent,
        out: &mut Dispatched,
    ) {
        let mut parts: Vec<Vec<T>> = (0..self.shards.count()).map(|_| Vec::new()).collect();
        for item in items {
            parts[self.shards.of(vip_of(&item))].push(item);
        }
        out.events.extend(events(parts, event));
    }
}

/// One event for each shard whose part is not empty.
fn events<T>(
    parts: Vec<Vec<T>>,
    event: impl Fn(Vec<T>) -> ShardEvent,
) -> impl Iterator<Item = (usize, ShardEvent)> {
    let parts = parts.into_iter().enumerate();
    let parts = parts.filter(|(_, part)| !part.is_empty());
    parts.map(move |(shard, part)| (shard, event(part)))
}

fn to_all(parts: &mut [Vec<(u64, Change)>], revision: u64, change: &Change) {
    for part in parts {
        part.push((revision, change.clone()));
    }
}

#[cfg(test)]
mod tests;
