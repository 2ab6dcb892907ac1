//! VIPs that raise no miss for a second: those that do not exist, and those that the node does not follow because of its limits. So
//! a scan of the VIP range fills no table, and an app created later is found by the next packet.

/// Limit of the VIPs of a second, which bounds their memory.
const MAX: usize = 1 << 16;

/// The VIPs whose next packets raise no miss yet.
#[derive(Debug, Default)]
pub struct Gone {
    /// Since the last second.
    recent: Vec<u32>,
    /// From the second before.
    earlier: Vec<u32>,
}

impl Gone {
    /// Adds a VIP for at least a second, at most two. False at the limit.
    pub fn add(&mut self, vip: u32) -> bool {
        let room = self.recent.len() < MAX;
        if room {
            self.recent.push(vip);
        }
        room
    }

    /// A second has passed: the VIPs whose packets may raise misses again.
    pub fn second(&mut self) -> Vec<u32> {
        let due = std::mem::take(&mut self.earlier);
        self.earlier = std::mem::take(&mut self.recent);
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vip_raises_no_miss_for_a_second() {
        let mut gone = Gone::default();
        gone.add(1);
        assert_eq!(gone.second(), [] as [u32; 0]);
        gone.add(2);
        assert_eq!(gone.second(), [1]);
        assert_eq!(gone.second(), [2]);
    }

    #[test]
    fn a_scan_is_not_listed_without_limit() {
        let mut gone = Gone::default();
        assert!((0..1 << 16).all(|vip| gone.add(vip)));
        assert!(!gone.add(1 << 16));
        gone.second();
        assert!(gone.add(1 << 16));
    }
}
