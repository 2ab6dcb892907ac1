//! The controller's end against messages as an activator sends them.

use std::time::Duration;

use super::super::proto::{Demand, FirstByte, Want};
use super::*;
use crate::Problem;

const NOW: Boottime = Boottime(5_000_000_000);

fn route(backends: &[&str]) -> Route {
    Route {
        name: "default/docs".to_owned(),
        tenant: "default".to_owned(),
        version: 1,
        port: 80,
        container_concurrency: 0,
        timeout: Duration::from_secs(1),
        serving: false,
        wake_timeout: Duration::from_secs(1),
        problem: None,
        split: None,
        backends: backends.iter().map(|text| text.parse().unwrap()).collect(),
    }
}

fn awake() -> Route {
    route(&["[2001:db8::7]:8000"])
}

fn hello(name: &str) -> Hello {
    Hello {
        name: name.to_owned(),
        boot_id: "here".to_owned(),
        ..Hello::default()
    }
}

fn root() -> Root {
    Root::new(9, "here".to_owned())
}

/// Everything that a stream has to send.
fn sent(root: &mut Root, session: Session) -> Down {
    let mut all = Down::default();
    while let Next::Send(down) = root.next(session) {
        assert_eq!(down.epoch, 9);
        all.routes.extend(down.routes);
        all.absent.extend(down.absent);
        all.ports = down.ports.or(all.ports);
        all.complete |= down.complete;
    }
    all
}

fn vips(down: &Down) -> Vec<u32> {
    down.routes.iter().map(|route| route.vip).collect()
}

fn want(vip: u32) -> Up {
    Up {
        wants: vec![Want {
            vip,
            port: 80,
            at_ns: 3,
        }],
        ..Up::default()
    }
}

#[test]
fn an_activator_gets_all_awake_apps_and_then_the_mark_that_it_has_them() {
    let mut root = root();
    root.ports(BTreeSet::from([80]));
    root.publish(1, awake());
    root.publish(2, route(&[]));
    let (session, _) = root.open(hello("a"));
    let first = sent(&mut root, session);
    assert_eq!((vips(&first), first.complete), (vec![1], false));
    assert_eq!(first.ports.unwrap().listen, [80]);
    root.publish(3, awake());
    root.complete();
    let second = sent(&mut root, session);
    assert_eq!((vips(&second), second.complete), (vec![3], true));
    assert_eq!(root.next(session), Next::Idle);
}

#[test]
fn nothing_is_held_or_sent_for_a_sleeping_app_that_no_activator_asks_about() {
    let mut root = root();
    let (session, _) = root.open(hello("a"));
    sent(&mut root, session);
    for vip in 0..1_000 {
        assert_eq!(root.publish(vip, route(&[])), []);
    }
    assert_eq!((root.next(session), root.routes()), (Next::Idle, 0));
}

#[test]
fn a_want_is_answered_to_those_who_asked() {
    let mut root = root();
    let (asking, _) = root.open(hello("a"));
    let (other, _) = root.open(hello("b"));
    sent(&mut root, asking);
    sent(&mut root, other);
    let events = root.receive(asking, want(7), NOW);
    let expected = Event::Report(Report::Want {
        vip: 7,
        port: 80,
        at: Boottime(3),
    });
    assert_eq!(events, [expected]);
    root.publish(7, route(&[]));
    assert_eq!(vips(&sent(&mut root, asking)), [7]);
    assert_eq!(root.next(other), Next::Idle);
    root.receive(asking, want(8), NOW);
    root.absent(8);
    assert_eq!(sent(&mut root, asking).absent, [8]);
}

#[test]
fn a_want_of_an_awake_app_is_answered_without_the_controller() {
    let mut root = root();
    let (session, _) = root.open(hello("a"));
    root.publish(7, awake());
    sent(&mut root, session);
    assert_eq!(root.receive(session, want(7), NOW), []);
    assert_eq!(vips(&sent(&mut root, session)), [7]);
}

#[test]
fn a_slow_activator_gets_only_the_newest_of_each_app() {
    let mut root = root();
    let (session, _) = root.open(hello("a"));
    sent(&mut root, session);
    for version in 1..=100 {
        let mut newer = awake();
        newer.version = version;
        root.publish(1, newer);
        root.publish(2, awake());
        root.publish(2, route(&[]));
    }
    let down = sent(&mut root, session);
    assert_eq!((vips(&down), down.routes[0].version), (vec![1, 2], 100));
    assert!(down.routes[1].backends.is_empty());
}

#[test]
fn routes_are_split_into_messages_of_bounded_size() {
    let mut root = root();
    for vip in 0..2_000 {
        root.publish(vip, awake());
    }
    root.complete();
    let (session, _) = root.open(hello("a"));
    let Next::Send(first) = root.next(session) else {
        panic!("nothing to send");
    };
    assert!(first.routes.len() < 2_000 && !first.complete);
    let rest = sent(&mut root, session);
    assert_eq!(first.routes.len() + rest.routes.len(), 2_000);
    assert!(rest.complete);
}

#[test]
fn a_second_stream_of_an_activator_closes_the_first() {
    let mut root = root();
    let (first, none) = root.open(hello("a"));
    let (second, older) = root.open(hello("a"));
    assert_eq!((none, older), (None, Some(first)));
    assert_eq!(root.next(first), Next::Closed);
    assert!(!root.end(first) && root.end(second));
    assert_eq!(root.streams(), 0);
}

#[test]
fn times_of_another_machine_are_converted_to_the_controllers_clock() {
    let mut root = root();
    let mut remote = hello("a");
    remote.boot_id = "elsewhere".to_owned();
    let (session, _) = root.open(remote);
    let up = Up {
        sent_ns: 1_000,
        demands: vec![Demand { vip: 1, at_ns: 900 }],
        first_bytes: vec![FirstByte { vip: 1, at_ns: 950 }],
        ..Up::default()
    };
    let at = |ns: u64| Boottime(NOW.0 - 1_000 + ns);
    let expected = [
        Report::Demand {
            vip: 1,
            at: at(900),
        },
        Report::FirstByte {
            vip: 1,
            at: at(950),
        },
    ]
    .map(Event::Report);
    assert_eq!(root.receive(session, up, NOW), expected);
}

#[test]
fn the_reason_of_an_app_without_backends_is_held_until_it_is_over() {
    let mut root = root();
    let (session, _) = root.open(hello("a"));
    sent(&mut root, session);
    let problem = Problem {
        message: "CrashLoopBackOff".to_owned(),
        retry_after: None,
    };
    let sick = Route {
        problem: Some(problem),
        ..route(&[])
    };
    root.publish(7, sick);
    assert_eq!(vips(&sent(&mut root, session)), [7]);
    let (later, _) = root.open(hello("b"));
    assert_eq!(vips(&sent(&mut root, later)), [7]);
    root.publish(7, route(&[]));
    assert_eq!(vips(&sent(&mut root, session)), [7], "the reason is over");
    root.publish(7, route(&[]));
    assert_eq!(vips(&sent(&mut root, session)), [0; 0]);
    assert_eq!(root.routes(), 0);
}
