//! Who gets a new connection: any backend for pods, the same one on every node for traffic from outside.

/// Backends that one rendezvous looks at; a larger set is looked at from a place that the flow chooses.
pub const RENDEZVOUS_MAX: u32 = 64;

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

/// The hash of a flow to a VIP: the same on every node.
#[inline(always)]
pub const fn flow_hash(
    client: &[u8; 16],
    client_port: u16,
    vip: u32,
    vip_port: u16,
    protocol: u8,
) -> u64 {
    let rest =
        (client_port as u64) << 48 | (vip_port as u64) << 32 | (vip as u64) << 8 | protocol as u64;
    fold(mix(rest), client)
}

/// How much a flow likes a backend; the highest score wins on every node, in whatever order they keep the backends.
#[inline(always)]
pub const fn score(flow: u64, address: &[u8; 16], port: u16) -> u64 {
    fold(flow.wrapping_add(port as u64), address)
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

    fn winner(flow: u64, backends: &[u8]) -> u8 {
        *backends
            .iter()
            .max_by_key(|&&n| score(flow, &backend(n), 80))
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
            let flow = flow_hash(&backend(200), port, 1, 80, 6);
            won[usize::from(winner(flow, &[0, 1, 2]))] += 1;
        }
        assert!(
            won.iter().all(|&count| (9_500..10_500).contains(&count)),
            "{won:?}"
        );
    }

    #[test]
    fn draws_cover_every_share() {
        let seen: std::collections::BTreeSet<u8> = (0..10_000).map(|n| draw(mix(n))).collect();
        assert_eq!(seen.len(), usize::from(crate::service::SHARE_WHOLE));
    }
}
