//! 6. Results in the form of the version that was asked for, and VERSION whatever comes along.

use serde_json::json;

use crate::conformance::call::Judge as _;
use crate::conformance::check::{Outcome, holds, same};
use crate::conformance::golden;
use crate::conformance::run::Versions::{Before, Newest, Since};
use crate::conformance::run::{Case, case};
use crate::conformance::stage::Stage;

pub(crate) const CASES: &[Case] = &[
    case("versions/none means 0.1.0", Before("0.2.0"), none),
    case(
        "versions/an attachment outlives its version",
        Since("0.4.0"),
        upgraded,
    ),
    case("versions/VERSION with garbage", Newest, garbage),
    case("versions/versions that are none", Newest, no_version),
    case("versions/no command", Newest, no_command),
];

fn none(stage: &mut Stage<'_>) -> Outcome {
    for (name, conf) in [("a", json!({"cniVersion": ""})), ("b", json!({}))] {
        let pod = stage.pod(name);
        let result = stage
            .add(name, &pod)
            .without("cniVersion")
            .conf(&conf)
            .ok()?;
        golden::compare("add/0.1.0", &result)?;
    }
    Ok(())
}

/// What an older configuration has added, a newer one checks and deletes; its result is converted by the runtime.
fn upgraded(stage: &mut Stage<'_>) -> Outcome {
    let (pod, before) = (stage.pod("a"), stage.settled()?);
    let mut result = stage
        .add("a", &pod)
        .conf(&json!({"cniVersion": "0.3.1"}))
        .ok()?;
    result["cniVersion"] = stage.version.clone().into();
    if stage.version.as_str() >= "1.0.0" {
        result["ips"][0].as_object_mut().unwrap().remove("version");
    }
    stage.check("a", &pod, &result).silent()?;
    stage.del("a", &pod, &result).silent()?;
    stage.world().is_as(&before)
}

fn garbage(stage: &mut Stage<'_>) -> Outcome {
    for text in [
        "",
        "garbage",
        "{",
        r#"{"cniVersion":"9.9.9"}"#,
        r#"{"cniVersion":3}"#,
    ] {
        let answer = stage.call("VERSION").unset("CNI_PATH").stdin(text).ok()?;
        let newest = json!(stage.version);
        let versions = answer["supportedVersions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        holds(versions.contains(&newest), || format!("{text:?}: {answer}"))?;
    }
    Ok(())
}

fn no_version(stage: &mut Stage<'_>) -> Outcome {
    let (pod, before) = (stage.pod("a"), stage.world());
    for (version, code) in [
        (json!("1"), 1),
        (json!("1.0"), 1),
        (json!("v1.0.0"), 1),
        (json!("1.0.0 "), 1),
        (json!("0.0.1"), 1),
        (json!(1.0), 6),
        (json!(["1.0.0"]), 6),
    ] {
        let call = stage.add("a", &pod).conf(&json!({"cniVersion": version}));
        call.fails_with(code, &[])
            .map_err(|seen| format!("{version}: {seen}"))?;
    }
    stage.world().is_as(&before)
}

/// Run without a command, the plugin describes itself on stderr, which a runtime ignores.
fn no_command(stage: &mut Stage<'_>) -> Outcome {
    let answer = stage.call("").stdin("").answer();
    holds(answer.status.success(), || "an error".to_owned())?;
    same("standard output", &answer.stdout, &Vec::new())
}
