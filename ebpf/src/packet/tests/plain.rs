//! The reader of plain IPv6 that the programs still use.

use proptest::prelude::*;

use crate::packet::*;

fn syn() -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend(ETHERTYPE_IPV6);
    frame.extend([0x60, 0, 0, 0, 0, 20, TCP, 64]);
    frame.extend([1; 16]);
    frame.extend([2; 16]);
    frame.extend([
        0x9c, 0x40, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x02, 0, 0, 0, 0, 0, 0,
    ]);
    frame
}

#[test]
fn a_syn_is_read_whole_by_the_old_reader() {
    let read = transport(&syn().as_slice()).unwrap();
    assert_eq!((read.source, read.source_port), ([1; 16], 40_000));
    assert_eq!((read.target, read.target_port), ([2; 16], 80));
    assert!(read.opens() && !read.closes());
}

#[test]
fn a_frame_cut_anywhere_is_not_read() {
    let frame = syn();
    for len in 0..frame.len() {
        assert_eq!(transport(&&frame[..len]), None, "{len}");
    }
}

#[test]
fn only_a_syn_without_ack_opens_and_fin_or_rst_closes() {
    let with = |flags| {
        let mut frame = syn();
        frame[L4 + 13] = flags;
        let read = transport(&frame.as_slice()).unwrap();
        (read.opens(), read.closes())
    };
    assert_eq!(with(SYN | ACK), (false, false));
    assert_eq!(with(ACK), (false, false));
    assert_eq!(with(FIN | ACK), (false, true));
    assert_eq!(with(RST), (false, true));
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_fail(frame in proptest::collection::vec(any::<u8>(), 0..120)) {
        let read = transport(&frame.as_slice());
        prop_assert!(read.is_none() || frame.len() >= L4 + 8);
    }
}
