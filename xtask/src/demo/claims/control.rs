//! Claims about a control plane that dies: its state comes back from its data directory, and nodes keep serving meanwhile.

use std::io::ErrorKind;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::demo::cluster::{CAREFUL, Cluster, DOCS, HELLO, NODE_LEASE, PATIENCE};
use crate::demo::load;
use crate::report::{Bound, Row};

/// New connections per second while control is dead.
const RATE: u32 = 500;
/// Time under load before the kill.
const BEFORE: Duration = Duration::from_secs(2);
/// The node lease meanwhile: shorter than usual, so that three of them pass sooner.
const LEASE: Duration = Duration::from_secs(4);
/// Time without control and activator.
const AWAY: Duration = Duration::from_secs(12);
/// Time under load altogether: the restart is over well before its end.
const LENGTH: Duration = Duration::from_secs(22);

/// Control, with store and activator in it, is killed under load and dead for three node leases: no connection to an awake
/// app fails, and one to a sleeping app is refused at once. After the restart every object is there, pods keep their
/// processes, and a sleeping app wakes.
pub(crate) fn control_is_killed(cluster: &mut Cluster) -> Result<Vec<Row>> {
    for app in [DOCS, CAREFUL] {
        cluster.await_pods(app, 0, PATIENCE)?;
    }
    cluster.kill_control()?;
    cluster.start_control(LEASE)?;
    cluster.await_control()?;
    let pod = cluster.awake(HELLO)?;
    cluster.await_direct(HELLO)?;
    let processes = cluster.pod_processes_of(&pod)?;
    ensure!(!processes.is_empty(), "{} runs no process", pod.name);
    let objects = cluster.object_names()?;
    let netns = cluster.world().client().netns.clone();
    let load = thread::spawn(move || {
        dormouse_world::enter(&netns, || load::steady(HELLO.address(), "/", RATE, LENGTH))
    });
    let interrupt = cluster.interrupt().clone();
    interrupt.sleep(BEFORE)?;
    cluster.kill_control()?;
    interrupt.sleep(AWAY)?;
    let refused = sleeping_app_is_refused(cluster)?;
    let started = Instant::now();
    cluster.start_control(NODE_LEASE)?;
    let restored = cluster.await_control()?;
    let start = started.elapsed();
    let answer = cluster
        .world()
        .client()
        .enter(|| load::get(DOCS.address(), "/"))??;
    let (outcome, rate) = load.join().ok().context("the client panicked")??;
    let after = cluster.pod_processes_of(&pod)?;
    Ok(vec![
        Row::measured(
            "control serves again, after kill -9 and three node leases, within",
            start.as_secs_f64(),
            "s",
        )
        .must(Bound::AtMost(NODE_LEASE.as_secs_f64())),
        Row::claim(
            "  every App, Pod and Node is there",
            objects.is_subset(&restored),
            &format!("{} before, {} after", objects.len(), restored.len()),
        ),
        Row::claim(
            "  its pod keeps its process id",
            processes == after,
            &format!("{after:?}"),
        ),
        Row::measured("  new connections meanwhile", rate, "/s")
            .must(Bound::AtLeast(f64::from(RATE) * 0.98)),
        outcome.none_failed("  failed"),
        refused,
        Row::claim(
            "  a sleeping app wakes afterwards",
            answer.status == 200,
            &answer.status.to_string(),
        ),
    ])
}

/// No activator lives: nothing listens where nodes send connections to sleeping apps. What is requested is not the app
/// that wakes afterwards, because its node reports this packet then.
fn sleeping_app_is_refused(cluster: &Cluster) -> Result<Row> {
    let client = cluster.world().client();
    let outcome = client.enter(|| load::get(CAREFUL.address(), "/"))?;
    let (refused, outcome) = match outcome {
        Ok(answer) => (false, answer.status.to_string()),
        Err(error) => (
            error.kind() == ErrorKind::ConnectionRefused,
            error.to_string(),
        ),
    };
    Ok(Row::claim(
        "  a connection to a sleeping app is refused, and does not time out",
        refused,
        &outcome,
    ))
}
