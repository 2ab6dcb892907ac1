//! What a real kube-apiserver sent is followed correctly: after each recording the follower holds the recorded final state.
//!
//! The vectors are `tests/vectors/*.jsonl.gz`, or `.jsonl` files in the folder that `DORMOUSE_KUBE_API_VECTORS` names; of that
//! folder, the recordings about following. Each is replayed several times: cut as it was, into single bytes, at random, and
//! compressed by gzip.
#![expect(
    clippy::unwrap_used,
    reason = "the vectors' format is fixed: another one must fail the test"
)]

mod recording;
mod replay;

use std::fmt;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;

use recording::Recording;
use replay::{Choice, Cut, Run};

/// Least number of replays with the recordings of the repository.
const RUNS_MIN: usize = 200;

#[derive(Debug, Default)]
struct Tally {
    recordings: usize,
    runs: usize,
    requests: usize,
    events: usize,
    objects: usize,
    differences: Vec<String>,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            recordings,
            runs,
            requests,
            events,
            objects,
            differences,
        } = self;
        write!(
            f,
            "{recordings} recordings, {runs} replays, {requests} requests, {events} events, {objects} objects compared, {} differences",
            differences.len()
        )?;
        differences
            .iter()
            .take(20)
            .try_for_each(|difference| write!(f, "\n{difference}"))
    }
}

impl Tally {
    /// Replays the recording for one kind, from each list in it.
    fn follow<T: replay::Followed>(&mut self, recording: &Recording) {
        for start in recording.starts::<T>() {
            for choice in [Choice::First, Choice::Last] {
                for cut in Cut::all() {
                    self.add(&Run::<T>::new(recording, start, choice, cut).play());
                }
            }
        }
    }

    fn add(&mut self, outcome: &replay::Outcome) {
        self.runs += 1;
        self.requests += outcome.requests;
        self.events += outcome.events;
        self.objects += outcome.objects;
        self.differences.extend(outcome.differences.iter().cloned());
    }
}

#[test]
fn kube_api_vectors() {
    let mut tally = Tally::default();
    for recording in recording::all() {
        let before = tally.runs;
        tally.recordings += 1;
        tally.follow::<Service>(&recording);
        tally.follow::<EndpointSlice>(&recording);
        tally.follow::<Node>(&recording);
        assert!(
            tally.runs > before,
            "nothing to follow in {}",
            recording.name
        );
    }
    println!("{tally}");
    assert!(tally.runs >= RUNS_MIN, "too few replays: {tally}");
    assert!(tally.differences.is_empty(), "{tally}");
}
