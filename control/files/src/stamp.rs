//! The state of a watched file, by which a change is detected without reading it.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, SystemTime};

/// Two writes within one tick of the kernel's clock (at most 10 ms) leave a file with the same times: a file that was written
/// so recently may have changed again unnoticed.
const CLOCK_TICK: Duration = Duration::from_millis(20);

/// A file's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stamp {
    /// Device, inode, size in bytes, and the times of its content and of its inode in nanoseconds.
    Seen([u64; 2], u64, [i64; 2]),
    /// Read so soon after a write that a later write may go unnoticed, or to be read again for another reason.
    Young,
    /// A symbolic link without a target.
    Absent,
}

impl Stamp {
    /// The state of a file, taken before it is read.
    pub fn of(metadata: &Metadata) -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.map_or(0, |since| i64::try_from(since.as_nanos()).unwrap_or(0));
        let ns = |seconds: i64, ns: i64| seconds.saturating_mul(1_000_000_000).saturating_add(ns);
        let times = [
            ns(metadata.mtime(), metadata.mtime_nsec()),
            ns(metadata.ctime(), metadata.ctime_nsec()),
        ];
        let tick = i64::try_from(CLOCK_TICK.as_nanos()).unwrap_or(0);
        if times.iter().any(|time| now.saturating_sub(*time) < tick) {
            return Self::Young;
        }
        let inode = [metadata.dev(), metadata.ino()];
        Self::Seen(inode, metadata.size(), times)
    }

    /// Whether a file in this state, which was read in the other, may have changed since.
    pub fn differs(self, read: Option<Self>) -> bool {
        self == Self::Young || read != Some(self)
    }
}
