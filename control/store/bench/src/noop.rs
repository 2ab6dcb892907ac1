//! The no-op server: the same tonic and the same transport settings as the store's, and responses of the same size, without a store.

use anyhow::{Context, Result};
use bytes::Bytes;
use clap::Args;
use prometheus_client::registry::Registry;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use crate::proto::kv_server::{Kv, KvServer};
use crate::proto::{
    KeyValue, PutRequest, PutResponse, RangeRequest, RangeResponse, ResponseHeader, ResponseOp,
    TxnRequest, TxnResponse, response_op,
};
use crate::serve::{listen, until_input_ends};
use crate::work;

/// Keys that differ; a longer response repeats them.
const KEYS: u64 = 10_000;

/// Arguments of the no-op server's process.
#[derive(Args)]
pub(crate) struct Options {
    /// Worker threads
    #[arg(long, default_value_t = 2)]
    pub(crate) threads: usize,
    /// Bytes of each value in responses
    #[arg(long, default_value_t = 1024)]
    value_bytes: usize,
}

/// Serves until standard input ends.
pub(crate) async fn run(options: &Options) -> Result<()> {
    let listener = listen().await?;
    let service = KvServer::new(Noop::new(options.value_bytes));
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let ended = until_input_ends(Registry::default());
    dormouse_store::server::transport()
        .add_service(service.max_decoding_message_size(8 << 20))
        .serve_with_incoming_shutdown(incoming, ended.cancelled_owned())
        .await
        .context("the no-op server failed")
}

/// The service. All its values share one buffer.
struct Noop {
    page: Vec<KeyValue>,
}

/// Sizes as after a million writes: numbers have as many bytes as in the store's responses.
const REVISION: i64 = 1_000_000;

impl Noop {
    fn new(value_bytes: usize) -> Self {
        let value = Bytes::from(vec![b'v'; value_bytes]);
        let kv = |number| KeyValue {
            key: work::key(number),
            create_revision: REVISION,
            mod_revision: REVISION,
            version: 1,
            value: value.clone(),
            lease: 0,
        };
        Self {
            page: (0..KEYS).map(kv).collect(),
        }
    }

    fn page(&self, request: &RangeRequest) -> Vec<KeyValue> {
        if request.count_only {
            return Vec::new();
        }
        let limit = if request.range_end.is_empty() {
            1
        } else {
            usize::try_from(request.limit).unwrap_or(0)
        };
        self.page.iter().cycle().take(limit).cloned().collect()
    }
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "the messages have optional headers"
)]
fn header() -> Option<ResponseHeader> {
    Some(ResponseHeader {
        cluster_id: u64::MAX,
        member_id: u64::MAX,
        revision: REVISION,
        raft_term: 1,
    })
}

#[tonic::async_trait]
impl Kv for Noop {
    async fn range(
        &self,
        request: Request<RangeRequest>,
    ) -> Result<Response<RangeResponse>, Status> {
        Ok(Response::new(RangeResponse {
            header: header(),
            kvs: self.page(request.get_ref()),
            more: true,
            count: REVISION,
        }))
    }

    async fn put(&self, _: Request<PutRequest>) -> Result<Response<PutResponse>, Status> {
        Ok(Response::new(PutResponse {
            header: header(),
            prev_kv: None,
        }))
    }

    async fn txn(&self, _: Request<TxnRequest>) -> Result<Response<TxnResponse>, Status> {
        let inner = ResponseHeader {
            revision: REVISION,
            ..ResponseHeader::default()
        };
        let put = PutResponse {
            header: Some(inner),
            prev_kv: None,
        };
        Ok(Response::new(TxnResponse {
            header: header(),
            succeeded: true,
            responses: vec![ResponseOp {
                response: Some(response_op::Response::ResponsePut(put)),
            }],
        }))
    }
}
