//! The watchers compared with a model that examines every watcher for every event.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    /// A watcher of this stream, which starts this many revisions after the published one.
    Register(usize, KeyRange, i64),
    /// Removes a watcher, by its number modulo the number of watchers.
    Unregister(usize),
    /// The keys of one revision.
    Publish(Vec<Bytes>),
    /// A stream reads.
    Take(usize),
}

fn key() -> impl Strategy<Value = Bytes> {
    prop::collection::vec(0..3_u8, 1..3).prop_map(Bytes::from)
}

fn range() -> impl Strategy<Value = KeyRange> {
    prop_oneof![
        key().prop_map(KeyRange::One),
        (key(), key()).prop_map(|(start, end)| KeyRange::Span(start, end)),
        key().prop_map(KeyRange::From),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..2_usize, range(), -2..3_i64)
            .prop_map(|(stream, range, start)| Step::Register(stream, range, start)),
        1 => any::<usize>().prop_map(Step::Unregister),
        4 => prop::collection::vec(key(), 1..4).prop_map(Step::Publish),
        2 => (0..2_usize).prop_map(Step::Take),
    ]
}

/// A registration, and the mark that its watcher should have.
struct Modelled {
    stream: usize,
    registration: Registration,
    mark: Option<Revision>,
}

struct World {
    streams: [Arc<ReadySet>; 2],
    watchers: Watchers,
    model: Vec<Modelled>,
    next_id: WatchId,
}

impl World {
    fn register(&mut self, stream: usize, range: KeyRange, start: Revision) {
        let start = self.watchers.published() + start;
        let (ready_set, id) = (Arc::clone(&self.streams[stream]), self.next_id);
        self.next_id += 1;
        let registration = Registration {
            ready_set,
            id,
            range,
            start,
        };
        self.watchers.register(&registration);
        let mark = (start <= self.watchers.published()).then_some(start);
        self.model.push(Modelled {
            stream,
            registration,
            mark,
        });
    }

    /// Publishes one revision; checks which streams are woken.
    fn publish(&mut self, keys: &[Bytes]) {
        let revision = self.watchers.published() + 1;
        let idle: Vec<bool> = self
            .streams
            .iter()
            .map(|stream| stream.is_empty())
            .collect();
        let mut woken = Wakes::default();
        for key in keys {
            let concerns = |watcher: &Modelled| watcher.registration.range.contains(key);
            let concerned = self.watchers.mark(key, revision, &mut woken);
            assert_eq!(concerned, self.model.iter().any(concerns));
        }
        self.watchers.set_published(revision);
        for watcher in &mut self.model {
            let concerned = keys
                .iter()
                .any(|key| watcher.registration.range.contains(key));
            if concerned && watcher.registration.start <= revision {
                watcher.mark.get_or_insert(revision);
            }
        }
        for (stream, was_idle) in self.streams.iter().zip(idle) {
            let wakes = woken.0.iter().filter(|woken| Arc::ptr_eq(woken, stream));
            let due = was_idle && !stream.is_empty();
            assert_eq!(wakes.count(), usize::from(due), "each stream is woken once");
        }
    }

    fn take(&mut self, stream: usize) {
        let model = &self.model;
        let taken = self.watchers.take(&self.streams[stream], |id| {
            let registrations = model.iter().map(|watcher| &watcher.registration);
            registrations.into_iter().find(|watcher| watcher.id == id)
        });
        let mut wanted = BTreeMap::new();
        for watcher in self.model.iter_mut().filter(|w| w.stream == stream) {
            if let Some(from) = watcher.mark.take() {
                wanted.insert(watcher.registration.id, from);
            }
        }
        assert_eq!(taken, wanted);
    }
}

proptest! {
    #[test]
    fn the_marked_watchers_are_those_of_the_events_since_their_last_read(
        steps in prop::collection::vec(step(), 0..80),
    ) {
        let mut world = World {
            streams: Default::default(),
            watchers: Watchers::default(),
            model: Vec::new(),
            next_id: 0,
        };
        for step in steps {
            match step {
                Step::Register(stream, range, start) => world.register(stream, range, start),
                Step::Publish(keys) => world.publish(&keys),
                Step::Take(stream) => world.take(stream),
                Step::Unregister(number) => {
                    if let Some(number) = number.checked_rem(world.model.len()) {
                        let gone = world.model.swap_remove(number);
                        world.watchers.unregister(&gone.registration);
                    }
                }
            }
            prop_assert_eq!(world.watchers.len(), world.model.len());
        }
        world.take(0);
        world.take(1);
        for gone in world.model {
            world.watchers.unregister(&gone.registration);
        }
        prop_assert!(world.watchers.is_empty());
        prop_assert_eq!(world.watchers.bytes(), 0);
    }
}
