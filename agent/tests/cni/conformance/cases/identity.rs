//! 13. An attachment is known by network, container id and interface together.

use serde_json::json;

use crate::conformance::call::Judge as _;
use crate::conformance::check::{Outcome, holds};
use crate::conformance::run::Versions::{Newest, Since};
use crate::conformance::run::{Case, case};
use crate::conformance::stage::{Stage, address};

pub(crate) const CASES: &[Case] = &[
    case(
        "identity/one container in two networks",
        Newest,
        two_networks,
    ),
    case("identity/GC of one network", Since("1.1.0"), collected),
    case("identity/a container id comes again", Newest, again),
];

/// Keys of a second network; with ranges of its own where a range belongs to one network.
fn second(stage: &Stage<'_>) -> serde_json::Value {
    let mut conf = json!({"name": "others"});
    if let Some(subnet) = stage.conf().pointer("/ipam/ranges/0/0/subnet") {
        let mut ipam = stage.conf()["ipam"].clone();
        ipam["ranges"] = json!([[{"subnet": subnet.as_str().unwrap().replace("e0", "e1")}]]);
        conf["ipam"] = ipam;
    }
    conf
}

fn two_networks(stage: &mut Stage<'_>) -> Outcome {
    let (a, b) = (stage.pod("a"), stage.pod("b"));
    let others = second(stage);
    let first = stage.add("c", &a).ok()?;
    let other = stage.add("c", &b).conf(&others).ok()?;
    holds(address(&first)? != address(&other)?, || {
        "one address for both".to_owned()
    })?;
    stage.check("c", &a, &first).silent()?;
    stage.check("c", &b, &other).conf(&others).silent()?;
    stage.del("c", &b, &other).conf(&others).silent()?;
    stage.check("c", &a, &first).silent()?;
    stage.check("c", &b, &other).conf(&others).fails().map(drop)
}

fn collected(stage: &mut Stage<'_>) -> Outcome {
    let (a, b) = (stage.pod("a"), stage.pod("b"));
    let others = second(stage);
    stage.add("c", &a).ok()?;
    let other = stage.add("c", &b).conf(&others).ok()?;
    stage.gc(&[]).silent()?;
    stage.check("c", &b, &other).conf(&others).silent()?;
    stage.check("c", &a, &other).fails().map(drop)
}

/// The runtime has lost its memory, the old pod is dead, its DEL never came.
fn again(stage: &mut Stage<'_>) -> Outcome {
    let (pod, before) = (stage.pod("a"), stage.settled()?);
    stage.add("c", &pod).ok()?;
    drop(pod);
    stage.links_go(&before)?;
    let pod = stage.pod("a");
    let result = stage.add("c", &pod).ok()?;
    stage.check("c", &pod, &result).silent()?;
    stage.del("c", &pod, &result).silent()?;
    stage.becomes(&before)
}
