//! Many tasks that commit at the same time, some of which are cancelled.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use dormouse_wal::{Config, Durability, Journal};
use parking_lot::Mutex;

use crate::{
    disk::Disk,
    harness::{append, config, marks, open, read},
};

const MODES: [Durability; 4] = [
    Durability::None,
    Durability::Buffered,
    Durability::Os,
    Durability::Fsync,
];

/// Assigns marks in order, as the store does under its lock.
#[derive(Clone)]
struct Writers {
    journal: Arc<Journal>,
    last: Arc<Mutex<u64>>,
}

impl Writers {
    async fn write(&self, durability: Durability) -> u64 {
        let (mark, ticket) = {
            let mut last = self.last.lock();
            *last += 1;
            (*last, append(&self.journal, *last, durability))
        };
        self.journal.committed(ticket).await.unwrap();
        mark
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_acknowledged_record_is_on_the_disk_at_that_moment() {
    let disk = Disk::default();
    let writers = Writers {
        journal: Arc::new(open(
            &disk,
            Config {
                segment_bytes: 4_000,
                ..config()
            },
        )),
        last: Arc::default(),
    };
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..64 {
        let (writers, disk) = (writers.clone(), disk.clone());
        tasks.spawn(async move {
            for round in 0..20 {
                let durability = MODES[(task + round) % 4];
                let mark = writers.write(durability).await;
                assert!(writers.journal.visible() >= mark);
                let image = match durability {
                    Durability::None | Durability::Buffered => continue,
                    Durability::Os => disk.after_kill(),
                    Durability::Fsync => disk.after_power_loss(0),
                };
                // Reading the whole disk each time would dominate the test.
                if round % 5 == task % 5 {
                    let found = read(&image, config()).unwrap().0;
                    assert!(found.binary_search(&mark).is_ok(), "{mark} {durability}");
                }
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(writers.journal.visible(), 64 * 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_task_that_syncs_its_record_delays_no_other_task() {
    let disk = Disk::default();
    let writers = Writers {
        journal: Arc::new(open(&disk, config())),
        last: Arc::default(),
    };
    let name = disk.last_segment();
    let empty = disk.bytes(&name).len();
    disk.with_faults(|faults| faults.sync_stalls = true);
    let write = tokio::spawn(async move { writers.write(Durability::Fsync).await });
    let others = async {
        while disk.bytes(&name).len() == empty {
            tokio::spawn(tokio::task::yield_now()).await.unwrap();
        }
        for _ in 0..100 {
            tokio::spawn(tokio::task::yield_now()).await.unwrap();
        }
    };
    let ended = tokio::time::timeout(Duration::from_secs(30), others).await;
    assert!(ended.is_ok() && !write.is_finished());
    disk.with_faults(|faults| faults.sync_stalls = false);
    assert_eq!(write.await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn cancelled_tasks_delay_no_other_task() {
    let disk = Disk::default();
    let writers = Writers {
        journal: Arc::new(open(&disk, config())),
        last: Arc::default(),
    };
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..400 {
        let writers = writers.clone();
        tasks.spawn(async move {
            let durability = MODES[2 + task % 2];
            let write = writers.write(durability);
            if task % 3 == 0 {
                // Cancelled after the first poll.
                let _ = tokio::time::timeout(Duration::ZERO, write).await;
            } else {
                write.await;
            }
        });
    }
    let ended = tokio::time::timeout(Duration::from_secs(30), tasks.join_all()).await;
    assert!(ended.is_ok(), "a task waits for a leader that is gone");
    writers.journal.close().unwrap();
    assert_eq!(marks(&disk), (1..=400).collect::<Vec<_>>());
}

#[test]
fn the_observer_is_called_whenever_the_frontier_moved() {
    let disk = Disk::default();
    let calls = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&calls);
    let (_, recovered) = read(&disk, config()).unwrap();
    let observer = Box::new(move || {
        counter.fetch_add(1, Ordering::Relaxed);
    });
    let journal = recovered.start(0, observer).unwrap();
    for (mark, durability) in (1..).zip(MODES) {
        crate::harness::write(&journal, mark, durability).unwrap();
        assert_eq!(calls.load(Ordering::Relaxed), mark, "{durability}");
    }
}
