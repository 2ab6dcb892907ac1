//! Members by their Leases: each change of them makes a view, in which nodes go to their shards.

use std::collections::BTreeSet;
use std::time::Duration;

use super::Leader;
use super::streams::Stream;
use crate::message::Message;
use crate::view::{Epoch, Member, View};

/// A Lease.
pub(super) struct Lease {
    member: Member,
    is_shard: bool,
    renewed_at: Duration,
}

impl Leader {
    /// The Lease of a relay.
    pub fn set_relay(&mut self, relay: Member, now: Duration) {
        self.set_lease(relay, false, now);
    }

    /// The Lease of a shard.
    pub fn set_shard(&mut self, shard: Member, now: Duration) {
        self.set_lease(shard, true, now);
    }

    /// An earlier incarnation may be read after a later one.
    fn set_lease(&mut self, member: Member, is_shard: bool, now: Duration) {
        let known = self.leases.get(&member.name);
        if known.is_some_and(|known| known.member.incarnation > member.incarnation) {
            return;
        }
        let is_new = known.is_none_or(|known| known.member != member);
        let lease = Lease {
            member: member.clone(),
            is_shard,
            renewed_at: now,
        };
        self.leases.insert(member.name, lease);
        if is_new {
            self.change_view(now);
        }
    }

    /// Members whose Lease is too old have left.
    pub(super) fn expire(&mut self, now: Duration) {
        let (len, lease) = (self.leases.len(), self.limits.lease);
        self.leases.retain(|_, one| now < one.renewed_at + lease);
        if self.leases.len() < len {
            self.change_view(now);
        }
    }

    /// All attempts in flight are begun again: in the new view no claim of an earlier one has an effect.
    fn change_view(&mut self, now: Duration) {
        let of = |is_shard: bool| {
            let all = self
                .leases
                .values()
                .filter(move |lease| lease.is_shard == is_shard);
            all.map(|lease| lease.member.clone()).collect()
        };
        let view = View {
            epoch: Epoch {
                view: self.view.epoch.view + 1,
                ..self.view.epoch
            },
            leader: self.me.clone(),
            relays: of(false),
            shards: of(true),
            fan_out: self.limits.fan_out,
        };
        let serials: Vec<u64> = self.flights.keys().copied().collect();
        for serial in serials.into_iter().rev() {
            self.repeat(serial);
        }
        self.flush_images();
        self.move_nodes(&view);
        self.relay.adopt(view.clone());
        self.adopted = BTreeSet::from([self.me.clone()]);
        self.view = view;
        self.seen.views += 1;
        self.view_sent_at = now;
        let others = self.view.members().filter(|member| **member != self.me);
        let sent = others.map(|member| (member.clone(), Message::View(self.view.clone())));
        let sent = sent.collect();
        self.send(sent, now);
    }

    /// A shard that has come gets all its nodes; the others, those of shards that have left.
    fn move_nodes(&mut self, view: &View) {
        let old = self.view.shards.iter();
        let stay: BTreeSet<_> = old.filter(|shard| view.shards.contains(shard)).collect();
        self.streams.retain(|shard, _| stay.contains(shard));
        for shard in view.shards.iter().filter(|shard| !stay.contains(shard)) {
            let stream = Stream::new(view.epoch, self.cluster.common());
            self.streams.insert(shard.clone(), stream);
        }
        for node in self.cluster.nodes() {
            let (before, after) = (self.view.shard_of(node), view.shard_of(node));
            if before == after {
                continue;
            }
            if let Some(stream) = before.and_then(|shard| self.streams.get_mut(shard)) {
                self.cluster
                    .without_pods(node)
                    .into_iter()
                    .for_each(|change| stream.push(change));
            }
            if let Some(stream) = after.and_then(|shard| self.streams.get_mut(shard)) {
                self.cluster
                    .with_pods(node)
                    .into_iter()
                    .for_each(|change| stream.push(change));
            }
        }
    }
}
