//! Claims about state: the store is its only source.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::demo::cluster::{Cluster, DOCS, HELLO, PATIENCE};
use crate::demo::load;
use crate::report::Row;

/// Time without a scheduler, in which no pod may start.
const WITHOUT_SCHEDULER: Duration = Duration::from_secs(3);
/// Longest time until an idle app has no pods.
const SLEEP_LIMIT: Duration = Duration::from_secs(40);

/// A pod whose key is deleted from the store by another client is stopped.
pub(crate) fn deleted_key_stops_pod(cluster: &mut Cluster) -> Result<Vec<Row>> {
    let pod = cluster.awake(HELLO)?;
    let pids = cluster.pod_processes_of(&pod)?;
    let deleted = cluster.etcdctl(&["del", &format!("/registry/pods/default/{}", pod.name)])?;
    let interrupt = cluster.interrupt().clone();
    interrupt.wait_for("the deleted pod's processes to end", PATIENCE, || {
        Ok(cluster.pod_processes_of(&pod)?.is_empty().then_some(()))
    })?;
    Ok(vec![Row::claim(
        "`etcdctl del` of a pod's key stops its process",
        deleted.trim() == "1" && !pids.is_empty(),
        &format!("{}, process {pids:?}", pod.name),
    )])
}

/// Without a scheduler no pod starts; when it is back, the parked request succeeds.
pub(crate) fn no_pod_without_scheduler(cluster: &mut Cluster) -> Result<Vec<Row>> {
    cluster.await_pods(DOCS, 0, SLEEP_LIMIT)?;
    cluster.stop_scheduler()?;
    let netns = cluster.world().client().netns.clone();
    let request = std::thread::spawn(move || {
        dormouse_world::enter(&netns, || load::get(DOCS.address(), "/"))
    });
    cluster.interrupt().sleep(WITHOUT_SCHEDULER)?;
    let pods = cluster.pods(DOCS)?;
    let none = pods.iter().all(|pod| pod.node.is_none()) && !request.is_finished();
    cluster.start_scheduler()?;
    let answer = request.join().ok().context("the client panicked")???;
    Ok(vec![
        Row::claim(
            "with the scheduler stopped, no pod starts",
            none,
            &format!(
                "{} pod(s) placed",
                pods.iter().filter(|pod| pod.node.is_some()).count()
            ),
        ),
        Row::claim(
            "when it is back, the parked request succeeds",
            answer.status == 200,
            &answer.status.to_string(),
        ),
    ])
}
