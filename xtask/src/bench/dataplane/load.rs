//! Puts load on a side from its client pod, and reads what came of it.

use std::fs;
use std::net::SocketAddrV6;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use dormouse_world::Program;
use serde_json::Value;

use super::Bench;
use super::pods::Pod;

/// How long one look at a side takes: short, so that both sides of a ratio meet the same noise.
const WINDOW: Duration = Duration::from_secs(1);
/// How long a look takes whether anybody answers: one connection a thread.
const LOOK: Duration = Duration::from_millis(1);
/// Between namespaces, packets of one connection overtake each other where two CPUs carry them, and one connection in a
/// million or so ends in a reset: on plain nodes too, and never over loopback. More than this is something else.
const FAILED_SHARE_MAX: f64 = 1e-3;
/// Enough to keep both ends busy.
const THREADS: &str = "4";
/// A load that takes longer than its own time by so much has hung.
const HANG: Duration = Duration::from_secs(15);
/// How long iperf3 sends; the first of these seconds is not counted.
const STREAM_SECONDS: u64 = 2;
const STREAM_OMIT_SECONDS: u64 = 1;

/// Which way the data of a stream goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    /// From the client.
    Up,
    /// To the client.
    Down,
}

/// What a window of short connections brought.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// Those that were answered.
    answered: f64,
    /// Those that were not.
    failed: f64,
    seconds: f64,
}

/// Short connections a second, to one target or several in turns, and how many failed.
pub(super) fn connections(
    bench: &Bench<'_>,
    client: &Pod,
    targets: &[SocketAddrV6],
) -> Result<(f64, f64)> {
    let (asked, reason) = ask(bench, client, targets, WINDOW)?;
    let share = asked.failed / (asked.answered + asked.failed);
    ensure!(
        share <= FAILED_SHARE_MAX,
        "{} of {} connections failed: {reason}",
        asked.failed,
        asked.answered + asked.failed
    );
    Ok((asked.answered / asked.seconds, asked.failed))
}

/// Returns when a connection is answered.
pub(super) fn wait(
    bench: &Bench<'_>,
    client: &Pod,
    target: SocketAddrV6,
    limit: Duration,
) -> Result<()> {
    let mut reason = String::new();
    let what = format!("{target} to answer {}", client.host.name);
    let waited = bench.options.interrupt.wait_for(&what, limit, || {
        let (asked, why) = ask(bench, client, &[target], LOOK)?;
        reason = why;
        Ok((asked.answered > 0.0 && asked.failed == 0.0).then_some(()))
    });
    waited.context(reason)
}

fn ask(
    bench: &Bench<'_>,
    client: &Pod,
    targets: &[SocketAddrV6],
    length: Duration,
) -> Result<(Asked, String)> {
    let program = Program::new(&bench.load)
        .args(["ask", "--threads", THREADS, "--milliseconds"])
        .arg(length.as_millis().to_string())
        .args(targets.iter().map(SocketAddrV6::to_string));
    let outcome = finish(bench, client, program, length)?;
    let number = |name: &str| outcome.get(name).and_then(Value::as_f64).unwrap_or(0.0);
    let asked = Asked {
        answered: number("connections"),
        failed: number("failures"),
        seconds: number("seconds"),
    };
    let reason = outcome.get("reason").and_then(Value::as_str);
    Ok((asked, reason.unwrap_or("it does not say why").to_owned()))
}

/// Gigabits a second of one TCP stream, as its receiver counts them.
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
    let outcome = finish(bench, client, program, length)?;
    if let Some(error) = outcome.get("error").and_then(Value::as_str) {
        bail!("iperf3 to {target}: {error}");
    }
    let rate = outcome.pointer("/end/sum_received/bits_per_second");
    let rate = rate.and_then(Value::as_f64);
    Ok(rate.context("iperf3 told no rate")? / 1e9)
}

/// Runs a program in the pod until it ends by itself; returns the JSON that it wrote.
fn finish(bench: &Bench<'_>, pod: &Pod, program: Program, length: Duration) -> Result<Value> {
    let log = pod.host.folder.join(format!("{}-load.json", pod.host.name));
    // The log of a program is appended to.
    let _ = fs::remove_file(&log);
    let mut process = bench.world.spawn(&pod.host, &program.log(log))?;
    let interrupt = &bench.options.interrupt;
    interrupt.wait_for("the load to end", length + HANG, || Ok(process.ended()))?;
    let said = process.output();
    serde_json::from_str(&said).with_context(|| format!("the load said: {}", said.trim()))
}
