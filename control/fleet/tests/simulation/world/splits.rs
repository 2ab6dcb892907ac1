//! Divided traffic in the simulation: one VIP whose connections are spread over its own pods and those of another.

use std::collections::BTreeSet;
use std::net::{Ipv6Addr, SocketAddrV6};

use dormouse_fleet::Backend;
use dormouse_fleet::proto::Target;
use dormouse_fleet::root::Settling;

use super::super::VIPS;
use super::super::machine::Word;
use super::World;

/// The VIP whose connections are divided, to which every node has connections, and the other target.
const DIVIDED: u32 = VIPS - 1;
const OTHER: u32 = 0;
/// Targets and their percentages.
pub(super) type Split = &'static [(u32, u32)];
/// The splits that control publishes, in any order.
const SPLITS: [Split; 5] = [
    &[],
    &[(DIVIDED, 90), (OTHER, 10)],
    &[(DIVIDED, 50), (OTHER, 50)],
    &[(DIVIDED, 100), (OTHER, 0)],
    &[(DIVIDED, 0), (OTHER, 100)],
];

/// The backend of a pod.
pub(super) fn backend(pod: u64) -> Backend {
    let address = Ipv6Addr::from_bits((0x2001_0db8 << 96) | u128::from(pod));
    Backend::new(SocketAddrV6::new(address, 80, 0, 0))
}

impl World {
    /// The targets in a VIP's entry.
    pub(super) fn targets(&self, vip: u32) -> Vec<Target> {
        let split = if vip == DIVIDED { self.apps.split } else { &[] };
        let targets = split.iter().map(|(vip, weight)| Target {
            vip: *vip,
            weight: *weight,
        });
        targets.collect()
    }

    pub(super) fn change_split(&mut self) {
        let exist = [DIVIDED, OTHER]
            .iter()
            .all(|vip| !self.apps.absent.contains(vip));
        if self.random.once_in(40) && exist {
            let split = SPLITS[self.random.index(SPLITS.len())];
            self.divide(split);
        }
    }

    fn divide(&mut self, split: Split) {
        self.apps.revision += 1;
        (self.apps.split, self.apps.divided_at) = (split, self.apps.revision);
        let entry = self.entry(DIVIDED, true);
        self.root.publish(entry);
    }

    /// A VIP that does not exist divides no traffic.
    pub(super) fn end_split(&mut self, vip: u32) {
        if vip == DIVIDED {
            (self.apps.split, self.apps.divided_at) = (&[], self.apps.revision);
        }
    }

    /// Whether a VIP may be deleted: a target only when all nodes have the split without it.
    pub(super) fn may_be_absent(&self, vip: u32) -> bool {
        let settled = || self.root.settling(DIVIDED, self.apps.divided_at, self.now);
        vip != OTHER || self.apps.split.is_empty() && settled() == Settling::Settled
    }

    /// Half of the traffic is that of a target without a pod.
    pub(in super::super) fn divide_with_one_asleep(&mut self) {
        self.start_pod(DIVIDED);
        self.divide(SPLITS[2]);
    }

    /// The part of the connections that an entry gives to pods of [`OTHER`], in percent.
    fn part_of_other(&self, word: &Word) -> Option<u32> {
        let weights = word.pods.iter();
        let weights = weights.map(|(pod, weight)| (self.apps.owners[pod], u32::from(*weight)));
        let (all, other) = weights.fold((0, 0), |(all, other), (owner, weight)| {
            let more = if owner == OTHER { weight } else { 0 };
            (all + weight, other + more)
        });
        (all > 0).then(|| (100 * other + all / 2) / all)
    }

    /// Fails if a node divides the connections otherwise than control has ever published.
    pub(super) fn check_shares(&self, vip: u32, word: &Word) -> Result<(), String> {
        let published = |part: &u32| SPLITS.iter().any(|split| of_other(split) == *part);
        match self.part_of_other(word) {
            Some(part) if vip == DIVIDED && !published(&part) => {
                Err(format!("{part}% of the connections go to VIP {OTHER}"))
            }
            _ => Ok(()),
        }
    }

    /// Whether this is the newest entry of a VIP.
    pub(in super::super) fn is_newest(&self, vip: u32, word: &Word) -> bool {
        let targets = self.targets(vip);
        if targets.is_empty() {
            return word.serves && word.pods.keys().eq(&self.apps.pods[&vip]);
        }
        let of = |target: &Target| &self.apps.pods[&target.vip];
        let pods: BTreeSet<&u64> = targets.iter().flat_map(of).collect();
        let mut shares = targets.iter().filter(|target| target.weight > 0);
        let serves = shares.all(|target| !of(target).is_empty());
        let part = self.part_of_other(word);
        let divided = !serves || part == Some(of_other(self.apps.split));
        word.pods.keys().eq(pods) && word.serves == serves && divided
    }

    /// The nodes whose connections to the divided VIP go to pods without an activator.
    pub(in super::super) fn nodes_that_serve(&self) -> usize {
        let serve = self.machines.iter().filter(|machine| {
            let usable = machine.kernel.usable(self.now, machine.node.is_stale);
            let mut words = usable.filter(|(vip, _)| **vip == DIVIDED);
            words.any(|(_, word)| word.pods.values().any(|weight| *weight > 0))
        });
        serve.count()
    }
}

fn of_other(split: Split) -> u32 {
    let others = split.iter().filter(|(vip, _)| *vip == OTHER);
    others.map(|(_, percent)| *percent).sum()
}
