//! Which bridge each pod's link is a port of: bridges with many ports are slow to take more, a node may have any number of
//! pods. Pure.

use std::collections::HashMap;

use dormouse_agent_ipam::Suffix;

/// Ports of one bridge that are used. The kernel would take 1,023, but walks over all of them several times to add one more:
/// at 1,000 that takes as long as all the rest of it.
pub(crate) const PORTS_MAX: usize = 128;

/// One bridge.
#[derive(Debug)]
struct Shard {
    ifindex: u32,
    ports: usize,
    /// The kernel took no further port: others have the rest.
    refused: bool,
}

/// The bridges in the order in which they were made, and who is where.
#[derive(Debug, Default)]
pub(crate) struct Shards {
    shards: Vec<Shard>,
    placed: HashMap<Suffix, usize>,
}

/// The name of the bridge after `count` others.
pub(crate) fn name(base: &str, count: usize) -> String {
    match count {
        0 => base.to_owned(),
        _ => format!("{base}{count}"),
    }
}

impl Shards {
    /// One more bridge, without any pod.
    pub(crate) fn push(&mut self, ifindex: u32) {
        self.shards.push(Shard {
            ifindex,
            ports: 0,
            refused: false,
        });
    }

    /// How many bridges there are.
    pub(crate) fn len(&self) -> usize {
        self.shards.len()
    }

    /// All of them.
    pub(crate) fn bridges(&self) -> impl Iterator<Item = u32> {
        self.shards.iter().map(|shard| shard.ifindex)
    }

    /// The bridge that a pod's link is a port of.
    pub(crate) fn bridge_of(&self, suffix: Suffix) -> Option<u32> {
        let place = self.placed.get(&suffix)?;
        self.shards.get(*place).map(|shard| shard.ifindex)
    }

    /// Takes a port for a pod, and says on which bridge; none if one more is needed.
    pub(crate) fn place(&mut self, suffix: Suffix) -> Option<u32> {
        let has_room = |shard: &Shard| shard.ports < PORTS_MAX && !shard.refused;
        let place = self.shards.iter().position(has_room)?;
        self.put(suffix, place)
    }

    /// The kernel took no further port on the pod's bridge.
    pub(crate) fn refuse(&mut self, suffix: Suffix) {
        let place = self.placed.get(&suffix).copied();
        self.remove(suffix);
        if let Some(shard) = place.and_then(|place| self.shards.get_mut(place)) {
            shard.refused = true;
        }
    }

    /// A pod's link was found on a bridge. False if it is none of these.
    pub(crate) fn found(&mut self, suffix: Suffix, bridge: u32) -> bool {
        let place = self.shards.iter().position(|shard| shard.ifindex == bridge);
        place.and_then(|place| self.put(suffix, place)).is_some()
    }

    /// The pod's port is free again.
    pub(crate) fn remove(&mut self, suffix: Suffix) {
        let place = self.placed.remove(&suffix);
        if let Some(shard) = place.and_then(|place| self.shards.get_mut(place)) {
            shard.ports -= 1;
            shard.refused = false;
        }
    }

    fn put(&mut self, suffix: Suffix, place: usize) -> Option<u32> {
        self.remove(suffix);
        let shard = self.shards.get_mut(place)?;
        shard.ports += 1;
        self.placed.insert(suffix, place);
        Some(shard.ifindex)
    }
}

impl FromIterator<u32> for Shards {
    fn from_iter<T: IntoIterator<Item = u32>>(bridges: T) -> Self {
        let mut shards = Self::default();
        bridges.into_iter().for_each(|bridge| shards.push(bridge));
        shards
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: u32 = 7;
    const SECOND: u32 = 8;

    fn full() -> Shards {
        let mut shards = Shards::default();
        shards.push(FIRST);
        for pod in 0..PORTS_MAX {
            let suffix = Suffix(u32::try_from(pod).unwrap());
            assert_eq!(shards.place(suffix), Some(FIRST));
        }
        shards
    }

    #[test]
    fn a_full_bridge_asks_for_the_next_and_takes_pods_again_when_some_went() {
        let mut shards = full();
        assert_eq!(shards.place(Suffix(5_000)), None);
        shards.push(SECOND);
        assert_eq!(shards.place(Suffix(5_000)), Some(SECOND));
        assert_eq!(shards.bridge_of(Suffix(5_000)), Some(SECOND));
        shards.remove(Suffix(3));
        assert_eq!(shards.place(Suffix(5_001)), Some(FIRST));
        assert_eq!(shards.place(Suffix(5_002)), Some(SECOND));
    }

    #[test]
    fn a_bridge_whose_ports_others_have_is_left_until_one_of_ours_is_free() {
        let mut shards = Shards::default();
        shards.push(FIRST);
        shards.push(SECOND);
        assert_eq!(shards.place(Suffix(1)), Some(FIRST));
        assert_eq!(shards.place(Suffix(2)), Some(FIRST));
        shards.refuse(Suffix(2));
        assert_eq!(shards.place(Suffix(2)), Some(SECOND));
        shards.remove(Suffix(1));
        assert_eq!(shards.place(Suffix(3)), Some(FIRST));
    }

    #[test]
    fn pods_found_at_start_count_once() {
        let mut shards = Shards::default();
        shards.push(FIRST);
        assert!(shards.found(Suffix(1), FIRST) && shards.found(Suffix(1), FIRST));
        assert!(!shards.found(Suffix(2), SECOND));
        shards.remove(Suffix(1));
        shards.remove(Suffix(1));
        assert_eq!(shards.bridge_of(Suffix(1)), None);
        assert_eq!((shards.shards[0].ports, shards.len()), (0, 1));
    }

    #[test]
    fn bridges_are_numbered_after_the_first() {
        assert_eq!(
            (name("dormouse0", 0), name("dormouse0", 1)),
            ("dormouse0".into(), "dormouse01".into())
        );
    }
}
