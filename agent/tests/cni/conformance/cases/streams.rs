//! 9. Standard output holds one JSON text or nothing; standard error is free; input has an end, or is given one.

use std::fs::File;
use std::io::Write;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::conformance::call::Answer;
use crate::conformance::call::Judge as _;
use crate::conformance::check::{Outcome, holds};
use crate::conformance::run::Versions::{All, Newest};
use crate::conformance::run::{Case, case};
use crate::conformance::stage::{PATIENCE, Stage};

pub(crate) const CASES: &[Case] = &[
    case("streams/standard error is closed", All, closed_stderr),
    case("streams/standard error is full", Newest, full_stderr),
    case("streams/standard output is full", Newest, full_stdout),
    case("streams/a large configuration", Newest, large),
    case("streams/an endless configuration", Newest, endless),
    case("streams/an input without an end", Newest, without_end),
    case("streams/a configuration in pieces", Newest, pieces),
];

fn closed_stderr(stage: &mut Stage<'_>) -> Outcome {
    let pod = stage.pod("a");
    let (read, write) = std::io::pipe().unwrap();
    drop(read);
    let call = stage.add("a", &pod);
    let mut child = call.spawn(Stdio::piped(), Stdio::piped(), write.into());
    call.feed(&mut child);
    Answer::from(child.wait_with_output().unwrap()).ok()?;
    // An error's words go to standard output too.
    stage.add("a", &pod).without("name").fails().map(drop)
}

fn full() -> Stdio {
    File::options()
        .write(true)
        .open("/dev/full")
        .unwrap()
        .into()
}

fn full_stderr(stage: &mut Stage<'_>) -> Outcome {
    let pod = stage.pod("a");
    let call = stage.add("a", &pod);
    let mut child = call.spawn(Stdio::piped(), Stdio::piped(), full());
    call.feed(&mut child);
    Answer::from(child.wait_with_output().unwrap())
        .ok()
        .map(drop)
}

fn full_stdout(stage: &mut Stage<'_>) -> Outcome {
    let (pod, before) = (stage.pod("a"), stage.settled()?);
    let call = stage.add("a", &pod);
    let mut child = call.spawn(Stdio::piped(), full(), Stdio::null());
    call.feed(&mut child);
    let status = child.wait().unwrap();
    holds(!status.success(), || {
        "success although the result is lost".to_owned()
    })?;
    stage
        .del("a", &pod, &Value::Null)
        .without("prevResult")
        .silent()?;
    stage.becomes(&before)
}

/// A list for GC, or the results of a chain, may be long.
fn large(stage: &mut Stage<'_>) -> Outcome {
    let pod = stage.pod("a");
    let text = "x".repeat(700_000);
    let call = stage
        .add("a", &pod)
        .conf(&serde_json::json!({"x-vendor": text}));
    call.ok().map(drop)
}

/// Waits for the plugin's own end.
fn ends(child: &mut Child) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            child.kill().unwrap();
            child.wait().unwrap();
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// It stops to read long before it has no memory left.
fn endless(stage: &mut Stage<'_>) -> Outcome {
    let pod = stage.pod("a");
    let mut child = stage
        .add("a", &pod)
        .spawn(Stdio::piped(), Stdio::piped(), Stdio::piped());
    let mut stdin = child.stdin.take().unwrap();
    let chunk = vec![b' '; 1 << 20];
    let written = (0..64)
        .take_while(|_| stdin.write_all(&chunk).is_ok())
        .count();
    drop(stdin);
    let ended = ends(&mut child);
    holds(ended, || "it did not end".to_owned())?;
    holds(written < 64, || "it read 64 MiB".to_owned())?;
    Answer::from(child.wait_with_output().unwrap())
        .fails()
        .map(drop)
}

/// No runtime keeps the input open; a plugin that waits for ever would hold the pod for ever.
fn without_end(stage: &mut Stage<'_>) -> Outcome {
    let pod = stage.pod("a");
    let call = stage.add("a", &pod);
    let mut child = call.spawn(Stdio::piped(), Stdio::piped(), Stdio::piped());
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(call.text().as_bytes()).unwrap();
    let ended = ends(&mut child);
    drop(stdin);
    holds(ended, || "it waited".to_owned())
}

fn pieces(stage: &mut Stage<'_>) -> Outcome {
    let pod = stage.pod("a");
    let call = stage.add("a", &pod);
    let mut child = call.spawn(Stdio::piped(), Stdio::piped(), Stdio::piped());
    let mut stdin = child.stdin.take().unwrap();
    for byte in call.text().bytes() {
        stdin.write_all(&[byte]).unwrap();
    }
    drop(stdin);
    Answer::from(child.wait_with_output().unwrap())
        .ok()
        .map(drop)
}
