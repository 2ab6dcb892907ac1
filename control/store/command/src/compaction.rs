//! Compaction by the store itself, as etcd's `--auto-compaction-mode` does it. Nothing is compacted
//! unless a flag asks for it: kube-apiserver compacts its own store.

use std::{collections::VecDeque, time::Duration};

use dormouse_store::{Store, keyspace::Revision};
use tokio::time::{self, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::debug;

/// Longest time between two compactions of a period.
const PERIOD_INTERVAL_MAX: Duration = Duration::from_hours(1);
/// Samples of the revision in each interval of a period.
const SAMPLES_PER_INTERVAL: u32 = 10;
/// Least time between two samples, of a period shorter than any use.
const SAMPLE_INTERVAL_MIN: Duration = Duration::from_millis(1);
/// Time between two compactions of a number of revisions.
const REVISIONS_INTERVAL: Duration = Duration::from_mins(5);

/// The history that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// That of a time, at least.
    Period(Duration),
    /// A number of revisions, at least; above 0.
    Revisions(Revision),
}

/// Chooses the revisions to compact at, from samples of the current one. Pure.
#[derive(Debug)]
enum Chooser {
    Period {
        /// Samples of one period, oldest first.
        samples: VecDeque<Revision>,
        /// Samples that make a period.
        period: usize,
        /// Samples until the next compaction.
        wait: u32,
    },
    Revisions(Revision),
}

impl Policy {
    /// Time between two samples.
    fn interval(self) -> Duration {
        match self {
            Self::Period(period) => {
                let interval = period.min(PERIOD_INTERVAL_MAX) / SAMPLES_PER_INTERVAL;
                interval.max(SAMPLE_INTERVAL_MIN)
            }
            Self::Revisions(_) => REVISIONS_INTERVAL,
        }
    }

    fn chooser(self) -> Chooser {
        match self {
            Self::Period(period) => {
                let samples = period.as_nanos().div_ceil(self.interval().as_nanos());
                Chooser::Period {
                    samples: VecDeque::new(),
                    period: usize::try_from(samples).unwrap_or(usize::MAX),
                    wait: 0,
                }
            }
            Self::Revisions(count) => Chooser::Revisions(count),
        }
    }
}

impl Chooser {
    /// Takes a sample of the current revision; returns the revision to compact at, if it is time.
    fn sample(&mut self, current: Revision) -> Option<Revision> {
        match self {
            Self::Revisions(count) => Some(current - *count).filter(|&revision| revision > 0),
            Self::Period {
                samples,
                period,
                wait,
            } => {
                samples.push_back(current);
                *wait = wait.saturating_sub(1);
                if samples.len() <= *period {
                    return None;
                }
                let oldest = samples.pop_front()?;
                (*wait == 0).then(|| {
                    *wait = SAMPLES_PER_INTERVAL;
                    oldest
                })
            }
        }
    }
}

/// Compacts the store until `shutdown` is cancelled.
pub async fn run(store: Store, policy: Policy, shutdown: CancellationToken) {
    let mut chooser = policy.chooser();
    let mut ticks = time::interval(policy.interval());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let compactions = async {
        loop {
            ticks.tick().await;
            let Some(revision) = chooser.sample(store.revision()) else {
                continue;
            };
            if let Err(error) = store.compact(revision, false).await {
                debug!(revision, %error, "nothing to compact");
            }
        }
    };
    shutdown.run_until_cancelled(compactions).await;
}

#[cfg(test)]
mod tests {
    use dormouse_store::{
        Error,
        proto::etcdserverpb::{PutRequest, RangeRequest},
    };

    use super::*;

    /// The compactions of a store that writes one revision for each sample.
    fn compactions(policy: Policy, samples: i64) -> Vec<(i64, Revision)> {
        let mut chooser = policy.chooser();
        let sample = |at| Some((at, chooser.sample(at)?));
        (0..samples).filter_map(sample).collect()
    }

    #[test]
    fn a_short_period_is_compacted_once_in_each_period() {
        let policy = Policy::Period(Duration::from_mins(5));
        assert_eq!(policy.interval(), Duration::from_secs(30));
        assert_eq!(compactions(policy, 31), [(10, 0), (20, 10), (30, 20)]);
    }

    #[test]
    fn a_long_period_is_compacted_every_hour() {
        let policy = Policy::Period(Duration::from_hours(3));
        assert_eq!(policy.interval(), Duration::from_mins(6));
        assert_eq!(compactions(policy, 51), [(30, 0), (40, 10), (50, 20)]);
    }

    #[test]
    fn a_number_of_revisions_is_kept() {
        assert_eq!(compactions(Policy::Revisions(3), 6), [(4, 1), (5, 2)]);
    }

    #[tokio::test]
    async fn the_store_is_compacted_at_an_earlier_revision() {
        let (store, shutdown) = (Store::new(), CancellationToken::new());
        let put = PutRequest {
            key: "key".into(),
            ..Default::default()
        };
        store.put(&put).await.unwrap();
        let policy = Policy::Period(Duration::from_millis(50));
        let task = tokio::spawn(run(store.clone(), policy, shutdown.clone()));
        let read = RangeRequest {
            key: "key".into(),
            revision: 1,
            ..Default::default()
        };
        let compacted = async {
            while store.range(&read).await != Err(Error::Compacted) {
                time::sleep(Duration::from_millis(2)).await;
            }
        };
        time::timeout(Duration::from_mins(1), compacted)
            .await
            .unwrap();
        shutdown.cancel();
        task.await.unwrap();
    }
}
