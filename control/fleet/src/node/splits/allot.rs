//! The connections of a VIP with a split, by target: the data plane counts them per VIP, and per backend how many have begun and
//! how many are open.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use crate::proto::Count;

/// The connections of one backend of a VIP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackendLoad {
    /// The pod's address.
    pub address: Ipv6Addr,
    /// The pod's port.
    pub port: u16,
    /// Connections that have begun, modulo 2^32.
    pub begun: u32,
    /// Connections of them that have not ended.
    pub open: u32,
}

/// A target, its weight and its backends.
pub(super) type Owner = (u32, u32, Vec<(Ipv6Addr, u16)>);

/// The connections of VIPs at their last counts.
#[derive(Debug, Default)]
pub(super) struct Loads {
    /// Those that had begun, by VIP and backend.
    begun: BTreeMap<u32, BTreeMap<(Ipv6Addr, u16), u32>>,
    /// Those that were open, by VIP and target, while the VIP was in serve mode: in proxy mode its maps have no backend.
    open: BTreeMap<u32, BTreeMap<u32, u64>>,
}

impl Loads {
    pub(super) fn forget(&mut self, vip: u32) {
        self.begun.remove(&vip);
        self.open.remove(&vip);
    }

    /// Spreads a count over the owners of the backends, without those that get nothing. What no backend shows, now or before, is
    /// spread by weight.
    pub(super) fn allot(
        &mut self,
        count: &Count,
        owners: &[Owner],
        loads: &[BackendLoad],
    ) -> Vec<Count> {
        if owners.is_empty() {
            return vec![*count];
        }
        let now = loads
            .iter()
            .map(|load| ((load.address, load.port), load.begun));
        let before = self
            .begun
            .insert(count.vip, now.collect())
            .unwrap_or_default();
        let held = self.open.entry(count.vip).or_default();
        let mut begun = Vec::new();
        let mut open = Vec::new();
        for (vip, _, sockets) in owners {
            let own = loads
                .iter()
                .filter(|load| sockets.contains(&(load.address, load.port)));
            let (own_begun, own_open) = own.fold((0, 0), |(begun, open), load| {
                let known = before.get(&(load.address, load.port)).copied();
                let more = load.begun.wrapping_sub(known.unwrap_or(0));
                // A backend that got another id counts from zero again.
                let more = if more.cast_signed() < 0 {
                    load.begun
                } else {
                    more
                };
                (begun + u64::from(more), open + u64::from(load.open))
            });
            begun.push(own_begun);
            open.push(if loads.is_empty() {
                held.get(vip).copied().unwrap_or(0)
            } else {
                own_open
            });
        }
        if !loads.is_empty() {
            let vips = owners.iter().map(|(vip, ..)| *vip);
            *held = vips.zip(open.iter().copied()).collect();
        }
        let weights: Vec<u64> = owners
            .iter()
            .map(|(_, weight, _)| (*weight).into())
            .collect();
        let busy: Vec<u64> = begun
            .iter()
            .zip(&open)
            .map(|(begun, open)| begun + open)
            .collect();
        let connections = spread(count.connections, &begun, &weights);
        let connection_ns = spread(count.connection_ns, &busy, &weights);
        let open = spread(count.open, &open, &weights);
        let vips = owners.iter().map(|(vip, ..)| *vip);
        let parts = connections.into_iter().zip(connection_ns).zip(open);
        vips.zip(parts)
            .map(|(vip, ((connections, connection_ns), open))| Count {
                vip,
                interval_ns: count.interval_ns,
                connections,
                connection_ns,
                open,
            })
            .collect()
    }
}

/// Spreads a whole number in proportion to the parts; if all of them are 0, to the weights. The sum stays the same.
fn spread(whole: u64, parts: &[u64], weights: &[u64]) -> Vec<u64> {
    let is_known = parts.iter().any(|part| *part > 0);
    let parts = if is_known { parts } else { weights };
    let sum: u128 = parts.iter().map(|part| u128::from(*part)).sum();
    let (mut given, mut before) = (0, 0_u128);
    parts
        .iter()
        .map(|part| {
            before += u128::from(*part);
            let until = u128::from(whole) * before / sum.max(1);
            let until = u64::try_from(until).unwrap_or(whole);
            let own = until - given;
            given = until;
            own
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_spread_stays_the_same_in_all(whole: u64, parts in prop::collection::vec(any::<u32>(), 1..6)) {
            let parts: Vec<u64> = parts.into_iter().map(u64::from).collect();
            let given = spread(whole, &parts, &vec![1; parts.len()]);
            prop_assert_eq!(given.iter().map(|one| u128::from(*one)).sum::<u128>(), u128::from(whole));
        }
    }

    #[test]
    fn each_target_gets_the_connections_of_its_backends_and_by_weight_what_no_backend_shows() {
        let address = |host: u16| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host);
        let load = |host, begun, open| BackendLoad {
            address: address(host),
            port: 80,
            begun,
            open,
        };
        let owners = vec![
            (1, 90, vec![(address(1), 80)]),
            (2, 10, vec![(address(2), 80)]),
        ];
        let count = Count {
            vip: 1,
            interval_ns: 1_000,
            connections: 10,
            connection_ns: 4_000,
            open: 4,
        };
        let mut loads = Loads::default();
        let first = loads.allot(&count, &owners, &[load(1, 105, 0), load(2, 5, 0)]);
        assert_eq!([first[0].connections, first[1].connections], [9, 1]);
        // One of ten since then was at the first target, which has no open one.
        let second = loads.allot(&count, &owners, &[load(1, 106, 0), load(2, 14, 4)]);
        assert_eq!([second[0].connections, second[1].connections], [1, 9]);
        assert_eq!([second[0].open, second[1].open], [0, 4]);
        assert!(second[1].connection_ns > 3_000);
        // Both got other ids.
        let third = loads.allot(&count, &owners, &[load(1, 1, 0), load(2, 3, 0)]);
        assert_eq!([third[0].connections, third[1].connections], [2, 8]);
        let silent = loads.allot(&count, &owners, &[]);
        assert_eq!([silent[0].connections, silent[1].connections], [9, 1]);
    }
}
