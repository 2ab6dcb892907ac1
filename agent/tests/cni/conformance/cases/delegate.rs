//! Address management by itself: the plugin that another names as its `ipam`.

use serde_json::{Value, json};

use crate::conformance::call::Judge as _;
use crate::conformance::check::{Outcome, holds, same};
use crate::conformance::golden;
use crate::conformance::kernel::{Link, World};
use crate::conformance::run::Versions::{All, Newest, Since};
use crate::conformance::run::{Case, case};
use crate::conformance::stage::{Stage, address, addresses};
use dormouse_rig::Call;
use dormouse_rig::Netns;

/// Asked directly, as the other plugin would.
pub(crate) const IPAM: &[Case] = &[
    case("ipam/an address and nothing else", All, address_alone),
    case("ipam/a second ADD is refused", Newest, twice),
    case("ipam/DEL twice", Newest, del_twice),
    case("ipam/CHECK knows what is reserved", Since("0.4.0"), check),
];

/// With the other plugin before it.
pub(crate) const OVER: &[Case] = &[
    case("delegate/a pod gets its address", All, draws),
    case("delegate/a failed ADD frees the address", Newest, failed),
    case("delegate/CHECK asks", Since("0.4.0"), checks),
    case("delegate/STATUS asks", Since("1.1.0"), status),
];

/// All variables and the whole configuration are passed on.
fn ask(stage: &Stage<'_>, call: Call) -> Call {
    let (binary, section) = &stage.subject.ipam;
    let conf = json!({"type": "bridge", "bridge": "cni0", "ipam": section(&stage.node)});
    call.binary(binary).conf(&conf)
}

fn add(stage: &Stage<'_>, id: &str, pod: &Netns) -> Call {
    ask(stage, stage.add(id, pod))
}

fn address_alone(stage: &mut Stage<'_>) -> Outcome {
    let pod = stage.pod("a");
    let (links, empty) = (World::of(stage.node.netns()), World::of(&pod));
    let result = add(stage, "a", &pod).ok()?;
    golden::compare(&format!("ipam/{}", stage.version), &result)?;
    World::of(&pod).is_as(&empty)?;
    World::of(stage.node.netns()).is_as(&links)?;
    ask(stage, stage.del("a", &pod, &Value::Null))
        .without("prevResult")
        .silent()
}

fn twice(stage: &mut Stage<'_>) -> Outcome {
    let (a, b) = (stage.pod("a"), stage.pod("b"));
    let first = address(&add(stage, "a", &a).ok()?)?;
    add(stage, "a", &a).fails()?;
    let other = address(&add(stage, "b", &b).ok()?)?;
    holds(first != other, || format!("{first} was given twice"))
}

fn del_twice(stage: &mut Stage<'_>) -> Outcome {
    let pod = stage.pod("a");
    let result = add(stage, "a", &pod).ok()?;
    for _ in 0..2 {
        ask(stage, stage.del("a", &pod, &result)).silent()?;
    }
    add(stage, "a", &pod).ok().map(drop)
}

fn check(stage: &mut Stage<'_>) -> Outcome {
    let pod = stage.pod("a");
    let result = add(stage, "a", &pod).ok()?;
    ask(stage, stage.check("a", &pod, &result)).silent()?;
    ask(stage, stage.del("a", &pod, &result)).silent()?;
    ask(stage, stage.check("a", &pod, &result))
        .fails()
        .map(drop)
}

fn draws(stage: &mut Stage<'_>) -> Outcome {
    let (pod, before) = (stage.pod("a"), stage.settled()?);
    let result = stage.add("a", &pod).ok()?;
    let eth0 = Link::find(&pod, "eth0")?.addresses();
    let given = result["ip6"]["ip"]
        .as_str()
        .map_or_else(|| addresses(&result), |at| vec![at]);
    same(
        "addresses",
        &given,
        &eth0.iter().map(String::as_str).collect(),
    )?;
    holds(given[0].starts_with("2001:db8:d0::1:"), || {
        format!("{given:?} is not of the node's prefix")
    })?;
    stage.del("a", &pod, &result).silent()?;
    stage.world().is_as(&before)
}

fn failed(stage: &mut Stage<'_>) -> Outcome {
    let (pod, before) = (stage.pod("a"), stage.settled()?);
    pod.ip("link add eth0 type bridge");
    stage.add("a", &pod).fails()?;
    stage.world().is_as(&before)?;
    let none = json!({"cniVersion": stage.version, "ips": []});
    ask(stage, stage.check("a", &pod, &none)).fails().map(drop)
}

/// The bridge's own CHECK passes; once the address is free, it does not.
fn checks(stage: &mut Stage<'_>) -> Outcome {
    let pod = stage.pod("a");
    let result = stage.add("a", &pod).ok()?;
    stage.check("a", &pod, &result).silent()?;
    ask(stage, stage.del("a", &pod, &result)).silent()?;
    stage.check("a", &pod, &result).fails().map(drop)
}

fn status(stage: &mut Stage<'_>) -> Outcome {
    stage.call("STATUS").silent()?;
    stage.stop_daemon()?;
    stage.call("STATUS").fails_with(50, &[])
}
