//! Claims about a control plane that dies in a gradual rollout: nodes keep the division of the traffic that they have, and its steps go on
//! after the restart.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::demo::cluster::{App, Cluster, NODE_LEASE, PATIENCE};
use crate::demo::load::{self, Outcome};
use crate::report::{Bound, Row};

/// The app whose traffic moves in steps.
const STEPS: App = App::at("steps", 0x5_7e95);
/// Times of the kills after a new template was applied. Within the first ones the revision before gets pods and a VIP of its own, and
/// the traffic is divided.
const MOMENTS: [Duration; 4] = [
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(700),
    Duration::from_millis(1_500),
];
/// New connections per second meanwhile.
const RATE: u32 = 500;
/// Time under load before the new template.
const BEFORE: Duration = Duration::from_secs(1);
/// The node lease meanwhile, and the time without control, in which it ends.
const LEASE: Duration = Duration::from_secs(4);
const AWAY: Duration = Duration::from_secs(6);

/// Control, with store and activator in it, is killed soon after a new template of an app with a gradual rollout: no connection fails,
/// and the rollout is complete after the restart.
pub(crate) fn control_is_killed_in_rollouts(cluster: &mut Cluster) -> Result<Vec<Row>> {
    restart(cluster, LEASE)?;
    cluster.apply(STEPS, &manifest(0))?;
    let interrupt = cluster.interrupt().clone();
    interrupt.wait_for("the first response", PATIENCE, || {
        let client = cluster.world().client();
        Ok(client.enter(|| load::get(STEPS.address(), "/"))?.ok())
    })?;
    let mut rows = Vec::new();
    for (release, moment) in (1..).zip(MOMENTS) {
        // The activator, which is killed too, has no connection.
        cluster.await_mode(STEPS, "Serve")?;
        cluster.await_direct(STEPS)?;
        rows.extend(kill_under_load(cluster, release, moment)?);
    }
    cluster.dormouse(&["delete", "app", STEPS.name])?;
    restart(cluster, NODE_LEASE)?;
    Ok(rows)
}

fn restart(cluster: &mut Cluster, lease: Duration) -> Result<()> {
    cluster.kill_control()?;
    cluster.start_control(lease)?;
    cluster.await_control().map(drop)
}

fn kill_under_load(cluster: &mut Cluster, release: u32, moment: Duration) -> Result<Vec<Row>> {
    let netns = cluster.world().client().netns.clone();
    let stop = AtomicBool::new(false);
    let connect = || load::steady_until(STEPS.address(), "/", RATE, &stop);
    let (rolled_out, load) = thread::scope(|scope| {
        let load = scope.spawn(|| dormouse_world::enter(&netns, connect));
        let rolled_out = kill_in_rollout(cluster, release, moment);
        stop.store(true, Ordering::Relaxed);
        (rolled_out, load.join())
    });
    let (outcome, rate) = load.ok().context("the client panicked")??;
    Ok(rows(moment, rolled_out?, &outcome, rate))
}

/// Changes the template and kills control then; returns the time from the restart until the template is rolled out.
fn kill_in_rollout(cluster: &mut Cluster, release: u32, moment: Duration) -> Result<Duration> {
    let interrupt = cluster.interrupt().clone();
    interrupt.sleep(BEFORE)?;
    cluster.apply(STEPS, &manifest(release))?;
    interrupt.sleep(moment)?;
    cluster.kill_control()?;
    interrupt.sleep(AWAY)?;
    let restarted = Instant::now();
    cluster.start_control(LEASE)?;
    cluster.await_control()?;
    let limit = (PATIENCE * 3).as_secs().to_string();
    cluster.dormouse(&["rollout", "status", "app", STEPS.name, "--timeout", &limit])?;
    Ok(restarted.elapsed())
}

fn rows(moment: Duration, rolled_out: Duration, outcome: &Outcome, rate: f64) -> Vec<Row> {
    let title = format!(
        "control is killed {:.1} s after a template with steps; rolled out after the restart within",
        moment.as_secs_f64()
    );
    vec![
        Row::measured(&title, rolled_out.as_secs_f64(), "s"),
        Row::measured("  new connections meanwhile", rate, "/s")
            // A machine that starts control has less time for the client.
            .must(Bound::AtLeast(f64::from(RATE) * 0.8)),
        outcome.none_failed("  failed"),
    ]
}

fn manifest(release: u32) -> String {
    format!(
        "apiVersion: dormouse.dev/v1alpha1\nkind: App\nmetadata: {{name: {name}, namespace: default}}\nspec:\n  \
         vip: {vip}\n  port: 80\n  targetPort: 8080\n  container: {{name: hello, command: [dormouse-hello], \
         env: [{{name: RELEASE, value: \"{release}\"}}]}}\n  \
         scale: {{min: 0, max: 3, target: 1000, window: 6s, targetBurstCapacity: 0}}\n  \
         rollout: {{stepPercent: 50, duration: 16s}}\n",
        name = STEPS.name,
        vip = STEPS.vip,
    )
}
