//! Routes as messages.

use std::net::{Ipv6Addr, SocketAddrV6};
use std::time::Duration;

use dormouse_fleet::clock::Boottime;

use super::proto::answer::Kind;
use super::proto::{self, sticky::By};
use crate::Route;
use crate::config::{Problem, WAKE_TIMEOUT};
use crate::report::{Fault, FaultKind};
use crate::split::{Split, SplitTarget, Sticky};

/// Bytes of one packed backend: address and port.
const BACKEND_LEN: usize = 18;

/// A route in a message is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the route of VIP index {vip} is malformed")]
pub struct MalformedRoute {
    vip: u32,
}

pub(super) fn pack(vip: u32, route: Route) -> proto::Route {
    let mut backends = Vec::with_capacity(route.backends.len() * BACKEND_LEN);
    for backend in &route.backends {
        backends.extend_from_slice(&pack_backend(*backend));
    }
    proto::Route {
        vip,
        version: route.version,
        name: route.name,
        tenant: route.tenant,
        port: u32::from(route.port),
        container_concurrency: route.container_concurrency,
        timeout_ms: milliseconds(route.timeout),
        serving: route.serving,
        backends,
        owner: String::new(),
        wake_timeout_ms: milliseconds(route.wake_timeout),
        retry_after_ms: route.problem.as_ref().map_or(0, retry_after_ms),
        problem: route
            .problem
            .map_or_else(String::new, |problem| problem.message),
        sticky: route.split.as_ref().and_then(pack_sticky),
        split: route.split.map_or_else(Vec::new, pack_targets),
    }
}

fn pack_targets(split: Split) -> Vec<proto::Target> {
    let targets = split.targets.into_iter();
    targets
        .map(|SplitTarget { vip, weight }| proto::Target { vip, weight })
        .collect()
}

fn pack_sticky(split: &Split) -> Option<proto::Sticky> {
    let by = match split.sticky.clone()? {
        Sticky::Header(name) => By::Header(name),
        Sticky::Cookie(name) => By::Cookie(name),
        Sticky::ClientAddress => By::ClientAddress(true),
    };
    Some(proto::Sticky { by: Some(by) })
}

fn unpack_split(targets: &[proto::Target], sticky: Option<proto::Sticky>) -> Option<Split> {
    let by = sticky.and_then(|sticky| sticky.by);
    let sticky = by.map(|by| match by {
        By::Header(name) => Sticky::Header(name),
        By::Cookie(name) => Sticky::Cookie(name),
        By::ClientAddress(_) => Sticky::ClientAddress,
    });
    let targets = targets.iter().map(|target| SplitTarget {
        vip: target.vip,
        weight: target.weight,
    });
    let targets: Vec<_> = targets.collect();
    (!targets.is_empty()).then_some(Split { targets, sticky })
}

/// 0 is reserved for problems with which requests are parked.
fn retry_after_ms(problem: &Problem) -> u64 {
    let after = problem.retry_after.map(|after| milliseconds(after).max(1));
    after.unwrap_or(0)
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn unpack(route: proto::Route) -> Result<Route, MalformedRoute> {
    let malformed = MalformedRoute { vip: route.vip };
    let (records, rest) = route.backends.as_chunks::<BACKEND_LEN>();
    let port = u16::try_from(route.port).ok().filter(|_| rest.is_empty());
    let duration = |ms: u64| Some(Duration::from_millis(ms)).filter(|_| ms > 0);
    let retry_after = duration(route.retry_after_ms);
    let problem = Some(route.problem).filter(|message| !message.is_empty());
    Ok(Route {
        name: route.name,
        tenant: route.tenant,
        version: route.version,
        port: port.ok_or(malformed)?,
        container_concurrency: route.container_concurrency,
        timeout: Duration::from_millis(route.timeout_ms),
        serving: route.serving,
        backends: records.iter().map(unpack_backend).collect(),
        wake_timeout: duration(route.wake_timeout_ms).unwrap_or(WAKE_TIMEOUT),
        problem: problem.map(|message| Problem {
            message,
            retry_after,
        }),
        split: unpack_split(&route.split, route.sticky),
    })
}

fn pack_backend(backend: SocketAddrV6) -> [u8; BACKEND_LEN] {
    let mut record = [0; BACKEND_LEN];
    record[..16].copy_from_slice(&backend.ip().octets());
    record[16..].copy_from_slice(&backend.port().to_be_bytes());
    record
}

fn unpack_backend(record: &[u8; BACKEND_LEN]) -> SocketAddrV6 {
    let mut octets = [0; 16];
    octets.copy_from_slice(&record[..16]);
    let port = u16::from_be_bytes([record[16], record[17]]);
    SocketAddrV6::new(Ipv6Addr::from(octets), port, 0, 0)
}

/// The message about a request at a pod.
pub(super) fn pack_answer(
    vip: u32,
    pod: SocketAddrV6,
    at: Boottime,
    fault: Option<Fault>,
) -> proto::Answer {
    let kind = match fault.as_ref().map(|fault| fault.kind) {
        None => Kind::Answered,
        Some(FaultKind::NoResponse) => Kind::NoResponse,
        Some(FaultKind::BadResponse) => Kind::BadResponse,
    };
    proto::Answer {
        vip,
        pod: pack_backend(pod).to_vec(),
        at_ns: at.0,
        kind: kind.into(),
        message: fault.map_or_else(String::new, |fault| fault.message),
    }
}

/// The pod's socket, and how it failed; none: the message is malformed, or of a kind that is not known.
pub(super) fn unpack_answer(answer: proto::Answer) -> Option<(SocketAddrV6, Option<Fault>)> {
    let kind = match answer.kind() {
        Kind::Unspecified => return None,
        Kind::Answered => None,
        Kind::NoResponse => Some(FaultKind::NoResponse),
        Kind::BadResponse => Some(FaultKind::BadResponse),
    };
    let pod = unpack_backend(answer.pod.as_slice().try_into().ok()?);
    let message = answer.message;
    Some((pod, kind.map(|kind| Fault { kind, message })))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route() -> Route {
        Route {
            name: "default/docs".to_owned(),
            tenant: "default".to_owned(),
            version: 7,
            port: 80,
            container_concurrency: 3,
            timeout: Duration::from_millis(1_500),
            serving: true,
            backends: vec!["[2001:db8::7]:8000".parse().unwrap()],
            wake_timeout: Duration::from_secs(9),
            problem: None,
            split: None,
        }
    }

    #[test]
    fn unpacking_returns_what_was_packed() {
        assert_eq!(unpack(pack(9, route())), Ok(route()));
        for retry_after in [None, Some(Duration::from_secs(20))] {
            let problem = Problem {
                message: "CrashLoopBackOff".to_owned(),
                retry_after,
            };
            let sick = Route {
                backends: Vec::new(),
                problem: Some(problem),
                ..route()
            };
            assert_eq!(unpack(pack(9, sick.clone())), Ok(sick));
        }
    }

    #[test]
    fn a_split_is_unpacked_as_it_was_packed() {
        let target = |vip, weight| SplitTarget { vip, weight };
        let all = [
            None,
            Some(Sticky::Header("x-user".to_owned())),
            Some(Sticky::Cookie("user".to_owned())),
            Some(Sticky::ClientAddress),
        ];
        for sticky in all {
            let targets = vec![target(9, 90), target(10, 10), target(11, 0)];
            let split = Some(Split { targets, sticky });
            let route = Route { split, ..route() };
            assert_eq!(unpack(pack(9, route.clone())), Ok(route));
        }
    }

    #[test]
    fn a_route_of_an_older_control_has_the_default_wake_timeout() {
        let older = proto::Route {
            wake_timeout_ms: 0,
            ..pack(9, route())
        };
        assert_eq!(
            unpack(older).map(|route| route.wake_timeout),
            Ok(WAKE_TIMEOUT)
        );
    }

    #[test]
    fn an_answer_of_a_kind_that_is_not_known_is_refused() {
        let pod = "[2001:db8::7]:8000".parse().unwrap();
        let answered = pack_answer(9, pod, Boottime(1), None);
        assert_eq!(unpack_answer(answered.clone()), Some((pod, None)));
        for kind in [0, 99] {
            let unknown = proto::Answer {
                kind,
                ..answered.clone()
            };
            assert_eq!(unpack_answer(unknown), None, "{kind}");
        }
    }

    #[test]
    fn a_malformed_route_is_refused() {
        let mut cut = pack(9, route());
        cut.backends.pop();
        assert_eq!(unpack(cut), Err(MalformedRoute { vip: 9 }));
        let mut port = pack(9, route());
        port.port = 65_536;
        assert_eq!(unpack(port), Err(MalformedRoute { vip: 9 }));
    }
}
