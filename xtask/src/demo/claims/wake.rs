//! Claims about the first request to a sleeping app.

use anyhow::{Context, Result};

use crate::binaries;
use crate::demo::cluster::{
    CAREFUL, Cluster, DOCS, HELLO, PATIENCE, WAKE_STAGES, pod_processes, timed,
};
use crate::demo::load;
use crate::progress::say;
use crate::report::Row;

/// A page of the repository's `docs/`, which the example web server serves.
const PAGE: &str = "BENCHMARKS.md";

/// The apps are created, sleep, and have no processes.
pub(crate) fn apply(cluster: &mut Cluster) -> Result<Vec<Row>> {
    let output = cluster.dormouse(&["apply", "-f", "deploy/examples/apps.yaml"])?;
    let interrupt = cluster.interrupt().clone();
    for app in [DOCS, HELLO, CAREFUL] {
        interrupt.wait_for(&format!("{} to be asleep", app.name), PATIENCE, || {
            Ok((cluster.status(app)?["state"] == "Asleep").then_some(()))
        })?;
    }
    let asleep = cluster
        .world()
        .nodes()
        .iter()
        .all(|node| pod_processes(node).is_empty());
    Ok(vec![
        Row::claim(
            "three apps are created from one manifest",
            output.matches("created").count() == 3,
            &output.trim().replace('\n', ", "),
        ),
        Row::claim(
            "sleeping apps have no process",
            asleep,
            "no process in any pod cgroup",
        ),
    ])
}

/// The first request is parked until its app has started, and succeeds.
pub(crate) fn first_request(cluster: &mut Cluster) -> Result<Vec<Row>> {
    let expected = std::fs::read(binaries::root().join("docs").join(PAGE))
        .context("failed to read the page")?;
    let client = cluster.world().client();
    let (answer, took) =
        timed(|| Ok(client.enter(|| load::get(DOCS.address(), &format!("/{PAGE}")))??))?;
    let right = answer.status == 200 && answer.body == expected;
    let mut rows = vec![
        Row::claim(
            "a request to a sleeping app succeeds",
            right,
            &format!("{}, {} bytes", answer.status, answer.body.len()),
        ),
        Row::measured("  in", took.as_secs_f64() * 1e3, "ms"),
    ];
    rows.extend(timeline(cluster)?);
    rows.push(output(cluster)?);
    Ok(rows)
}

/// What the app wrote about the request, to standard error, is in its log, which control reads from the pod's node.
fn output(cluster: &Cluster) -> Result<Row> {
    let object = format!("app/{}", DOCS.name);
    let request = format!("\"GET /{PAGE} HTTP/1.1\" 200");
    let interrupt = cluster.interrupt().clone();
    let log = interrupt.wait_for("the app's log", PATIENCE, || {
        let log = cluster.dormouse(&["logs", &object])?;
        Ok(log.contains(&request).then_some(log))
    })?;
    let lines = format!("{} lines", log.lines().count());
    Ok(Row::claim(
        "dormouse logs prints what the app wrote, also to standard error",
        true,
        &lines,
    ))
}

/// The wake's timeline has a time for every stage, on one clock; the first is from the kernel.
fn timeline(cluster: &Cluster) -> Result<Vec<Row>> {
    let stages = cluster.last_wake(DOCS.name)?;
    say(&cluster.dormouse(&["wake", "timeline", DOCS.name])?);
    let in_order = WAKE_STAGES
        .iter()
        .filter_map(|name| Some((*name, *stages.get(name)?)));
    let mut rows: Vec<_> = in_order
        .clone()
        .map(|(name, ms)| Row::measured(&format!("  {name}"), ms, "ms after the packet"))
        .collect();
    // `park` may come before or after `decide`: the kernel's event and the request race.
    let chain = in_order.filter_map(|(name, ms)| (name != "park").then_some(ms));
    let complete = stages.len() == WAKE_STAGES.len() && stages.get("see") == Some(&0.0);
    let ordered = complete && chain.is_sorted();
    let seen = format!("{} stages, the first in the kernel", stages.len());
    rows.push(Row::claim(
        "the wake's timeline is complete and in order",
        ordered,
        &seen,
    ));
    Ok(rows)
}
