//! Claims about scaling: load adds pods on several nodes, and an idle app has none.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::demo::cluster::{Cluster, HELLO, PATIENCE, timed};
use crate::demo::load;
use crate::report::{Bound, Row};

/// Concurrent requests: enough for three pods at two requests per pod.
const CLIENTS: usize = 8;
/// Time in which the pods' shares are counted.
const COUNTED: Duration = Duration::from_secs(4);
/// Longest time until an idle app has no pods: window, grace period, ticks, drain.
const SLEEP_LIMIT: Duration = Duration::from_secs(40);

/// Load adds two pods, and each gets a share; the idle app scales to zero, and the next request wakes it.
pub(crate) fn up_and_down(cluster: &mut Cluster) -> Result<Vec<Row>> {
    let mut rows = under_load(cluster)?;
    let (_, idle) = timed(|| cluster.await_pods(HELLO, 0, SLEEP_LIMIT))?;
    rows.push(Row::measured(
        "idle, it scales to zero after",
        idle.as_secs_f64(),
        "s",
    ));
    let client = cluster.world().client();
    let (answer, took) = timed(|| Ok(client.enter(|| load::get(HELLO.address(), "/"))??))?;
    rows.push(Row::claim(
        "the next request wakes it again",
        answer.status == 200,
        &format!("{} in {:.0} ms", answer.status, took.as_secs_f64() * 1e3),
    ));
    Ok(rows)
}

fn under_load(cluster: &Cluster) -> Result<Vec<Row>> {
    let path = "/?delay=50";
    let client = cluster.world().client();
    let (grown, counted) = (AtomicBool::new(false), AtomicBool::new(false));
    let (pods, growing, outcome) = std::thread::scope(|scope| -> Result<_> {
        let load = scope.spawn(|| {
            client.enter(|| {
                let growing = load::saturate(HELLO.address(), path, CLIENTS, &grown);
                (
                    growing,
                    load::saturate(HELLO.address(), path, CLIENTS, &counted),
                )
            })
        });
        let pods = cluster.await_pods(HELLO, 3, PATIENCE);
        grown.store(true, Ordering::Relaxed);
        let slept = pods.and_then(|pods| cluster.interrupt().sleep(COUNTED).map(|()| pods));
        counted.store(true, Ordering::Relaxed);
        let (growing, outcome) = load.join().ok().context("the client panicked")??;
        Ok((slept?, growing, outcome))
    })?;
    let nodes: BTreeSet<_> = pods.iter().filter_map(|pod| pod.node.as_deref()).collect();
    let failed = growing.failed + outcome.failed;
    Ok(vec![
        Row::measured("pods under load", pods.len() as f64, "").must(Bound::AtLeast(3.0)),
        Row::measured("  on nodes", nodes.len() as f64, "").must(Bound::AtLeast(2.0)),
        Row::measured(
            "  smallest share of the connections",
            outcome.smallest_share(3) * 100.0,
            "%",
        )
        .must(Bound::AtLeast(15.0)),
        Row::counted(
            "  requests failed while scaling",
            failed,
            growing
                .reasons
                .iter()
                .chain(&outcome.reasons)
                .next()
                .map_or("", String::as_str),
        )
        .must(Bound::AtMost(0.0)),
    ])
}
