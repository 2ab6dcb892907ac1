//! The traffic split of an entry, as both ends of the stream read it.

use crate::proto::Entry;

impl Entry {
    /// The other VIPs over which its connections are spread.
    pub(crate) fn targets(&self) -> impl Iterator<Item = u32> {
        let vips = self.split.iter().map(|target| target.vip);
        vips.filter(|vip| *vip != self.vip)
    }
}
