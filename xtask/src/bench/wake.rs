//! Latency of a wake, stage by stage, and of a request to an awake app.

use std::collections::BTreeMap;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dormouse_world::{CLIENT, Host, LINK_PREFIX_LEN};

use super::Options;
use super::percentile::percentile;
use crate::demo::cluster::{App, Cluster, PATIENCE, WAKE_STAGES, WakeTimes};
use crate::demo::load;
use crate::progress::Step;
use crate::report::{Bound, Report, Row};

/// Apps that are woken one after the other.
const APPS: u16 = 20;
/// Wakes of each app: 100 in all.
const ROUNDS: usize = 5;
/// The stages of so many wakes must be known, or their percentiles are of too few.
const WHOLE_MIN: f64 = 95.0;
/// Requests on each side of the comparison.
const REQUESTS: usize = 1_000;
/// Largest 99th percentiles, in milliseconds.
const TAILS: [(&str, f64); 2] = [("wire", 15.0), ("answered", 40.0)];
/// Longest time until an idle app sleeps: window, grace period, ticks, drain.
const SLEEP_LIMIT: Duration = Duration::from_secs(40);

/// 100 wakes of 20 apps, then requests to an awake one, in a cluster of three nodes.
pub(super) fn run(options: &Options) -> Result<Report> {
    let cluster = Cluster::start("bench", 3, &options.binaries, &options.interrupt)?;
    let manifest = cluster.world().control().folder.join("apps.yaml");
    std::fs::write(&manifest, (1..=APPS).map(document).collect::<String>())
        .context("failed to write the manifest")?;
    cluster.dormouse(&["apply", "-f", &manifest.display().to_string()])?;
    let mut report = Report::new("wake");
    let mut stages: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let links = links(&cluster)?;
    for round in 1..=ROUNDS {
        let step = Step::begin(&format!("wake {APPS} apps, round {round} of {ROUNDS}"));
        wake_all(&cluster, links, &mut stages)?;
        step.done();
    }
    let whole = WAKE_STAGES.into_iter().skip(1);
    let whole = whole.map(|name| stages.get(name).map_or(0, Vec::len)).min();
    let row = Row::counted("wakes with all stages", whole.unwrap_or(0) as u64, "of 100");
    report.push(row.must(Bound::AtLeast(WHOLE_MIN)));
    for name in WAKE_STAGES.into_iter().skip(1).chain(["answered"]) {
        let samples = stages.get(name).map_or(&[][..], Vec::as_slice);
        report.push(Row::measured(
            &format!("{name}, p50"),
            percentile(samples, 0.5),
            "ms",
        ));
        let tail = percentile(samples, 0.99);
        let tail = Row::measured(&format!("{name}, p99"), tail, "ms");
        let bound = TAILS.iter().find(|(bounded, _)| *bounded == name);
        report.push(match bound {
            Some((_, most)) => tail.must(Bound::AtMost(*most)),
            None => tail,
        });
    }
    let step = Step::begin("compare a VIP in mode serve with the pod's address");
    report_serve(&cluster, &mut report)?;
    step.done();
    Ok(report)
}

fn app(number: u16) -> App {
    App::at("bench", number.into())
}

fn name(number: u16) -> String {
    format!("wake-{number}")
}

fn document(number: u16) -> String {
    format!(
        "---\napiVersion: dormouse.dev/v1alpha1\nkind: App\nmetadata: {{name: {name}, namespace: default}}\n\
         spec:\n  vip: {vip}\n  port: 80\n  targetPort: 8080\n  container: {{name: hello, command: [dormouse-hello]}}\n  \
         scale: {{max: 1, window: 6s, targetBurstCapacity: 0}}\n",
        name = name(number),
        vip = app(number).vip,
    )
}

/// The number of links of all nodes.
fn links(cluster: &Cluster) -> Result<usize> {
    let mut count = 0;
    for node in cluster.world().nodes() {
        let links = node.enter(|| std::fs::read_to_string("/proc/thread-self/net/dev"))?;
        count += links.context("failed to list links")?.lines().count();
    }
    Ok(count)
}

/// Wakes every app once and adds the duration of each stage. Begins when the nodes have no more links than without pods: they share
/// one kernel here, so a pod of one would wait for the deletion of another's, which cannot yield to it.
fn wake_all(
    cluster: &Cluster,
    without_pods: usize,
    stages: &mut BTreeMap<&'static str, Vec<f64>>,
) -> Result<()> {
    cluster
        .interrupt()
        .wait_for("all apps to be asleep", SLEEP_LIMIT, || {
            let gone = cluster.all_asleep()? && links(cluster)? <= without_pods;
            Ok(gone.then_some(()))
        })?;
    for number in 1..=APPS {
        let client = cluster.world().client();
        let began = Instant::now();
        let answer = client.enter(|| load::get(app(number).address(), "/"))??;
        ensure!(
            answer.status == 200,
            "{} replied {}",
            name(number),
            answer.status
        );
        stages
            .entry("answered")
            .or_default()
            .push(began.elapsed().as_secs_f64() * 1e3);
        add_stages(&cluster.last_wake(&name(number))?, stages);
    }
    Ok(())
}

/// Adds the duration of each stage, from the end of the one before it. Parking and deciding both begin with the packet: the
/// kernel's event and the request are processed concurrently.
fn add_stages(at_ms: &WakeTimes, stages: &mut BTreeMap<&'static str, Vec<f64>>) {
    for pair in WAKE_STAGES.windows(2) {
        let (mut before, name) = (pair[0], pair[1]);
        if name == "decide" {
            before = WAKE_STAGES[0];
        }
        if let (Some(from), Some(to)) = (at_ms.get(before), at_ms.get(name)) {
            stages.entry(name).or_default().push(to - from);
        }
    }
}

/// Alternating requests to the VIP and to the pod's address, so that noise affects both equally. Each side has an address of its
/// own: the pod would have in TIME_WAIT ports of the one from which the other connects.
fn report_serve(cluster: &Cluster, report: &mut Report) -> Result<()> {
    let vip = app(1).address();
    let client = cluster.world().client();
    client.enter(|| load::get(vip, "/"))??;
    let pod = cluster
        .interrupt()
        .wait_for("the pod's address", PATIENCE, || {
            cluster.pod_address(&name(1))
        })?;
    let pod = SocketAddrV6::new(pod, 8080, 0, 0);
    cluster.await_direct(app(1))?;
    let directly_from = second_address(client)?;
    let (by_vip, directly) = compare(client, vip, (directly_from, pod))?;
    // The data path must not double the median; the tail depends on the machine.
    let median = Row::measured("request in serve, p50", percentile(&by_vip, 0.5), "ms");
    let median = median.against(percentile(&directly, 0.5));
    report.push(median.must(Bound::RatioAtMost(2.0)));
    let tail = Row::measured("request in serve, p99", percentile(&by_vip, 0.99), "ms");
    report.push(tail.against(percentile(&directly, 0.99)));
    Ok(())
}

/// Gives the client one more address on its link.
fn second_address(client: &Host) -> Result<Ipv6Addr> {
    let second = Ipv6Addr::from_bits(CLIENT.to_bits() + 1);
    let mut add = Command::new("ip");
    add.args([
        "-6",
        "address",
        "add",
        &format!("{second}/{LINK_PREFIX_LEN}"),
    ]);
    add.args(["dev", client.uplink(), "nodad", "preferred_lft", "0"]);
    let status = client.enter(|| add.status())?;
    let status = status.context("failed to start ip")?;
    ensure!(status.success(), "failed to give the client {second}");
    Ok(second)
}

fn compare(
    client: &Host,
    vip: SocketAddrV6,
    (from, pod): (Ipv6Addr, SocketAddrV6),
) -> Result<(Vec<f64>, Vec<f64>)> {
    let one = |from: Ipv6Addr, to: SocketAddrV6| -> std::io::Result<f64> {
        let began = Instant::now();
        load::get_from(from, to, "/")?;
        Ok(began.elapsed().as_secs_f64() * 1e3)
    };
    let pairs = client.enter(|| {
        (0..REQUESTS)
            .map(|_| Ok((one(CLIENT, vip)?, one(from, pod)?)))
            .collect::<std::io::Result<Vec<_>>>()
    })?;
    Ok(pairs
        .context("a request of the comparison failed")?
        .into_iter()
        .unzip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_lasts_from_the_one_before_and_deciding_from_the_packet() {
        let times = (0_u32..).zip(WAKE_STAGES);
        let mut times: WakeTimes = times.map(|(ms, name)| (name, f64::from(ms))).collect();
        let mut stages = BTreeMap::new();
        add_stages(&times, &mut stages);
        assert_eq!(
            (&stages["park"][..], &stages["decide"][..]),
            (&[1.0][..], &[2.0][..])
        );
        assert_eq!(stages["first byte"], [1.0]);
        times.remove("see");
        add_stages(&times, &mut stages);
        assert_eq!((stages["park"].len(), stages["decide"].len()), (1, 1));
        assert_eq!((stages["place"].len(), stages["wire"].len()), (2, 2));
    }
}
