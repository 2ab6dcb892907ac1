//! Every variable in the manifests is one of a flag, with a value that the agent accepts, and every flag is in the ConfigMap.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use clap::{CommandFactory, Parser};
use dormouse_agent::cli::{Cli, Verb};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Container, PodSpec};

use crate::manifests::{beside, documents, folder, only};

/// Flags that no node with a kubelet has, with the reason.
const LEFT_OUT: [(&str, &str); 6] = [
    ("DORMOUSE_MANIFESTS", "Services come from the API server"),
    ("DORMOUSE_CNI", "for pods that the agent runs"),
    ("DORMOUSE_LOG_BYTES_PER_POD", "for pods that the agent runs"),
    (
        "DORMOUSE_LOG_BYTES_PER_NODE",
        "for pods that the agent runs",
    ),
    ("DORMOUSE_LOG_HOURS", "for pods that the agent runs"),
    ("DORMOUSE_BPFFS", "follows from the node's name"),
];

/// The DaemonSet's pod.
pub(crate) fn pod() -> PodSpec {
    let set: DaemonSet = only("DaemonSet");
    set.spec.unwrap().template.spec.unwrap()
}

fn command(name: &str) -> clap::Command {
    let found = Cli::command();
    let found = found.find_subcommand(name);
    found.unwrap_or_else(|| panic!("no command {name}")).clone()
}

/// The flags of a command and those of all commands, by their variables.
fn flags(name: &str) -> BTreeMap<String, String> {
    let all = [command(name), Cli::command()];
    let arguments = all.iter().flat_map(clap::Command::get_arguments);
    arguments
        .filter_map(|argument| {
            let variable = argument.get_env()?.to_str()?.to_owned();
            Some((variable, argument.get_long()?.to_owned()))
        })
        .collect()
}

fn data(map: ConfigMap) -> BTreeMap<String, String> {
    map.data.unwrap()
}

/// The variables of a container that are set beside the ConfigMap.
fn own(container: &Container) -> BTreeSet<String> {
    let env = container.env.iter().flatten();
    env.map(|env| env.name.clone()).collect()
}

/// The variables in comments of the ConfigMap.
fn commented() -> BTreeSet<String> {
    let text = fs::read_to_string(folder().join("base/config.yaml")).unwrap();
    let names = text.lines().filter_map(|line| {
        let line = line.trim_start().strip_prefix("# ")?;
        Some(line.split_once(": \"")?.0.to_owned())
    });
    names.collect()
}

#[test]
fn every_flag_of_run_is_in_the_manifests_and_every_variable_is_a_flag() {
    let set = data(only("ConfigMap"));
    let pod = pod();
    let mut named: BTreeSet<_> = set.keys().cloned().collect();
    for other in own(&pod.containers[0]).into_iter().chain(commented()) {
        assert!(named.insert(other.clone()), "{other} is there twice");
    }
    let known: BTreeSet<_> = flags("run").into_keys().collect();
    for (variable, reason) in LEFT_OUT {
        assert!(known.contains(variable), "{variable} ({reason}) is no flag");
        assert!(named.insert(variable.to_owned()), "{variable} ({reason})");
    }
    assert_eq!(named, known);
}

#[test]
fn the_overlays_change_flags_that_exist() {
    let known = flags("run");
    for overlay in beside() {
        let file = overlay.join("config.yaml");
        if !file.exists() {
            continue;
        }
        for patch in documents(&file) {
            let patch: ConfigMap = serde_json::from_value(patch).unwrap();
            for variable in data(patch).into_keys() {
                assert!(known.contains_key(&variable), "{overlay:?}: {variable}");
            }
        }
    }
}

#[test]
fn the_commands_of_the_containers_exist() {
    let pod = pod();
    let mut containers = pod.init_containers.clone().unwrap();
    containers.extend(pod.containers);
    for container in containers {
        let arguments = container.command.clone().unwrap();
        let [program, verb, rest @ ..] = &arguments[..] else {
            panic!("{arguments:?}");
        };
        assert_eq!(program, "/dormouse-agent");
        assert!(rest.is_empty(), "flags are in the ConfigMap: {rest:?}");
        let known = flags(verb);
        for variable in own(&container) {
            assert!(known.contains_key(&variable), "{verb}: {variable}");
        }
    }
}

/// The flags of `run` in base and each overlay, as if the variables were set.
#[test]
fn the_agent_accepts_the_values() {
    let known = flags("run");
    let switches = ["in-cluster", "masquerade-all", "strict-source-ranges"];
    for overlay in beside() {
        let mut values = data(only("ConfigMap"));
        let file = overlay.join("config.yaml");
        if file.exists() {
            let patch = documents(&file).remove(0);
            values.extend(data(serde_json::from_value(patch).unwrap()));
        }
        let mut arguments = vec!["dormouse-agent".to_owned(), "run".to_owned()];
        for (variable, value) in values {
            let flag = &known[&variable];
            if switches.contains(&flag.as_str()) {
                assert!(["true", "false"].contains(&&*value), "{variable}");
                arguments.extend((value == "true").then(|| format!("--{flag}")));
            } else {
                arguments.extend([format!("--{flag}"), value]);
            }
        }
        arguments.extend(["--node", "n1"].map(str::to_owned));
        let Verb::Run(run) = Cli::try_parse_from(&arguments).unwrap().verb else {
            panic!("{arguments:?}");
        };
        run.validate()
            .unwrap_or_else(|error| panic!("{overlay:?}: {error:#}"));
    }
}
