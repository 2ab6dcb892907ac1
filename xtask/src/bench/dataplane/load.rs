//! Load on a side from its client pod, and its results.

use std::net::SocketAddrV6;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use dormouse_world::{Host, Program};
use serde_json::Value;

use super::Bench;
use super::pods::Pod;

/// Length of one measurement: short, so that noise affects both sides of a ratio equally.
const WINDOW: Duration = Duration::from_secs(1);
/// Length of a check whether the target replies: one connection per thread.
const CHECK: Duration = Duration::from_millis(1);
/// Largest share of failed connections. Between namespaces, packets of one connection are reordered if two CPUs process
/// them, and about one connection in a million is reset, on plain nodes too and never over loopback. A larger share has
/// another cause.
const FAILED_SHARE_MAX: f64 = 1e-3;
/// Enough to keep both ends busy.
const THREADS: &str = "4";
/// A load that exceeds its length by this hangs.
const HANG: Duration = Duration::from_secs(15);
/// Loads that were started, which number their logs.
static LOADS: AtomicU32 = AtomicU32::new(0);
/// Length of a stream, and the time at its start that iperf3 does not count.
const STREAM_SECONDS: u64 = 2;
const STREAM_OMIT_SECONDS: u64 = 1;

/// Direction of a stream's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    /// From the client.
    Up,
    /// To the client.
    Down,
}

/// Results of one measurement with short connections.
#[derive(Clone, Copy, Debug)]
struct Connections {
    /// Connections with a reply.
    answered: f64,
    /// Connections without.
    failed: f64,
    seconds: f64,
}

/// Short connections per second, to the targets in turn, and the number of failed ones.
pub(super) fn connections(
    bench: &Bench<'_>,
    client: &Pod,
    targets: &[SocketAddrV6],
) -> Result<(f64, f64)> {
    let (done, reason) = connect(bench, client, targets, WINDOW)?;
    let share = done.failed / (done.answered + done.failed);
    ensure!(
        share <= FAILED_SHARE_MAX,
        "{} of {} connections failed: {reason}",
        done.failed,
        done.answered + done.failed
    );
    Ok((done.answered / done.seconds, done.failed))
}

/// Waits until all connections to the target have a reply.
pub(super) fn wait(
    bench: &Bench<'_>,
    client: &Pod,
    target: SocketAddrV6,
    limit: Duration,
) -> Result<()> {
    let mut reason = String::new();
    let what = format!("{target} to reply to {}", client.host.name);
    let waited = bench.options.interrupt.wait_for(&what, limit, || {
        let (done, why) = connect(bench, client, &[target], CHECK)?;
        reason = why;
        Ok((done.answered > 0.0 && done.failed == 0.0).then_some(()))
    });
    waited.context(reason)
}

fn connect(
    bench: &Bench<'_>,
    client: &Pod,
    targets: &[SocketAddrV6],
    length: Duration,
) -> Result<(Connections, String)> {
    let program = Program::new(&bench.load)
        .args(["client", "--threads", THREADS, "--milliseconds"])
        .arg(length.as_millis().to_string())
        .args(targets.iter().map(SocketAddrV6::to_string));
    let outcome = finish(bench, &client.host, program, length)?;
    let number = |name: &str| outcome.get(name).and_then(Value::as_f64).unwrap_or(0.0);
    let done = Connections {
        answered: number("connections"),
        failed: number("failures"),
        seconds: number("seconds"),
    };
    let reason = outcome.get("reason").and_then(Value::as_str);
    Ok((done, reason.unwrap_or("no reason was given").to_owned()))
}

/// Throughput of one TCP stream in Gbit/s, measured by its receiver.
pub(super) fn stream(
    bench: &Bench<'_>,
    client: &Pod,
    target: SocketAddrV6,
    direction: Direction,
) -> Result<f64> {
    let mut program = Program::new("iperf3")
        .args(["--json", "--connect-timeout", "3000", "--client"])
        .args([target.ip().to_string(), "--port".to_owned()])
        .args([target.port().to_string(), "--time".to_owned()])
        .args([STREAM_SECONDS.to_string(), "--omit".to_owned()])
        .arg(STREAM_OMIT_SECONDS.to_string());
    if direction == Direction::Down {
        program = program.arg("--reverse");
    }
    let length = Duration::from_secs(STREAM_SECONDS + STREAM_OMIT_SECONDS);
    let outcome = finish(bench, &client.host, program, length)?;
    if let Some(error) = outcome.get("error").and_then(Value::as_str) {
        bail!("iperf3 to {target}: {error}");
    }
    let rate = outcome.pointer("/end/sum_received/bits_per_second");
    let rate = rate.and_then(Value::as_f64);
    Ok(rate.context("iperf3 reported no rate")? / 1e9)
}

/// Runs a program on the host to its end; returns its JSON output.
pub(in crate::bench) fn finish(
    bench: &Bench<'_>,
    host: &Host,
    program: Program,
    length: Duration,
) -> Result<Value> {
    // Loads of one host may run at the same time.
    let number = LOADS.fetch_add(1, Ordering::Relaxed);
    let log = host
        .folder
        .join(format!("{}-load-{number}.json", host.name));
    let mut process = bench.world.spawn(host, &program.log(log))?;
    let interrupt = &bench.options.interrupt;
    interrupt.wait_for("the load to end", length + HANG, || Ok(process.ended()))?;
    let output = process.output();
    serde_json::from_str(&output).with_context(|| format!("the load printed: {}", output.trim()))
}
