//! The events of a range as they are written: a watch inside the server.

use std::sync::Arc;

use tonic::Status;

use super::client::Client;
use crate::{
    Error, Store,
    keyspace::{KeyRange, PageLimits, Revision},
    store::PageRead,
    watch::{ReadySet, Registration},
    wire::Event,
};

/// Events of one page; there are few keys in a queue.
const PAGE: PageLimits = PageLimits {
    events: 100,
    bytes: 1 << 20,
};

pub(super) struct Follow {
    store: Store,
    registration: Registration,
    /// The first revision of the next page.
    next: Revision,
    created: Revision,
}

impl Follow {
    /// Follows a range from a revision on; the client must be permitted to read it.
    pub(super) fn new(client: &Client, range: KeyRange, start: Revision) -> Result<Self, Status> {
        let (key, range_end) = range.fields();
        client.session().check_watch(&key, &range_end)?;
        let mut registration = Registration {
            ready_set: Arc::new(ReadySet::default()),
            id: 0,
            range,
            start,
        };
        let (created, watched) = client.store.watch(&mut registration);
        watched.map_err(|_compacted| Error::Compacted)?;
        Ok(Self {
            store: client.store.clone(),
            registration,
            next: start,
            created,
        })
    }

    /// The next events, at least one. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<Vec<Event>, Status> {
        loop {
            // Armed before the read: an event after it wakes.
            let Registration { ready_set, .. } = &self.registration;
            self.store
                .take_ready(ready_set, |_| Some(&self.registration));
            let read = PageRead {
                range: &self.registration.range,
                from: self.next,
                created_revision: self.created,
                prev_kv: false,
                limits: PAGE,
            };
            let page = self.store.events(&read);
            let page = page.map_err(|_compacted| Error::Compacted)?;
            self.next = page.next;
            if !page.events.is_empty() {
                return Ok(page.events);
            }
            if page.next > page.current {
                ready_set.woken().await;
            }
        }
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        self.store.cancel_watch(&self.registration);
    }
}
