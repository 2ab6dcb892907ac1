//! The members at one time, the tree that they form, and the shard of each node.

use std::collections::BTreeSet;

use dormouse_scheduler_decide::PartId;
use serde::{Deserialize, Serialize};

/// A process. One that starts again has another incarnation: what was sent to the one before is lost.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Member {
    /// The name of its Lease.
    pub name: String,
    /// The start of the process.
    pub incarnation: u64,
    /// The URL at which the others reach it.
    pub address: String,
}

/// The age of a view. The term is that of the leader: a later leader has a larger one.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Epoch {
    /// The leader's.
    pub term: u64,
    /// The number of the view in the term.
    pub view: u64,
}

/// The members that take part in attempts. The tree has the leader at its root and the shards as its leaves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// Its age.
    pub epoch: Epoch,
    /// The leader.
    pub leader: Member,
    /// The relays, by name.
    pub relays: Vec<Member>,
    /// The shards, by name.
    pub shards: Vec<Member>,
    /// The relays below a relay, or below the leader.
    pub fan_out: usize,
}

/// FNV-1a, with its bits mixed: close names have unrelated hashes.
fn hash(name: &str) -> u64 {
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    for byte in name.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
    }
    mixed(hash)
}

/// A number from which the next ones cannot be guessed by eye: splitmix64.
pub(crate) fn mixed(seed: u64) -> u64 {
    let mut bits = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

/// Rendezvous hashing: a key moves only if its member leaves, or one that suits it better comes.
pub(crate) struct Spread<'a>(Vec<(u64, &'a Member)>);

impl<'a> Spread<'a> {
    fn over(members: &'a [Member]) -> Self {
        let hashed = members.iter().map(|member| (hash(&member.name), member));
        Self(hashed.collect())
    }

    fn choice(&self, key: &str) -> Option<&'a Member> {
        let key = hash(key);
        let best = self.0.iter().max_by_key(|(name, _)| mixed(name ^ key));
        best.map(|(_, member)| *member)
    }

    /// The shard of a node.
    pub(crate) fn shard_of(&self, node: &str) -> Option<&'a Member> {
        self.choice(node)
    }
}

impl View {
    /// The shard of a node.
    pub fn shard_of(&self, node: &str) -> Option<&Member> {
        self.spread().shard_of(node)
    }

    /// The shards of many nodes.
    pub(crate) fn spread(&self) -> Spread<'_> {
        Spread::over(&self.shards)
    }

    /// The member that gathers the answers for a pod: a relay, or the leader if there are none.
    pub fn gatherer_of(&self, uid: &str) -> &Member {
        let relays = Spread::over(&self.relays);
        relays.choice(uid).unwrap_or(&self.leader)
    }

    /// The members that a member is connected to in the tree.
    pub fn neighbours(&self, member: &Member) -> Vec<&Member> {
        let inner = self.inner();
        if let Some(at) = self.shards.iter().position(|shard| shard == member) {
            return inner
                .get(self.parent_of_shard(at))
                .copied()
                .into_iter()
                .collect();
        }
        let Some(at) = inner.iter().position(|one| *one == member) else {
            return Vec::new();
        };
        let fan_out = self.fan_out.max(1);
        let parent = (at > 0).then(|| inner[at.saturating_sub(1) / fan_out]);
        let below = inner.iter().skip(at * fan_out + 1).take(fan_out);
        let shards = self.shards.iter().enumerate();
        let shards = shards.filter(|(shard, _)| self.parent_of_shard(*shard) == at);
        parent
            .into_iter()
            .chain(below.copied())
            .chain(shards.map(|(_, shard)| shard))
            .collect()
    }

    /// The number of a shard as a part of the cluster.
    pub fn part_of(&self, shard: &Member) -> Option<PartId> {
        let at = self.shards.iter().position(|one| one == shard)?;
        PartId::try_from(at).ok()
    }

    /// The shards that a member reaches by a neighbour.
    pub fn parts_by(&self, member: &Member, neighbour: &Member) -> BTreeSet<PartId> {
        let mut parts: BTreeSet<_> = self.part_of(neighbour).into_iter().collect();
        let beyond = self.neighbours(neighbour).into_iter();
        for next in beyond.filter(|next| *next != member) {
            parts.extend(self.parts_by(neighbour, next));
        }
        parts
    }

    /// All members.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.inner().into_iter().chain(&self.shards)
    }

    /// The leader and the relays: each is above `fan_out` that come later.
    fn inner(&self) -> Vec<&Member> {
        [&self.leader].into_iter().chain(&self.relays).collect()
    }

    fn parent_of_shard(&self, shard: usize) -> usize {
        match self.relays.len() {
            0 => 0,
            relays => shard % relays + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: String) -> Member {
        Member {
            name,
            incarnation: 1,
            address: String::new(),
        }
    }

    fn view(relays: usize, shards: usize, fan_out: usize) -> View {
        View {
            epoch: Epoch::default(),
            leader: member("leader".to_owned()),
            relays: (0..relays).map(|at| member(format!("r{at:03}"))).collect(),
            shards: (0..shards).map(|at| member(format!("s{at:03}"))).collect(),
            fan_out,
        }
    }

    #[test]
    fn every_member_is_reached_once_from_any_other() {
        for (relays, shards, fan_out) in [(0, 3, 2), (1, 1, 1), (7, 20, 2), (4, 2, 10)] {
            let view = view(relays, shards, fan_out);
            for start in view.members() {
                let mut seen = BTreeSet::from([start]);
                let mut next = vec![(start, None)];
                while let Some((at, from)) = next.pop() {
                    for to in view
                        .neighbours(at)
                        .into_iter()
                        .filter(|to| Some(*to) != from)
                    {
                        assert!(seen.insert(to), "{to:?} is reached twice from {start:?}");
                        next.push((to, Some(at)));
                    }
                }
                assert_eq!(seen.len(), 1 + relays + shards);
                let next = view.neighbours(start).into_iter();
                let parts: usize = next.map(|next| view.parts_by(start, next).len()).sum();
                let is_shard = view.part_of(start).is_some();
                assert_eq!(parts + usize::from(is_shard), shards);
            }
        }
    }

    #[test]
    fn nodes_are_spread_and_few_move_when_a_shard_comes() {
        let names: Vec<String> = (0..8_000).map(|node| format!("node-{node}")).collect();
        let (before, after) = (view(0, 8, 2), view(0, 9, 2));
        for shard in &before.shards {
            let own = names
                .iter()
                .filter(|name| before.shard_of(name) == Some(shard));
            let len = own.count();
            assert!((850..1_150).contains(&len), "{len} nodes of {shard:?}");
        }
        let is_moved = |name: &&String| before.shard_of(name) != after.shard_of(name);
        let moved: Vec<_> = names.iter().filter(is_moved).collect();
        assert!(
            (740..1_040).contains(&moved.len()),
            "{} nodes moved",
            moved.len()
        );
        let to_new = |name: &&String| after.shard_of(name) == after.shards.last();
        assert!(moved.iter().all(to_new));
    }
}
