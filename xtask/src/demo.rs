//! The demo: an app wakes, scales, survives faults and sleeps again over the real data path; each claim is checked.

pub(crate) mod claims;
pub(crate) mod cluster;
pub(crate) mod load;
mod lookaround;

use std::path::PathBuf;

use anyhow::Result;

use self::cluster::Cluster;
use crate::binaries::Binaries;
use crate::interrupt::Interrupt;
use crate::progress::{Step, say};
use crate::report::{Report, Row};

/// Name of the demo's world, and prefix of its namespaces.
const PREFIX: &str = "demo";
/// Number of nodes: some packets then arrive at a node without the app's pod.
const NODES: u8 = 3;

/// Arguments of the demo.
pub(crate) struct Options {
    /// Leave the cluster running until Ctrl-C, without checking claims.
    pub(crate) keep: bool,
    /// File to which the claims are also written, as JSON.
    pub(crate) json: Option<PathBuf>,
    /// The programs to start.
    pub(crate) binaries: Binaries,
    /// Set by Ctrl-C.
    pub(crate) interrupt: Interrupt,
}

/// One scene: its title and its function.
type Scene = (&'static str, fn(&mut Cluster) -> Result<Vec<Row>>);

/// All scenes in their order.
const SCENES: [Scene; 15] = [
    ("apply three apps", claims::wake::apply),
    ("request a sleeping app", claims::wake::first_request),
    (
        "further requests go directly to the pod",
        claims::direct::bypasses_the_activator,
    ),
    (
        "direct load keeps an app awake",
        claims::direct::stays_awake,
    ),
    (
        "app `careful` stays behind the activator",
        claims::direct::careful_stays_in_proxy,
    ),
    ("reach pods by a Service", claims::service::reaches_pods),
    (
        "scale to three, then back to zero",
        claims::scale::up_and_down,
    ),
    (
        "change an app's revision under load",
        claims::rollout::revisions_change_under_load,
    ),
    (
        "divide traffic between three revisions",
        claims::rollout::traffic_is_divided,
    ),
    (
        "kill a node's agent under load",
        claims::faults::agent_is_killed,
    ),
    ("freeze a node's agent", claims::faults::agent_is_frozen),
    (
        "kill control under load",
        claims::control::control_is_killed,
    ),
    (
        "kill control in gradual rollouts under load",
        claims::steps::control_is_killed_in_rollouts,
    ),
    (
        "delete a pod's key with etcdctl",
        claims::truth::deleted_key_stops_pod,
    ),
    (
        "stop the scheduler",
        claims::truth::no_pod_without_scheduler,
    ),
];

/// Runs the demo; an error names the claims that do not hold.
pub(crate) fn run(options: &Options) -> Result<()> {
    let step = Step::begin(
        "build a switch, three nodes, a client and a control host; start control and the agents",
    );
    let mut cluster = Cluster::start(PREFIX, NODES, &options.binaries, &options.interrupt)?;
    step.done();
    if options.keep {
        return lookaround::keep(&mut cluster);
    }
    let mut report = Report::new("demo");
    for (title, scene) in SCENES {
        options.interrupt.check()?;
        play(&mut cluster, &mut report, title, scene);
    }
    say(&report.to_string());
    report.finish(options.json.as_deref())
}

/// Runs one scene. A scene that fails counts as a claim that does not hold; later scenes still run.
fn play(
    cluster: &mut Cluster,
    report: &mut Report,
    title: &str,
    scene: fn(&mut Cluster) -> Result<Vec<Row>>,
) {
    let step = Step::begin(title);
    match scene(cluster) {
        Ok(rows) => {
            step.done();
            for row in rows {
                report.push(row);
            }
        }
        Err(error) => {
            step.failed();
            say(&format!("  {error:#}"));
            report.push(Row::claim(title, false, &format!("{error:#}")));
        }
    }
}
