//! A node whose agent and plugins are killed, and what is left on it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Instant;

use dormouse_agent_datapath::Pinned;
use dormouse_agent_ipam::journal;
use dormouse_agent_ipam::record::Record;
use dormouse_agent_pod::network::BRIDGE_DEFAULT;
use dormouse_rig::netns::links;
use dormouse_rig::{Agent, Call, Netns, Node as Host, PATIENCE, binaries, ip, wait};
use nix::unistd::Pid;
use serde_json::Value;

use crate::agent::{start, start_whole, table};
use crate::trace::{self, Kill, Traced};

/// A command of the runtime for the plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Add,
    Del,
}

/// A node.
pub(crate) struct Node<'a> {
    host: &'a Host,
    /// What becomes the agent: the agent's own binary, or the test of this name.
    test: Option<&'static str>,
    agent: Option<Agent>,
    /// What is there without any pod.
    bare: BTreeSet<String>,
    /// What one pod has, by kind.
    whole: BTreeMap<String, usize>,
}

/// A pod's namespace.
pub(crate) struct Pod {
    pub(crate) id: String,
    netns: Rc<Netns>,
}

impl Pod {
    /// Another one in the same namespace, when the first is gone.
    pub(crate) fn named(&self, id: &str) -> Self {
        Self {
            id: id.to_owned(),
            netns: Rc::clone(&self.netns),
        }
    }

    /// Interfaces inside a pod, beside loopback.
    pub(crate) fn inside(&self) -> Vec<String> {
        let mut links = self.netns.links();
        links.retain(|name| name != "lo");
        links
    }

    /// The runtime removes the namespace.
    pub(crate) fn end(self) {
        drop(self);
    }
}

impl<'a> Node<'a> {
    /// A node with an agent, on which one pod has come and gone.
    pub(crate) fn start(host: &'a Host, test: Option<&'static str>) -> Self {
        host.take_address();
        fs::create_dir(table(host.dir())).unwrap();
        let conf = Call::network(&host.home().socket(), &host.home().state_dir());
        let (bare, whole) = (BTreeSet::new(), BTreeMap::new());
        let mut node = Self {
            host,
            test,
            agent: None,
            bare,
            whole,
        };
        fs::write(node.conf(), conf.to_string()).unwrap();
        node.start_agent();
        let pod = node.pod("first");
        let before = node.look();
        node.ok(Verb::Add, &pod);
        node.whole = kinds(&node.look(), &before);
        node.ok(Verb::Del, &pod);
        node.bare = node.look();
        assert_eq!(
            kinds(&node.bare, &before),
            BTreeMap::new(),
            "a pod that is deleted leaves nothing"
        );
        // A kind that is not seen here could leak unseen.
        let seen: Vec<&str> = node.whole.keys().map(String::as_str).collect();
        assert_eq!(seen, ["lease", "link", "neighbour", "route", "table"]);
        pod.end();
        node
    }

    pub(crate) fn start_agent(&mut self) {
        self.agent = Some(match self.test {
            Some(test) => start(test, self.host.dir()),
            None => start_whole(self.host),
        });
    }

    /// SIGKILL.
    pub(crate) fn kill_agent(&mut self) {
        self.agent = None;
    }

    /// An empty namespace for a pod; its name is part of a path and of a container id.
    pub(crate) fn pod(&self, id: &str) -> Pod {
        Pod {
            id: id.to_owned(),
            netns: Rc::new(self.host.pod(id)),
        }
    }

    /// The plugin, about to be executed.
    pub(crate) fn plugin(&self, verb: Verb, pod: &Pod) -> Command {
        let mut command = self.plugin_by(Command::new(binaries::plugin()), verb, pod);
        command.stdin(File::open(self.conf()).unwrap());
        command
    }

    /// The same, executed by another command.
    pub(crate) fn plugin_by(&self, mut command: Command, verb: Verb, pod: &Pod) -> Command {
        command
            .env("CNI_COMMAND", if verb == Verb::Add { "ADD" } else { "DEL" })
            .env("CNI_CONTAINERID", &pod.id)
            .env("CNI_NETNS", pod.netns.path())
            .env("CNI_IFNAME", "eth0")
            .stdout(File::create(self.answer(&pod.id)).unwrap())
            .stderr(Stdio::null());
        command
    }

    /// How many calls the plugin makes, as strace counts them.
    pub(crate) fn strace(&self, verb: Verb, pod: &Pod) -> usize {
        let counted = self.host.dir().join("counted");
        let mut strace = Command::new("strace");
        strace
            .args(["-f", "-qq", "-c", "-o"])
            .arg(&counted)
            .arg(binaries::plugin())
            .stdin(File::open(self.conf()).unwrap());
        let done = self.plugin_by(strace, verb, pod).status();
        assert!(
            done.expect("strace is installed").success(),
            "{}",
            self.said(pod)
        );
        total(&fs::read_to_string(counted).unwrap())
    }

    /// How many calls the agent makes to serve a request, as strace counts them, without those that only wait.
    pub(crate) fn strace_agent(&self, verb: Verb, pod: &Pod) -> usize {
        let counted = self.host.dir().join("counted");
        let agent = self.agent.as_ref().expect("an agent runs").pid();
        let mut strace = Command::new("strace")
            .args(["-f", "-qq", "-c", "-o"])
            .arg(&counted)
            .args(["-p", &agent.to_string()])
            .spawn()
            .expect("strace is installed");
        wait("strace to hold the agent", || trace::is_held(agent));
        self.ok(verb, pod);
        let strace_pid = Pid::from_raw(i32::try_from(strace.id()).unwrap());
        nix::sys::signal::kill(strace_pid, nix::sys::signal::Signal::SIGINT).unwrap();
        strace.wait().unwrap();
        acts(&fs::read_to_string(counted).unwrap())
    }

    /// The network's configuration.
    fn conf(&self) -> PathBuf {
        self.host.dir().join("conf.json")
    }

    fn answer(&self, id: &str) -> PathBuf {
        self.host.dir().join(format!("answer-{id}"))
    }

    /// The plugin's last answer for a pod.
    pub(crate) fn said(&self, pod: &Pod) -> Value {
        let text = fs::read_to_string(self.answer(&pod.id)).unwrap();
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }

    /// The plugin succeeds.
    pub(crate) fn ok(&self, verb: Verb, pod: &Pod) {
        let done = self.plugin(verb, pod).status().unwrap();
        assert!(done.success(), "{verb:?} {}: {}", pod.id, self.said(pod));
    }

    /// Runs the plugin and kills it at a call.
    pub(crate) fn kill_plugin(&self, verb: Verb, pod: &Pod, at: Option<Kill>) -> Traced {
        let held = trace::held(binaries::plugin(), &self.conf());
        trace::run(&mut self.plugin_by(held, verb, pod), at)
    }

    /// Runs the plugin, and kills the agent at a call that serves it. A request that is served to its end kills it too.
    pub(crate) fn kill_agent_at(&mut self, verb: Verb, pod: &Pod, at: Option<Kill>) -> Traced {
        let mut command = self.plugin(verb, pod);
        // The tracer waits for its end: no other process could, even if this thread panics.
        let agent = self.agent.take().expect("an agent runs").forget();
        trace::serve(agent, at, || {
            #[expect(clippy::zombie_processes, reason = "the tracer waits for it")]
            let plugin = command.spawn().unwrap();
            Pid::from_raw(i32::try_from(plugin.id()).unwrap())
        })
    }

    /// Everything on the node, a line each; the first word is its kind.
    pub(crate) fn look(&self) -> BTreeSet<String> {
        let mut all = BTreeSet::new();
        let interfaces = links().unwrap();
        all.extend(interfaces.iter().map(|name| format!("link {name}")));
        for (kind, family, asked) in [
            ("neighbour", "-6", "neighbour show nud permanent"),
            ("neighbour", "-4", "neighbour show nud permanent"),
            ("route", "-6", "route show table all"),
            ("route", "-4", "route show table all"),
            ("rule", "-6", "rule show"),
        ] {
            let shown = ip(&format!("{family} {asked}"));
            // The kernel's own entries of the uplink come and go at any time.
            let outer = |line: &&str| {
                !line.contains("2001:db8") && (line.contains(" eth0 ") || line.contains(" far "))
            };
            let lines = shown
                .lines()
                .filter(|line| !outer(line))
                .map(|line| line.replace(" linkdown", ""));
            all.extend(lines.map(|line| format!("{kind} {}", line.trim())));
        }
        // Pods that wait for the kernel to let them go may be more than one bridge takes; further bridges stay.
        all.retain(|line| !line.split(' ').any(is_further_bridge));
        all.extend(names(&table(self.host.dir())).map(|name| format!("table {name}")));
        if self.test.is_none() {
            let bpffs = self.host.bpffs();
            all.extend(files(bpffs).map(|path| format!("pin {}", path.display())));
            let pods = Pinned::open(bpffs).unwrap().pods().unwrap();
            all.extend(pods.iter().map(|(address, _)| format!("table {address}")));
        }
        let state = self.host.home().state_dir();
        all.extend(files(&state).map(|path| format!("file {}", path.display())));
        all.extend(leases(&state.join("leases")));
        all
    }

    /// What is there of pods.
    pub(crate) fn left(&self) -> Vec<String> {
        self.look().difference(&self.bare).cloned().collect()
    }

    /// Whether what is left is nothing, or one pod that has all that a pod has.
    pub(crate) fn is_consistent(&self) -> bool {
        let left = kinds(&self.look(), &self.bare);
        left.is_empty() || left == self.whole
    }

    /// Waits until nothing is left; what is, if that does not happen.
    pub(crate) fn clears(&self) -> Result<(), Vec<String>> {
        let deadline = Instant::now() + PATIENCE / 4;
        loop {
            let missing: Vec<String> = self
                .bare
                .difference(&self.look())
                .map(|line| format!("missing: {line}"))
                .collect();
            let left = [self.left(), missing].concat();
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(left);
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }

    /// Waits until no pod's link is there: the kernel removes those of dead namespaces in its own time. Those that stay.
    pub(crate) fn wait_for_links(&self) -> Result<(), Vec<String>> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut links = self.left();
            links.retain(|line| line.starts_with("link "));
            if links.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(links);
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

fn is_further_bridge(word: &str) -> bool {
    word.strip_prefix(BRIDGE_DEFAULT)
        .is_some_and(|number| !number.is_empty())
}

/// The last line of `strace -c`: percent, seconds, microseconds a call, calls, and errors if there were some.
fn total(table: &str) -> usize {
    let last = table
        .lines()
        .rfind(|line| line.ends_with(" total"))
        .expect("strace counts");
    last.split_whitespace().nth(3).unwrap().parse().unwrap()
}

/// The sum of the calls in a table of `strace -c`, without those that only wait.
fn acts(table: &str) -> usize {
    let rows = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let calls = rows.filter_map(|row| {
        let calls: usize = row.get(3)?.parse().ok()?;
        let name = *row.last()?;
        (name != "total" && !trace::WAITING_NAMES.contains(&name)).then_some(calls)
    });
    calls.sum()
}

/// How many lines there are of each kind that were not there before.
fn kinds(now: &BTreeSet<String>, before: &BTreeSet<String>) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    for line in now.difference(before) {
        let kind = line.split(' ').next().unwrap();
        *kinds.entry(kind.to_owned()).or_default() += 1;
    }
    kinds
}

/// The leases after all records of the journal.
fn leases(path: &Path) -> impl Iterator<Item = String> {
    let (records, _) = journal::scan(&fs::read(path).unwrap_or_default()).unwrap();
    let mut leases = BTreeMap::new();
    for record in records {
        match record {
            Record::Reserve(lease) => {
                leases.insert(lease.suffix, (lease.key.clone(), "reserved"));
            }
            Record::Live(suffix) => {
                leases.entry(suffix).and_modify(|lease| lease.1 = "live");
            }
            Record::Release(suffix) => {
                leases
                    .entry(suffix)
                    .and_modify(|lease| lease.1 = "releasing");
            }
            Record::Free(suffix, _) => {
                leases.remove(&suffix);
            }
            _ => {}
        }
    }
    leases
        .into_iter()
        .map(|(suffix, (key, state))| format!("lease {suffix} {key} {state}"))
}

fn names(folder: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
}

/// What the agent keeps for when it is down is no pod's. It is written as a file beside it, which is renamed.
fn is_saved_config(path: &Path) -> bool {
    let name = path.file_name().and_then(OsStr::to_str);
    matches!(name, Some("network.json" | ".network.json.new"))
}

/// All files below a folder.
fn files(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if !is_saved_config(&path) {
                found.push(path);
            }
        }
    }
    found.into_iter()
}
