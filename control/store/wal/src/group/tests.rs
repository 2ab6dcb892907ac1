//! The group commit under every interleaving of its tasks, by loom.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::{Context, Poll, Waker},
};

use loom::{
    future::block_on,
    sync::{Arc, Mutex as LoomMutex},
    thread,
};

use super::*;

impl<T> Lock<T> for LoomMutex<T> {
    fn with<R>(&self, access: impl FnOnce(&mut T) -> R) -> R {
        access(&mut self.lock().unwrap())
    }
}

/// The log that the tasks write and sync.
#[derive(Debug, Default, Clone, Copy)]
struct Disk {
    written: Position,
    synced: Position,
}

struct World {
    group: Group<LoomMutex<State>>,
    disk: LoomMutex<Disk>,
}

impl World {
    fn new() -> Arc<Self> {
        let start = Start {
            cluster: 1,
            position: 0,
            last_crc: 0,
            mark: 0,
            ceiling: u64::MAX,
        };
        Arc::new(Self {
            group: Group::new(LoomMutex::new(State::new(start))),
            disk: LoomMutex::default(),
        })
    }

    fn append(&self, mark: u64, durability: Durability) -> Ticket {
        let entry = Entry {
            kind: 1,
            mark,
            durability,
        };
        self.group.append(entry, |out| out.push(1)).0
    }

    /// Writes, and syncs in place of the thread that does so in production.
    fn write(&self) {
        let batch = self.group.take();
        let (end, sync) = (batch.end, batch.sync);
        self.disk.with(|disk| disk.written = end);
        self.group.wrote(batch);
        if sync {
            self.disk.with(|disk| disk.synced = disk.synced.max(end));
            self.group.synced(end);
        }
    }

    async fn commit(&self, ticket: Ticket) -> Result<(), Failure> {
        loop {
            match poll_fn(|context| self.group.poll(ticket, context)).await {
                Step::Committed => return Ok(()),
                Step::Failed(failure) => return Err(failure),
                Step::Lead => self.write(),
            }
        }
    }
}

/// Checks all interleavings with up to three preemptions, which find nearly all faults.
fn model(run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(run);
}

/// Bytes of a frame with a payload of one byte.
const FRAME: Position = frame::OVERHEAD_BYTES as Position + 1;

#[test]
fn every_commit_returns_and_only_when_the_log_is_as_durable_as_asked() {
    model(|| {
        let world = World::new();
        let threads = [(1, Durability::Os), (2, Durability::Fsync)].map(|(mark, durability)| {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                let ticket = world.append(mark, durability);
                block_on(world.commit(ticket)).unwrap();
                let disk = world.disk.with(|disk| *disk);
                let position = ticket.0 * FRAME;
                assert!(disk.written >= position);
                assert!(durability < Durability::Fsync || disk.synced >= position);
            })
        });
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(world.group.is_empty());
    });
}

#[test]
fn a_task_that_is_dropped_while_it_waits_leaves_no_record_unwritten() {
    model(|| {
        let world = World::new();
        let other = Arc::clone(&world);
        let thread = thread::spawn(move || {
            let ticket = other.append(1, Durability::Os);
            block_on(other.commit(ticket)).unwrap();
        });
        let ticket = world.append(2, Durability::Os);
        let mut context = Context::from_waker(Waker::noop());
        let leads = match world.group.poll(ticket, &context) {
            Poll::Ready(Step::Lead) => true,
            Poll::Ready(_) | Poll::Pending => false,
        };
        // What dropping `journal::Commit` does.
        world.group.abandon(ticket);
        if leads || world.group.lead() {
            world.write();
        }
        thread.join().unwrap();
        let waited = pin!(world.commit(ticket)).as_mut().poll(&mut context);
        assert!(matches!(waited, Poll::Ready(Ok(()))));
    });
}

#[test]
fn a_failure_wakes_every_task_and_acknowledges_nothing() {
    model(|| {
        let world = World::new();
        let other = Arc::clone(&world);
        let thread = thread::spawn(move || {
            let ticket = other.append(1, Durability::Fsync);
            loop {
                match block_on(poll_fn(|context| other.group.poll(ticket, context))) {
                    Step::Lead => {
                        let batch = other.group.take();
                        other.group.wrote(batch);
                    }
                    Step::Failed(_) => return,
                    Step::Committed => panic!("nothing was synced"),
                }
            }
        });
        let source = io::Error::other("injected");
        world.group.fail(FileError::of("sync", "a")(source));
        world.group.synced(Position::MAX);
        thread.join().unwrap();
        assert_eq!(world.group.visible(), 0);
    });
}
