//! The endpoints that there were at each moment, and the verdict on connections.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// Time for which an endpoint that is gone may still get connections, while server and agent run.
pub(super) const LATE_MAX: Duration = Duration::from_secs(1);

/// When endpoints were gone, and when agent or server did not run.
#[derive(Default)]
pub(super) struct History {
    /// By Service and host: since when it is an endpoint, or is none.
    endpoints: BTreeMap<(u16, u16), Vec<(Duration, bool)>>,
    /// From a kill until changes reach the kernel again.
    pub(super) down: Vec<(Duration, Duration)>,
}

impl History {
    /// From this moment on a host is an endpoint of a Service, or is none.
    pub(super) fn note(&mut self, service: u16, host: u16, at: Duration, exists: bool) {
        let changes = self.endpoints.entry((service, host)).or_default();
        changes.push((at, exists));
    }

    /// Since when a host is no endpoint of a Service at this moment; none: it is one.
    fn gone_since(&self, service: u16, host: u16, at: Duration) -> Option<Duration> {
        let changes = self.endpoints.get(&(service, host))?;
        let last = changes.iter().rev().find(|(time, _)| *time <= at);
        match last {
            Some((_, true)) => None,
            Some((time, false)) => Some(*time),
            None => Some(Duration::ZERO),
        }
    }

    /// How long server and agent ran in this time.
    fn up_between(&self, from: Duration, to: Duration) -> Duration {
        let down = self.down.iter().map(|(begin, end)| {
            let (begin, end) = ((*begin).max(from), (*end).min(to));
            end.saturating_sub(begin)
        });
        to.saturating_sub(from).saturating_sub(down.sum())
    }

    /// Why a connection is wrong, if it is, by the client's line about it.
    pub(super) fn judge(&self, line: &str) -> Option<String> {
        let words: Vec<_> = line.split(' ').collect();
        let [at, done, service, server] = words[..] else {
            return Some(format!("no line of a connection: {line}"));
        };
        let [at, done] = [at, done].map(|time| Duration::from_nanos(time.parse().unwrap()));
        let service = service.parse().unwrap();
        let Ok(IpAddr::V6(server)) = server.parse() else {
            return Some(format!("failed: {line}"));
        };
        // The last part of an address has the digits of the host's number.
        let host = format!("{:x}", server.segments()[7]).parse().unwrap();
        let Some(changes) = self.endpoints.get(&(service, host)) else {
            return Some(format!("never an endpoint: {line}"));
        };
        // One that came while the connection was made is a right answer, however long the client was away meanwhile.
        if changes
            .iter()
            .any(|(time, exists)| *exists && (at..=done).contains(time))
        {
            return None;
        }
        let since = self.gone_since(service, host, at)?;
        let late = self.up_between(since, at);
        (late > LATE_MAX).then(|| format!("gone for {late:?}: {line}"))
    }
}

#[test]
fn connections_that_failed_or_reached_a_gone_endpoint_are_found() {
    let second = Duration::from_secs;
    let mut history = History::default();
    history.note(1, 10, second(5), true);
    history.note(1, 10, second(10), false);
    history.down.push((second(11), second(20)));
    let judge = |at: u64, server: &str| {
        let at = second(at).as_nanos();
        history.judge(&format!("{at} {at} 1 {server}"))
    };
    for right in [5, 9, 10, 11, 15, 20] {
        assert_eq!(judge(right, "2001:db8:77::10"), None);
    }
    for wrong in [4, 21] {
        assert!(judge(wrong, "2001:db8:77::10").is_some());
    }
    assert!(judge(9, "2001:db8:77::11").is_some());
    assert!(judge(9, "TimeoutError('timed_out')").is_some());
    assert!(history.judge("9 1").is_some());
    let [before, after] = [4, 6].map(|at| second(at).as_nanos());
    let came_meanwhile = format!("{before} {after} 1 2001:db8:77::10");
    assert_eq!(history.judge(&came_meanwhile), None);
}
