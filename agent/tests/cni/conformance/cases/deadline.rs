//! 4. The runtime gives up on an ADD while the work goes on: the late success is undone.

use nix::sys::signal::Signal;
use std::process::Stdio;

use serde_json::Value;

use super::killed::end;
use crate::conformance::call::Judge as _;
use crate::conformance::check::{Outcome, holds};
use crate::conformance::run::Versions::Newest;
use crate::conformance::run::{Case, case};
use crate::conformance::stage::Stage;

pub(crate) const CASES: &[Case] = &[
    case("deadline/DEL overtakes its ADD", Newest, overtaken),
    case("deadline/the next ADD comes at once", Newest, next),
    case("deadline/the result is not read", Newest, unread),
];

const ROUNDS: usize = 12;

fn overtaken(stage: &mut Stage<'_>) -> Outcome {
    let before = stage.settled()?;
    for round in 0..ROUNDS {
        let pod = stage.pod("a");
        let add = stage.add("a", &pod).start();
        let del = stage.del("a", &pod, &Value::Null).without("prevResult");
        let deleted = del.start();
        end(add, Signal::SIGKILL);
        let output = deleted.wait_with_output().unwrap();
        holds(output.status.success(), || {
            format!("DEL failed in round {round}")
        })?;
        // A runtime repeats DEL when ADD has failed.
        del.silent()?;
        stage.becomes(&before)?;
    }
    Ok(())
}

/// A new container in the same namespace must not find what is left of the old one's ADD.
fn next(stage: &mut Stage<'_>) -> Outcome {
    let (pod, before) = (stage.pod("a"), stage.settled()?);
    for round in 0..ROUNDS {
        end(stage.add("old", &pod).start(), Signal::SIGKILL);
        stage
            .del("old", &pod, &Value::Null)
            .without("prevResult")
            .silent()?;
        let added = stage.add("new", &pod).ok();
        let result = added.map_err(|seen| format!("round {round}: {seen}"))?;
        stage.check("new", &pod, &result).silent()?;
        stage.del("new", &pod, &result).silent()?;
        stage.becomes(&before)?;
    }
    Ok(())
}

/// The plugin ends with an error rather than for ever waiting, and DEL heals.
fn unread(stage: &mut Stage<'_>) -> Outcome {
    let (pod, before) = (stage.pod("a"), stage.settled()?);
    let call = stage.add("a", &pod);
    let (read, write) = std::io::pipe().unwrap();
    drop(read);
    let mut child = call.spawn(Stdio::piped(), write.into(), Stdio::null());
    call.feed(&mut child);
    let status = child.wait().unwrap();
    holds(!status.success(), || {
        "success although the result was not read".to_owned()
    })?;
    stage
        .del("a", &pod, &Value::Null)
        .without("prevResult")
        .silent()?;
    stage.becomes(&before)
}
