//! The KV service's range streams: a long list in parts, each sent before the next one is read.

use tokio::sync::mpsc::{Receiver, Sender, channel};
use tonic::{Request, Status};

use crate::{
    Store,
    auth::Credentials,
    proto::etcdserverpb::{
        RangeRequest, RangeStreamResponse,
        range_request::{SortOrder, SortTarget},
    },
    server::{guard, session::Session},
    store::RangeParts,
    txn,
};

/// Parts queued for the transport; a full queue delays the read of the next one.
const PARTS_MAX: usize = 2;

type Part = Result<RangeStreamResponse, Status>;

/// Checks a request, and starts the task that reads its parts. The task ends with the range, the
/// client or the server.
pub(super) fn start(
    store: &Store,
    request: Request<RangeRequest>,
) -> Result<Receiver<Part>, Status> {
    let credentials = guard::of_request(&request);
    let mut request = request.into_inner();
    check(&request)?;
    Session::of_stream(store, &credentials).check_range(&request)?;
    // Without an order, the target has no meaning in a stream.
    request.sort_target = SortTarget::Key.into();
    let parts = store.range_parts(&request)?;
    let (out, received) = channel(PARTS_MAX);
    let store = store.clone();
    tokio::spawn(async move { send(&store, &credentials, (request, parts), out).await });
    Ok(received)
}

/// Clients fall back to pages for what a stream does not serve.
fn check(request: &RangeRequest) -> Result<(), Status> {
    txn::check_range(request)?;
    let unordered = request.sort_order == i32::from(SortOrder::None);
    let by_key = request.sort_order == i32::from(SortOrder::Ascend)
        && request.sort_target == i32::from(SortTarget::Key);
    if !unordered && !by_key {
        let text = "RangeStream does not support custom sort orders";
        return Err(Status::unimplemented(text));
    }
    let filters = [
        request.min_mod_revision,
        request.max_mod_revision,
        request.min_create_revision,
        request.max_create_revision,
    ];
    if filters != [0; 4] {
        let text = "RangeStream does not support revision filters";
        return Err(Status::unimplemented(text));
    }
    Ok(())
}

async fn send(
    store: &Store,
    credentials: &Credentials,
    (request, mut parts): (RangeRequest, RangeParts),
    out: Sender<Part>,
) {
    loop {
        let session = Session::of_stream(store, credentials);
        // The user's permissions may change while the range is sent.
        let part = match session.check_range(&request) {
            Ok(()) => parts.next().await.map_err(Status::from),
            Err(refusal) => Err(refusal),
        };
        let Some(part) = part.transpose() else {
            return;
        };
        let ended = part.is_err();
        let part = part.map(|part| RangeStreamResponse {
            range_response: Some(part),
        });
        if out.send(part).await.is_err() || ended {
            return;
        }
    }
}
