//! Changes of entries of one node, which acknowledges them or not.

use tokio::sync::oneshot::error::TryRecvError;

use super::*;
use crate::config::ServerConfig;
use crate::lease::LEASE_DEFAULT;
use crate::proto::{Beat, Entry, Hello, NodeConfig, Up};
use crate::root::{Next, Session};

/// No lease of an earlier root is left.
const LATER: Boottime = Boottime(3_600_000_000_000);

/// A root with one node that uses version 1 of these VIPs and has a lease.
fn root(vips: &[u32]) -> (Root, Session) {
    let mut root = Root::new(ServerConfig::new(1, NodeConfig::default()), Boottime(0));
    root.confirmed(LATER, LATER);
    let hello = Hello {
        node: "n".into(),
        follows: vips.to_vec(),
        ..Hello::default()
    };
    let session = root.hello(hello).unwrap().session;
    for vip in vips {
        root.publish(entry(*vip, 1));
    }
    let beat = Some(Beat { at_ns: LATER.0 });
    root.receive(session, up(0, beat), LATER);
    let seq = send(&mut root, session);
    root.receive(session, up(seq, None), LATER);
    (root, session)
}

fn entry(vip: u32, version: u64) -> Entry {
    Entry {
        vip,
        version,
        settle: true,
        ..Entry::default()
    }
}

fn up(applied: u64, beat: Option<Beat>) -> Up {
    Up {
        applied,
        beat,
        ..Up::default()
    }
}

fn send(root: &mut Root, session: Session) -> u64 {
    match root.next(session, LATER) {
        Next::Send(down) => down.seq,
        other => panic!("expected a message, got {other:?}"),
    }
}

#[test]
fn a_change_settles_when_its_node_acknowledges_it() {
    let (mut root, session) = root(&[1, 2]);
    let mut settles = Settles::default();
    root.publish(entry(1, 5));
    root.publish(entry(2, 5));
    assert_eq!(settles.add(&root, (1, 5), LATER), None);
    assert_eq!(settles.add(&root, (2, 5), LATER), None);
    let seq = send(&mut root, session);
    assert_eq!(settles.check(&root, 1, LATER), None, "only sent");
    root.receive(session, up(seq, None), LATER);
    let settled = |vip| Event::Settled { vip, version: 5 };
    assert_eq!(settles.check(&root, 1, LATER), Some(settled(1)));
    assert_eq!(settles.check(&root, 1, LATER), None, "once");
    assert_eq!(settles.check_all(&root, LATER), [settled(2)]);
    assert_eq!(settles.due_at(), None, "no lease is waited for");
}

#[test]
fn a_change_settles_when_the_lease_of_a_silent_node_has_ended() {
    let (mut root, _session) = root(&[1]);
    let mut settles = Settles::default();
    root.publish(entry(1, 5));
    assert_eq!(settles.add(&root, (1, 5), LATER), None);
    let end = settles.due_at().unwrap();
    assert!(end > LATER + LEASE_DEFAULT);
    let before = Boottime(end.0 - 1);
    assert_eq!(settles.expire(&root, before), None);
    let settled = Event::Settled { vip: 1, version: 5 };
    assert_eq!(settles.expire(&root, end), Some(settled));
    assert_eq!(settles.due_at(), None);
}

#[test]
fn a_later_change_replaces_an_earlier_one_and_a_settled_one_is_an_event_at_once() {
    let (mut root, session) = root(&[1]);
    let mut settles = Settles::default();
    let settled = |version| Some(Event::Settled { vip: 1, version });
    assert_eq!(settles.add(&root, (1, 1), LATER), settled(1));
    root.publish(entry(1, 5));
    assert_eq!(settles.add(&root, (1, 5), LATER), None);
    root.publish(entry(1, 7));
    assert_eq!(settles.add(&root, (1, 7), LATER), None);
    let seq = send(&mut root, session);
    root.receive(session, up(seq, None), LATER);
    assert_eq!(
        settles.check_all(&root, LATER),
        [Event::Settled { vip: 1, version: 7 }]
    );
}

#[test]
fn callers_wait_for_their_own_versions() {
    let (mut root, session) = root(&[1]);
    let mut settles = Settles::default();
    root.publish(entry(1, 5));
    let mut first = settles.call(1, 5);
    let mut later = settles.call(1, 9);
    drop(settles.call(1, 5));
    assert_eq!(settles.add(&root, (1, 5), LATER), None);
    let seq = send(&mut root, session);
    root.receive(session, up(seq, None), LATER);
    let settled = Event::Settled { vip: 1, version: 5 };
    assert_eq!(settles.check(&root, 1, LATER), Some(settled));
    assert_eq!(first.try_recv(), Ok(()));
    assert_eq!(later.try_recv(), Err(TryRecvError::Empty));
    root.publish(entry(1, 9));
    let seq = send(&mut root, session);
    root.receive(session, up(seq, None), LATER);
    assert_eq!(settles.check(&root, 1, LATER), None);
    assert_eq!(later.try_recv(), Ok(()));
    assert!(settles.by_vip.is_empty());
}
