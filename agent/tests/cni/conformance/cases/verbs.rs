//! Six verbs in every version that has them, compared with the golden results and with the kernel.

use serde_json::json;

use crate::conformance::call::Judge as _;
use crate::conformance::check::{Outcome, holds, same};
use crate::conformance::golden;
use crate::conformance::kernel::{self, Link, World};
use crate::conformance::run::Versions::{All, Before, Since};
use crate::conformance::run::{Case, case};
use crate::conformance::stage::Stage;

pub(crate) const CASES: &[Case] = &[
    case("verbs/add", All, add),
    case("verbs/add gives both families", All, dual),
    case("verbs/del", All, del),
    case("verbs/check", Since("0.4.0"), check),
    case(
        "verbs/check is not in older versions",
        Before("0.4.0"),
        no_check,
    ),
    case("verbs/gc", Since("1.1.0"), gc),
    case("verbs/status", Since("1.1.0"), status),
    case("verbs/version", All, version),
];

fn add(stage: &mut Stage<'_>) -> Outcome {
    let pod = stage.pod("a");
    let result = stage.add("a", &pod).ok()?;
    let bound = golden::compare(&format!("add/{}", stage.version), &result)?;
    let eth0 = Link::find(&pod, "eth0")?;
    holds(eth0.is_up(), || "eth0 is down".to_owned())?;
    same(
        "addresses",
        &eth0.addresses(),
        &vec![bound.text("address").to_owned()],
    )?;
    let route = (bound.text("gateway").to_owned(), "eth0".to_owned());
    same(
        "default routes",
        &kernel::default_routes(&pod, "-6"),
        &vec![route],
    )?;
    if result["interfaces"].is_null() {
        return Ok(());
    }
    same(
        "sandbox",
        &bound.text("netns"),
        &pod.path().to_str().unwrap(),
    )?;
    same("the pod's MAC", &eth0.mac().as_str(), &bound.text("podMac"))?;
    let host = Link::find(stage.node.netns(), bound.text("host"))?;
    same(
        "the host's MAC",
        &host.mac().as_str(),
        &bound.text("hostMac"),
    )?;
    same("the bridge", &host.master().as_str(), &bound.text("bridge"))?;
    let bridge = Link::find(stage.node.netns(), bound.text("bridge"))?;
    same(
        "the bridge's MAC",
        &bridge.mac().as_str(),
        &bound.text("bridgeMac"),
    )
}

fn dual(stage: &mut Stage<'_>) -> Outcome {
    let Some(dual) = stage.subject.dual else {
        return holds(false, || "pods get no IPv4 address".to_owned());
    };
    let pod = stage.pod("a");
    let more = dual(&mut stage.node);
    let result = stage.add("a", &pod).conf(&more).ok()?;
    let bound = golden::compare(&format!("dual/{}", stage.version), &result)?;
    let addresses = ["address4", "address"].map(|name| bound.text(name).to_owned());
    same(
        "addresses",
        &Link::find(&pod, "eth0")?.addresses(),
        &addresses.to_vec(),
    )?;
    for (family, name) in [("-4", "gateway4"), ("-6", "gateway")] {
        let route = (bound.text(name).to_owned(), "eth0".to_owned());
        same(
            "default routes",
            &kernel::default_routes(&pod, family),
            &vec![route],
        )?;
    }
    Ok(())
}

fn del(stage: &mut Stage<'_>) -> Outcome {
    let before = stage.settled()?;
    let pod = stage.pod("a");
    let empty = World::of(&pod);
    let result = stage.add("a", &pod).ok()?;
    holds(stage.world() != before, || "ADD changed nothing".to_owned())?;
    stage.del("a", &pod, &result).silent()?;
    stage.world().is_as(&before)?;
    // Loopback may be up now.
    holds(Link::find(&pod, "eth0").is_err(), || {
        "eth0 is still there".to_owned()
    })?;
    let stays = World::of(&pod).with(["addr lo 127.0.0.1/8", "addr lo ::1/128"].map(str::to_owned));
    stays.is_as(&empty.with(["addr lo 127.0.0.1/8", "addr lo ::1/128"].map(str::to_owned)))
}

fn check(stage: &mut Stage<'_>) -> Outcome {
    let pod = stage.pod("a");
    let result = stage.add("a", &pod).ok()?;
    let before = (stage.world(), World::of(&pod));
    stage.check("a", &pod, &result).silent()?;
    stage.world().is_as(&before.0)?;
    World::of(&pod).is_as(&before.1)
}

fn no_check(stage: &mut Stage<'_>) -> Outcome {
    let pod = stage.pod("a");
    let result = stage.add("a", &pod).ok()?;
    stage.check("a", &pod, &result).fails_with(1, &["CHECK"])
}

fn gc(stage: &mut Stage<'_>) -> Outcome {
    let pods = ["a", "b"].map(|name| (name, stage.pod(name)));
    let before = stage.settled()?;
    let kept = stage.add("a", &pods[0].1).ok()?;
    let with_one = stage.world();
    stage.add("b", &pods[1].1).ok()?;
    stage.gc(&[("a", "eth0")]).silent()?;
    stage.world().is_as(&with_one)?;
    stage.check("a", &pods[0].1, &kept).silent()?;
    stage.gc(&[]).silent()?;
    stage.world().is_as(&before)
}

fn status(stage: &mut Stage<'_>) -> Outcome {
    let before = stage.world();
    stage.call("STATUS").silent()?;
    stage.world().is_as(&before)
}

/// Only `cniVersion` and the command are there, and the answer is always the same.
fn version(stage: &mut Stage<'_>) -> Outcome {
    let conf = json!({"cniVersion": stage.version}).to_string();
    let answer = stage.call("VERSION").stdin(conf).ok()?;
    golden::compare("version", &answer).map(drop)
}
