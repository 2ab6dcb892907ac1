//! More requests at once than the agent serves: they wait in the socket's queue, and each gets its answer.

use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv6Addr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};

use dormouse_cni::message::{Attachment, Reply, Request, Wanted, reservation};
use dormouse_cni::wire;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use dormouse_rig::Netns;

use crate::node::Node;

/// All of them are asked for before the first answer is read.
const REQUESTS: usize = 10_000;
/// Every so manieth is wired; for the others an address is kept, as for pods that another plugin wires.
const WIRED_EVERY: usize = 20;
/// Where the interfaces go, in turns: a namespace for each would take more memory than a test should.
const PODS: usize = 64;
/// Who reads answers.
const READERS: usize = 16;

#[test]
fn ten_thousand_adds_at_once_all_get_an_address_of_their_own() {
    let files = getrlimit(Resource::Nofile);
    let all = Rlimit {
        current: files.maximum,
        ..files
    };
    setrlimit(Resource::Nofile, all).unwrap();
    let mut node = Node::start();
    // Of this namespace; the socket that listens then takes as many.
    let queue = || fs::write("/proc/sys/net/core/somaxconn", (2 * REQUESTS).to_string());
    node.netns().inside(queue);
    node.restart();
    let pods: Vec<Netns> = (0..PODS).map(|pod| node.pod(&format!("c{pod}"))).collect();
    let asked: Vec<UnixStream> = (0..REQUESTS)
        .map(|number| {
            let stream = UnixStream::connect(node.socket()).unwrap();
            let request = request(number);
            let netns = pods[number % PODS].file().as_fd();
            wire::send_request(&stream, &request, Some(netns)).unwrap();
            stream
        })
        .collect();
    let next = AtomicUsize::new(0);
    let read = || {
        let mut addresses = Vec::new();
        while let Some((number, stream)) = take(&asked, &next) {
            match (number % WIRED_EVERY, wire::receive_reply(stream).unwrap()) {
                (0, Reply::Wired(wired)) => addresses.push(wired.address),
                (1.., Reply::Reserved(kept)) => addresses.push(kept.address),
                other => panic!("request {number}: {other:?}"),
            }
        }
        addresses
    };
    let addresses: Vec<Ipv6Addr> = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS).map(|_| scope.spawn(read)).collect();
        let joined = readers
            .into_iter()
            .flat_map(|reader| reader.join().unwrap());
        joined.collect()
    });
    assert_eq!(addresses.len(), REQUESTS);
    let distinct: BTreeSet<_> = addresses.iter().collect();
    assert_eq!(distinct.len(), REQUESTS);
    let wired = REQUESTS / WIRED_EVERY;
    assert_eq!((node.table().len(), node.links().len()), (wired, wired));
    assert_eq!(node.counted("ADD", 0), REQUESTS as u64);
}

fn take<'a>(asked: &'a [UnixStream], next: &AtomicUsize) -> Option<(usize, &'a UnixStream)> {
    let number = next.fetch_add(1, Ordering::Relaxed);
    asked.get(number).map(|stream| (number, stream))
}

fn request(number: usize) -> Request {
    let is_wired = number.is_multiple_of(WIRED_EVERY);
    let network = if is_wired {
        "pods".to_owned()
    } else {
        reservation("pods")
    };
    let attachment = Attachment {
        network,
        container_id: format!("c{}", number % PODS),
        ifname: format!("e{number}"),
    };
    let wanted = Wanted::default();
    if is_wired {
        Request::Add { attachment, wanted }
    } else {
        Request::Reserve { attachment, wanted }
    }
}
