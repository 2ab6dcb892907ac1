//! The command with files, as a user runs it.

use clap::Parser;

use super::*;

/// The arguments as the command line has them.
#[derive(Parser)]
struct Line {
    #[command(flatten)]
    arguments: Arguments,
}

/// Runs the command with files of these texts; returns what it prints and its end.
fn simulate(nodes: &str, pods: &str, more: &[&str]) -> Result<(String, Exit), CommandError> {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (nodes, pods) = (file("nodes", nodes), file("pods", pods));
    let config = file("config", more.first().copied().unwrap_or(""));
    let mut line = vec!["simulate", "--nodes", &nodes, "--pods", &pods];
    if !more.is_empty() {
        line.extend(["--config", &config]);
    }
    let Line { arguments } = Line::parse_from(line);
    let mut out = Vec::new();
    let exit = run(&arguments, &mut out, None)?;
    Ok((String::from_utf8(out).unwrap(), exit))
}

fn node(name: &str, cpu: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\n\
         status: {{allocatable: {{cpu: {cpu}, memory: 4Gi, pods: '110'}}}}\n"
    )
}

fn pod(name: &str, cpu: &str, more: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\n\
         spec: {{containers: [{{name: app, resources: {{limits: {{cpu: {cpu}}}}}}}]{more}}}\n"
    )
}

#[test]
fn pods_are_placed_one_after_the_other_and_each_counts_for_the_next() {
    let nodes = node("small", "2") + &node("large", "4");
    let pods = pod("a", "3", "") + &pod("b", "2", "") + &pod("c", "2", "");
    let (screen, exit) = simulate(&nodes, &pods, &[]).unwrap();
    let lines: Vec<_> = screen.lines().collect();
    assert!(lines[1].starts_with("default/a   large   -"), "{screen}");
    assert!(lines[2].starts_with("default/b   small   -"), "{screen}");
    assert!(
        lines[3].contains("0/2 nodes are available: 2 Insufficient cpu"),
        "{screen}"
    );
    assert_eq!(exit, Exit::No);
}

#[test]
fn a_pod_of_higher_priority_is_first_and_evicts_one_that_runs() {
    let running = pod("low", "2", ", nodeName: only");
    let pods = running + &pod("late", "1", "") + &pod("high", "2", ", priority: 9");
    let (screen, _) = simulate(&node("only", "2"), &pods, &[]).unwrap();
    let lines: Vec<_> = screen.lines().collect();
    assert!(lines[1].starts_with("default/high   only"), "{screen}");
    assert!(lines[1].ends_with("evicts default/low"), "{screen}");
    assert!(lines[2].starts_with("default/late   -"), "{screen}");
}

#[test]
fn lists_are_read_as_kubectl_prints_them() {
    let nodes = r#"{"kind": "NodeList", "apiVersion": "v1", "items": [
        {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "1", "pods": "9"}}}]}"#;
    let pods = r#"{"kind": "List", "apiVersion": "v1", "items": [
        {"kind": "Pod", "metadata": {"name": "p", "namespace": "shop"}, "spec": {"containers": []}}]}"#;
    let (screen, exit) = simulate(nodes, pods, &[]).unwrap();
    assert!(screen.contains("shop/p   n1"), "{screen}");
    assert_eq!(exit, Exit::Yes);
}

#[test]
fn files_that_make_no_sense_are_refused_with_the_place() {
    let refused =
        |nodes: &str, pods: &str, more: &[&str]| simulate(nodes, pods, more).unwrap_err().message;
    let nodes = node("n1", "1");
    let said = refused("kind: Node\nmetadata: [", "", &[]);
    assert!(said.contains("nodes"), "{said}");
    let said = refused("metadata: {name: n1}", "", &[]);
    assert!(said.contains("document 1: kind is missing"), "{said}");
    let said = refused("kind: Deployment\nmetadata: {name: n1}", "", &[]);
    assert!(said.contains("kind Deployment"), "{said}");
    let said = refused(&nodes, &pod("p", "many", ""), &[]);
    assert!(said.contains("cpu"), "{said}");
    let said = refused(
        &nodes,
        "",
        &[
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nextenders: []",
        ],
    );
    assert!(said.contains("extenders: not supported"), "{said}");
}

#[test]
fn a_pod_of_another_scheduler_has_no_profile() {
    let pods = pod("p", "1", ", schedulerName: other");
    let (screen, exit) = simulate(&node("n1", "1"), &pods, &[]).unwrap();
    assert!(
        screen.contains("no profile has the schedulerName other"),
        "{screen}"
    );
    assert_eq!(exit, Exit::No);
}

#[test]
fn what_the_api_server_would_set_is_set() {
    let on_host = |name: &str| {
        format!(
            "---\nkind: Pod\nmetadata: {{name: {name}}}\n\
             spec: {{hostNetwork: true, containers: [{{name: app, ports: [{{containerPort: 80}}]}}]}}\n"
        )
    };
    let pods = on_host("a") + &on_host("b");
    let (screen, _) = simulate(&node("n1", "2"), &pods, &[]).unwrap();
    assert!(screen.contains("didn't have free ports"), "{screen}");
    let by_class = pod("p", "1", ", priorityClassName: high");
    let error = simulate(&node("n1", "2"), &by_class, &[]).unwrap_err();
    assert!(
        error.message.contains("spec.priority is missing"),
        "{error:?}"
    );
}

#[test]
fn a_pod_that_is_in_both_files_is_placed_once() {
    let all = node("n1", "2") + &pod("p", "1", "");
    let (screen, exit) = simulate(&all, &all, &[]).unwrap();
    assert_eq!((screen.lines().count(), exit), (2, Exit::Yes), "{screen}");
}

#[test]
fn the_files_of_a_large_cluster_are_read() {
    let nodes: String = (0..2_000)
        .map(|number| node(&format!("node-{number}"), "2"))
        .collect();
    let (screen, exit) = simulate(&nodes, &pod("p", "1", ""), &[]).unwrap();
    assert_eq!(exit, Exit::Yes, "{screen}");
}
