//! Backend selection: at random for pods, by weighted rendezvous hashing for traffic from outside, so that every node
//! selects the same backend.

/// Spreads every bit of `x` over all bits of the result (the finaliser of SplitMix64).
#[inline(always)]
pub const fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Folds 16 bytes into a hash.
#[inline(always)]
pub const fn fold(hash: u64, bytes: &[u8; 16]) -> u64 {
    let whole = u128::from_ne_bytes(*bytes).to_le();
    #[expect(clippy::cast_possible_truncation, reason = "both halves are folded")]
    let (low, high) = (whole as u64, (whole >> 64) as u64);
    mix(mix(hash ^ low).wrapping_add(high))
}

/// The distance of a backend from a flow. The nearest backend is selected, in whatever order a node stores the backends.
///
/// Weighted rendezvous (Mosharaf's highest random weight, weighted as by Schindelhauer and Schomaker): of backends with
/// the distances `-log2(u) / weight`, each is the nearest in proportion to its weight, and removing one moves only its own
/// flows. A weight of 0 is the largest distance.
#[inline(always)]
pub const fn distance(flow: u64, address: &[u8; 16], port: u16, weight: u16) -> u64 {
    if weight == 0 {
        return u64::MAX;
    }
    (minus_log2(fold(flow.wrapping_add(port as u64), address)) << 16) / weight as u64
}

/// `-log2(u / 2^64)` in steps of 2^-32: strictly falling but for the last bits, so equal weights are exactly fair.
#[inline(always)]
const fn minus_log2(u: u64) -> u64 {
    let u = u | 1;
    let zeros = u.leading_zeros() as u64;
    // The fraction x of 1.x; log2(1 + x) is nearly x + 0.2787 x (1 - x). That has the right slope at x = 1, where the nearest backends
    // are, which decides about weights; elsewhere it is wrong by 2% of a doubling at most.
    let x = (u << zeros << 1) >> 32;
    let bulge = (((x * ((1 << 32) - x)) >> 32) * 1_196_800_000) >> 32;
    ((zeros + 1) << 32) - x - bulge
}

/// A number uniform in `0..len` from 32 random bits (multiply and shift: no division); `len` must not be 0.
#[inline(always)]
pub const fn below(random: u32, len: u32) -> u32 {
    ((random as u64 * len as u64) >> 32) as u32
}

/// A draw in `0..SHARE_WHOLE` from a flow's hash.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "a draw has 8 bits")]
pub const fn draw(hash: u64) -> u8 {
    below((hash >> 32) as u32, crate::service::SHARE_WHOLE as u32) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{FlowKey, flow_hash};
    use proptest::prelude::*;

    fn backend(n: u8) -> [u8; 16] {
        [
            0x20,
            1,
            0xd,
            0xb8,
            0,
            0xd0,
            0,
            0,
            0,
            0,
            0,
            n % 7,
            0,
            0,
            0,
            n,
        ]
    }

    fn hash_from(port: u16) -> u64 {
        flow_hash(&FlowKey {
            source: backend(200),
            target: backend(1),
            source_port: port,
            target_port: 80,
            protocol: 6,
        })
    }

    fn winner(flow: u64, backends: &[u8]) -> u8 {
        *backends
            .iter()
            .min_by_key(|&&n| distance(flow, &backend(n), 80, 1))
            .unwrap()
    }

    proptest! {
        #[test]
        fn every_order_of_the_backends_has_the_same_winner(flow: u64, order in Just((0..20_u8).collect::<Vec<_>>()).prop_shuffle()) {
            let sorted: Vec<u8> = (0..20).collect();
            prop_assert_eq!(winner(flow, &order), winner(flow, &sorted));
        }

        #[test]
        fn removing_a_backend_moves_only_its_own_flows(flow: u64, removed in 0_u8..20) {
            let all: Vec<u8> = (0..20).collect();
            let rest: Vec<u8> = all.iter().copied().filter(|&n| n != removed).collect();
            let before = winner(flow, &all);
            prop_assert!(before == removed || winner(flow, &rest) == before);
        }

        #[test]
        fn below_is_below(random: u32, len in 1_u32..) {
            prop_assert!(below(random, len) < len);
        }
    }

    #[test]
    fn flows_of_one_client_spread_evenly_over_three_backends() {
        let mut won = [0_u32; 3];
        for port in 0..30_000 {
            let flow = hash_from(port);
            won[usize::from(winner(flow, &[0, 1, 2]))] += 1;
        }
        assert!(
            won.iter().all(|&count| (9_500..10_500).contains(&count)),
            "{won:?}"
        );
    }

    #[test]
    fn a_backend_is_selected_in_proportion_to_its_weight() {
        let weights = [1_u16, 2, 5, 0];
        let mut won = [0_u32; 4];
        for port in 0..40_000 {
            let flow = hash_from(port);
            let nearest =
                (0..4_u8).min_by_key(|&n| distance(flow, &backend(n), 80, weights[usize::from(n)]));
            won[usize::from(nearest.unwrap())] += 1;
        }
        assert!((4_500..5_500).contains(&won[0]), "{won:?}");
        assert!((9_300..10_700).contains(&won[1]), "{won:?}");
        assert_eq!(won[3], 0);
    }

    #[test]
    fn very_different_weights_are_exact_within_a_third_of_a_percent() {
        let weights = [58_982_u16, 5_898, 655];
        let mut won = [0_u32; 3];
        for flow in 0..200_000 {
            let nearest = (0..3_u8)
                .min_by_key(|&n| distance(mix(flow), &backend(n), 80, weights[usize::from(n)]));
            won[usize::from(nearest.unwrap())] += 1;
        }
        let parts = won.into_iter().zip([180_000, 18_000, 2_000]);
        let mut off = parts.map(|(won, wanted): (u32, u32)| won.abs_diff(wanted));
        assert!(off.all(|off| off <= 600), "{won:?}");
    }

    #[test]
    fn each_of_a_thousand_backends_gets_flows() {
        let address = |n: u16| {
            let mut address = backend(1);
            address[14..].copy_from_slice(&n.to_be_bytes());
            address
        };
        let winners: std::collections::BTreeSet<_> = (0..20_000_u16)
            .map(|port| {
                let flow = hash_from(port);
                (0..1_000).min_by_key(|&n| distance(flow, &address(n), 80, 1))
            })
            .collect();
        assert_eq!(winners.len(), 1_000);
    }

    #[test]
    fn draws_cover_every_share() {
        let seen: std::collections::BTreeSet<u8> = (0..10_000).map(|n| draw(mix(n))).collect();
        assert_eq!(seen.len(), usize::from(crate::service::SHARE_WHOLE));
    }
}
