//! Writes of objects. All but leased ones have a condition of their own, and that of the client's fence.

use std::sync::Arc;

use etcd_client::{Compare, CompareOp, KeyValue, PutOptions, TxnOpResponse};

use super::batch::Operation;
use super::codec::{encode, with_revision};
use super::{Client, ClientError, signed, unsigned, with_answer, with_timeout};
use crate::{Key, Object};

/// Attempts of a read-modify-write that conflicts with other writers.
const MODIFY_ATTEMPTS_MAX: u32 = 16;

/// The precondition of a write.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    /// The required `mod_revision` of the object; `None`: the object must exist.
    pub revision: Option<u64>,
}

impl Guard {
    /// Holds if the object's `mod_revision` is `revision`.
    pub fn at(revision: u64) -> Self {
        Self {
            revision: Some(revision),
        }
    }

    /// The compare of a transaction that writes the object at `path`.
    fn condition(&self, path: &str) -> Compare {
        match self.revision {
            Some(revision) => Compare::mod_revision(path, CompareOp::Equal, signed(revision)),
            None => Compare::create_revision(path, CompareOp::Greater, 0),
        }
    }
}

/// The outcome of a write with conditions.
enum Written {
    /// Written at this revision.
    At(u64),
    /// A condition did not hold.
    Refused {
        /// The object's `mod_revision`; none if there is no object.
        found: Option<u64>,
    },
}

impl Client {
    /// A client on the same connection that creates, replaces and deletes objects only while `fence` holds; then these fail
    /// with [`ClientError::Fenced`].
    #[must_use]
    pub fn fenced(&self, fence: Compare) -> Self {
        Self {
            services: Arc::clone(&self.services),
            fence: Some(Arc::new(fence)),
        }
    }

    /// A client on the same connection that creates, replaces and deletes objects only while another object exists, as by
    /// [`Client::fenced`]; this client's own fence does not hold for it.
    #[must_use]
    pub fn beside<K: Object>(&self, other: &Key) -> Self {
        self.fenced(Compare::create_revision(
            K::path(other),
            CompareOp::Greater,
            0,
        ))
    }

    /// Creates an object; an error if it exists.
    pub async fn create<K: Object>(&self, object: &K) -> Result<K, ClientError> {
        let revision = self.insert(object).await?;
        Ok(with_revision(object.clone(), revision))
    }

    /// Creates an object as [`Client::create`] does; returns the revision.
    pub async fn insert<K: Object>(&self, object: &K) -> Result<u64, ClientError> {
        let path = K::path(&object.key());
        let absent = Compare::create_revision(path.as_str(), CompareOp::Equal, 0);
        let put = Operation::put(path.clone(), self.conditions(absent), encode(object)?);
        match self.write(put).await? {
            Written::At(revision) => Ok(revision),
            Written::Refused { found: Some(_) } => Err(ClientError::AlreadyExists { path }),
            Written::Refused { found: None } => Err(ClientError::Fenced { path }),
        }
    }

    /// Replaces an existing object if `guard` holds.
    pub async fn update<K: Object>(&self, mut object: K, guard: &Guard) -> Result<K, ClientError> {
        object.meta_mut().resource_version = None;
        let revision = self.replace(&object, guard).await?;
        Ok(with_revision(object, revision))
    }

    /// Replaces an existing object as [`Client::update`] does; returns the revision.
    pub async fn replace<K: Object>(&self, object: &K, guard: &Guard) -> Result<u64, ClientError> {
        let path = K::path(&object.key());
        let put = Operation::put(
            path.clone(),
            self.conditions(guard.condition(&path)),
            encode(object)?,
        );
        self.guarded_write(path, guard, put).await
    }

    /// Deletes an existing object if `guard` holds; returns the revision of the deletion.
    pub async fn delete<K: Object>(&self, key: &Key, guard: &Guard) -> Result<u64, ClientError> {
        let path = K::path(key);
        let delete = Operation::delete(path.clone(), self.conditions(guard.condition(&path)));
        self.guarded_write(path, guard, delete).await
    }

    /// Reads an object, changes it and writes it back, again if another writer conflicts. `change`
    /// returns whether it changed the object; without a change nothing is written.
    pub async fn modify<K: Object>(
        &self,
        key: &Key,
        mut change: impl FnMut(&mut K) -> bool + Send,
    ) -> Result<K, ClientError> {
        for _ in 0..MODIFY_ATTEMPTS_MAX {
            let found: Option<K> = self.get(key).await?;
            let mut object = found.ok_or_else(|| ClientError::NotFound { path: K::path(key) })?;
            if !change(&mut object) {
                return Ok(object);
            }
            let read = Guard::at(object.revision());
            match self.update(object, &read).await {
                Err(ClientError::Conflict { .. }) => {}
                other => return other,
            }
        }
        Err(ClientError::Conflict { path: K::path(key) })
    }

    /// Creates or replaces an object, attached to a lease of `ttl_s` seconds.
    pub(crate) async fn put_leased<K: Object>(
        &self,
        object: &K,
        ttl_s: i64,
    ) -> Result<(), ClientError> {
        let (mut lease, mut kv) = (self.services.lease.clone(), self.services.kv.clone());
        let granted = with_timeout(lease.grant(ttl_s, None)).await?;
        let options = PutOptions::new().with_lease(granted.id());
        with_timeout(kv.put(K::path(&object.key()), encode(object)?, Some(options))).await?;
        Ok(())
    }

    /// The compares of a transaction with a condition of its own.
    pub(crate) fn conditions(&self, own: Compare) -> Vec<Compare> {
        let fence = self.fence.as_deref().cloned();
        fence.into_iter().chain([own]).collect()
    }

    /// Runs a write of an existing object at `path`, which has the condition of `guard`; returns the new revision.
    async fn guarded_write(
        &self,
        path: String,
        guard: &Guard,
        write: Operation,
    ) -> Result<u64, ClientError> {
        match self.write(write).await? {
            Written::At(revision) => Ok(revision),
            Written::Refused { found: None } => Err(ClientError::NotFound { path }),
            Written::Refused { found: Some(at) } if guard.revision.is_none_or(|own| own == at) => {
                Err(ClientError::Fenced { path })
            }
            Written::Refused { found: Some(_) } => Err(ClientError::Conflict { path }),
        }
    }

    async fn write(&self, write: Operation) -> Result<Written, ClientError> {
        let answer = with_answer(self.services.writes.run(write)).await?;
        let TxnOpResponse::Txn(reply) = answer.response else {
            return Ok(Written::Refused { found: None });
        };
        if reply.succeeded() {
            return Ok(Written::At(answer.revision));
        }
        let found = match reply.op_responses().into_iter().next() {
            Some(TxnOpResponse::Get(found)) => found.kvs().first().map(KeyValue::mod_revision),
            _ => None,
        };
        Ok(Written::Refused {
            found: found.map(unsigned),
        })
    }
}
