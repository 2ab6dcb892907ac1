//! Journals of earlier versions stay readable: a node need not be drained to update its agent.

use super::*;

/// A journal from before leases had IPv4 addresses: `a` is live, `b` in quarantine, `c` requested its address and is being
/// released, `d` is reserved.
const FIRST_FORMAT: &[&str] = &[
    "2a0000006d851f070000000000000000010707070707070707070707070707070720010db800000000000000000000000060",
    "0d0000001e644c0f010000000000000006000001003400000069b6e6ce020000000000000002000001000400000000000000",
    "000000f00000000000ca9a3b000000000400706f64730100610400657468300d000000c8c5bcb60300000000000000030000",
    "010034000000fa70987d040000000000000002010001000400000000000000000000f0000000000094357700000000040070",
    "6f64730100620400657468300d0000002efe15c9050000000000000003010001000d000000c5b81530060000000000000004",
    "01000100150000003bf9fd6107000000000000000501000100005ed0b20000000034000000c424fe17080000000000000002",
    "200000000400000000000000000000f00000000000286bee000000000400706f64730100630400657468300d000000638294",
    "380900000000000000042000000034000000ee890c7e0a0000000000000002020001000400000000000000000000f0000000",
    "0000f2052a010000000400706f6473010064040065746830",
];

fn bytes(hex: &[&str]) -> Vec<u8> {
    let digits = hex.concat();
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(byte).collect()
}

#[test]
fn a_journal_of_the_first_format_is_read() {
    let folder = folder();
    let path = folder.path().join("leases");
    fs::write(&path, bytes(FIRST_FORMAT)).unwrap();
    let leases = open(&path);
    assert_eq!(leases.writes().cut_bytes, 0);
    let state = |name: &str| {
        let lease = leases.lease(&request(name).key)?;
        assert!(lease.wired && lease.ipv4.is_none());
        assert_eq!(lease.netns, request(name).netns);
        Some((lease.suffix.0, lease.state, lease.since))
    };
    assert_eq!(state("a"), Some((0x1_0000, State::Live, now(1))));
    assert_eq!(state("b"), None);
    assert_eq!(state("c"), Some((0x20, State::Releasing, now(4))));
    assert_eq!(state("d"), Some((0x1_0002, State::Reserved, now(5))));
    let next = leases.reserve(&request("e"), now(6)).unwrap();
    assert_eq!(next.suffix, Suffix(0x1_0003));
}
