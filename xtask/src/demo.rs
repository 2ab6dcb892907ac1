//! Shows a sleeping app wake, scale, survive and sleep again over the real data path, claim by claim.

mod claims;
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

/// The name of the demo's world; also what its namespaces begin with.
const PREFIX: &str = "demo";
/// Three nodes: enough that a packet meets one without the app's pod.
const NODES: u8 = 3;

/// How the demo is to run.
pub(crate) struct Options {
    /// Leave everything running until Ctrl-C, instead of ending after the last claim.
    pub(crate) keep: bool,
    /// Where the claims are also written, as JSON.
    pub(crate) json: Option<PathBuf>,
    /// The programs that it starts.
    pub(crate) binaries: Binaries,
    /// Says when the person pressed Ctrl-C.
    pub(crate) interrupt: Interrupt,
}

/// One scene: what it shows, and how.
type Scene = (&'static str, fn(&mut Cluster) -> Result<Vec<Row>>);

/// In the order in which a newcomer would ask.
const SCENES: [Scene; 10] = [
    ("apply three apps", claims::wake::apply),
    ("ask for a sleeping app", claims::wake::first_request),
    (
        "ask again: straight to the pod",
        claims::direct::bypasses_the_activator,
    ),
    (
        "direct load keeps an app awake",
        claims::direct::stays_awake,
    ),
    (
        "a careful app stays behind the activator",
        claims::direct::careful_stays_in_proxy,
    ),
    (
        "scale to three, then back to zero",
        claims::scale::up_and_down,
    ),
    (
        "kill a node's agent under load",
        claims::faults::agent_is_killed,
    ),
    ("freeze a node's agent", claims::faults::agent_is_frozen),
    (
        "delete a pod's key with etcdctl",
        claims::truth::deleted_key_stops_pod,
    ),
    (
        "stop the scheduler",
        claims::truth::no_pod_without_scheduler,
    ),
];

/// Runs the demo; an error names the claims that did not hold.
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

/// A scene that breaks off is a claim that did not hold; the scenes after it are still shown.
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
