//! The pods of one app that did not answer their last request, or not in HTTP. Pure.

use std::collections::BTreeMap;
use std::net::SocketAddrV6;
use std::time::Duration;

use dormouse_fleet::clock::Boottime;

/// Interval at which a failure that lasts is reported: control forgets it otherwise.
const REPEAT: Duration = Duration::from_mins(1);
/// A pod that answers again is not reported again for this long: one that fails a part of its requests is reported at this rate.
const QUIET: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug)]
enum Last {
    /// It has failed requests, which was reported at this time.
    Failed(Boottime),
    /// It has answered since this time, after a failed request.
    Answered(Boottime),
}

/// The pods of one app whose failed requests were reported.
#[derive(Debug, Default)]
pub(crate) struct Answers(BTreeMap<SocketAddrV6, Last>);

impl Answers {
    /// A pod failed a request; returns whether that is to be reported.
    pub(crate) fn failed(&mut self, pod: SocketAddrV6, now: Boottime) -> bool {
        let is_news = match self.0.get(&pod) {
            None => true,
            Some(Last::Failed(since)) => now.since(*since) >= REPEAT,
            Some(Last::Answered(since)) => now.since(*since) >= QUIET,
        };
        if is_news {
            self.0.insert(pod, Last::Failed(now));
        }
        is_news
    }

    /// A pod has answered a request; returns whether that is to be reported.
    pub(crate) fn answered(&mut self, pod: SocketAddrV6, now: Boottime) -> bool {
        // Nearly all apps have no such pod: that costs no search.
        if self.0.is_empty() {
            return false;
        }
        let last = self.0.get_mut(&pod);
        let failed = last.filter(|last| matches!(last, Last::Failed(_)));
        failed.map(|last| *last = Last::Answered(now)).is_some()
    }

    /// Drops all pods but these.
    pub(crate) fn retain(&mut self, pods: &[SocketAddrV6]) {
        self.0.retain(|pod, _| pods.contains(pod));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_and_the_next_answer_are_reported_once_and_those_that_follow_soon_are_not() {
        let pod: SocketAddrV6 = "[2001:db8::1]:80".parse().unwrap();
        let second = |second: u64| Boottime(second * 1_000_000_000);
        let mut answers = Answers::default();
        assert!(!answers.answered(pod, second(1)));
        assert!(answers.failed(pod, second(1)));
        assert!(!answers.failed(pod, second(2)));
        assert!(answers.answered(pod, second(3)));
        assert!(!answers.answered(pod, second(3)));
        assert!(!answers.failed(pod, second(12)));
        assert!(answers.failed(pod, second(13)));
        assert!(!answers.failed(pod, second(72)));
        assert!(answers.failed(pod, second(73)), "it lasts");
        answers.retain(&[]);
        assert!(!answers.answered(pod, second(74)));
        assert!(answers.failed(pod, second(74)));
    }
}
