//! Requests and replies arrive unchanged; malformed messages are refused.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

use super::*;
use crate::message::{Attachment, Bandwidth, PortMapping, PortProtocol, Rate, Wanted};

fn request() -> Request {
    let attachment = Attachment {
        network: "pods".into(),
        container_id: "c1".into(),
        ifname: "eth0".into(),
    };
    Request::Add {
        attachment,
        wanted: Wanted {
            addresses: vec!["2001:db8::10".parse().unwrap()],
            mac: Some([2, 0, 0, 0, 0, 1]),
            bandwidth: Some(Bandwidth {
                ingress: Some(Rate {
                    bits_per_second: 8_000,
                    burst_bits: 80_000,
                }),
                egress: None,
            }),
            ports: vec![PortMapping {
                host: 8080,
                pod: 80,
                protocol: PortProtocol::Sctp,
                address: Some("192.0.2.1".parse().unwrap()),
            }],
            cohort: Some(5_007),
            pod: None,
        },
    }
}

#[test]
fn a_request_arrives_with_its_namespace() {
    let (plugin, agent) = UnixStream::pair().unwrap();
    let netns = File::open("/proc/self/ns/net").unwrap();
    send_request(&plugin, &request(), Some(netns.as_fd())).unwrap();
    let (received, descriptor) = receive_request(&agent).unwrap();
    assert_eq!(received, request());
    let inode = File::from(descriptor.unwrap()).metadata().unwrap().ino();
    assert_eq!(inode, netns.metadata().unwrap().ino());
}

#[test]
fn requests_without_a_namespace_and_replies_arrive_too() {
    let (plugin, agent) = UnixStream::pair().unwrap();
    send_request(&plugin, &Request::Status {}, None).unwrap();
    let (received, descriptor) = receive_request(&agent).unwrap();
    assert_eq!(received, Request::Status {});
    assert!(descriptor.is_none());
    send_reply(&agent, &Reply::Done).unwrap();
    assert_eq!(receive_reply(&plugin).unwrap(), Reply::Done);
}

#[test]
fn a_closed_connection_is_detected_and_a_waiting_peer_is_not_mistaken_for_one() {
    let (plugin, agent) = UnixStream::pair().unwrap();
    assert!(!is_closed(&agent));
    drop(plugin);
    assert!(is_closed(&agent));
    assert_eq!(
        receive_request(&agent).unwrap_err().kind(),
        io::ErrorKind::UnexpectedEof
    );
}

#[test]
fn other_versions_and_endless_messages_are_refused() {
    for bytes in [
        &[9u8, 0, 0, 0, 2, b'{', b'}'][..],
        &[1, 0xff, 0xff, 0xff, 0xff],
        &[1, 0, 0, 0, 1, b'x'],
    ] {
        let (mut plugin, agent) = UnixStream::pair().unwrap();
        plugin.write_all(bytes).unwrap();
        let error = receive_request(&agent).unwrap_err();
        assert_ne!(error.kind(), io::ErrorKind::UnexpectedEof, "{error}");
    }
}
