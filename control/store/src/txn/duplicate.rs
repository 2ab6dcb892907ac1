//! Rejection of transactions in which two operations write the same key. Two cases pass, as in
//! etcd: a delete with `range_end` `\0` conflicts with no put, and a put in one nested transaction
//! does not conflict with a delete in a later one.

use std::collections::HashSet;

use bytes::Bytes;

use crate::{
    Error,
    proto::etcdserverpb::{DeleteRangeRequest, RequestOp, request_op::Request},
};

/// The keys that a list of operations writes, with those of nested transactions.
#[derive(Debug, Default)]
struct Writes<'a> {
    puts: HashSet<&'a Bytes>,
    deletes: Vec<&'a DeleteRangeRequest>,
}

impl<'a> Writes<'a> {
    fn deletes(&self, key: &Bytes) -> bool {
        self.deletes.iter().any(|delete| {
            if delete.range_end.is_empty() {
                delete.key == *key
            } else {
                // The `range_end` `\0` ("from the key on") is below every key: the first case.
                delete.key <= *key && *key < delete.range_end
            }
        })
    }

    fn put(&mut self, key: &'a Bytes) -> Result<(), Error> {
        if self.deletes(key) || !self.puts.insert(key) {
            return Err(Error::DuplicateKey);
        }
        Ok(())
    }

    /// Adds the writes of a nested transaction. Only one of its branches runs, so both may put the
    /// same key.
    fn add_nested(&mut self, success: Writes<'a>, failure: Writes<'a>) -> Result<(), Error> {
        success.puts.iter().try_for_each(|key| self.put(key))?;
        let only_failure = failure.puts.difference(&success.puts);
        only_failure.into_iter().try_for_each(|key| self.put(key))?;
        self.deletes.extend(success.deletes);
        self.deletes.extend(failure.deletes);
        Ok(())
    }
}

/// Checks one branch of a transaction.
pub(super) fn check(ops: &[RequestOp]) -> Result<(), Error> {
    collect(ops).map(|_| ())
}

fn collect(ops: &[RequestOp]) -> Result<Writes<'_>, Error> {
    let mut writes = Writes::default();
    for op in ops {
        if let Some(Request::RequestDeleteRange(delete)) = &op.request {
            writes.deletes.push(delete);
        }
    }
    for op in ops {
        if let Some(Request::RequestTxn(nested)) = &op.request {
            writes.add_nested(collect(&nested.success)?, collect(&nested.failure)?)?;
        }
    }
    for op in ops {
        if let Some(Request::RequestPut(put)) = &op.request {
            writes.put(&put.key)?;
        }
    }
    Ok(writes)
}
