//! The apps that the passing of time can change. Each is visited once a second; the visits are spread over the second by
//! VIP, so that none holds the lock for all apps.

use std::collections::BTreeSet;
use std::time::Duration;

/// Number of slices of a second. The activators' load of a second is handed out in the same slices.
pub const SLICES: usize = 20;
/// Length of a slice.
pub const SLICE: Duration = Duration::from_millis(50);

/// The apps that the passing of time can change, by slice. The others cost nothing.
#[derive(Debug, Default)]
pub(crate) struct Awake {
    slices: [BTreeSet<u32>; SLICES],
}

/// The slice of a VIP. Indexes are handed out in order, so the slices have the same size.
pub(crate) fn slice_of(vip: u32) -> usize {
    usize::try_from(vip).unwrap_or(0) % SLICES
}

impl Awake {
    pub(super) fn insert(&mut self, vip: u32) {
        self.slices[slice_of(vip)].insert(vip);
    }

    pub(super) fn remove(&mut self, vip: u32) {
        self.slices[slice_of(vip)].remove(&vip);
    }

    /// The apps of a slice.
    pub(super) fn slice(&self, slice: usize) -> Vec<u32> {
        let vips = self.slices.get(slice).into_iter().flatten();
        vips.copied().collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slices.iter().all(BTreeSet::is_empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slices_are_a_second() {
        let all = SLICE * u32::try_from(SLICES).unwrap();
        assert_eq!(all, Duration::from_secs(1));
    }

    #[test]
    fn each_app_is_in_one_slice_and_slices_have_the_same_size() {
        let mut awake = Awake::default();
        for vip in 16..16 + 10 * u32::try_from(SLICES).unwrap() {
            awake.insert(vip);
        }
        let sizes = (0..SLICES).map(|slice| awake.slice(slice).len());
        assert!(sizes.into_iter().all(|size| size == 10));
        for slice in 0..SLICES {
            for vip in awake.slice(slice) {
                awake.remove(vip);
            }
        }
        assert!(awake.is_empty());
    }
}
