//! kube-proxy, and what it left.

use std::collections::BTreeMap;

use super::super::facts::{AgentFacts, Facts};
use super::super::report::{Finding, Level};

pub(super) fn examine(facts: &Facts) -> Vec<Finding> {
    let facts_of = &facts.kube_proxy;
    let is_serving = matches!(facts.agent, AgentFacts::Ready | AgentFacts::Gone);
    let mut findings = Vec::new();
    let processes = &facts_of.processes;
    if let Some(pid) = processes.first() {
        let found = format!("it runs (process {pid})");
        findings.push(if is_serving {
            let reason = "Services are programmed twice: by it and by the data path, which sees packets first";
            let fix = "remove it when the agents of all nodes are ready (docs/operations.md, Migrate)";
            Finding::bad(Level::Warning, "kube-proxy", found, (reason, fix))
        } else {
            Finding::ok("kube-proxy", format!("{found}, and serves Services until an agent is ready"))
        });
    }
    let mut by_mode: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for leftover in &facts_of.found.leftovers {
        by_mode
            .entry(leftover.mode())
            .or_default()
            .push(leftover.to_string());
    }
    let is_left = processes.is_empty();
    for (mode, objects) in by_mode.into_iter().filter(|_| is_left) {
        let found = format!("it left rules of mode {mode}: {}", objects.join("; "));
        let reason = "they translate packets that the data path leaves to the kernel, to endpoints that may be gone";
        let fix = "dormouse-agent uninstall --kube-proxy-leftovers --dry-run lists them; without --dry-run they are removed";
        findings.push(Finding::bad(
            Level::Warning,
            "kube-proxy",
            found,
            (reason, fix),
        ));
    }
    findings.extend(facts_of.found.unknown.iter().map(|what| {
        let reason = "rules that kube-proxy left may exist";
        let fix = "run the command as root on the node itself";
        Finding::bad(Level::Warning, "kube-proxy", what.clone(), (reason, fix))
    }));
    if findings.is_empty() {
        findings.push(Finding::ok(
            "kube-proxy",
            "it does not run, and left nothing",
        ));
    }
    findings
}
