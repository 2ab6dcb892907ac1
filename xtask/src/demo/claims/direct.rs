//! Claims about an awake app: requests go directly to pods, and direct load alone keeps the app awake.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use dormouse_world::CLIENT;

use crate::demo::cluster::{CAREFUL, Cluster, DOCS, HELLO, PATIENCE};
use crate::demo::load;
use crate::report::{Bound, Row};

/// Requests of the comparison.
const REQUESTS: u32 = 200;
/// Two stable windows of the example apps.
const TWO_WINDOWS: Duration = Duration::from_secs(12);

/// Further requests bypass the activator, and the app sees the client's address.
pub(crate) fn bypasses_the_activator(cluster: &mut Cluster) -> Result<Vec<Row>> {
    let client = cluster.world().client();
    client.enter(|| load::get(HELLO.address(), "/"))??;
    cluster.await_mode(HELLO, "Serve")?;
    cluster.await_direct(HELLO)?;
    let (activator, direct) = (cluster.activator_requests()?, cluster.direct_connections()?);
    let mut seen = Vec::new();
    for _ in 0..REQUESTS {
        seen.push(
            client
                .enter(|| load::get(HELLO.address(), "/"))??
                .field("client")
                .unwrap_or_default(),
        );
    }
    let by_activator = cluster.activator_requests()? - activator;
    let straight = cluster
        .interrupt()
        .wait_for("the data plane's counters", PATIENCE, || {
            let straight = cluster.direct_connections()? - direct;
            Ok((straight >= u64::from(REQUESTS)).then_some(straight))
        })?;
    let own = seen.iter().all(|address| *address == CLIENT.to_string());
    let from_pod = client_seen_from_a_pod(cluster)?;
    Ok(vec![
        Row::counted(
            "of 200 further requests, by the activator",
            by_activator,
            "",
        )
        .must(Bound::AtMost(0.0)),
        Row::counted("redirected to the pod by the kernels", straight, "")
            .must(Bound::AtLeast(f64::from(REQUESTS))),
        Row::claim(
            "the app sees the client's address",
            own,
            seen.first().map_or("", String::as_str),
        ),
        from_pod,
    ])
}

/// The same from inside a pod: socket load balancing keeps the pod's source address.
fn client_seen_from_a_pod(cluster: &Cluster) -> Result<Row> {
    let pods = cluster.pods(DOCS)?;
    let pods = if pods.is_empty() {
        cluster
            .world()
            .client()
            .enter(|| load::get(DOCS.address(), "/"))??;
        cluster.await_pods(DOCS, 1, PATIENCE)?
    } else {
        pods
    };
    let pod = pods.first().context("docs has no pod")?;
    let address = pod.address.context("the pod has no address")?;
    let seen = cluster.interrupt().wait_for(
        "the pod's request to bypass the activator",
        PATIENCE,
        || {
            let seen = cluster.request_from_pod(pod, HELLO)?;
            Ok((seen == address.to_string()).then_some(seen))
        },
    )?;
    Ok(Row::claim(
        "for a request from a pod, it sees the pod's address",
        true,
        &seen,
    ))
}

/// The autoscaler counts load that bypasses the activator: for two windows the app neither sleeps nor restarts.
pub(crate) fn stays_awake(cluster: &mut Cluster) -> Result<Vec<Row>> {
    let before = cluster.await_pods(HELLO, 1, PATIENCE)?;
    let stop = AtomicBool::new(false);
    let activator = cluster.activator_requests()?;
    let client = cluster.world().client();
    let outcome = std::thread::scope(|scope| {
        let load = scope
            .spawn(|| client.enter(|| load::saturate(HELLO.address(), "/?delay=20", 1, &stop)));
        let slept = cluster.interrupt().sleep(TWO_WINDOWS);
        stop.store(true, Ordering::Relaxed);
        slept.map(|()| load.join())
    })?;
    let outcome = outcome.ok().context("the client panicked")??;
    let after = cluster.pods(HELLO)?;
    Ok(vec![
        Row::counted("requests in two windows, none failed", outcome.answered, ""),
        outcome.none_failed("  failed"),
        Row::counted(
            "  of them by the activator",
            cluster.activator_requests()? - activator,
            "",
        )
        .must(Bound::AtMost(0.0)),
        Row::claim(
            "the same pod serves after two windows of direct load",
            before == after,
            &format!("{} pod(s)", after.len()),
        ),
    ])
}

/// An app with the default burst capacity stays behind the activator, and `explain` shows the reason.
pub(crate) fn careful_stays_in_proxy(cluster: &mut Cluster) -> Result<Vec<Row>> {
    cluster
        .world()
        .client()
        .enter(|| load::get(CAREFUL.address(), "/"))??;
    cluster.await_pods(CAREFUL, 1, PATIENCE)?;
    let mode = cluster.status(CAREFUL)?["mode"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let line = cluster
        .interrupt()
        .wait_for("the decision about its one pod", PATIENCE, || {
            let explained = cluster.dormouse(&["explain", "app", CAREFUL.name])?;
            let line = explained
                .lines()
                .find(|line| line.contains("floor(1×10 - 211"));
            Ok(line.map(|line| line.trim().to_owned()))
        })?;
    Ok(vec![
        Row::claim(
            "an app with burst capacity 211 stays in mode proxy",
            mode == "Proxy",
            &mode,
        ),
        Row::claim(
            "`dormouse explain` shows the reason",
            !line.is_empty(),
            &line,
        ),
    ])
}
