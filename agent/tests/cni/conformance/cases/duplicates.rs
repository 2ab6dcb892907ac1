//! 2. ADD of what exists already is an error that leaves nothing; names are checked before anything is done.

use crate::conformance::call::Judge as _;
use crate::conformance::check::{Outcome, holds, same};
use crate::conformance::kernel::{Link, World};
use crate::conformance::run::Versions::{All, Newest};
use crate::conformance::run::{Case, case};
use crate::conformance::stage::Stage;

pub(crate) const CASES: &[Case] = &[
    case("duplicates/the interface exists", All, interface_exists),
    case("duplicates/the same attachment again", Newest, again),
    case(
        "duplicates/the same attachment in another namespace",
        Newest,
        elsewhere,
    ),
    case(
        "duplicates/another interface of the same container",
        Newest,
        second_interface,
    ),
    case("duplicates/container ids that are none", Newest, bad_ids),
    case("duplicates/container ids that are odd", Newest, odd_ids),
    case(
        "duplicates/interface names that are none",
        Newest,
        bad_names,
    ),
    case("duplicates/interface names that are odd", Newest, odd_names),
];

fn interface_exists(stage: &mut Stage<'_>) -> Outcome {
    let (pod, before) = (stage.pod("a"), stage.settled()?);
    pod.ip("link add eth0 type bridge");
    let inside = World::of(&pod);
    stage.add("a", &pod).fails_with_words(&["eth0"])?;
    stage.world().is_as(&before)?;
    World::of(&pod).is_as(&inside)
}

fn again(stage: &mut Stage<'_>) -> Outcome {
    let pod = stage.pod("a");
    let result = stage.add("a", &pod).ok()?;
    let before = (stage.world(), World::of(&pod));
    stage.add("a", &pod).fails()?;
    stage.check("a", &pod, &result).silent()?;
    stage.world().is_as(&before.0)?;
    World::of(&pod).is_as(&before.1)
}

/// The same key with another namespace is no other attachment.
fn elsewhere(stage: &mut Stage<'_>) -> Outcome {
    let (pod, other) = (stage.pod("a"), stage.pod("b"));
    let result = stage.add("a", &pod).ok()?;
    let before = stage.world();
    stage.add("a", &other).fails()?;
    stage.check("a", &pod, &result).silent()?;
    stage.world().is_as(&before)
}

fn second_interface(stage: &mut Stage<'_>) -> Outcome {
    let (pod, before) = (stage.pod("a"), stage.settled()?);
    let eth0 = stage.add("a", &pod).ok()?;
    let eth1 = stage.add("a", &pod).env("CNI_IFNAME", "eth1").ok()?;
    let addresses = Link::find(&pod, "eth1")?.addresses();
    same("addresses of eth1", &addresses.len(), &1)?;
    holds(addresses != Link::find(&pod, "eth0")?.addresses(), || {
        "one address for both".to_owned()
    })?;
    stage.check("a", &pod, &eth0).silent()?;
    stage
        .check("a", &pod, &eth1)
        .env("CNI_IFNAME", "eth1")
        .silent()?;
    stage
        .del("a", &pod, &eth1)
        .env("CNI_IFNAME", "eth1")
        .silent()?;
    stage.check("a", &pod, &eth0).silent()?;
    stage.del("a", &pod, &eth0).silent()?;
    stage.world().is_as(&before)
}

fn bad_ids(stage: &mut Stage<'_>) -> Outcome {
    let (pod, before) = (stage.pod("a"), stage.settled()?);
    for id in ["../x", "-a", ".a", "_a", "a b", "a/b", "a:b", "ä", "a\n"] {
        stage
            .add(id, &pod)
            .fails_with(4, &[id.trim()])
            .map_err(|seen| format!("{id:?}: {seen}"))?;
    }
    stage.world().is_as(&before)
}

fn odd_ids(stage: &mut Stage<'_>) -> Outcome {
    let pod = stage.pod("a");
    let long = "0123456789abcdef".repeat(4);
    for id in ["0", "A.b_c-d", "a..", long.as_str()] {
        let result = stage.add(id, &pod).ok()?;
        stage.del(id, &pod, &result).silent()?;
    }
    Ok(())
}

fn bad_names(stage: &mut Stage<'_>) -> Outcome {
    let (pod, before) = (stage.pod("a"), stage.settled()?);
    for name in [".", "..", "a/b", "a:b", "a b", "a\tb", "sixteen-letters-"] {
        let call = stage.add("a", &pod).env("CNI_IFNAME", name);
        call.fails_with(4, &[])
            .map_err(|seen| format!("{name:?}: {seen}"))?;
    }
    stage.world().is_as(&before)
}

fn odd_names(stage: &mut Stage<'_>) -> Outcome {
    let pod = stage.pod("a");
    for name in ["e", "fifteen-letters", "net.1", "a@b", "_"] {
        let result = stage.add("a", &pod).env("CNI_IFNAME", name).ok()?;
        Link::find(&pod, name).map(drop)?;
        stage
            .del("a", &pod, &result)
            .env("CNI_IFNAME", name)
            .silent()?;
    }
    Ok(())
}
