//! 7. GC keeps the listed attachments and removes all others, but none if the list is missing; STATUS reports readiness.

use serde_json::{Value, json};

use crate::conformance::call::Judge as _;
use crate::conformance::check::Outcome;
use crate::conformance::run::Versions::{Before, Since};
use crate::conformance::run::{Case, case};
use crate::conformance::stage::Stage;

pub(crate) const CASES: &[Case] = &[
    case(
        "collect/GC and STATUS are not in older versions",
        Before("1.1.0"),
        too_old,
    ),
    case("collect/an empty list keeps nothing", Since("1.1.0"), empty),
    case("collect/a missing list is refused", Since("1.1.0"), missing),
    case("collect/null is no empty list", Since("1.1.0"), null),
    case(
        "collect/null frees what is dead",
        Since("1.1.0"),
        null_frees_dead,
    ),
    case(
        "collect/the key that libcni once sent",
        Since("1.1.0"),
        old_key,
    ),
    case("collect/lists that are none", Since("1.1.0"), no_list),
    case(
        "collect/an interface of a container that stays",
        Since("1.1.0"),
        one_interface,
    ),
    case("collect/again and again", Since("1.1.0"), again),
    case("collect/listed but never added", Since("1.1.0"), unknown),
    case(
        "collect/while an ADD is under way",
        Since("1.1.0"),
        during_add,
    ),
];

const KEY: &str = "cni.dev/valid-attachments";

fn too_old(stage: &mut Stage<'_>) -> Outcome {
    let pod = stage.pod("a");
    stage.add("a", &pod).ok()?;
    let before = stage.world();
    stage.gc(&[]).fails_with(1, &[])?;
    stage.call("STATUS").fails_with(1, &[])?;
    stage.world().is_as(&before)
}

fn empty(stage: &mut Stage<'_>) -> Outcome {
    let (pods, before) = ([stage.pod("a"), stage.pod("b")], stage.settled()?);
    stage.add("a", &pods[0]).ok()?;
    stage.add("b", &pods[1]).ok()?;
    stage.gc(&[]).silent()?;
    stage.world().is_as(&before)
}

fn missing(stage: &mut Stage<'_>) -> Outcome {
    let pod = stage.pod("a");
    let result = stage.add("a", &pod).ok()?;
    stage.call("GC").fails_with(7, &[KEY])?;
    stage.check("a", &pod, &result).silent()
}

fn null(stage: &mut Stage<'_>) -> Outcome {
    let pod = stage.pod("a");
    let result = stage.add("a", &pod).ok()?;
    stage.call("GC").conf(&json!({KEY: null})).silent()?;
    stage.check("a", &pod, &result).silent()
}

fn null_frees_dead(stage: &mut Stage<'_>) -> Outcome {
    let (pod, before) = (stage.pod("a"), stage.settled()?);
    stage.add("a", &pod).ok()?;
    drop(pod);
    stage.links_go(&before)?;
    stage.call("GC").conf(&json!({KEY: null})).silent()?;
    stage.world().is_as(&before)
}

fn old_key(stage: &mut Stage<'_>) -> Outcome {
    let pods = [stage.pod("a"), stage.pod("b")];
    let kept = stage.add("a", &pods[0]).ok()?;
    let with_one = stage.world();
    stage.add("b", &pods[1]).ok()?;
    let list = json!([{"containerID": "a", "ifname": "eth0"}]);
    stage
        .call("GC")
        .conf(&json!({"cni.dev/attachments": list}))
        .silent()?;
    stage.world().is_as(&with_one)?;
    stage.check("a", &pods[0], &kept).silent()
}

/// Whatever it is, it must not be taken for an empty one.
fn no_list(stage: &mut Stage<'_>) -> Outcome {
    let pod = stage.pod("a");
    let result = stage.add("a", &pod).ok()?;
    for list in [
        json!("a"),
        json!({}),
        json!([3]),
        json!([{"containerID": "a"}]),
        json!([{"ifname": "eth0"}]),
        json!([{"containerID": 3, "ifname": "eth0"}]),
    ] {
        let call = stage.call("GC").conf(&json!({KEY: list}));
        call.fails().map_err(|seen| format!("{list}: {seen}"))?;
        stage.check("a", &pod, &result).silent()?;
    }
    Ok(())
}

fn one_interface(stage: &mut Stage<'_>) -> Outcome {
    let (a, b) = (stage.pod("a"), stage.pod("b"));
    let kept = stage.add("a", &a).ok()?;
    let with_one = stage.world();
    stage.add("a", &b).env("CNI_IFNAME", "eth1").ok()?;
    stage.gc(&[("a", "eth0")]).silent()?;
    stage.world().is_as(&with_one)?;
    stage.check("a", &a, &kept).silent()
}

fn again(stage: &mut Stage<'_>) -> Outcome {
    let pod = stage.pod("a");
    let result = stage.add("a", &pod).ok()?;
    let before = stage.world();
    for _ in 0..3 {
        stage.gc(&[("a", "eth0")]).silent()?;
        stage.world().is_as(&before)?;
    }
    stage.check("a", &pod, &result).silent()
}

fn unknown(stage: &mut Stage<'_>) -> Outcome {
    let before = stage.settled()?;
    stage
        .gc(&[("never", "eth0"), ("../x", ""), ("a", "sixteen-letters-")])
        .silent()?;
    stage.world().is_as(&before)
}

/// Runtimes must not; but whatever comes of it, DEL heals, and an answer is the truth.
fn during_add(stage: &mut Stage<'_>) -> Outcome {
    let before = stage.settled()?;
    for _ in 0..6 {
        let pod = stage.pod("a");
        let add = stage.add("a", &pod).start();
        let collected = stage.gc(&[]).silent();
        add.wait_with_output().unwrap();
        collected?;
        stage
            .del("a", &pod, &Value::Null)
            .without("prevResult")
            .silent()?;
        stage.becomes(&before)?;
    }
    Ok(())
}
