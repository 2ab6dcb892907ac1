//! 1. DEL succeeds whatever is missing, and leaves nothing.

use serde_json::{Value, json};

use crate::conformance::call::Judge as _;
use crate::conformance::check::{Outcome, holds};
use crate::conformance::kernel::{Link, World};
use crate::conformance::run::Versions::{All, Newest};
use crate::conformance::run::{Case, case};
use crate::conformance::stage::Stage;
use dormouse_rig::Netns;

pub(crate) const CASES: &[Case] = &[
    case("delete/twice", All, twice),
    case("delete/before ADD", All, before_add),
    case("delete/without CNI_NETNS", Newest, without_netns),
    case("delete/the namespace is gone", Newest, netns_gone),
    case("delete/the path is a plain file", Newest, plain_file),
    case(
        "delete/the path is another namespace's",
        Newest,
        another_netns,
    ),
    case("delete/without prevResult", Newest, without_previous),
    case("delete/the node was started again", Newest, rebooted),
    case("delete/the bridge is gone", Newest, bridge_gone),
    case("delete/the configuration has changed", Newest, changed),
    case("delete/the interface is gone", Newest, interface_gone),
];

fn twice(stage: &mut Stage<'_>) -> Outcome {
    let (pod, before) = (stage.pod("a"), stage.settled()?);
    let result = stage.add("a", &pod).ok()?;
    for _ in 0..2 {
        stage.del("a", &pod, &result).silent()?;
        stage.world().is_as(&before)?;
    }
    Ok(())
}

fn before_add(stage: &mut Stage<'_>) -> Outcome {
    let (pod, before) = (stage.pod("a"), stage.settled()?);
    stage
        .del("a", &pod, &Value::Null)
        .without("prevResult")
        .silent()?;
    stage.world().is_as(&before)
}

/// ADD, then whatever `between` does, then DEL as `del` changes it: nothing may be left.
fn released(
    stage: &Stage<'_>,
    between: impl FnOnce(Netns) -> Option<Netns>,
    environment: Option<&str>,
) -> Outcome {
    let (pod, before) = (stage.pod("a"), stage.settled()?);
    let result = stage.add("a", &pod).ok()?;
    let del = stage.del("a", &pod, &result);
    let del = match environment {
        None => del,
        Some("") => del.unset("CNI_NETNS"),
        Some(path) => del.env("CNI_NETNS", path),
    };
    let pod = between(pod);
    for _ in 0..2 {
        del.silent()?;
    }
    drop(pod);
    stage.becomes(&before)
}

/// The address at least must be free; the link goes with the namespace.
fn without_netns(stage: &mut Stage<'_>) -> Outcome {
    released(stage, Some, Some(""))
}

fn netns_gone(stage: &mut Stage<'_>) -> Outcome {
    released(
        stage,
        |pod| {
            drop(pod);
            None
        },
        None,
    )
}

fn plain_file(stage: &mut Stage<'_>) -> Outcome {
    released(
        stage,
        |pod| {
            drop(pod);
            None
        },
        Some("/etc/hostname"),
    )
}

/// A new pod may stand at the old one's path before the old one's DEL comes.
fn another_netns(stage: &mut Stage<'_>) -> Outcome {
    let (pod, before) = (stage.pod("a"), stage.settled()?);
    let result = stage.add("a", &pod).ok()?;
    drop(pod);
    let stranger = stage.pod("a");
    stranger.ip("link add eth0 type bridge");
    let strange = World::of(&stranger);
    stage.del("a", &stranger, &result).silent()?;
    World::of(&stranger).is_as(&strange)?;
    stage.becomes(&before)
}

fn without_previous(stage: &mut Stage<'_>) -> Outcome {
    let (pod, before) = (stage.pod("a"), stage.settled()?);
    stage.add("a", &pod).ok()?;
    stage
        .del("a", &pod, &Value::Null)
        .without("prevResult")
        .silent()?;
    stage.world().is_as(&before)
}

/// Another program has removed the bridge; the pods' links remain.
fn bridge_gone(stage: &mut Stage<'_>) -> Outcome {
    let pod = stage.pod("a");
    let result = stage.add("a", &pod).ok()?;
    let bridge = result["interfaces"][0]["name"].as_str().unwrap_or_default();
    stage.node.netns().ip(&format!("link del {bridge}"));
    for _ in 0..2 {
        stage.del("a", &pod, &result).silent()?;
    }
    holds(Link::find(&pod, "eth0").is_err(), || {
        "eth0 stays".to_owned()
    })?;
    no_leases(stage)
}

/// Namespaces and links are gone, files are not. A boot id cannot be changed here.
fn rebooted(stage: &mut Stage<'_>) -> Outcome {
    let pod = stage.pod("a");
    let result = stage.add("a", &pod).ok()?;
    let bridge = result["interfaces"][0]["name"].as_str().unwrap_or_default();
    let path = pod.path().to_owned();
    drop(pod);
    stage.node.netns().ip(&format!("link del {bridge}"));
    stage.restart_daemon();
    let del = stage
        .call("DEL")
        .env("CNI_CONTAINERID", "a")
        .env("CNI_IFNAME", "eth0");
    let del = del.env("CNI_NETNS", path.to_str().unwrap());
    for _ in 0..2 {
        del.clone().conf(&json!({"prevResult": result})).silent()?;
    }
    no_leases(stage)
}

fn no_leases(stage: &Stage<'_>) -> Outcome {
    let leases = (stage.subject.leases)(&stage.node);
    holds(leases.is_empty(), || format!("left behind: {leases:?}"))
}

/// Only the network's name stays, and where the addresses are kept.
fn changed(stage: &mut Stage<'_>) -> Outcome {
    let (pod, before) = (stage.pod("a"), stage.settled()?);
    let result = stage.add("a", &pod).ok()?;
    let more = stage
        .subject
        .tiny
        .map_or(json!({}), |tiny| tiny(&stage.node));
    let del = stage.del("a", &pod, &result).conf(&more);
    del.conf(&json!({"dns": {"nameservers": ["192.0.2.53"]}, "args": null}))
        .silent()?;
    stage.world().is_as(&before)
}

fn interface_gone(stage: &mut Stage<'_>) -> Outcome {
    let (pod, before) = (stage.pod("a"), stage.settled()?);
    let result = stage.add("a", &pod).ok()?;
    pod.ip("link del eth0");
    holds(Link::find(&pod, "eth0").is_err(), || {
        "eth0 stays".to_owned()
    })?;
    stage.del("a", &pod, &result).silent()?;
    stage.world().is_as(&before)
}
