//! One routing socket for many threads. The kernel carries out one change of links at a time, so more sockets would only
//! wait for each other: whoever holds this one sends for all that wait for it, and each gets its own answer.

use std::io;
use std::mem;
use std::sync::mpsc::{SyncSender, sync_channel};

use parking_lot::Mutex;

use crate::rtnl::{Request, RequestError, Rtnl, first_refusal};

/// What one thread wants.
struct Job {
    requests: Vec<Request>,
    answer: SyncSender<Result<(), RequestError>>,
}

/// Sends requests of any thread, together with those of others that wait.
pub struct Batch {
    waiting: Mutex<Vec<Job>>,
    rtnl: Mutex<Rtnl>,
}

impl Batch {
    /// Works in the calling thread's namespace from now on.
    pub fn open() -> io::Result<Self> {
        Ok(Self {
            waiting: Mutex::default(),
            rtnl: Mutex::new(Rtnl::open()?),
        })
    }

    /// Has all requests carried out in their order and returns the first refusal. Those after a refused one were
    /// carried out all the same.
    pub fn send(&self, requests: Vec<Request>) -> Result<(), RequestError> {
        let (answer, answered) = sync_channel(1);
        self.waiting.lock().push(Job { requests, answer });
        let mut rtnl = self.rtnl.lock();
        if let Ok(done) = answered.try_recv() {
            return done;
        }
        // Ours is among them: only a holder of the socket takes jobs, and answers them before it lets go.
        let jobs = mem::take(&mut *self.waiting.lock());
        carry_out(&mut rtnl, jobs);
        drop(rtnl);
        let lost = |_| RequestError::socket(io::Error::other("a request was lost"));
        answered.try_recv().map_err(lost)?
    }
}

fn carry_out(rtnl: &mut Rtnl, jobs: Vec<Job>) {
    let mut all = Vec::new();
    let mut askers = Vec::new();
    for Job { requests, answer } in jobs {
        let first = all.len();
        all.extend(requests);
        askers.push((first..all.len(), answer));
    }
    let codes = rtnl.carry_out(&all);
    for (range, answer) in askers {
        let done = match &codes {
            Ok(codes) => first_refusal(&all[range.clone()], &codes[range]),
            Err(error) => Err(RequestError::socket(again(error))),
        };
        // Whoever asked waits for nothing else.
        let _ = answer.send(done);
    }
}

/// The same error for one more asker.
pub fn again(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}
