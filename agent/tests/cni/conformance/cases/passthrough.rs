//! 10. What another plugin put into `prevResult` comes out as it went in, known or not.

use serde_json::{Value, json};

use crate::conformance::call::Judge as _;
use crate::conformance::check::{Outcome, holds, same};
use crate::conformance::run::Versions::Since;
use crate::conformance::run::{Case, case};
use crate::conformance::stage::Stage;

use super::chain;

pub(crate) const CASES: &[Case] = &[
    case("passthrough/unknown fields", Since("0.3.0"), unknown),
    case("passthrough/byte by byte", Since("0.3.0"), bytes),
    case(
        "passthrough/routes without a gateway",
        Since("0.3.0"),
        routes,
    ),
    case("passthrough/an empty result", Since("0.3.0"), empty),
    case(
        "passthrough/CHECK and DEL ignore what is unknown",
        Since("0.4.0"),
        ignored,
    ),
];

fn unknown(stage: &mut Stage<'_>) -> Outcome {
    let pod = stage.pod("a");
    let mut previous = chain::previous(&stage.version, &pod);
    let vendor = json!({"z": 1, "a": [true, null, {"deep": ""}], "": "no name"});
    previous["x-vendor"] = vendor.clone();
    previous["interfaces"][0]["x-vendor"] = vendor.clone();
    previous["ips"][0]["x-vendor"] = vendor.clone();
    previous["routes"][0]["x-vendor"] = vendor.clone();
    let result = stage
        .add("a", &pod)
        .conf(&json!({"prevResult": previous}))
        .ok()?;
    for seen in [
        &result["x-vendor"],
        &result["interfaces"][0]["x-vendor"],
        &result["ips"][0]["x-vendor"],
        &result["routes"][0]["x-vendor"],
    ] {
        same("an unknown field", seen, &vendor)?;
    }
    Ok(())
}

/// Order of keys, spelling of numbers and more digits than a computer's numbers have.
const RAW: &str = r#"{"z":1.0,"a":1e2,"big":123456789012345678901234567890,"m":[0.10,-0],"b":"x"}"#;

fn bytes(stage: &mut Stage<'_>) -> Outcome {
    let pod = stage.pod("a");
    let mut previous = chain::previous(&stage.version, &pod);
    previous["x-vendor"] = "RAW".into();
    let call = stage.add("a", &pod).conf(&json!({"prevResult": previous}));
    let text = call.text().replace("\"RAW\"", RAW);
    let answer = call.stdin(text).answer();
    answer.ok()?;
    let stdout = String::from_utf8_lossy(&answer.stdout);
    let dense: String = stdout.split_whitespace().collect();
    holds(dense.contains(RAW), || format!("{RAW} is not in {dense}"))
}

fn routes(stage: &mut Stage<'_>) -> Outcome {
    let pod = stage.pod("a");
    let mut previous = chain::previous(&stage.version, &pod);
    previous["routes"] =
        json!([{"dst": "198.51.100.0/24"}, {"dst": "203.0.113.0/24", "gw": "192.0.2.1"}]);
    let result = stage
        .add("a", &pod)
        .conf(&json!({"prevResult": previous}))
        .ok()?;
    let first: Vec<_> = result["routes"]
        .as_array()
        .into_iter()
        .flatten()
        .take(2)
        .collect();
    same(
        "routes",
        &first,
        &previous["routes"].as_array().unwrap().iter().collect(),
    )
}

/// An earlier plugin may have made nothing: then the list is `null`, or not there.
fn empty(stage: &mut Stage<'_>) -> Outcome {
    let version = &stage.version;
    for (number, previous) in [
        json!({"cniVersion": version}),
        json!({"cniVersion": version, "interfaces": null, "ips": null, "routes": null, "dns": {}}),
        json!({"cniVersion": version, "interfaces": [], "ips": [], "routes": []}),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("c{number}");
        let pod = stage.pod(&name);
        let result = stage
            .add(&name, &pod)
            .conf(&json!({"prevResult": previous}))
            .ok()?;
        let interface = result["ips"][0]["interface"].as_u64().unwrap_or(99);
        let index = usize::try_from(interface).unwrap();
        same(
            "the address's interface",
            &result["interfaces"][index]["name"],
            &json!("eth0"),
        )?;
    }
    Ok(())
}

fn ignored(stage: &mut Stage<'_>) -> Outcome {
    let (pod, before) = (stage.pod("a"), stage.settled()?);
    let mut result = stage.add("a", &pod).ok()?;
    let vendor: Value = json!({"a": [1]});
    result["x-vendor"] = vendor.clone();
    result["interfaces"][2]["x-vendor"] = vendor.clone();
    result["ips"][0]["x-vendor"] = vendor;
    stage.check("a", &pod, &result).silent()?;
    stage.del("a", &pod, &result).silent()?;
    stage.world().is_as(&before)
}
