//! Members by their Leases: each change of them makes a view, in which nodes go to their shards.

use std::collections::BTreeSet;
use std::time::Duration;

use super::Leader;
use super::streams::Stream;
use crate::message::Message;
use crate::view::{Epoch, Member, View};

/// A Lease that was written: its member runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// The member.
    pub member: Member,
    /// Whether it is a shard; a relay otherwise.
    pub is_shard: bool,
    /// The time after which it has left, unless the Lease is written again.
    pub lease: Duration,
}

/// A Lease.
pub(super) struct Lease {
    member: Member,
    is_shard: bool,
    expires_at: Duration,
}

impl Leader {
    /// Members have renewed their Leases; those of others, by their names, are gone. All that is new makes one view.
    pub fn set_members(&mut self, renewals: Vec<Renewal>, gone: &[String], now: Duration) {
        let mut is_changed = false;
        for renewal in renewals {
            is_changed |= self.renew(renewal, now);
        }
        for name in gone {
            is_changed |= self.leases.remove(name).is_some();
        }
        if is_changed {
            self.change_view(now);
        }
    }

    /// Whether the member is new. An earlier incarnation may be read after a later one.
    fn renew(&mut self, renewal: Renewal, now: Duration) -> bool {
        let known = self.leases.get(&renewal.member.name);
        let known = known.map(|known| known.member.clone());
        let is_late = |known: &Member| known.incarnation > renewal.member.incarnation;
        if known.as_ref().is_some_and(is_late) {
            return false;
        }
        let is_new = known.is_none_or(|known| known != renewal.member);
        let name = renewal.member.name.clone();
        let lease = Lease {
            member: renewal.member,
            is_shard: renewal.is_shard,
            expires_at: now + renewal.lease,
        };
        self.leases.insert(name, lease);
        is_new
    }

    /// Members whose Lease is too old have left.
    pub(super) fn expire(&mut self, now: Duration) {
        let len = self.leases.len();
        self.leases.retain(|_, one| now < one.expires_at);
        if self.leases.len() < len {
            self.change_view(now);
        }
    }

    /// All attempts in flight are begun again: in the new view no claim of an earlier one has an effect.
    fn change_view(&mut self, now: Duration) {
        let of = |is_shard: bool| {
            let all = self.leases.values();
            let all = all.filter(move |lease| lease.is_shard == is_shard);
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
        let (before, after) = (self.view.spread(), view.spread());
        for node in self.cluster.nodes() {
            let (before, after) = (before.shard_of(node), after.shard_of(node));
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
