//! Each error code of the specification is provoked, and the message names what is at fault.

use std::fs::File;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::conformance::call::Answer;
use crate::conformance::call::Judge as _;
use crate::conformance::check::{Outcome, same};
use crate::conformance::run::Versions::{All, Newest, Since};
use crate::conformance::run::{Case, case};
use crate::conformance::stage::Stage;
use crate::conformance::subject::nearly_used_up;

pub(crate) const CASES: &[Case] = &[
    case("codes/1 for an unknown version", Newest, unknown_version),
    case("codes/2 for a field that is not done", Newest, unsupported),
    case(
        "codes/3 for an unknown container",
        Newest,
        unknown_container,
    ),
    case("codes/4 for missing variables", Newest, missing),
    case("codes/4 for an unknown command", Newest, unknown_command),
    case(
        "codes/5 for an input that cannot be read",
        Newest,
        unreadable,
    ),
    case("codes/6 for what is no configuration", Newest, no_json),
    case(
        "codes/7 for an impossible configuration",
        Newest,
        impossible,
    ),
    case("codes/11 when ADD may succeed later", Newest, later),
    case(
        "codes/50 when ADD cannot succeed",
        Since("1.1.0"),
        unavailable,
    ),
    case(
        "codes/50 when no address is left",
        Since("1.1.0"),
        exhausted,
    ),
    case(
        "codes/51 when existing pods suffer too",
        Since("1.1.0"),
        limited,
    ),
    case(
        "codes/an error has the configuration's version",
        All,
        version_of_errors,
    ),
];

fn unknown_version(stage: &mut Stage<'_>) -> Outcome {
    let (pod, before) = (stage.pod("a"), stage.world());
    let conf = json!({"cniVersion": "9.9.9"});
    stage.add("a", &pod).conf(&conf).fails_with(1, &["9.9.9"])?;
    stage.world().is_as(&before)
}

/// Addresses are not translated, and ports only by an agent that serves Services, which this node's does not.
fn unsupported(stage: &mut Stage<'_>) -> Outcome {
    let (pod, before) = (stage.pod("a"), stage.world());
    let masquerade = stage.add("a", &pod).conf(&json!({"ipMasq": true}));
    masquerade.fails_with(2, &["ipMasq", "true"])?;
    let ports = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]);
    let mapped = stage.add("a", &pod).runtime("portMappings", &ports);
    mapped.fails_with(2, &["portMappings", "8080"])?;
    stage.world().is_as(&before)
}

fn unknown_container(stage: &mut Stage<'_>) -> Outcome {
    let (a, b) = (stage.pod("a"), stage.pod("b"));
    let result = stage.add("a", &a).ok()?;
    stage.check("b", &b, &result).fails_with(3, &["b"])
}

fn missing(stage: &mut Stage<'_>) -> Outcome {
    let (pod, before) = (stage.pod("a"), stage.world());
    for name in ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"] {
        stage.add("a", &pod).unset(name).fails_with(4, &[name])?;
        stage.add("a", &pod).env(name, "").fails_with(4, &[name])?;
    }
    let all = stage.call("ADD");
    all.fails_with(4, &["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"])?;
    let del = stage.call("DEL");
    del.fails_with(4, &["CNI_CONTAINERID", "CNI_IFNAME"])?;
    stage.world().is_as(&before)
}

fn unknown_command(stage: &mut Stage<'_>) -> Outcome {
    let (pod, before) = (stage.pod("a"), stage.world());
    for command in ["FROB", "add", "ADD "] {
        let call = stage.add("a", &pod).env("CNI_COMMAND", command);
        call.fails_with(4, &["CNI_COMMAND", command.trim()])?;
    }
    stage.world().is_as(&before)
}

/// A folder can be opened but not be read.
fn unreadable(stage: &mut Stage<'_>) -> Outcome {
    let (pod, folder) = (stage.pod("a"), File::open("/").unwrap());
    let child = stage
        .add("a", &pod)
        .spawn(folder.into(), Stdio::piped(), Stdio::piped());
    let error = Answer::from(child.wait_with_output().unwrap()).fails()?;
    same("the error's code", &error["code"], &json!(5))
}

fn no_json(stage: &mut Stage<'_>) -> Outcome {
    let (pod, before) = (stage.pod("a"), stage.world());
    for text in ["", "{", "[]", "3", "{\"cniVersion\":", "\u{feff}{}"] {
        let call = stage.add("a", &pod).stdin(text);
        call.fails_with(6, &[])
            .map_err(|seen| format!("{text:?}: {seen}"))?;
    }
    stage
        .add("a", &pod)
        .stdin([0xff, 0xfe, 0])
        .fails_with(6, &[])?;
    let number = stage.add("a", &pod).conf(&json!({"name": 3}));
    number.fails_with(6, &["name"])?;
    stage.world().is_as(&before)
}

fn impossible(stage: &mut Stage<'_>) -> Outcome {
    let (pod, before) = (stage.pod("a"), stage.world());
    let add = || stage.add("a", &pod);
    add().without("name").fails_with(7, &["name"])?;
    for name in ["", "a b", "../a", "-a"] {
        add()
            .conf(&json!({"name": name}))
            .fails_with(7, &["name", name])?;
    }
    stage.world().is_as(&before)
}

fn later(stage: &mut Stage<'_>) -> Outcome {
    stage.stop_daemon()?;
    let (pod, before) = (stage.pod("a"), stage.world());
    stage.add("a", &pod).fails_with(11, &[])?;
    stage.world().is_as(&before)
}

fn unavailable(stage: &mut Stage<'_>) -> Outcome {
    stage.stop_daemon()?;
    stage.call("STATUS").fails_with(50, &[])
}

fn exhausted(stage: &mut Stage<'_>) -> Outcome {
    let more = if let Some(tiny) = stage.subject.tiny {
        tiny(&stage.node)
    } else {
        nearly_used_up(stage);
        json!({})
    };
    let pods = ["a", "b", "c"].map(|name| (name, stage.pod(name)));
    let mut added = 0;
    for (name, pod) in &pods {
        added += usize::from(stage.add(name, pod).conf(&more).ok().is_ok());
    }
    same("pods that fit", &added, &2)?;
    stage.call("STATUS").conf(&more).fails_with(50, &[])
}

/// With the bridge down no pod reaches anything.
fn limited(stage: &mut Stage<'_>) -> Outcome {
    let pod = stage.pod("a");
    let result = stage.add("a", &pod).ok()?;
    let bridge = result["interfaces"][0]["name"].as_str().unwrap_or_default();
    stage.node.netns().ip(&format!("link set {bridge} down"));
    stage.call("STATUS").fails_with(51, &[])
}

fn version_of_errors(stage: &mut Stage<'_>) -> Outcome {
    let pod = stage.pod("a");
    let error = stage.add("a", &pod).without("name").fails()?;
    same(
        "cniVersion",
        &error["cniVersion"],
        &Value::from(stage.version.as_str()),
    )
}
