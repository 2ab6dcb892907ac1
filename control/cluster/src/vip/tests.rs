//! VIP ranges and allocation, compared with simple models.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn range(text: &str) -> VipRange {
    text.parse().unwrap()
}

#[test]
fn the_index_is_the_base_plus_the_host_bits() {
    let range = range("fd00:10::/112@4096");
    assert_eq!(
        range.index_of("fd00:10::1f".parse().unwrap()),
        Some(VipIndex(4096 + 31))
    );
    assert_eq!(
        range.address_of(VipIndex(4096)),
        Some("fd00:10::".parse().unwrap())
    );
    assert_eq!(range.address_of(VipIndex(4095)), None);
    assert_eq!(range.index_of("fd00:11::1".parse().unwrap()), None);
    assert_eq!(range.index_of("fd00:10::10:1".parse().unwrap()), None);
}

#[test]
fn a_range_that_exceeds_the_maps_is_refused() {
    for text in [
        "fd00:10::/107",
        "fd00:10::/108@1",
        "fd00:10::/112@1048575",
        "fd00:10::/129",
    ] {
        assert!(
            matches!(text.parse::<VipRange>(), Err(VipError::TooLarge { .. })),
            "{text}"
        );
    }
    assert!(matches!(
        "fd00:10::1/108".parse::<VipRange>(),
        Err(VipError::HostBits(_))
    ));
    for text in [
        "",
        "fd00:10::",
        "fd00:10::/x",
        "10.0.0.0/8",
        "fd00::/108@-1",
    ] {
        assert!(
            matches!(text.parse::<VipRange>(), Err(VipError::Malformed(_))),
            "{text}"
        );
    }
}

#[test]
fn allocation_goes_on_in_the_next_range_and_fails_when_all_are_full() {
    let ranges = [range("fd00:a::/123"), range("fd00:b::/123@32")];
    let mut taken: Vec<VipIndex> = (0..32).map(VipIndex).collect();
    assert_eq!(next_free(&ranges, &taken, None), Some(VipIndex(48)));
    taken.extend((32..64).map(VipIndex));
    assert_eq!(next_free(&ranges, &taken, None), None);
    assert_eq!(next_free(&[range("fd00:c::/128")], &[], None), None);
}

proptest! {
    #[test]
    fn the_index_of_every_address_is_converted_back_to_the_address(len in 108u8..=128, base in 0u32..1 << 19, low: u32, prefix: u128) {
        let mask = (1u128 << (128 - len)) - 1;
        let base = if len == 108 { 0 } else { base };
        let range = VipRange::new(Ipv6Addr::from_bits(prefix & !mask), len, base).unwrap();
        let index = VipIndex(base + low % range.size());
        let address = range.address_of(index).unwrap();
        prop_assert_eq!(range.index_of(address), Some(index));
        prop_assert_eq!(range.to_string().parse::<VipRange>().unwrap().prefix(), range.prefix());
    }

    #[test]
    fn allocation_takes_the_same_index_as_the_model(taken in prop::collection::btree_set(0u32..80, 0..80), last in 0u32..80) {
        let ranges = [range("fd00:a::/122"), range("fd00:b::/124@64")];
        let free: BTreeSet<u32> = (16..64).filter(|i| !taken.contains(i)).collect();
        let sorted: Vec<VipIndex> = taken.iter().copied().map(VipIndex).collect();
        prop_assert_eq!(next_free(&ranges, &sorted, None), free.first().copied().map(VipIndex));
        let above = free.range(last + 1..).next().or(free.first());
        prop_assert_eq!(next_free(&ranges, &sorted, Some(VipIndex(last))), above.copied().map(VipIndex));
    }
}
