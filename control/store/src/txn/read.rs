//! A transaction that only reads, in slices: its branch is chosen first, then its ranges are read.

use std::{collections::VecDeque, vec};

use super::{Beside, TxnPath, branch, check};
use crate::{
    Error,
    keyspace::{Keyspace, RangeRead, RangeResult, Revision, View},
    proto::etcdserverpb::{
        RangeResponse, RequestOp, ResponseHeader, ResponseOp, TxnRequest, TxnResponse,
        request_op::Request, response_op::Response,
    },
};

/// Ranges that one slice completes at most; bounds the time for which a reader holds the lock.
const SLICE_RANGES: usize = 16;

/// A transaction that only reads, in progress. Its oldest revision must stay readable until the last
/// slice.
#[derive(Debug)]
pub struct ReadTxn<'a> {
    request: &'a TxnRequest,
    path: TxnPath,
    revision: Revision,
    /// The ranges to read, in the order of the operations.
    reads: VecDeque<RangeRead>,
    found: Vec<RangeResult>,
}

impl<'a> ReadTxn<'a> {
    /// Evaluates the compares in a view; the request has passed [`super::check_txn`].
    pub(crate) fn new(
        view: View<'_>,
        beside: Beside<'_>,
        request: &'a TxnRequest,
    ) -> Result<Self, Error> {
        let path = TxnPath::new(view, request);
        check::path(view, beside, request, &path)?;
        let mut reads = VecDeque::new();
        plan(view, request, &path, &mut reads)?;
        Ok(Self {
            request,
            path,
            revision: view.revision(),
            found: Vec::with_capacity(reads.len()),
            reads,
        })
    }

    /// The oldest revision that is left to read; `None` when the reads are complete.
    pub fn pinned(&self) -> Option<Revision> {
        self.reads.iter().map(RangeRead::revision).min()
    }

    /// Reads some keys; returns whether the reads are complete.
    pub fn slice(&mut self, keyspace: &Keyspace) -> bool {
        for _ in 0..SLICE_RANGES {
            let Some(read) = self.reads.front_mut() else {
                return true;
            };
            if !read.slice(keyspace) {
                return false;
            }
            let complete = self.reads.pop_front();
            self.found.extend(complete.map(RangeRead::finish));
        }
        self.reads.is_empty()
    }

    /// The response, after the last slice.
    pub fn finish(self) -> TxnResponse {
        let header = ResponseHeader {
            revision: self.revision,
            ..ResponseHeader::default()
        };
        let mut answer = Answer {
            header,
            found: self.found.into_iter(),
        };
        TxnResponse {
            header: None,
            ..answer.txn(self.request, &self.path)
        }
    }
}

/// Collects the reads of a transaction's path, depth first.
fn plan(
    view: View<'_>,
    request: &TxnRequest,
    path: &TxnPath,
    reads: &mut VecDeque<RangeRead>,
) -> Result<(), Error> {
    let mut nested = path.nested.iter();
    for op in branch(request, path.succeeded) {
        match &op.request {
            Some(Request::RequestRange(request)) => reads.push_back(RangeRead::new(view, request)?),
            Some(Request::RequestTxn(request)) => {
                if let Some(path) = nested.next() {
                    plan(view, request, path, reads)?;
                }
            }
            Some(Request::RequestPut(_) | Request::RequestDeleteRange(_)) | None => {}
        }
    }
    Ok(())
}

/// Builds the responses from the results, in the order of [`plan`].
struct Answer {
    /// The header of a response inside a transaction.
    header: ResponseHeader,
    found: vec::IntoIter<RangeResult>,
}

impl Answer {
    fn txn(&mut self, request: &TxnRequest, path: &TxnPath) -> TxnResponse {
        let mut nested = path.nested.iter();
        let ops = branch(request, path.succeeded).iter();
        let responses = ops.map(|op| ResponseOp {
            response: self.operation(op, &mut nested),
        });
        TxnResponse {
            responses: responses.collect(),
            header: Some(ResponseHeader::default()),
            succeeded: path.succeeded,
        }
    }

    fn operation<'a>(
        &mut self,
        op: &RequestOp,
        nested: &mut impl Iterator<Item = &'a TxnPath>,
    ) -> Option<Response> {
        match op.request.as_ref()? {
            Request::RequestRange(_) => Some(Response::ResponseRange(RangeResponse {
                header: Some(self.header),
                ..self.found.next()?.into()
            })),
            Request::RequestTxn(request) => {
                Some(Response::ResponseTxn(self.txn(request, nested.next()?)))
            }
            Request::RequestPut(_) | Request::RequestDeleteRange(_) => None,
        }
    }
}
