//! Distribution of pods over bridges: adding a port to a bridge with many ports is slow, and a node can have any number of
//! pods. Pure.

use std::collections::HashMap;

use dormouse_agent_ipam::Suffix;

/// Ports used per bridge. The kernel allows 1,023, but walks over all of them several times to add one: at 1,000 this takes
/// as long as the rest of an ADD.
pub(crate) const PORTS_MAX: usize = 128;

/// One bridge.
#[derive(Debug)]
struct Shard {
    ifindex: u32,
    ports: usize,
    /// The kernel refused a further port: other software uses the rest.
    refused: bool,
}

/// The bridges in the order of their numbers, and the bridge of each pod.
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
    /// Adds a bridge without pods.
    pub(crate) fn push(&mut self, ifindex: u32) {
        self.shards.push(Shard {
            ifindex,
            ports: 0,
            refused: false,
        });
    }

    /// Number of bridges.
    pub(crate) fn len(&self) -> usize {
        self.shards.len()
    }

    /// The bridges, by ifindex.
    pub(crate) fn bridges(&self) -> impl Iterator<Item = u32> {
        self.shards.iter().map(|shard| shard.ifindex)
    }

    /// The bridge of a pod.
    pub(crate) fn bridge_of(&self, suffix: Suffix) -> Option<u32> {
        let place = self.placed.get(&suffix)?;
        self.shards.get(*place).map(|shard| shard.ifindex)
    }

    /// Reserves a port for a pod. Returns the bridge; none if all are full.
    pub(crate) fn place(&mut self, suffix: Suffix) -> Option<u32> {
        let has_room = |shard: &Shard| shard.ports < PORTS_MAX && !shard.refused;
        let place = self.shards.iter().position(has_room)?;
        self.put(suffix, place)
    }

    /// Records that the kernel refused a further port on the pod's bridge, and frees the reservation.
    pub(crate) fn refuse(&mut self, suffix: Suffix) {
        let place = self.placed.get(&suffix).copied();
        self.remove(suffix);
        if let Some(shard) = place.and_then(|place| self.shards.get_mut(place)) {
            shard.refused = true;
        }
    }

    /// Records that a pod's link was found on a bridge. False if it is not one of these.
    pub(crate) fn found(&mut self, suffix: Suffix, bridge: u32) -> bool {
        let place = self.shards.iter().position(|shard| shard.ifindex == bridge);
        place.and_then(|place| self.put(suffix, place)).is_some()
    }

    /// Frees the pod's port.
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
    fn a_full_bridge_needs_the_next_and_takes_pods_again_after_removals() {
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
    fn a_refused_bridge_is_skipped_until_one_of_its_pods_is_removed() {
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
