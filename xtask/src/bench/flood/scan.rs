//! A scan of all VIPs of a range: what it leaves in memory, and an app that is created right after it.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dormouse_world::{CLIENT, Process, Program, VIP_RANGE};

use super::super::Options;
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
/// An app whose VIP is scanned before it is created.
const NEW: App = App::at("created", 0x5_ca17);
const REQUESTS: u64 = 40;

/// Scans the range in a cluster of two nodes, and creates an app.
pub(super) fn measure(options: &Options, report: &mut Report) -> Result<()> {
    let cluster = Cluster::start(PREFIX, 2, &options.binaries, &options.interrupt)?;
    let before = Memory::read(&cluster)?;
    let step = Step::begin("scan 1,048,576 VIPs");
    scan(options, &cluster)?;
    let after = Memory::read(&cluster)?;
    step.done();
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
    serve_new(&cluster, report)?;
    step.done();
    Ok(())
}

fn scan(options: &Options, cluster: &Cluster) -> Result<()> {
    let world = cluster.world();
    let program = Program::new(load_program(&options.binaries.hello)?)
        .args(["scan", "--per-second", &PER_SECOND.to_string()])
        .args(["--from", &CLIENT.to_string(), "--count", &VIPS.to_string()])
        .arg(format!("[{VIP_RANGE}]:80"))
        .log(world.client().folder.join("scan.json"));
    let mut process = world.spawn(world.client(), &program)?;
    let limit = Duration::from_secs((VIPS / PER_SECOND).into()) + HANG;
    let ended = options
        .interrupt
        .wait_for("the scan to end", limit, || Ok(process.ended()))?;
    ensure!(ended.success(), "the scan failed: {}", process.output());
    Ok(())
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

fn serve_new(cluster: &Cluster, report: &mut Report) -> Result<()> {
    let manifest = cluster.world().control().folder.join("created.yaml");
    fs::write(&manifest, document()).context("failed to write the manifest")?;
    cluster.dormouse(&["apply", "-f", &manifest.display().to_string()])?;
    let began = Instant::now();
    cluster.awake(NEW)?;
    cluster.await_direct(NEW)?;
    let took = began.elapsed().as_secs_f64();
    let before = cluster.activator_requests()?;
    let requests = || (0..REQUESTS).try_for_each(|_| load::get(NEW.address(), "/").map(drop));
    cluster.world().client().enter(requests)??;
    let by_activator = cluster.activator_requests()? - before;
    let direct = REQUESTS.saturating_sub(by_activator);
    let row = Row::counted(
        "an app created then: requests served directly",
        direct,
        "of 40",
    );
    report.push(row.must(Bound::AtLeast(REQUESTS as f64)));
    report.push(Row::measured("from its creation until then", took, "s"));
    Ok(())
}

fn document() -> String {
    format!(
        "apiVersion: dormouse.dev/v1alpha1\nkind: App\nmetadata: {{name: {}, namespace: default}}\nspec:\n  vip: {}\n  \
         port: 80\n  targetPort: 8080\n  container: {{name: hello, command: [dormouse-hello]}}\n  \
         scale: {{min: 1, max: 1, targetBurstCapacity: 0}}\n",
        NEW.name, NEW.vip,
    )
}
