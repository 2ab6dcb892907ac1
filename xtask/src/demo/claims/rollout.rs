//! Claims about revisions: a good one replaces the one before under load, a broken one leaves it serving, and traffic is divided by
//! weight.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::demo::cluster::{App, Cluster, PATIENCE, timed};
use crate::demo::load::{self, Outcome};
use crate::report::{Bound, Row};

/// The app whose template changes.
const SHOP: App = App::at("shop", 0x5_0b5);
/// Its pods.
const PODS: usize = 2;
/// New connections per second meanwhile.
const RATE: u32 = 500;
/// Time under load altogether: the last change is over well before its end.
const LENGTH: Duration = Duration::from_secs(30);
/// Time under load before the first change.
const BEFORE: Duration = Duration::from_secs(1);
/// Parts of the traffic of three revisions, in percent: of two earlier ones, and of the app's template.
const PERCENTS: [u32; 3] = [90, 9, 1];
/// Connections of the demo's claim.
const CONNECTIONS: u32 = 10_000;
/// The program of the examples, and one that does not exist.
const PROGRAMS: [&str; 2] = ["dormouse-hello", "dormouse-missing"];

/// Under load, a revision replaces the one before, a broken one does not, and is undone: no connection fails.
pub(crate) fn revisions_change_under_load(cluster: &mut Cluster) -> Result<Vec<Row>> {
    apply(cluster, &manifest("one", PROGRAMS[0], ""))?;
    cluster.await_pods(SHOP, PODS, PATIENCE)?;
    cluster.await_direct(SHOP)?;
    let netns = cluster.world().client().netns.clone();
    let load = thread::spawn(move || {
        dormouse_world::enter(&netns, || load::steady(SHOP.address(), "/", RATE, LENGTH))
    });
    let mut rows = change(cluster)?;
    let (outcome, rate) = load.join().ok().context("the client panicked")??;
    rows.extend([
        Row::measured("  new connections meanwhile", rate, "/s")
            .must(Bound::AtLeast(f64::from(RATE) * 0.98)),
        outcome.none_failed("  failed"),
    ]);
    Ok(rows)
}

fn change(cluster: &Cluster) -> Result<Vec<Row>> {
    let interrupt = cluster.interrupt();
    interrupt.sleep(BEFORE)?;
    let before = uids(cluster)?;
    apply(cluster, &manifest("two", PROGRAMS[0], ""))?;
    let (_, took) = timed(|| cluster.dormouse(&["rollout", "status", "app", SHOP.name]))?;
    let after = interrupt.wait_for("the pods of the new revision alone", PATIENCE, || {
        let now = uids(cluster)?;
        Ok((now.len() == PODS && now.is_disjoint(&before)).then_some(now))
    })?;
    apply(cluster, &manifest("three", PROGRAMS[1], ""))?;
    let reason = interrupt.wait_for("the reason of the broken revision", PATIENCE, || {
        let status = cluster.status(SHOP)?;
        let message = status["message"].as_str().unwrap_or_default().to_owned();
        Ok(message.contains("No such file").then_some(message))
    })?;
    let serving = uids(cluster)?;
    cluster.dormouse(&["rollout", "undo", "app", SHOP.name])?;
    cluster.dormouse(&["rollout", "status", "app", SHOP.name])?;
    let ((), gone) = timed(|| {
        interrupt.wait_for(
            "the pods of the broken revision to be gone",
            PATIENCE,
            || {
                let pods = cluster.pods(SHOP)?;
                let left = pods.iter().any(|pod| !after.contains(&pod.uid));
                Ok((!left).then_some(()))
            },
        )
    })?;
    Ok(vec![
        Row::measured(
            "a new revision replaces the one before within",
            took.as_secs_f64(),
            "s",
        ),
        Row::claim(
            "  a broken one leaves it serving, and the app's status says why",
            serving.is_superset(&after),
            reason.lines().next().unwrap_or_default(),
        ),
        Row::measured(
            "  after the undo, no pod of it is left within",
            gone.as_secs_f64(),
            "s",
        ),
    ])
}

/// Three revisions get 90, 9 and 1 percent of the connections in mode serve.
pub(crate) fn traffic_is_divided(cluster: &mut Cluster) -> Result<Vec<Row>> {
    let rows = divide(cluster, CONNECTIONS, 2.0)?;
    cluster.dormouse(&["delete", "app", SHOP.name])?;
    Ok(rows)
}

/// Divides the traffic of the app after [`revisions_change_under_load`], and opens so many connections. Each part must be within so
/// many percent of all.
pub(crate) fn divide(cluster: &Cluster, connections: u32, most: f64) -> Result<Vec<Row>> {
    let [first, second, latest] = PERCENTS;
    let traffic = format!(
        "\n  traffic:\n  - {{revisionName: shop-1, percent: {first}}}\n  - {{revisionName: shop-2, percent: {second}}}\n  \
         - {{latestRevision: true, percent: {latest}}}"
    );
    apply(cluster, &manifest("four", PROGRAMS[0], &traffic))?;
    let interrupt = cluster.interrupt();
    interrupt.wait_for("the split to be in force", PATIENCE, || {
        let status = cluster.status(SHOP)?;
        let targets = status["traffic"].as_array().map_or(0, Vec::len);
        Ok((targets == PERCENTS.len()).then_some(()))
    })?;
    cluster.await_direct(SHOP)?;
    let before = cluster.activator_requests()?;
    let client = cluster.world().client();
    let outcome = client.enter(|| load::count(SHOP.address(), "/", connections))?;
    let by_activator = cluster.activator_requests()? - before;
    ensure!(
        by_activator == 0,
        "{by_activator} requests went by the activator"
    );
    let mut rows = vec![outcome.none_failed("connections to three revisions, failed")];
    let parts = parts(&outcome);
    for (revision, wanted) in ["shop-1", "shop-2", "shop"].into_iter().zip(PERCENTS) {
        let part = parts.get(revision).copied().unwrap_or(0) as f64;
        let percent = 100.0 * part / f64::from(connections);
        let name = format!("  {wanted}% for {revision}: {percent:.2}%, off by");
        let off = (percent - f64::from(wanted)).abs();
        rows.push(Row::measured(&name, off, "% of all").must(Bound::AtMost(most)));
    }
    Ok(rows)
}

/// The answers by app: a pod's name is its app's, a hyphen and a suffix.
fn parts(outcome: &Outcome) -> BTreeMap<&str, u64> {
    let mut parts = BTreeMap::new();
    for (pod, count) in &outcome.by_pod {
        let app = pod.rsplit_once('-').map_or(pod.as_str(), |(app, _)| app);
        *parts.entry(app).or_default() += count;
    }
    parts
}

fn uids(cluster: &Cluster) -> Result<BTreeSet<String>> {
    let pods = cluster.pods(SHOP)?.into_iter();
    Ok(pods.filter(|pod| pod.ready).map(|pod| pod.uid).collect())
}

fn apply(cluster: &Cluster, manifest: &str) -> Result<()> {
    cluster.apply(SHOP, manifest)
}

fn manifest(release: &str, program: &str, traffic: &str) -> String {
    format!(
        "apiVersion: dormouse.dev/v1alpha1\nkind: App\nmetadata: {{name: {name}, namespace: default}}\nspec:\n  \
         vip: {vip}\n  port: 80\n  targetPort: 8080\n  container: {{name: hello, command: [{program}], \
         env: [{{name: RELEASE, value: {release}}}]}}\n  \
         scale: {{min: {PODS}, max: {PODS}, target: 1000, window: 60s, targetBurstCapacity: 0}}{traffic}\n",
        name = SHOP.name,
        vip = SHOP.vip,
    )
}
