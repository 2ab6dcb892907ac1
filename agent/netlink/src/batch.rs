//! One netlink socket for many threads. The kernel executes one link change at a time, so more sockets would only wait for
//! each other: the thread that holds the socket sends the requests of all waiting threads, and each gets its own result.

use std::io;
use std::mem;
use std::sync::mpsc::{SyncSender, sync_channel};

use parking_lot::Mutex;

use crate::rtnl::{Request, RequestError, Rtnl, first_refusal};

/// The requests of one thread.
struct Job {
    requests: Vec<Request>,
    answer: SyncSender<Result<(), RequestError>>,
}

/// Sends the requests of any thread, together with those of other waiting threads.
pub struct Batch {
    waiting: Mutex<Vec<Job>>,
    rtnl: Mutex<Rtnl>,
}

impl Batch {
    /// Opens the socket in the calling thread's network namespace.
    pub fn open() -> io::Result<Self> {
        Ok(Self {
            waiting: Mutex::default(),
            rtnl: Mutex::new(Rtnl::open()?),
        })
    }

    /// Sends requests that are executed in order, and returns the first error. Requests after a refused one are executed all
    /// the same.
    pub fn send(&self, requests: Vec<Request>) -> Result<(), RequestError> {
        let (answer, answered) = sync_channel(1);
        self.waiting.lock().push(Job { requests, answer });
        let mut rtnl = self.rtnl.lock();
        if let Ok(done) = answered.try_recv() {
            return done;
        }
        // This thread's job is among them: only the holder of the socket takes jobs, and it answers them before it unlocks.
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
        // The receiver waits for nothing else: it cannot be gone.
        let _ = answer.send(done);
    }
}

/// The same error for another waiting thread.
pub fn again(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}
