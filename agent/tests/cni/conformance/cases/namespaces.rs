//! 5. The node's own namespace is refused; a process's namespace is as good as a named one, until the process is gone.

use std::process::Command;

use serde_json::Value;

use crate::conformance::call::Judge as _;
use crate::conformance::check::{Outcome, holds};
use crate::conformance::kernel::Link;
use crate::conformance::run::Versions::{All, Newest};
use crate::conformance::run::{Case, case};
use crate::conformance::stage::Stage;

pub(crate) const CASES: &[Case] = &[
    case("namespaces/the node's own", All, own),
    case("namespaces/a process's", Newest, of_a_process),
    case("namespaces/a path that is none", Newest, no_path),
];

fn own(stage: &mut Stage<'_>) -> Outcome {
    let before = stage.settled()?;
    let error = stage.add("a", stage.node.netns()).fails()?;
    stage.world().is_as(&before)?;
    let text = error.to_string();
    holds(text.contains("CNI_NETNS"), || {
        format!("the error does not name CNI_NETNS: {text}")
    })
}

fn of_a_process(stage: &mut Stage<'_>) -> Outcome {
    let (pod, before) = (stage.pod("a"), stage.settled()?);
    let mut process = pod.inside(|| Command::new("sleep").arg("600").spawn());
    let path = format!("/proc/{}/ns/net", process.id());
    let result = stage.add("a", &pod).env("CNI_NETNS", &path).ok();
    let wired = Link::find(&pod, "eth0");
    process.kill().unwrap();
    process.wait().unwrap();
    let result = result?;
    wired?;
    // The PID is unused now, or belongs to another process.
    stage
        .del("a", &pod, &result)
        .env("CNI_NETNS", &path)
        .silent()?;
    drop(pod);
    stage.becomes(&before)?;
    let other = stage.pod("b");
    stage
        .add("b", &other)
        .env("CNI_NETNS", &path)
        .fails_with(4, &["CNI_NETNS", &path])
}

fn no_path(stage: &mut Stage<'_>) -> Outcome {
    let (pod, before) = (stage.pod("a"), stage.settled()?);
    for path in [
        "/nowhere",
        "/etc/hostname",
        "/",
        "/proc/self/ns/mnt",
        "eth0",
    ] {
        let call = stage.add("a", &pod).env("CNI_NETNS", path);
        call.fails_with(4, &["CNI_NETNS", path])
            .map_err(|seen| format!("{path}: {seen}"))?;
        stage
            .del("a", &pod, &Value::Null)
            .env("CNI_NETNS", path)
            .without("prevResult")
            .silent()?;
    }
    stage.world().is_as(&before)
}
