//! A sequential store with simulated concurrent clients: each operation takes effect at one moment between its call and
//! its return.

use std::collections::BTreeMap;

use dormouse_store_checker::history::{
    Delivery, Ending, Event, Key, Nanos, Op, Operation, Outcome, Request, Response, Revision,
    Version, Watch,
};

/// Time between the effects of two operations.
const STEP: Nanos = 100;

/// The store, with the events of all changes.
#[derive(Default)]
pub(crate) struct Simulation {
    revision: Revision,
    keys: BTreeMap<Key, Version>,
    pub(crate) events: Vec<Event>,
}

impl Simulation {
    fn apply(&mut self, request: &Request) -> Response {
        let version = |key: &Key| self.keys.get(key).map_or(0, |version| version.mod_revision);
        let mut compares = request.compares.iter();
        let succeeded = compares.all(|(key, revision)| version(key) == *revision);
        let next = self.revision + 1;
        let ops = request.branch(succeeded).iter();
        let outcomes: Vec<Outcome> = ops.map(|op| self.apply_one(op, next)).collect();
        let wrote = |outcome: &Outcome| matches!(outcome, Outcome::Put | Outcome::Deleted(true));
        self.revision += Revision::from(outcomes.iter().any(wrote));
        Response {
            revision: self.revision,
            succeeded,
            outcomes,
        }
    }

    fn apply_one(&mut self, op: &Op, revision: Revision) -> Outcome {
        let (key, value, outcome) = match op {
            Op::Get(key) => return Outcome::Got(self.keys.get(key).copied()),
            Op::Put(key, value) => (key, Some(*value), Outcome::Put),
            Op::Delete(key) => {
                let existed = self.keys.contains_key(key);
                (key, None, Outcome::Deleted(existed))
            }
        };
        let previous = match value {
            Some(value) => self.keys.insert(
                key.clone(),
                Version {
                    value,
                    mod_revision: revision,
                },
            ),
            None => self.keys.remove(key),
        };
        if outcome != Outcome::Deleted(false) {
            let key = key.clone();
            self.events.push(Event {
                revision,
                key,
                value,
                previous,
            });
        }
        outcome
    }
}

/// The parameters of a simulated history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) seed: u64,
    pub(crate) clients: usize,
    pub(crate) operations: usize,
    pub(crate) keys: usize,
    /// One of so many calls is lost; 0: none.
    pub(crate) lost_of: usize,
}

/// A history with reads of all keys at its end.
pub(crate) fn history(shape: Shape) -> (Vec<Operation>, Simulation) {
    let mut random = fastrand::Rng::with_seed(shape.seed);
    let mut simulation = Simulation::default();
    let mut free: Vec<Nanos> = vec![0; shape.clients];
    let mut operations = Vec::new();
    for number in 0..shape.operations {
        let moment = STEP * (10 + number as Nanos);
        let ready: Vec<usize> = (0..shape.clients)
            .filter(|client| free[*client] < moment)
            .collect();
        let Some(client) = random.choice(ready) else {
            continue;
        };
        let called = random.u64(free[client].max(moment.saturating_sub(4 * STEP))..moment) + 1;
        let returned = moment + random.u64(1..4 * STEP);
        free[client] = returned;
        let request = request(&mut random, &simulation, shape.keys, number as u64 + 1);
        let lost = shape.lost_of > 0 && random.usize(..shape.lost_of) == 0;
        let ending = if lost {
            if random.bool() {
                simulation.apply(&request);
            }
            Ending::Lost { until: returned }
        } else {
            let response = simulation.apply(&request);
            Ending::Answered {
                at: returned,
                response,
            }
        };
        operations.push(Operation {
            client,
            called,
            request,
            ending,
        });
    }
    let end = STEP * (20 + shape.operations as Nanos);
    for key in 0..shape.keys {
        let request = Request::of(vec![Op::Get(name(key))]);
        let called = end + 2 * STEP * key as Nanos;
        let response = simulation.apply(&request);
        let ending = Ending::Answered {
            at: called + STEP,
            response,
        };
        operations.push(Operation {
            client: 0,
            called,
            request,
            ending,
        });
    }
    (operations, simulation)
}

fn name(key: usize) -> Key {
    format!("k{key}")
}

fn request(
    random: &mut fastrand::Rng,
    simulation: &Simulation,
    keys: usize,
    value: u64,
) -> Request {
    let index = random.usize(..keys);
    let (key, neighbour) = (name(index), name((index + 1) % keys));
    let seen = simulation
        .keys
        .get(&key)
        .map_or(0, |version| version.mod_revision);
    let seen = if random.bool() {
        seen
    } else {
        random.i64(0..=simulation.revision)
    };
    match random.u8(..7) {
        1 => Request::of(vec![Op::Put(key, value)]),
        2 => Request::of(vec![Op::Delete(key)]),
        3 => Request::unchanged(key.clone(), seen, vec![Op::Put(key, value)]),
        4 => Request::unchanged(key.clone(), seen, vec![Op::Delete(key)]),
        5 if keys > 1 => {
            let both = vec![Op::Put(key.clone(), value), Op::Put(neighbour, value)];
            Request::unchanged(key, seen, both)
        }
        _ => Request::of(vec![Op::Get(key)]),
    }
}

/// A watch of all events from a revision on, in batches and with bookmarks.
pub(crate) fn watch(events: &[Event], start: Revision, seed: u64) -> Watch {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut deliveries: Vec<Delivery> = Vec::new();
    for event in events.iter().filter(|event| event.revision >= start) {
        let revision = event.revision;
        let last = deliveries.last_mut().filter(|last| !last.events.is_empty());
        match last {
            Some(last) if last.revision == revision || random.bool() => {
                last.events.push(event.clone());
                last.revision = revision;
            }
            _ => {
                if random.bool() {
                    deliveries.push(Delivery {
                        revision: revision - 1,
                        events: Vec::new(),
                    });
                }
                deliveries.push(Delivery {
                    revision,
                    events: vec![event.clone()],
                });
            }
        }
    }
    Watch {
        start,
        prefix: "k".into(),
        deliveries,
    }
}
