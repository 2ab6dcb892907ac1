//! The part of the Kubernetes REST API that people, `kubectl` and the `kube` crate need for apps, pods, nodes and
//! events. Whatever enters the store through people's hands is validated here, and only here.

mod accept;
pub mod age;
mod discovery;
mod failure;
mod fields;
mod kind;
mod patch;
mod read;
mod select;
mod table;
mod watch;
mod write;

use std::{io, sync::Arc};

use axum::{
    Router,
    extract::DefaultBodyLimit,
    routing::{MethodRouter, get},
};
use dormouse_cluster::{App, Client, VipRange, claim::Claims};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use failure::Failure;
use kind::Kind;

/// Most bytes of one request's body; kube-apiserver's limit.
const BODY_BYTES_MAX: usize = 3 << 20;

/// What the controller knows beyond the objects: why an app is as it is, and how its wakes went.
pub trait Insight: Send + Sync {
    /// The `Explanation` of an app; `None` when the controller does not know it.
    fn explain(&self, namespace: &str, name: &str) -> Option<serde_json::Value>;
    /// The `WakeList` of an app; `None` when the controller does not know it.
    fn wakes(&self, namespace: &str, name: &str) -> Option<serde_json::Value>;
}

/// What every request may use.
struct Api {
    client: Client,
    claims: Claims,
    insight: Arc<dyn Insight>,
    /// Ends the watches, so that a shutdown need not wait for those who read them.
    shutdown: CancellationToken,
}

/// Serves the API on `listener` until `shutdown`. Apps get their VIPs out of `ranges`.
pub async fn serve(
    listener: TcpListener,
    client: Client,
    ranges: Vec<VipRange>,
    insight: Arc<dyn Insight>,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let claims = Claims::new(client.clone(), ranges);
    let api = Arc::new(Api {
        client,
        claims,
        insight,
        shutdown: shutdown.clone(),
    });
    axum::serve(listener, router(api))
        .with_graceful_shutdown(shutdown.cancelled_owned())
        .await
}

fn router(api: Arc<Api>) -> Router {
    let app = format!("{}/namespaces/{{namespace}}/apps/{{name}}", App::BASE);
    Router::new()
        .merge(discovery::routes())
        .merge(namespaced::<App>())
        .merge(namespaced::<Pod>())
        .merge(namespaced::<Event>())
        .merge(cluster_wide::<Node>())
        .route(&format!("{app}/explain"), get(read::explain))
        .route(&format!("{app}/wakes"), get(read::wakes))
        .fallback(|| async { Failure::no_such_path() })
        .method_not_allowed_fallback(|| async { Failure::method_not_allowed() })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(api)
}

fn namespaced<K: Kind>() -> Router<Arc<Api>> {
    let (base, plural) = (K::BASE, K::PLURAL);
    let inside = format!("{base}/namespaces/{{namespace}}/{plural}");
    Router::new()
        .route(&format!("{base}/{plural}"), get(read::list::<K>))
        .route(&inside, get(read::list::<K>).post(write::create::<K>))
        .route(&format!("{inside}/{{name}}"), one::<K>())
        .route(&format!("{inside}/{{name}}/status"), status::<K>())
}

fn cluster_wide<K: Kind>() -> Router<Arc<Api>> {
    let all = format!("{}/{}", K::BASE, K::PLURAL);
    Router::new()
        .route(&all, get(read::list::<K>).post(write::create::<K>))
        .route(&format!("{all}/{{name}}"), one::<K>())
        .route(&format!("{all}/{{name}}/status"), status::<K>())
}

fn one<K: Kind>() -> MethodRouter<Arc<Api>> {
    get(read::get::<K>)
        .put(write::replace::<K>)
        .patch(write::patch::<K>)
        .delete(write::delete::<K>)
}

fn status<K: Kind>() -> MethodRouter<Arc<Api>> {
    get(read::get::<K>)
        .put(write::replace_status::<K>)
        .patch(write::patch_status::<K>)
}
