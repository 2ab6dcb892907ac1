//! The followers of a VIP whose connections are spread over others: they follow those too.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Root;
use crate::proto::Entry;

impl Root {
    /// Adds a follower of a VIP, and of the targets of its split.
    pub(super) fn follow(&mut self, vip: u32, node: &Arc<str>) {
        self.follow_one(vip, node);
        let entry = self.entries.get(&vip);
        let targets: Vec<u32> = entry.into_iter().flat_map(Entry::targets).collect();
        self.follow_targets(&targets, node);
    }

    /// The followers of a VIP get the entries of the targets that its split has since `known` in the same message: they do not ask for
    /// them first.
    pub(super) fn follow_new_targets(&mut self, vip: u32, known: Option<&Entry>) {
        let before: BTreeSet<u32> = known.into_iter().flat_map(Entry::targets).collect();
        let now = self.entries.get(&vip).into_iter().flat_map(Entry::targets);
        let new: Vec<u32> = now.filter(|target| !before.contains(target)).collect();
        let nodes = self.followers.get(&vip).filter(|_| !new.is_empty());
        for node in nodes.cloned().unwrap_or_default() {
            self.follow_targets(&new, &node);
        }
    }

    /// Adds a follower of those targets of which there is an entry. It asks for others.
    fn follow_targets(&mut self, targets: &[u32], node: &Arc<str>) {
        for target in targets {
            let peer = self.peers.get_mut(node);
            if self.entries.contains_key(target) && peer.is_some_and(|peer| peer.want(*target)) {
                self.follow_one(*target, node);
            }
        }
    }
}
