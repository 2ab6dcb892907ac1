//! Packet parsing: any frame is parsed without a panic, and all offsets are inside the frame, also those of a quoted packet.

#![no_main]

use dormouse_ebpf::packet::{ETHERTYPE_IPV6, L3, Packet, Read, is_v4, quoted, read};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|frame: &[u8]| {
    let mut packet = Packet::default();
    let found = read(&frame, &mut packet);
    let l4 = usize::from(packet.l4);
    match found {
        Read::Transport | Read::Error => {
            assert!(l4 >= L3 + 20 && l4 + 8 <= frame.len());
            assert!(L3 + usize::from(packet.len) <= frame.len());
        }
        Read::Fragment => assert_eq!((l4, packet.source_port), (0, 0)),
        Read::Other | Read::Malformed => return,
    }
    assert_eq!(packet.v4 == 0, frame[12..14] == ETHERTYPE_IPV6);
    assert_eq!(packet.v4 == 1, is_v4(&packet.source));

    let mut inner = Packet::default();
    if found == Read::Error && quoted(&frame, l4 + 8, packet.v4 == 1, &mut inner) {
        assert!(usize::from(inner.l4) + 8 <= frame.len());
    }
});
