//! The activator's end against messages as a controller sends them.

use super::super::message::{pack, unpack_answer};
use super::super::proto::Ports;
use super::*;
use crate::{FaultKind, Problem};

const NOW: Boottime = Boottime(5);

fn follower() -> Follower {
    let mut follower = Follower::new(Hello::default());
    follower.open(NOW);
    follower
}

fn awake() -> Route {
    Route {
        name: "default/docs".to_owned(),
        tenant: "default".to_owned(),
        version: 1,
        port: 80,
        container_concurrency: 0,
        timeout: std::time::Duration::from_secs(1),
        serving: false,
        wake_timeout: std::time::Duration::from_secs(1),
        problem: None,
        split: None,
        backends: vec!["[2001:db8::7]:8000".parse().unwrap()],
    }
}

fn routes(epoch: u64, vips: &[u32], complete: bool) -> Down {
    Down {
        epoch,
        routes: vips.iter().map(|vip| pack(*vip, awake())).collect(),
        complete,
        ..Down::default()
    }
}

fn asleep(changes: Vec<Change>) -> Vec<u32> {
    let asleep = changes.into_iter().filter_map(|change| match change {
        Change::Asleep(vip) => Some(vip),
        _ => None,
    });
    asleep.collect()
}

#[test]
fn routes_and_ports_are_changes_of_the_activator() {
    let mut follower = follower();
    let mut down = routes(1, &[7], false);
    down.ports = Some(Ports {
        listen: vec![80, 70_000],
    });
    down.absent = vec![9];
    let expected = [
        Change::Ports(BTreeSet::from([80])),
        Change::Route(7, Box::new(awake())),
        Change::Absent(9),
    ];
    assert_eq!(follower.receive(down), Ok(expected.to_vec()));
}

#[test]
fn routes_stay_without_control_until_the_next_one_has_sent_all_of_its_own() {
    let mut follower = follower();
    follower.receive(routes(1, &[1, 2, 3], true)).unwrap();
    follower.close();
    follower.open(NOW);
    assert!(asleep(follower.receive(routes(2, &[1], false)).unwrap()).is_empty());
    assert_eq!(
        asleep(follower.receive(routes(2, &[2], true)).unwrap()),
        [3]
    );
    assert!(asleep(follower.receive(routes(2, &[], true)).unwrap()).is_empty());
}

#[test]
fn an_older_control_is_refused() {
    let mut follower = follower();
    follower.receive(routes(2, &[1], true)).unwrap();
    let refused = Refused::Older {
        found: 1,
        newest: 2,
    };
    assert_eq!(follower.receive(routes(1, &[], true)), Err(refused));
    assert_eq!(follower.next(NOW).epoch, 2);
}

#[test]
fn reports_of_one_app_are_sent_once_with_the_earliest_time() {
    let mut follower = follower();
    assert!(!follower.has_next());
    for at in [Boottime(3), Boottime(4)] {
        follower.report(Report::Want {
            vip: 1,
            port: 80,
            at,
        });
        follower.report(Report::Demand { vip: 2, at });
    }
    follower.report(Report::FirstByte {
        vip: 3,
        at: Boottime(6),
    });
    assert!(follower.has_next());
    let up = follower.next(NOW);
    assert_eq!((up.wants.len(), up.wants[0].at_ns), (1, 3));
    assert_eq!((up.demands.len(), up.demands[0].at_ns), (1, 3));
    assert_eq!((up.first_bytes.len(), up.first_bytes[0].at_ns), (1, 6));
    assert!(!follower.has_next());
}

#[test]
fn without_control_nothing_is_queued_but_first_bytes() {
    let mut follower = follower();
    follower.close();
    for vip in 0..10_000 {
        let at = NOW;
        follower.report(Report::Want { vip, port: 80, at });
        follower.report(Report::Demand { vip, at });
        follower.report(Report::FirstByte { vip, at });
        follower.loads(vec![Load::default()]);
    }
    assert!(!follower.has_next());
    follower.open(NOW);
    let up = follower.next(NOW);
    assert!(up.wants.is_empty() && up.demands.is_empty() && up.loads.is_empty());
    assert_eq!(up.first_bytes.len(), FIRST_BYTES_MAX);
}

#[test]
fn failing_pods_are_reported_again_on_a_new_stream_until_they_answer_or_are_gone() {
    let mut follower = follower();
    let pods: Vec<SocketAddrV6> = (1..=3)
        .map(|last| format!("[2001:db8::{last}]:80").parse().unwrap())
        .collect();
    let fault = || {
        let kind = FaultKind::NoResponse;
        let message = "did not respond within 3s".to_owned();
        Some(Fault { kind, message })
    };
    let answer = |follower: &mut Follower, pod: usize, fault| {
        let (vip, pod, at) = (1, pods[pod], NOW);
        follower.report(Report::Answer {
            vip,
            pod,
            at,
            fault,
        });
    };
    for pod in 0..3 {
        answer(&mut follower, pod, fault());
    }
    assert_eq!(follower.next(NOW).answers.len(), 3);
    answer(&mut follower, 0, None);
    let answers = follower.next(NOW).answers;
    let answers: Vec<_> = answers.into_iter().filter_map(unpack_answer).collect();
    assert_eq!(answers, [(pods[0], None)]);
    follower.close();
    let route = Route {
        backends: pods[..2].to_vec(),
        ..awake()
    };
    follower.open(NOW);
    let down = Down {
        routes: vec![pack(1, route)],
        ..Down::default()
    };
    follower.receive(down).unwrap();
    follower.close();
    follower.open(NOW);
    let answers = follower.next(NOW).answers;
    let answers: Vec<_> = answers.into_iter().filter_map(unpack_answer).collect();
    assert_eq!(answers, [(pods[1], fault())]);
}

#[test]
fn a_problem_that_a_newer_control_does_not_send_again_is_over() {
    let mut follower = follower();
    let problem = Problem {
        message: "CrashLoopBackOff".to_owned(),
        retry_after: None,
    };
    let sick = Route {
        backends: Vec::new(),
        problem: Some(problem),
        ..awake()
    };
    let mut down = routes(1, &[], false);
    down.routes.push(pack(7, sick));
    follower.receive(down).unwrap();
    follower.close();
    follower.open(NOW);
    assert_eq!(asleep(follower.receive(routes(2, &[], true)).unwrap()), [7]);
}
