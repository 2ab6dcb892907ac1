//! One request over gRPC: plain calls for single operations, transactions for the others.

use etcd_client::{Client, Compare, CompareOp, Error, KeyValue, Txn, TxnOp, TxnOpResponse};

use crate::history::{Op, Outcome, Request, Response, Revision, Version};

/// Sends a request; returns the response.
pub(super) async fn call(client: &mut Client, request: &Request) -> Result<Response, Error> {
    match request.success.as_slice() {
        [op] if request.compares.is_empty() => single(client, op).await,
        _ => transaction(client, request).await,
    }
}

async fn single(client: &mut Client, op: &Op) -> Result<Response, Error> {
    let (header, outcome) = match op {
        Op::Get(key) => {
            let mut response = client.get(key.as_str(), None).await?;
            let outcome = got(response.kvs().first());
            (response.take_header(), outcome)
        }
        Op::Put(key, value) => {
            let mut response = client.put(key.as_str(), value.to_string(), None).await?;
            (response.take_header(), Outcome::Put)
        }
        Op::Delete(key) => {
            let mut response = client.delete(key.as_str(), None).await?;
            (
                response.take_header(),
                Outcome::Deleted(response.deleted() > 0),
            )
        }
    };
    Ok(Response {
        revision: header.map_or(0, |header| header.revision()),
        succeeded: true,
        outcomes: vec![outcome],
    })
}

async fn transaction(client: &mut Client, request: &Request) -> Result<Response, Error> {
    let compares = request
        .compares
        .iter()
        .map(|(key, revision)| Compare::mod_revision(key.as_str(), CompareOp::Equal, *revision));
    let ops = |ops: &[Op]| ops.iter().map(operation).collect::<Vec<_>>();
    let txn = Txn::new()
        .when(compares.collect::<Vec<_>>())
        .and_then(ops(&request.success))
        .or_else(ops(&request.failure));
    let response = client.txn(txn).await?;
    Ok(Response {
        revision: response
            .header()
            .map_or(0, etcd_client::ResponseHeader::revision),
        succeeded: response.succeeded(),
        outcomes: response.op_responses().iter().map(outcome).collect(),
    })
}

fn operation(op: &Op) -> TxnOp {
    match op {
        Op::Get(key) => TxnOp::get(key.as_str(), None),
        Op::Put(key, value) => TxnOp::put(key.as_str(), value.to_string(), None),
        Op::Delete(key) => TxnOp::delete(key.as_str(), None),
    }
}

fn outcome(response: &TxnOpResponse) -> Outcome {
    match response {
        TxnOpResponse::Get(response) => got(response.kvs().first()),
        TxnOpResponse::Delete(response) => Outcome::Deleted(response.deleted() > 0),
        // No request nests transactions.
        TxnOpResponse::Put(_) | TxnOpResponse::Txn(_) => Outcome::Put,
    }
}

fn got(kv: Option<&KeyValue>) -> Outcome {
    Outcome::Got(kv.map(version))
}

/// A value that is not a number is none that a client wrote: it becomes 0, which no put writes.
pub(crate) fn version(kv: &KeyValue) -> Version {
    let value = kv.value_str().ok().and_then(|text| text.parse().ok());
    let mod_revision: Revision = kv.mod_revision();
    Version {
        value: value.unwrap_or(0),
        mod_revision,
    }
}
