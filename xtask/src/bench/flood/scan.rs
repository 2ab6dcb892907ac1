//! A scan of all VIPs of a range: the events that it raises, what it leaves in memory, and an app that is created right after it.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dormouse_world::{Process, Program, VIP_RANGE};

use super::super::Options;
use super::super::dataplane::commands::ip;
use super::super::dataplane::load_program;
use super::PREFIX;
use crate::demo::cluster::{App, Cluster};
use crate::demo::load;
use crate::progress::Step;
use crate::report::{Bound, Report, Row};

/// All VIPs of the cluster's range, and the segments sent to them in a second.
const VIPS: u32 = 1 << 20;
const PER_SECOND: u32 = 50_000;
/// A scan that exceeds the time at its rate by this hangs.
const HANG: Duration = Duration::from_mins(1);
/// The address that scans: in another /64 than the client that uses the apps, which would have no wakes left else.
const SCANNER: &str = "2001:db8:5ca0::1";
/// Wakes that one source may cause at once, by default; one more comes each second.
const BURST: f64 = 200.0;
/// Apps whose VIPs are scanned before they are created: after a scan, and while another one lasts.
const AFTER: App = App::at("after", 0x5_ca17);
const DURING: App = App::at("during", 0x5_ca18);
const REQUESTS: u64 = 40;
/// Longest times from the command that creates the app until nodes serve it directly: its pod starts meanwhile, and while a scan
/// lasts a VIP is refused once or twice, for up to two seconds each.
const AFTER_MAX_S: f64 = 2.0;
const DURING_MAX_S: f64 = 6.0;

/// Scans the range in a cluster of two nodes, and creates an app, then another one during the next scan.
pub(super) fn measure(options: &Options, report: &mut Report) -> Result<()> {
    let cluster = Cluster::start(PREFIX, 2, &options.binaries, &options.interrupt)?;
    let before = Memory::read(&cluster)?;
    let step = Step::begin("scan 1,048,576 VIPs");
    let line = format!("address add {SCANNER}/64 dev eth0 nodad preferred_lft 0");
    ip(Some(&cluster.world().client().netns), &[line])?;
    let (missed, began) = (cluster.missed()?, Instant::now());
    let mut first = scan(options, &cluster)?;
    let limit = Duration::from_secs((VIPS / PER_SECOND).into()) + HANG;
    let ended = options
        .interrupt
        .wait_for("the scan to end", limit, || Ok(first.ended()))?;
    ensure!(ended.success(), "the scan failed: {}", first.output());
    let after = Memory::read(&cluster)?;
    step.done();
    let missed = cluster.missed()? - missed;
    let row = Row::counted("scan of 2^20 VIPs: events of a node", missed, "");
    let admitted = BURST + began.elapsed().as_secs_f64().ceil();
    report.push(row.must(Bound::AtMost(admitted)));
    for (name, grown) in [
        (
            "scan of 2^20 VIPs: memory of an agent",
            after.agent - before.agent,
        ),
        (
            "scan of 2^20 VIPs: memory of control",
            after.control - before.control,
        ),
    ] {
        report.push(Row::measured(name, grown, "MB").must(Bound::AtMost(5.0)));
    }
    let step = Step::begin("create an app with a VIP that was scanned");
    serve_new(&cluster, (AFTER, "after it", AFTER_MAX_S), report)?;
    step.done();
    let step = Step::begin("create an app while the range is scanned");
    let mut second = scan(options, &cluster)?;
    serve_new(&cluster, (DURING, "during one", DURING_MAX_S), report)?;
    ensure!(second.ended().is_none(), "the scan ended too early");
    step.done();
    Ok(())
}

/// Begins to send a segment to each VIP.
fn scan(options: &Options, cluster: &Cluster) -> Result<Process> {
    let world = cluster.world();
    let program = Program::new(load_program(&options.binaries.hello)?)
        .args(["scan", "--per-second", &PER_SECOND.to_string()])
        .args(["--from", SCANNER, "--count", &VIPS.to_string()])
        .arg(format!("[{VIP_RANGE}]:80"))
        .log(world.client().folder.join("scan.json"));
    Ok(world.spawn(world.client(), &program)?)
}

/// The most memory of a node's agent, and that of control, in megabytes.
struct Memory {
    agent: f64,
    control: f64,
}

impl Memory {
    fn read(cluster: &Cluster) -> Result<Self> {
        let agents = (0..cluster.world().nodes().len()).map(|node| memory(cluster.agent(node)?));
        let agents: Vec<f64> = agents.collect::<Result<_>>()?;
        Ok(Self {
            agent: agents.into_iter().fold(0.0, f64::max),
            control: memory(cluster.control())?,
        })
    }
}

/// A process's own pages (`RssAnon`), without those of maps and files.
fn memory(process: &Process) -> Result<f64> {
    let path = format!("/proc/{}/status", process.pid());
    let text = fs::read_to_string(&path).with_context(|| format!("failed to read {path}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    Ok(kilobytes.with_context(|| format!("{path} has no RssAnon"))? * 1024.0 / 1e6)
}

/// Creates an app, and counts the requests that are served directly as soon as the first are.
fn serve_new(
    cluster: &Cluster,
    (app, when, at_most_s): (App, &str, f64),
    report: &mut Report,
) -> Result<()> {
    let manifest = cluster.world().control().folder.join("created.yaml");
    fs::write(&manifest, document(app)).context("failed to write the manifest")?;
    let began = Instant::now();
    cluster.dormouse(&["apply", "-f", &manifest.display().to_string()])?;
    cluster.awake(app)?;
    cluster.await_direct(app)?;
    let took = began.elapsed().as_secs_f64();
    let before = cluster.activator_requests()?;
    let requests = || (0..REQUESTS).try_for_each(|_| load::get(app.address(), "/").map(drop));
    cluster.world().client().enter(requests)??;
    let by_activator = cluster.activator_requests()? - before;
    let direct = REQUESTS.saturating_sub(by_activator);
    let name = format!("an app created {when}: requests served directly");
    let row = Row::counted(&name, direct, "of 40");
    report.push(row.must(Bound::AtLeast(REQUESTS as f64)));
    let name = format!("an app created {when}: time until then");
    let row = Row::measured(&name, took, "s");
    report.push(row.must(Bound::AtMost(at_most_s)));
    Ok(())
}

fn document(app: App) -> String {
    format!(
        "apiVersion: dormouse.dev/v1alpha1\nkind: App\nmetadata: {{name: {}, namespace: default}}\nspec:\n  vip: {}\n  \
         port: 80\n  targetPort: 8080\n  container: {{name: hello, command: [dormouse-hello]}}\n  \
         scale: {{min: 1, max: 1, targetBurstCapacity: 0}}\n",
        app.name, app.vip,
    )
}
