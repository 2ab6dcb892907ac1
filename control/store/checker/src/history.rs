//! Histories: the requests of concurrent clients with their times and responses, and the responses of watches.

/// A key.
pub type Key = String;

/// A value. Each put writes a value of its own, so that a read identifies the put.
pub type Value = u64;

/// A revision of the store.
pub type Revision = i64;

/// Nanoseconds since the history's start, by one clock for all clients.
pub type Nanos = u64;

/// An operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Reads a key.
    Get(Key),
    /// Writes a key.
    Put(Key, Value),
    /// Deletes a key.
    Delete(Key),
}

impl Op {
    /// The key of the operation.
    pub fn key(&self) -> &Key {
        match self {
            Self::Get(key) | Self::Put(key, _) | Self::Delete(key) => key,
        }
    }
}

/// A transaction. A register's read, write and compare-and-swap are transactions of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Keys and the mod revisions that they must have; 0: the key does not exist.
    pub compares: Vec<(Key, Revision)>,
    /// The operations if all compares hold.
    pub success: Vec<Op>,
    /// The operations otherwise.
    pub failure: Vec<Op>,
}

impl Request {
    /// Operations without a condition.
    pub fn of(success: Vec<Op>) -> Self {
        Self {
            success,
            ..Self::default()
        }
    }

    /// Operations on the condition that `key` has a mod revision; the key is read otherwise.
    pub fn unchanged(key: Key, revision: Revision, success: Vec<Op>) -> Self {
        Self {
            failure: vec![Op::Get(key.clone())],
            compares: vec![(key, revision)],
            success,
        }
    }

    /// The operations of one branch.
    pub fn branch(&self, succeeded: bool) -> &[Op] {
        if succeeded {
            &self.success
        } else {
            &self.failure
        }
    }

    /// All keys that the request names, with repetitions.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        let compared = self.compares.iter().map(|(key, _)| key);
        compared.chain(self.success.iter().chain(&self.failure).map(Op::key))
    }

    /// Whether no branch writes.
    pub fn is_read_only(&self) -> bool {
        let mut ops = self.success.iter().chain(&self.failure);
        ops.all(|op| matches!(op, Op::Get(_)))
    }
}

/// A key's value and the revision that wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version {
    /// The value.
    pub value: Value,
    /// The revision of the put.
    pub mod_revision: Revision,
}

/// The result of one operation of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The version read; `None`: the key does not exist.
    Got(Option<Version>),
    /// The put is done.
    Put,
    /// Whether the key existed.
    Deleted(bool),
}

/// The response to a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The revision of the header.
    pub revision: Revision,
    /// Whether all compares held.
    pub succeeded: bool,
    /// The results of the branch's operations, in order.
    pub outcomes: Vec<Outcome>,
}

/// The end of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The response, and when it was received.
    Answered {
        /// When the client had the response.
        at: Nanos,
        /// The response.
        response: Response,
    },
    /// The call failed: it took effect once or not at all.
    Lost {
        /// It takes no effect after this time, since its server has ended. [`Nanos::MAX`]: there is no such time.
        until: Nanos,
    },
}

/// One call of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The number of the client, for messages.
    pub client: usize,
    /// When the client sent the request.
    pub called: Nanos,
    /// The request.
    pub request: Request,
    /// Its end.
    pub ending: Ending,
}

impl Operation {
    /// The response and the time of its arrival, if there was one.
    pub fn answer(&self) -> Option<(Nanos, &Response)> {
        match &self.ending {
            Ending::Answered { at, response } => Some((*at, response)),
            Ending::Lost { .. } => None,
        }
    }

    /// The last effects on each key that the response reports: a new value, or `None` for a deletion.
    pub fn effects(&self) -> Vec<(&Key, Option<Value>)> {
        let Some((_, response)) = self.answer() else {
            return Vec::new();
        };
        let ops = self.request.branch(response.succeeded).iter();
        let effects = ops.zip(&response.outcomes).filter_map(|pair| match pair {
            (Op::Put(key, value), _) => Some((key, Some(*value))),
            (Op::Delete(key), Outcome::Deleted(true)) => Some((key, None)),
            _ => None,
        });
        effects.collect()
    }
}

/// Notes that the server of these operations ended at a time: what is lost takes no effect after it.
pub fn server_ended(operations: &mut [Operation], at: Nanos) {
    for operation in operations {
        if let Ending::Lost { until } = &mut operation.ending {
            *until = at.min(*until);
        }
    }
}

/// One event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The revision of the change.
    pub revision: Revision,
    /// The key.
    pub key: Key,
    /// The new value; `None`: the key was deleted.
    pub value: Option<Value>,
    /// The version before, as `prev_kv` reports it.
    pub previous: Option<Version>,
}

/// One response of a watch: events, or without events a bookmark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The revision of the header.
    pub revision: Revision,
    /// Events in the order of the response.
    pub events: Vec<Event>,
}

/// A watch of all keys with a prefix, from its creation to the end of its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    /// The first revision that it delivers.
    pub start: Revision,
    /// The prefix of its keys.
    pub prefix: Key,
    /// Its responses in order.
    pub deliveries: Vec<Delivery>,
}

impl Watch {
    /// The revision up to which the watch has delivered all events, by its own word: the last bookmark's or event's.
    pub fn reached(&self) -> Revision {
        let of = |delivery: &Delivery| match delivery.events.last() {
            Some(event) => event.revision,
            None => delivery.revision,
        };
        self.deliveries.last().map_or(self.start - 1, of)
    }
}
