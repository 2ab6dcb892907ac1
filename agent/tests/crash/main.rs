//! SIGKILL at every system call of ADD and DEL: of the plugin, and of the agent. Whether the runtime requests DEL then or
//! never does, no lease, link, neighbour, route, entry of the data path or file is left in the end.
//!
//! The kill comes when a call begins, which is not carried out then. What a process does between two calls is seen by
//! no other process, so these are all possible states.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod agent;
mod node;
mod trace;

use std::io::Write;

use dormouse_rig::on_node;
use node::{Node, Pod, Verb};
use trace::{Kill, Traced};

/// A run that ends before its kill is tried again so often: threads do not take turns in the same way each time.
const TRIES: usize = 5;

/// Calls that were killed, and what they left.
#[derive(Default)]
struct Tally {
    hit: usize,
    /// What one whole run does, as strace and a run to the end count it; of agents without calls that only wait.
    least: usize,
    leaks: Vec<String>,
}

impl Tally {
    fn note(&mut self, at: usize, traced: &Traced, ending: &str, left: Result<(), Vec<String>>) {
        if let Err(left) = left {
            let call = traced.calls.last();
            self.leaks.push(format!(
                "at call {at} ({call:?}), then {ending}: {}",
                left.join("; ")
            ));
        }
    }

    fn report(self, what: &str) {
        let (hit, least, leaks) = (self.hit, self.least, self.leaks.len());
        let mut out = std::io::stdout();
        writeln!(
            out,
            "{what}: killed at {hit} calls, of at least {least}; {leaks} leaks"
        )
        .unwrap();
        assert!(self.leaks.is_empty(), "{what}\n{}", self.leaks.join("\n"));
        assert!(
            self.hit >= self.least,
            "{what}: some calls were not reached"
        );
    }
}

fn play(test: &'static str, play: fn(&mut Node<'_>)) {
    agent::become_one();
    on_node(move |host| play(&mut Node::start(host, Some(test))));
}

/// Plugins that are killed: first with a runtime that requests DEL each time, then with one that never does; then the next
/// agent finds the dead namespaces.
fn kill_plugins(node: &mut Node<'_>, verb: Verb) {
    let mut tally = Tally::default();
    let home = node.pod("home");
    prepare(node, verb, &home);
    tally.least = node.strace(verb, &home);
    node.ok(Verb::Del, &home);
    for at in 1.. {
        let pod = home.named(&format!("asked{at}"));
        prepare(node, verb, &pod);
        let traced = node.kill_plugin(verb, &pod, Some(Kill::at(at)));
        node.ok(Verb::Del, &pod);
        tally.note(at, &traced, "DEL", gone(node, &home));
        if !traced.killed {
            break;
        }
        tally.hit += 1;
    }
    for at in 1..=tally.hit {
        let pod = node.pod(&format!("silent{at}"));
        prepare(node, verb, &pod);
        node.kill_plugin(verb, &pod, Some(Kill::at(at)));
        pod.end();
    }
    let stay = node.wait_for_links();
    tally.note(0, &Traced::default(), "no DEL for any", stay);
    node.kill_agent();
    node.start_agent();
    let left = node.clears();
    tally.note(0, &Traced::default(), "no DEL for any", left);
    home.end();
    tally.report(&format!("plugin, {verb:?}"));
}

/// Agents that are killed: with a runtime that requests DEL when the next one runs, then with one that ends the pod and
/// never does.
fn kill_agents(node: &mut Node<'_>, verb: Verb) {
    let mut tally = Tally::default();
    let home = node.pod("home");
    prepare(node, verb, &home);
    tally.least = node.strace_agent(verb, &home);
    node.ok(Verb::Del, &home);
    let mut calls = 0;
    for dry in 0..3 {
        let pod = home.named(&format!("dry{dry}"));
        prepare(node, verb, &pod);
        let traced = node.kill_agent_at(verb, &pod, None);
        node.start_agent();
        node.ok(Verb::Del, &pod);
        calls = calls.max(traced.calls.len());
        tally.least = tally.least.min(traced.acts());
    }
    let (mut at, mut tries) = (1, 0);
    while tries < TRIES {
        let crash = Crash { verb, at };
        let ran = ask_again(node, crash, &home, &mut tally) && never_ask(node, crash, &mut tally);
        if ran {
            tries += 1;
            // Runs differ in length: past the longest, one more is enough.
            if at > calls {
                break;
            }
        } else {
            (at, tries) = (at + 1, 0);
        }
    }
    tally.hit = at - 1;
    home.end();
    tally.report(&format!("agent, {verb:?}"));
}

/// Where an agent is killed.
#[derive(Clone, Copy)]
struct Crash {
    verb: Verb,
    /// Number of the system call.
    at: usize,
}

/// Kills the agent; the runtime requests DEL when the next one runs. Whether the request was served before the call.
fn ask_again(node: &mut Node<'_>, crash: Crash, home: &Pod, tally: &mut Tally) -> bool {
    let Crash { verb, at } = crash;
    let pod = home.named(&format!("asked{at}"));
    prepare(node, verb, &pod);
    let traced = node.kill_agent_at(verb, &pod, Some(Kill::at(at)));
    let acknowledged = traced.other == Some(0);
    node.start_agent();
    let left = node.left();
    match verb {
        Verb::Add if acknowledged && left.is_empty() => {
            tally.note(
                at,
                &traced,
                "a restart",
                Err(vec!["an acknowledged pod is gone".to_owned()]),
            );
        }
        Verb::Add if !node.is_consistent() => tally.note(at, &traced, "a restart", Err(left)),
        Verb::Del if acknowledged => tally.note(at, &traced, "a restart", gone(node, home)),
        _ => {}
    }
    node.ok(Verb::Del, &pod);
    tally.note(at, &traced, "DEL", gone(node, home));
    !traced.killed
}

/// Kills the agent; the pod ends before the next one runs, and the runtime never requests DEL.
fn never_ask(node: &mut Node<'_>, crash: Crash, tally: &mut Tally) -> bool {
    let Crash { verb, at } = crash;
    let pod = node.pod(&format!("silent{at}"));
    prepare(node, verb, &pod);
    let traced = node.kill_agent_at(verb, &pod, Some(Kill::at(at)));
    pod.end();
    tally.note(at, &traced, "no DEL", node.wait_for_links());
    node.start_agent();
    tally.note(at, &traced, "no DEL", node.clears());
    !traced.killed
}

/// System calls by which an agent adds a pod to the data path.
const TABLE_CALLS: [i64; 2] = [libc::SYS_bpf, libc::SYS_unlink];

/// Whole agents that are killed where they change the data path; the runtime requests DEL when the next one runs.
fn kill_whole_agents(node: &mut Node<'_>, verb: Verb) {
    let mut tally = Tally::default();
    let home = node.pod("home");
    for at in 1.. {
        let pod = home.named(&format!("{verb:?}{at}"));
        prepare(node, verb, &pod);
        let kill = Kill {
            at,
            of: &TABLE_CALLS,
        };
        let traced = node.kill_agent_at(verb, &pod, Some(kill));
        node.start_agent();
        let left = node.left();
        if verb == Verb::Add && !node.is_consistent() {
            tally.note(at, &traced, "a restart", Err(left));
        }
        node.ok(Verb::Del, &pod);
        tally.note(at, &traced, "DEL", gone(node, &home));
        if !traced.killed {
            break;
        }
        tally.hit += 1;
    }
    // A row, two links and their pins, each way.
    tally.least = if verb == Verb::Add { 2 } else { 1 };
    home.end();
    tally.report(&format!("whole agent, {verb:?}, at calls to the data path"));
}

/// What has to be there to be deleted.
fn prepare(node: &Node<'_>, verb: Verb, pod: &Pod) {
    if verb == Verb::Del {
        node.ok(Verb::Add, pod);
    }
}

/// Whether nothing is left on the node and in the namespace.
fn gone(node: &Node<'_>, home: &Pod) -> Result<(), Vec<String>> {
    node.clears()?;
    let inside = home.inside();
    if inside.is_empty() {
        Ok(())
    } else {
        Err(vec![format!("inside the pod: {}", inside.join(", "))])
    }
}

#[test]
fn a_plugin_killed_in_add_leaves_nothing() {
    play("a_plugin_killed_in_add_leaves_nothing", |node| {
        kill_plugins(node, Verb::Add);
    });
}

#[test]
fn a_plugin_killed_in_delete_leaves_nothing() {
    play("a_plugin_killed_in_delete_leaves_nothing", |node| {
        kill_plugins(node, Verb::Del);
    });
}

#[test]
fn an_agent_killed_in_add_leaves_nothing() {
    play("an_agent_killed_in_add_leaves_nothing", |node| {
        kill_agents(node, Verb::Add);
    });
}

#[test]
fn an_agent_killed_in_delete_leaves_nothing() {
    play("an_agent_killed_in_delete_leaves_nothing", |node| {
        kill_agents(node, Verb::Del);
    });
}

/// Without an agent the plugin notes what is to be deleted; a note that is cut off is none, and leaves no file.
#[test]
fn a_plugin_killed_while_no_agent_runs_leaves_nothing() {
    play(
        "a_plugin_killed_while_no_agent_runs_leaves_nothing",
        |node| {
            let mut tally = Tally::default();
            let home = node.pod("home");
            node.kill_agent();
            tally.least = node.strace(Verb::Del, &home);
            for at in 1.. {
                let pod = home.named(&format!("noted{at}"));
                if !node.kill_plugin(Verb::Del, &pod, Some(Kill::at(at))).killed {
                    break;
                }
                tally.hit += 1;
            }
            node.start_agent();
            tally.note(0, &Traced::default(), "a start", node.clears());
            home.end();
            tally.report("plugin without an agent, Del");
        },
    );
}

/// A node with the agent's own binary.
fn play_whole(play: fn(&mut Node<'_>)) {
    on_node(move |host| play(&mut Node::start(host, None)));
}

#[test]
fn a_whole_agent_killed_in_add_where_it_changes_the_data_path_leaves_nothing() {
    play_whole(|node| kill_whole_agents(node, Verb::Add));
}

#[test]
fn a_whole_agent_killed_in_delete_where_it_changes_the_data_path_leaves_nothing() {
    play_whole(|node| kill_whole_agents(node, Verb::Del));
}
