//! 8. An address is asked for: given as asked, or refused with the reason; never another one.

use std::net::IpAddr;

use serde_json::{Value, json};

use crate::conformance::call::Judge as _;
use crate::conformance::check::{Outcome, holds, same};
use crate::conformance::kernel::Link;
use crate::conformance::run::Versions::{Newest, Since};
use crate::conformance::run::{Case, case};
use crate::conformance::stage::{Stage, address};
use dormouse_rig::Call;
use dormouse_rig::Netns;

pub(crate) const CASES: &[Case] = &[
    case("requested/given as asked", Since("0.3.0"), given),
    case("requested/in another spelling", Newest, spelling),
    case("requested/out of the range", Newest, outside),
    case("requested/the gateway's", Newest, gateway),
    case("requested/a refusal leaves nothing", Newest, leaves_nothing),
    case("requested/beside others", Newest, beside),
    case("requested/taken", Newest, taken),
    case(
        "requested/with a wrong prefix length",
        Newest,
        prefix_length,
    ),
    case("requested/mapped from IPv4", Newest, mapped),
    case("requested/no address", Newest, no_address),
    case("requested/one of each family", Newest, both_families),
    case("requested/by CNI_ARGS", Newest, by_variable),
    case("requested/args before CNI_ARGS", Newest, args_first),
    case("requested/runtimeConfig before all", Newest, runtime_first),
    case("requested/CNI_ARGS of a kubelet", Newest, kubelet),
];

fn ask(stage: &Stage<'_>, id: &str, pod: &Netns, addresses: &Value) -> Call {
    stage.add(id, pod).runtime("ips", addresses)
}

fn is_given(pod: &Netns, result: &Value, wanted: &str) -> Outcome {
    let wanted: IpAddr = wanted.parse().unwrap();
    same("the address", &address(result)?, &wanted)?;
    let eth0 = Link::find(pod, "eth0")?.addresses();
    let has = eth0.iter().any(|at| at.starts_with(&format!("{wanted}/")));
    holds(has, || format!("eth0 has {eth0:?}, not {wanted}"))
}

fn given(stage: &mut Stage<'_>) -> Outcome {
    let (pod, wanted) = (stage.pod("a"), stage.subject.ask.free[0]);
    let result = ask(stage, "a", &pod, &json!([wanted])).ok()?;
    is_given(&pod, &result, wanted)?;
    stage.check_if_known("a", &pod, &result)
}

fn spelling(stage: &mut Stage<'_>) -> Outcome {
    let (pod, wanted) = (stage.pod("a"), stage.subject.ask.free[0]);
    let parsed: std::net::Ipv6Addr = wanted.parse().unwrap();
    let long: Vec<_> = parsed
        .segments()
        .iter()
        .map(|part| format!("{part:04X}"))
        .collect();
    let result = ask(stage, "a", &pod, &json!([long.join(":")])).ok()?;
    is_given(&pod, &result, wanted)?;
    // Canonical again in the result, as others compare texts (RFC 5952).
    holds(result.to_string().contains(&parsed.to_string()), || {
        format!("{parsed} is not in {result}")
    })
}

/// Each of these must fail, name what was asked for, and leave nothing once DEL has come.
fn refused(stage: &Stage<'_>, wanted: &[String]) -> Outcome {
    let (pod, before) = (stage.pod("b"), stage.world());
    for text in wanted {
        let error = ask(stage, "b", &pod, &json!([text])).fails();
        let error = error.map_err(|seen| format!("{text}: {seen}"))?;
        let message = error.to_string();
        let canonical = text
            .parse::<IpAddr>()
            .map(|address| address.to_canonical().to_string());
        let names = message.contains(text) || canonical.is_ok_and(|text| message.contains(&text));
        holds(names, || format!("`{text}` is not named: {message}"))?;
        stage
            .del("b", &pod, &Value::Null)
            .without("prevResult")
            .silent()?;
        stage.world().is_as(&before)?;
    }
    Ok(())
}

fn outside(stage: &mut Stage<'_>) -> Outcome {
    stage.settled()?;
    refused(stage, &[stage.subject.ask.outside.to_owned()])
}

fn gateway(stage: &mut Stage<'_>) -> Outcome {
    stage.settled()?;
    refused(stage, &[stage.subject.ask.gateway.to_owned()])
}

/// Without DEL, too.
fn leaves_nothing(stage: &mut Stage<'_>) -> Outcome {
    let (pod, before) = (stage.pod("a"), stage.settled()?);
    ask(stage, "a", &pod, &json!([stage.subject.ask.outside])).fails()?;
    stage.world().is_as(&before)?;
    holds(Link::find(&pod, "eth0").is_err(), || {
        "eth0 stays".to_owned()
    })
}

fn taken(stage: &mut Stage<'_>) -> Outcome {
    let (pod, wanted) = (stage.pod("a"), stage.subject.ask.free[0]);
    let result = ask(stage, "a", &pod, &json!([wanted])).ok()?;
    refused(stage, &[wanted.to_owned()])?;
    stage.check("a", &pod, &result).silent()
}

/// Requested addresses do not conflict with each other or with those of pods without a request.
fn beside(stage: &mut Stage<'_>) -> Outcome {
    let pods = ["a", "b", "c"].map(|name| (name, stage.pod(name)));
    for ((name, pod), wanted) in pods.iter().zip(stage.subject.ask.free) {
        is_given(pod, &ask(stage, name, pod, &json!([wanted])).ok()?, wanted)?;
    }
    let other = stage.pod("d");
    stage.add("d", &other).ok().map(drop)
}

fn prefix_length(stage: &mut Stage<'_>) -> Outcome {
    let free = stage.subject.ask.free[0];
    stage.settled()?;
    let lengths = ["/0", "/63", "/129", "/-1", "/", "/x"];
    refused(stage, &lengths.map(|length| format!("{free}{length}")))
}

fn mapped(stage: &mut Stage<'_>) -> Outcome {
    stage.settled()?;
    refused(stage, &["::ffff:192.0.2.1".to_owned()])
}

fn no_address(stage: &mut Stage<'_>) -> Outcome {
    stage.settled()?;
    refused(
        stage,
        &["pod", "2001:db8::g", "1.2.3", "fe80::1%eth0"].map(str::to_owned),
    )?;
    let pod = stage.pod("a");
    for bad in [json!("2001:db8::1"), json!([3]), json!({"a": 1})] {
        let call = ask(stage, "a", &pod, &bad);
        let error = call.fails().map_err(|seen| format!("{bad}: {seen}"))?;
        stage
            .del("a", &pod, &Value::Null)
            .without("prevResult")
            .silent()?;
        holds(error.to_string().contains("ips"), || {
            format!("`ips` is not named: {error}")
        })?;
    }
    Ok(())
}

fn both_families(stage: &mut Stage<'_>) -> Outcome {
    let Some(dual) = stage.subject.dual else {
        return holds(false, || "pods get no IPv4 address".to_owned());
    };
    let (pod, wanted) = (stage.pod("a"), stage.subject.ask.free[0]);
    let more = dual(&mut stage.node);
    let result = ask(stage, "a", &pod, &json!(["192.0.2.77", wanted]))
        .conf(&more)
        .ok()?;
    is_given(&pod, &result, wanted)?;
    let eth0 = Link::find(&pod, "eth0")?.addresses();
    let has = eth0.iter().any(|at| at.starts_with("192.0.2.77/"));
    holds(has, || format!("eth0 has {eth0:?}"))
}

fn args(stage: &Stage<'_>, address: usize) -> Value {
    json!({"args": {"cni": {"ips": [stage.subject.ask.free[address]]}}})
}

fn by_variable(stage: &mut Stage<'_>) -> Outcome {
    let (pod, wanted) = (stage.pod("a"), stage.subject.ask.free[0]);
    let args = format!("IgnoreUnknown=1;IP={wanted};K8S_POD_NAME=a");
    let result = stage.add("a", &pod).env("CNI_ARGS", &args).ok()?;
    is_given(&pod, &result, wanted)
}

fn args_first(stage: &mut Stage<'_>) -> Outcome {
    let (pod, free) = (stage.pod("a"), stage.subject.ask.free);
    let call = stage
        .add("a", &pod)
        .env("CNI_ARGS", &format!("IgnoreUnknown=1;IP={}", free[0]));
    is_given(&pod, &call.conf(&args(stage, 1)).ok()?, free[1])
}

fn runtime_first(stage: &mut Stage<'_>) -> Outcome {
    let (pod, free) = (stage.pod("a"), stage.subject.ask.free);
    let call = ask(stage, "a", &pod, &json!([free[2]])).conf(&args(stage, 1));
    let call = call.env("CNI_ARGS", &format!("IgnoreUnknown=1;IP={}", free[0]));
    is_given(&pod, &call.ok()?, free[2])
}

fn kubelet(stage: &mut Stage<'_>) -> Outcome {
    let pod = stage.pod("a");
    let args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;\
        K8S_POD_INFRA_CONTAINER_ID=a;K8S_POD_UID=2f1e";
    let result = stage.add("a", &pod).env("CNI_ARGS", args).ok()?;
    stage.del("a", &pod, &result).env("CNI_ARGS", args).silent()
}
