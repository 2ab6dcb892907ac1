//! The filter over connections of clients in Go and over other bytes.

use proptest::prelude::*;
use tonic::codegen::http::uri::Authority;

use super::*;

/// The first request of etcdctl 3.4 (`endpoint status` of `http://[::1]:12399`), as it was captured.
const STATUS: &[u8] = b"\x00\x00w\x01\x04\x00\x00\x00\x01\x83\x86E\x97`\xa9$\x88-\x9d\xcbeq\xaf\xa0f\xa9%\xa8u\x10\xacnH\xd3j?A\x90\x9d)\xae\xe3\x0c\x7f\xee\xe5\xc0\xff\xf2\xe0D\xcb\xef\xff_\x8b\x1du\xd0b\r&=LMedz\x8b\x9a\xca\xc8\xb4\xc7`+\xb2\xca\xec\xff@\x02te\x86M\x835\x05\xb1\x1f@\x89\x9a\xca\xc8\xb2MIOj\x7f\x86i\xf7\xdbq\x96m@\x8d%\x06-IXu\x99n\xe5\xb1\x06=_\x033.4";
/// The one over TLS, whose header is `::1`.
const STATUS_TLS: &[u8] = b"\x00\x00j\x01\x04\x00\x00\x00\x01\x83\x87E\x97`\xa9$\x88-\x9d\xcbeq\xaf\xa0f\xa9%\xa8u\x10\xacnH\xd3j?A\x03::1_\x8b\x1du\xd0b\r&=LMedz\x8b\x9a\xca\xc8\xb4\xc7`+\xb2\xca\xec\xff@\x02te\x86M\x835\x05\xb1\x1f@\x89\x9a\xca\xc8\xb2MIOj\x7f\x86i\xf6\x9fl\x0f\xdb@\x8d%\x06-IXu\x99n\xe5\xb1\x06=_\x033.4";
/// The message of a request: an empty frame with data that ends the stream.
const DATA: &[u8] = b"\x00\x00\x05\x00\x01\x00\x00\x00\x01\x00\x00\x00\x00\x00";
const SETTINGS: &[u8] = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00";

/// What the filter passes of a connection whose bytes arrive in pieces.
fn filtered(filter: &mut Filter, pieces: &[&[u8]]) -> Vec<u8> {
    let (mut input, mut output) = (BytesMut::new(), BytesMut::new());
    for piece in pieces {
        input.extend_from_slice(piece);
        filter.pass(&mut input, &mut output);
    }
    output.to_vec()
}

/// A request with a literal header, not in Huffman's code.
fn request(authority: &str) -> Vec<u8> {
    let mut block = vec![0x83, 0x41];
    block.push(u8::try_from(authority.len()).unwrap());
    block.extend_from_slice(authority.as_bytes());
    block.push(0x86);
    let length = u8::try_from(block.len()).unwrap();
    [&[0, 0, length, HEADERS, 4, 0, 0, 0, 1], block.as_slice()].concat()
}

#[test]
fn a_malformed_authority_is_replaced_by_one_of_the_same_length() {
    for (captured, length) in [(STATUS, 18), (STATUS_TLS, 3)] {
        let mut filter = Filter::default();
        let passed = filtered(&mut filter, &[PREFACE, SETTINGS, captured, DATA]);
        let block = &passed[PREFACE.len() + SETTINGS.len()..passed.len() - DATA.len()];
        let start = block.iter().position(|&byte| byte == 0x41).unwrap();
        let value = &block[start + 2..][..length];
        assert_eq!(usize::from(block[start + 1]), length);
        assert!(Authority::try_from(value).is_ok(), "{value:?}");
        assert_eq!(usize::from(block[2]), block.len() - FRAME_HEADER_BYTES);
        let rest = captured.iter().position(|&byte| byte == 0x5f).unwrap();
        assert!(block.ends_with(&captured[rest..]));
        assert!(!filter.is_transparent());
    }
}

#[test]
fn a_valid_authority_passes_and_makes_the_filter_transparent() {
    let valid = request("[::1]:2379");
    let mut filter = Filter::default();
    let passed = filtered(&mut filter, &[PREFACE, SETTINGS, &valid]);
    assert_eq!(passed, [PREFACE, SETTINGS, &valid].concat());
    assert!(filter.is_transparent());
}

#[test]
fn a_later_request_with_a_literal_header_is_replaced_again() {
    let malformed = request("http://a:1");
    let mut filter = Filter::default();
    let passed = filtered(&mut filter, &[PREFACE, &malformed, DATA, &malformed]);
    let replaced = request("xxxxxxxxxx");
    assert_eq!(passed, [PREFACE, &replaced, DATA, &replaced].concat());
}

#[test]
fn a_message_that_looks_like_a_request_is_not_touched() {
    let malformed = request("http://a:1");
    let length = u8::try_from(malformed.len()).unwrap();
    let message = [&[0, 0, length, 0, 0, 0, 0, 0, 1], malformed.as_slice()].concat();
    let mut filter = Filter::default();
    let passed = filtered(&mut filter, &[PREFACE, &message]);
    assert_eq!(passed, [PREFACE, &message].concat());
}

#[test]
fn http_1_passes() {
    let request: &[u8] = b"POST /health HTTP/1.1\r\n\r\n";
    let mut filter = Filter::default();
    assert_eq!(filtered(&mut filter, &[b"P", &request[1..]]), request);
    assert!(filter.is_transparent());
}

proptest! {
    #[test]
    fn pieces_make_no_difference(cuts in proptest::collection::vec(0_usize..400, 0..12)) {
        let malformed = request("http://a:1");
        let whole = [PREFACE, SETTINGS, STATUS, DATA, &malformed, DATA].concat();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % whole.len()).collect();
        cuts.extend([0, whole.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &whole[cut[0]..cut[1]]).collect();
        let at_once = filtered(&mut Filter::default(), &[&whole]);
        prop_assert_eq!(filtered(&mut Filter::default(), &pieces), at_once);
    }

    /// Bytes of any client pass without a panic, and none is lost but for an incomplete frame.
    #[test]
    fn any_bytes_pass(bytes in proptest::collection::vec(any::<u8>(), 0..300), flags in any::<u8>()) {
        let length = u8::try_from(bytes.len() % 256).unwrap();
        let frame = [&[0, 0, length, HEADERS, flags, 0, 0, 0, 1], bytes.as_slice()].concat();
        let passed = filtered(&mut Filter::default(), &[PREFACE, &frame]);
        prop_assert!(passed.starts_with(PREFACE));
    }
}
