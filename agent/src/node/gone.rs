//! VIPs that do not exist: their entries are removed after a second, so that a scan of the VIP range fills no table, and an
//! app created later is found by the next packet.

/// The VIPs that do not exist and whose entries suppress further misses.
#[derive(Debug, Default)]
pub struct Gone {
    /// Since the last second.
    recent: Vec<u32>,
    /// From the second before.
    earlier: Vec<u32>,
}

impl Gone {
    /// Adds a VIP for at least a second, at most two.
    pub fn add(&mut self, vip: u32) {
        self.recent.push(vip);
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
}
