//! The agent, its stream to control, the prefix of the pods, and the network configuration by which container runtimes find the plugin.

use super::super::facts::{AgentFacts, Facts, PodFacts, StreamFacts};
use super::super::report::{Finding, Level};
use crate::own_node::overlapping;
use crate::profile::Ndp;

pub(super) fn examine(facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![agent(&facts.agent), stream(facts.stream)];
    match &facts.pods {
        Some(pods) => findings.extend(prefix(facts, pods)),
        None => findings.push(Finding::ok(
            "prefix",
            "none yet: no agent has been ready on this node",
        )),
    }
    findings.push(conflists(facts));
    findings
}

fn agent(facts: &AgentFacts) -> Finding {
    match facts {
        AgentFacts::Ready => Finding::ok("agent", "ready: Services are in force"),
        AgentFacts::Absent => Finding::ok("agent", "none runs, and there is no data path"),
        AgentFacts::Waiting(why) => {
            let fix = "see the agent's log: kubectl -n dormouse-system logs ds/dormouse-agent";
            Finding::bad(
                Level::Problem,
                "agent",
                "it is not ready",
                (why.clone(), fix),
            )
        }
        AgentFacts::Other { at, status } => {
            let found = format!("another server answers there: {at}");
            let reason = format!(
                "the answer to /readyz is {status}, which no agent gives: whether an agent runs is not known"
            );
            let fix = "give the agent's metrics address: --metrics, or DORMOUSE_METRICS";
            Finding::bad(Level::Warning, "agent", found, (reason, fix))
        }
        AgentFacts::Gone => {
            let reason = "the data path serves as the last agent left it: changes of Services have no effect";
            let fix = "start the agent; or remove it all: dormouse-agent uninstall --node NAME";
            let found = "none answers, but its data path serves";
            Finding::bad(Level::Warning, "agent", found, (reason, fix))
        }
    }
}

fn stream(facts: StreamFacts) -> Finding {
    match facts {
        StreamFacts::None => Finding::ok("control", "no stream: the agent has no control plane"),
        StreamFacts::Secured => Finding::ok("control", "the stream has TLS"),
        StreamFacts::Plain => {
            let reason = "a host on the path reads the stream, and can start pods on this node";
            let fix = "start `dormouse up` without --insecure, and the agent with --join and the line of `dormouse token create --node NAME`, without --control";
            let found = "the stream is plain text";
            Finding::bad(Level::Warning, "control", found, (reason, fix))
        }
    }
}

/// The prefix, the network that delivers it, and the network of the link.
fn prefix(facts: &Facts, pods: &PodFacts) -> Vec<Finding> {
    let PodFacts {
        prefix, delivered, ..
    } = pods;
    let found = format!("{prefix} of {delivered}");
    let link = facts.link.as_ref();
    let overlap = link.and_then(|link| overlapping(*prefix, &link.networks));
    let routed = facts.profile.ndp == Ndp::Routed;
    let first = match overlap.filter(|_| routed) {
        Some(network) => {
            let reason = format!(
                "it overlaps {network}, a network of the uplink: hosts of the link look for pods there, and no host answers"
            );
            let fix = "use another range for pods, or --network-profile on-link";
            Finding::bad(Level::Problem, "prefix", found, (reason, fix))
        }
        None => Finding::ok("prefix", found),
    };
    let by = match facts.profile.ndp {
        Ndp::Routed => format!(
            "profile {}: a router has a route for {delivered} by this node (a cloud's route controller, BGP, or static); if pods are not reached from other nodes, it is missing",
            facts.profile.name
        ),
        Ndp::Answer => format!(
            "profile {}: the router solicits each pod's address on the link, and this node answers",
            facts.profile.name
        ),
    };
    vec![first, Finding::ok("delivery", by)]
}

fn conflists(facts: &Facts) -> Finding {
    let folder = facts.conflists.folder.display();
    let files = &facts.conflists.files;
    let own = files.iter().find(|(_, is_own)| *is_own);
    match (files.first(), own) {
        (None, _) => Finding::ok(
            "conflist",
            format!("{folder} has no network configuration yet"),
        ),
        (Some((first, true)), _) => {
            let others = files.len() - 1;
            Finding::ok(
                "conflist",
                format!("runtimes use {folder}/{first}; {others} others come after it"),
            )
        }
        (Some((first, false)), None) => {
            let found = format!("runtimes use {folder}/{first}, of another plugin");
            Finding::ok("conflist", found)
        }
        (Some((first, false)), Some((own, _))) => {
            let found = format!("runtimes use {folder}/{first}, not {own}");
            let reason =
                "they use the first in the order of names: new pods are wired by the other plugin";
            let fix =
                format!("remove {folder}/{first}, or set --cni-conf-name 00-dormouse.conflist");
            Finding::bad(Level::Warning, "conflist", found, (reason, fix))
        }
    }
}
