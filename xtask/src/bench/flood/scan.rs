//! A scan of all VIPs of a range: the events that it raises, what it leaves in memory, and an app that is created right after it.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dormouse_rows::process;
use dormouse_world::{Process, VIP_RANGE};

use super::super::Options;
use super::PREFIX;
use super::apps::{Apps, document};
use super::scanner::{SOURCES, Scan, Scanner, VIPS};
use crate::demo::cluster::{App, Cluster, PATIENCE};
use crate::demo::load;
use crate::progress::Step;
use crate::report::{Bound, Report, Row};

/// Segments of a scan in a second.
const PER_SECOND: u32 = 50_000;
/// Apps that sleep while they are scanned: 500 all over the range, and 500 with VIPs one after the other at its end, where a scan of
/// their own begins. The latter has its burst of wakes left then, and meets nothing else.
const SCATTERED: Apps = Apps {
    name: "scattered",
    count: 500,
    first: 1_000,
    step: 2_000,
    min: 0,
};
const ADJACENT: Apps = Apps {
    name: "adjacent",
    count: 500,
    first: VIPS - 500,
    step: 1,
    min: 0,
};
const _: () = assert!(SCATTERED.first + SCATTERED.count * SCATTERED.step < ADJACENT.first);
/// Segments of the scan of these apps in a second.
const ADJACENT_PER_SECOND: u32 = 100;
/// Wakes that one source may cause at once, by default; one more comes each second.
const BURST: f64 = 200.0;
/// Time in which control returns the memory that the creation of apps needed: what a scan takes is not hidden by that.
const QUIET: Duration = Duration::from_secs(20);
/// Longest time from the last segment of a scan until its wakes have begun.
const WAKES_LIMIT: Duration = Duration::from_secs(2);
/// Apps whose VIPs are scanned before they are created: after a scan, and while another one lasts.
const AFTER: App = App::at("after", 0x5_ca17);
const DURING: App = App::at("during", 0x5_ca18);
const REQUESTS: u64 = 40;
/// Longest times from the command that creates the app until nodes serve it directly: its pod starts meanwhile, and while a scan
/// lasts a VIP is refused once or twice, for up to two seconds each.
const AFTER_MAX_S: f64 = 2.0;
const DURING_MAX_S: f64 = 6.0;
/// Largest growth of a process by a scan, in megabytes, and CPU time of an agent, in percent of a core.
const GROWTH_MAX_MB: f64 = 5.0;
const CPU_MAX_PERCENT: f64 = 5.0;

/// Scans the range, with sleeping apps, in a cluster of two nodes, and creates an app, then another one during the next scan.
pub(super) fn measure(options: &Options, report: &mut Report) -> Result<()> {
    let cluster = Cluster::start(PREFIX, 2, &options.binaries, &options.interrupt)?;
    let node = cluster.world().nodes().first();
    let scanner = Scanner::attach(options, cluster.world(), node.context("there is no node")?)?;
    let step = Step::begin("create 1,000 apps that sleep");
    SCATTERED.create(&cluster)?;
    ADJACENT.create(&cluster)?;
    let asleep = || Ok(cluster.all_asleep()?.then_some(()));
    options
        .interrupt
        .wait_for("all apps to sleep", PATIENCE, asleep)?;
    step.done();
    let step = Step::begin("let control return memory");
    options.interrupt.sleep(QUIET)?;
    step.done();
    scan_all(&cluster, &scanner, report)?;
    let step = Step::begin("create an app with a VIP that was scanned");
    serve_new(&cluster, (AFTER, "after it", AFTER_MAX_S), report)?;
    step.done();
    let step = Step::begin("create an app while the range is scanned");
    let mut second = scanner.start(WHOLE)?;
    serve_new(&cluster, (DURING, "during one", DURING_MAX_S), report)?;
    ensure!(second.ended().is_none(), "the scan ended too early");
    drop(second);
    step.done();
    scan_apps(&cluster, &scanner, report)
}

/// A segment to each VIP.
const WHOLE: Scan = Scan {
    from: SOURCES[0],
    first: VIP_RANGE,
    addresses: VIPS,
    per_second: Some(PER_SECOND as f64),
    length: None,
};

/// Scans the whole range.
fn scan_all(cluster: &Cluster, scanner: &Scanner<'_>, report: &mut Report) -> Result<()> {
    let step = Step::begin("scan 1,048,576 VIPs");
    let (missed, before, began) = (cluster.missed()?, Used::read(cluster)?, Instant::now());
    let expected = Duration::from_secs((VIPS / PER_SECOND).into());
    scanner.finish(scanner.start(WHOLE)?, expected)?;
    let seconds = began.elapsed().as_secs_f64();
    let after = Used::read(cluster)?;
    let missed = cluster.missed()? - missed;
    let awake = awake_at_end(cluster)?;
    step.done();
    let admitted = Bound::AtMost(BURST + seconds.ceil());
    let name = "scan of 2^20 VIPs: events of a node";
    report.push(Row::counted(name, missed, "").must(admitted));
    let name = "scan of 2^20 VIPs: wakes of 1,000 sleeping apps";
    report.push(Row::counted(name, awake, "").must(admitted));
    let cpu = (after.agent_cpu_s - before.agent_cpu_s) / seconds * 100.0;
    let row = Row::measured("scan of 2^20 VIPs: CPU of an agent", cpu, "% of a core");
    report.push(row.must(Bound::AtMost(CPU_MAX_PERCENT)));
    let agent = after.agent_mb - before.agent_mb;
    let row = Row::measured("scan of 2^20 VIPs: memory of an agent", agent, "MB");
    report.push(row.must(Bound::AtMost(GROWTH_MAX_MB)));
    let control = after.control_mb - before.control_mb;
    let row = Row::measured("scan of 2^20 VIPs: memory of control", control, "MB");
    report.push(row.must(Bound::AtMost(GROWTH_MAX_MB)));
    Ok(())
}

/// Scans apps only, from a source that has scanned nothing yet: as many wakes as one can cause.
fn scan_apps(cluster: &Cluster, scanner: &Scanner<'_>, report: &mut Report) -> Result<()> {
    let step = Step::begin("scan 500 sleeping apps");
    let (before, began) = (cluster.apps_awake()? as u64, Instant::now());
    let expected = Duration::from_secs((ADJACENT.count / ADJACENT_PER_SECOND).into());
    let scan = Scan {
        from: SOURCES[1],
        first: *ADJACENT.address(0).ip(),
        addresses: ADJACENT.count,
        per_second: Some(ADJACENT_PER_SECOND.into()),
        ..WHOLE
    };
    scanner.finish(scanner.start(scan)?, expected)?;
    let admitted = BURST + began.elapsed().as_secs_f64().ceil();
    let woken = awake_at_end(cluster)? - before;
    step.done();
    let row = Row::counted("scan of 500 sleeping apps: wakes", woken, "");
    report.push(row.must(Bound::AtMost(admitted)));
    Ok(())
}

/// The apps that are awake when the wakes of a scan have begun.
fn awake_at_end(cluster: &Cluster) -> Result<u64> {
    cluster.interrupt().sleep(WAKES_LIMIT)?;
    Ok(cluster.apps_awake()? as u64)
}

/// Memory and CPU time of the agent whose node is scanned, and memory of control.
struct Used {
    agent_cpu_s: f64,
    agent_mb: f64,
    control_mb: f64,
}

impl Used {
    fn read(cluster: &Cluster) -> Result<Self> {
        let agent = cluster.agent(0)?;
        let cpu = process::Process(agent.pid()).cpu()?;
        Ok(Self {
            agent_cpu_s: cpu.as_secs_f64(),
            agent_mb: memory(agent)?,
            control_mb: memory(cluster.control())?,
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
    let document = document(app.name, app.vip, "min: 1, max: 1");
    fs::write(&manifest, document).context("failed to write the manifest")?;
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
