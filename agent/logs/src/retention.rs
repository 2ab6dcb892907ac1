//! What is removed so that logs stay within their bounds. Pure.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use crate::name::Run;

/// Files of which a pod's log consists at most, so that its end is kept when its begin is removed.
const FILES_MAX: u64 = 5;
/// A file is not smaller than this, however many pods run.
const FILE_BYTES_MIN: u64 = 64 * 1024;
/// Every file is counted with a block of the file system besides its content.
const BLOCK_BYTES: u64 = 4 * 1024;

/// The bounds of the logs of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one run of a pod.
    pub pod_bytes: u64,
    /// Bytes of all runs.
    pub node_bytes: u64,
    /// Runs that have ended.
    pub ended_runs: usize,
    /// How long a run is kept after its end.
    pub retention: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            pod_bytes: 10 << 20,
            node_bytes: 1 << 30,
            ended_runs: 2_000,
            retention: Duration::from_hours(24),
        }
    }
}

impl Limits {
    /// The size at which a file is full. It falls with the number of open runs: all files that are written to have room in half of
    /// the node's bound.
    pub(crate) fn file_bytes(&self, open_runs: usize) -> u64 {
        let runs = u64::try_from(open_runs.max(1)).unwrap_or(u64::MAX);
        let share = self.node_bytes / 2 / runs;
        (self.pod_bytes / FILES_MAX).min(share).max(FILE_BYTES_MIN)
    }
}

/// The files of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Files {
    /// Bytes of each file of records, by its number.
    pub(crate) records: BTreeMap<u64, u64>,
    /// When the run ended; `None` while it may still be written to.
    pub(crate) ended: Option<SystemTime>,
}

impl Files {
    /// The bytes with which the run counts.
    pub(crate) fn bytes(&self) -> u64 {
        BLOCK_BYTES + self.records.values().copied().map(counted).sum::<u64>()
    }

    /// The files that may be removed while the run goes on: all but the newest, the oldest first.
    fn full(&self) -> impl Iterator<Item = (u64, u64)> {
        let newest = self.records.keys().next_back().copied();
        let files = self.records.iter().map(|(number, bytes)| (*number, *bytes));
        files.filter(move |(number, _)| Some(*number) != newest)
    }
}

/// The bytes with which a file counts.
pub(crate) fn counted(bytes: u64) -> u64 {
    bytes + BLOCK_BYTES
}

/// Something to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    /// All files of a run that has ended.
    Run(Run),
    /// A file of records.
    Records(Run, u64),
}

/// What to remove, in this order: full files of a run above its bound; runs whose time is over; then, until the node's bounds are
/// kept, the runs that ended first, and the oldest files of the largest runs.
pub(crate) fn removals(
    runs: &BTreeMap<Run, Files>,
    limits: &Limits,
    now: SystemTime,
) -> Vec<Removal> {
    let mut plan = Plan {
        left: runs.clone(),
        bytes: runs.values().map(Files::bytes).sum(),
        removals: Vec::new(),
    };
    let open = runs.values().filter(|files| files.ended.is_none()).count();
    for (run, files) in runs {
        for number in excess(files, limits, open) {
            plan.remove_records(run, number);
        }
    }
    let mut ended: Vec<(SystemTime, &Run)> = runs
        .iter()
        .filter_map(|(run, files)| Some((files.ended?, run)))
        .collect();
    ended.sort_unstable();
    let mut left = ended.len();
    for (at, run) in ended {
        let is_over = now
            .duration_since(at)
            .is_ok_and(|since| since >= limits.retention);
        if is_over || left > limits.ended_runs || plan.bytes > limits.node_bytes {
            plan.remove_run(run);
            left -= 1;
        }
    }
    while plan.bytes > limits.node_bytes && plan.trim_largest() {}
    plan.removals
}

/// The full files of a run above its bound, the oldest first.
pub(crate) fn excess(files: &Files, limits: &Limits, open_runs: usize) -> Vec<u64> {
    let room = limits
        .pod_bytes
        .saturating_sub(limits.file_bytes(open_runs));
    let all: u64 = files.full().map(|(_, bytes)| bytes).sum();
    let mut above = all.saturating_sub(room);
    let mut numbers = Vec::new();
    for (number, bytes) in files.full() {
        if above == 0 {
            break;
        }
        above = above.saturating_sub(bytes);
        numbers.push(number);
    }
    numbers
}

struct Plan {
    left: BTreeMap<Run, Files>,
    /// Of what is left.
    bytes: u64,
    removals: Vec<Removal>,
}

impl Plan {
    fn remove_run(&mut self, run: &Run) {
        let bytes = self.left.remove(run).map_or(0, |files| files.bytes());
        self.bytes -= bytes;
        self.removals.push(Removal::Run(run.clone()));
    }

    fn remove_records(&mut self, run: &Run, number: u64) {
        let files = self.left.get_mut(run);
        let bytes = files.and_then(|files| files.records.remove(&number));
        self.bytes -= bytes.map_or(0, counted);
        self.removals.push(Removal::Records(run.clone(), number));
    }

    /// Removes the oldest full file of the largest run that has one; returns whether there was one.
    fn trim_largest(&mut self) -> bool {
        let candidates = self
            .left
            .iter()
            .filter(|(_, files)| files.records.len() > 1);
        let largest = candidates.max_by_key(|(_, files)| files.bytes());
        let oldest =
            largest.and_then(|(run, files)| Some((run.clone(), *files.records.keys().next()?)));
        let Some((run, number)) = oldest else {
            return false;
        };
        self.remove_records(&run, number);
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KIB: u64 = 1 << 10;

    fn run(name: &str) -> Run {
        Run {
            uid: name.to_owned(),
            attempt: 0,
        }
    }

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn files(kib: &[u64], ended: Option<u64>) -> Files {
        let bytes = kib.iter().map(|kib| kib * KIB);
        Files {
            records: (0..).zip(bytes).collect(),
            ended: ended.map(at),
        }
    }

    fn limits(node_kib: u64) -> Limits {
        Limits {
            pod_bytes: 500 * KIB,
            node_bytes: node_kib * KIB,
            ended_runs: 2,
            retention: Duration::from_secs(100),
        }
    }

    fn check(runs: &[(&str, Files)], limits: &Limits, now: u64, want: &[&str]) {
        let runs = runs
            .iter()
            .map(|(name, files)| (run(name), files.clone()))
            .collect();
        let removals = removals(&runs, limits, at(now));
        let text = |removal: &Removal| match removal {
            Removal::Run(run) => run.uid.clone(),
            Removal::Records(run, number) => format!("{}/{number}", run.uid),
        };
        assert_eq!(removals.iter().map(text).collect::<Vec<_>>(), want);
    }

    #[test]
    fn the_oldest_files_of_a_run_above_its_bound_are_removed() {
        let limits = limits(100_000);
        check(
            &[("a", files(&[100, 100, 100, 100, 7], None))],
            &limits,
            0,
            &[],
        );
        check(
            &[("a", files(&[100, 100, 100, 100, 100, 7], None))],
            &limits,
            0,
            &["a/0"],
        );
    }

    #[test]
    fn an_ended_run_is_removed_after_its_time_or_when_there_are_too_many() {
        let limits = limits(100_000);
        let one = [("a", files(&[1], Some(50))), ("b", files(&[1], None))];
        check(&one, &limits, 149, &[]);
        check(&one, &limits, 150, &["a"]);
        let three = [
            ("a", files(&[1], Some(3))),
            ("b", files(&[1], Some(1))),
            ("c", files(&[1], Some(2))),
        ];
        check(&three, &limits, 4, &["b"]);
    }

    #[test]
    fn ended_runs_make_room_first_and_then_the_largest_one() {
        let runs = [
            ("a", files(&[80, 10], None)),
            ("b", files(&[60, 60, 10], None)),
            ("c", files(&[100], Some(1))),
            ("d", files(&[100], Some(2))),
        ];
        check(&runs, &limits(1_000), 3, &[]);
        check(&runs, &limits(400), 3, &["c"]);
        check(&runs, &limits(150), 3, &["c", "d", "b/0", "a/0"]);
    }

    #[test]
    fn the_more_pods_run_the_smaller_are_their_files() {
        let limits = limits(2_000);
        assert_eq!(limits.file_bytes(1), 100 * KIB);
        assert_eq!(limits.file_bytes(11), 2_000 * KIB / 22);
        assert_eq!(limits.file_bytes(1_000), FILE_BYTES_MIN);
    }

    proptest! {
        #[test]
        fn the_bounds_are_kept_and_nothing_else_is_removed(
            all in proptest::collection::vec((proptest::collection::vec(0_u64..100, 1..8), proptest::option::of(0_u64..200)), 0..20)
        ) {
            let limits = limits(2_000);
            let mut runs: BTreeMap<Run, Files> = all
                .iter()
                .enumerate()
                .map(|(index, (kib, ended))| (run(&index.to_string()), files(kib, *ended)))
                .collect();
            for removal in removals(&runs, &limits, at(150)) {
                match removal {
                    Removal::Run(run) => assert!(runs.remove(&run).unwrap().ended.is_some()),
                    Removal::Records(run, number) => {
                        let files = runs.get_mut(&run).unwrap();
                        assert!(files.records.remove(&number).is_some());
                        assert!(!files.records.is_empty(), "the newest file stays");
                    }
                }
            }
            let bytes: u64 = runs.values().map(Files::bytes).sum();
            let newest: u64 = runs.values().map(|files| BLOCK_BYTES + counted(*files.records.values().next_back().unwrap())).sum();
            prop_assert!(bytes <= limits.node_bytes.max(newest));
            prop_assert!(runs.values().filter(|files| files.ended.is_some()).count() <= limits.ended_runs);
            prop_assert_eq!(removals(&runs, &limits, at(150)), []);
        }
    }
}
