//! The plugin as the first of a chain, and as a later one.

use serde_json::{Value, json};

use crate::conformance::call::Judge as _;
use crate::conformance::check::{Outcome, holds, same};
use crate::conformance::run::Versions::Since;
use crate::conformance::run::{Case, case};
use crate::conformance::stage::Stage;
use dormouse_rig::Netns;

pub(crate) const CASES: &[Case] = &[
    case("chain/as a later plugin", Since("0.3.0"), later),
    case(
        "chain/as a later plugin, until DEL",
        Since("0.4.0"),
        later_to_the_end,
    ),
    case("chain/as the first plugin", Since("0.4.0"), first),
];

/// What a plugin before might have made.
pub(super) fn previous(version: &str, pod: &Netns) -> Value {
    let mut ip = json!({"address": "192.0.2.7/32", "interface": 0});
    if version < "1.0.0" {
        ip["version"] = "4".into();
    }
    json!({
        "cniVersion": version,
        "interfaces": [{"name": "net0", "mac": "02:00:00:00:00:07", "sandbox": pod.path()}],
        "ips": [ip],
        "routes": [{"dst": "198.51.100.0/24"}],
        "dns": {"nameservers": ["192.0.2.53"], "search": ["example.org"]},
    })
}

/// All that was there stays first, and an address names its interface by its new place.
fn later(stage: &mut Stage<'_>) -> Outcome {
    let pod = stage.pod("a");
    let previous = previous(&stage.version, &pod);
    let result = stage
        .add("a", &pod)
        .conf(&json!({"prevResult": previous}))
        .ok()?;
    for key in ["interfaces", "ips", "routes"] {
        same(
            &format!("the first of `{key}`"),
            &result[key][0],
            &previous[key][0],
        )?;
        let items = result[key].as_array().map_or(0, Vec::len);
        holds(items > 1, || format!("nothing was added to `{key}`"))?;
    }
    same("dns", &result["dns"], &previous["dns"])?;
    let interface = result["ips"][1]["interface"].as_u64().unwrap_or_default();
    let interface = &result["interfaces"][usize::try_from(interface).unwrap()];
    same(
        "the address's interface",
        &interface["name"],
        &json!("eth0"),
    )?;
    same("its sandbox", &interface["sandbox"], &json!(pod.path()))
}

fn later_to_the_end(stage: &mut Stage<'_>) -> Outcome {
    let (pod, before) = (stage.pod("a"), stage.settled()?);
    pod.ip("link add net0 type bridge");
    pod.ip("link set net0 address 02:00:00:00:00:07 up");
    pod.ip("addr add 192.0.2.7/32 dev net0");
    let previous = previous(&stage.version, &pod);
    let result = stage
        .add("a", &pod)
        .conf(&json!({"prevResult": previous}))
        .ok()?;
    same(
        "the first interface",
        &result["interfaces"][0],
        &previous["interfaces"][0],
    )?;
    stage.check("a", &pod, &result).silent()?;
    stage.del("a", &pod, &result).silent()?;
    stage.world().is_as(&before)
}

/// Later plugins add to the result and to the pod; CHECK and DEL get the result of the last of them.
fn first(stage: &mut Stage<'_>) -> Outcome {
    let (pod, before) = (stage.pod("a"), stage.settled()?);
    let mut result = stage.add("a", &pod).ok()?;
    pod.ip("link add net1 type bridge");
    let interfaces = result["interfaces"].as_array_mut().unwrap();
    interfaces.push(json!({"name": "net1", "sandbox": pod.path()}));
    result["dns"] = json!({"nameservers": ["192.0.2.53"]});
    result["x-vendor"] = json!({"a": 1});
    stage.check("a", &pod, &result).silent()?;
    stage.del("a", &pod, &result).silent()?;
    stage.world().is_as(&before)
}
