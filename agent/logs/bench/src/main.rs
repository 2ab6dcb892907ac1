//! The load of `cargo xtask bench logs`: pods that write lines, and the writer of their logs on a thread of its own, whose CPU time is
//! measured alone.
#![forbid(unsafe_code)]

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dormouse_agent_logs::{Folder, Limits, Meta, Output, tail, writer};
use dormouse_rows::{Bound, Row};
use nix::time::{ClockId, clock_gettime};

/// Pods that write.
const PODS: usize = 100;
/// Lines of each pod per second.
const LINES: u64 = 100;
/// Length of a line, with its end.
const LINE_BYTES: usize = 100;
/// Duration of the load.
const DURATION: Duration = Duration::from_secs(10);
/// Part of a core that the writer may take.
const PERCENT_MAX: f64 = 10.0;

fn main() -> ExitCode {
    dormouse_rows::end(run())
}

fn run() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let folder = Folder::new(dir.path().to_owned());
    let pods = begin(&folder)?;
    let (done, measured) = write_logs(folder.clone());
    let began = Instant::now();
    let written = load(pods)?;
    let took = began.elapsed();
    wait_for_the_end(&folder)?;
    drop(done);
    let cpu = measured.recv().context("the writer of the logs ended")?;
    for pod in 0..PODS {
        let lines = tail(&folder, &uid(pod), u64::MAX)?.lines().count();
        ensure!(
            u64::try_from(lines)? == written,
            "pod {pod}: {lines} lines of {written}"
        );
    }
    let pods = u32::try_from(PODS)?;
    let rate = written as f64 * f64::from(pods) / took.as_secs_f64();
    Row::new("lines per second, from 100 pods", rate, "/s").print()?;
    let percent = 100.0 * cpu.as_secs_f64() / took.as_secs_f64();
    Row::new("CPU of the writer of logs", percent, "% of a core")
        .must(Bound::AtMost(PERCENT_MAX))
        .print()
}

fn uid(pod: usize) -> String {
    format!("pod-{pod}")
}

fn begin(folder: &Folder) -> Result<Vec<Output>> {
    let pods = 0..PODS;
    let meta = |pod| Meta {
        namespace: "bench".to_owned(),
        name: uid(pod),
        app: "bench".to_owned(),
    };
    let begun = pods.map(|pod| {
        folder
            .begin(&uid(pod), &meta(pod), false)
            .context("failed to begin a log")
    });
    begun.collect()
}

/// Writes logs until the sender is dropped; then the receiver has the CPU time.
fn write_logs(folder: Folder) -> (mpsc::SyncSender<()>, mpsc::Receiver<Duration>) {
    let (done, end) = mpsc::sync_channel::<()>(0);
    let (report, measured) = mpsc::sync_channel(1);
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let ended = runtime.spawn_blocking(move || end.recv());
        runtime.block_on(async {
            tokio::select! {
                written = writer::run(folder, Limits::default()) => written?,
                _ = ended => {}
            }
            anyhow::Ok(())
        })?;
        let cpu = Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?);
        report.send(cpu).context("the load has ended")
    });
    (done, measured)
}

/// The pods write one line each in turn, evenly spread over the time: no two are there to be read at once. Returns the number of
/// lines of each.
fn load(mut pods: Vec<Output>) -> Result<u64> {
    let mut line = vec![b'x'; LINE_BYTES];
    if let Some(last) = line.last_mut() {
        *last = b'\n';
    }
    let lines = LINES * DURATION.as_secs();
    let pause = DURATION / u32::try_from(lines)? / u32::try_from(PODS)?;
    let mut next = Instant::now();
    for _ in 0..lines {
        for pod in &mut pods {
            pod.stdout.write_all(&line)?;
            next += pause;
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }
    Ok(lines)
}

fn wait_for_the_end(folder: &Folder) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        for pod in 0..PODS {
            folder.ended(&uid(pod)).await;
        }
    });
    Ok(())
}
