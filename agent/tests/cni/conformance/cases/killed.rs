//! 3. ADD is killed anywhere: DEL heals it, and so does garbage collection when no DEL ever comes.

use std::process::Child;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use serde_json::Value;

use crate::conformance::call::Judge as _;
use crate::conformance::check::Outcome;
use crate::conformance::run::Versions::{Newest, Since};
use crate::conformance::run::{Case, case};
use crate::conformance::stage::Stage;
use dormouse_rig::Call;

pub(crate) const CASES: &[Case] = &[
    case("killed/then DEL", Newest, then_del),
    case("killed/then never a DEL", Since("1.1.0"), never_del),
    case("killed/asked to end, then DEL", Newest, terminated),
];

/// Moments of an ADD at which it is ended.
const MOMENTS: u32 = 16;

/// Ends a plugin and what it has started; it may have ended before.
pub(super) fn end(mut child: Child, signal: Signal) {
    let group = Pid::from_raw(i32::try_from(child.id()).unwrap());
    let _ = killpg(group, signal);
    child.wait().unwrap();
}

/// Starts the call and ends it after a part of the time that a whole one takes.
fn end_at(call: &Call, signal: Signal, after: Duration) {
    let child = call.start();
    // The moment is the point, not a wait for anything.
    std::thread::sleep(after);
    end(child, signal);
}

fn whole_add(stage: &Stage<'_>) -> Outcome<Duration> {
    let pod = stage.pod("whole");
    let begin = Instant::now();
    let result = stage.add("whole", &pod).ok()?;
    let took = begin.elapsed();
    stage.del("whole", &pod, &result).silent()?;
    Ok(took)
}

fn ended_then_del(stage: &Stage<'_>, signal: Signal) -> Outcome {
    let before = stage.settled()?;
    let whole = whole_add(stage)?;
    for moment in 0..=MOMENTS {
        let pod = stage.pod("a");
        end_at(&stage.add("a", &pod), signal, whole * moment / MOMENTS);
        stage
            .del("a", &pod, &Value::Null)
            .without("prevResult")
            .silent()?;
        let seen = stage.becomes(&before);
        seen.map_err(|seen| format!("ended at {moment}/{MOMENTS}: {seen}"))?;
    }
    Ok(())
}

fn then_del(stage: &mut Stage<'_>) -> Outcome {
    ended_then_del(stage, Signal::SIGKILL)
}

fn terminated(stage: &mut Stage<'_>) -> Outcome {
    ended_then_del(stage, Signal::SIGTERM)
}

fn never_del(stage: &mut Stage<'_>) -> Outcome {
    let before = stage.settled()?;
    let whole = whole_add(stage)?;
    for moment in 0..=MOMENTS {
        let id = format!("c{moment}");
        let pod = stage.pod(&id);
        end_at(
            &stage.add(&id, &pod),
            Signal::SIGKILL,
            whole * moment / MOMENTS,
        );
    }
    // What a killed ADD had asked for is over once a later one has been answered.
    whole_add(stage)?;
    stage.gc(&[]).silent()?;
    stage.becomes(&before)
}
