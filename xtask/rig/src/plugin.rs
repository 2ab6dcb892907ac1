//! One execution of a CNI plugin as a container runtime does it: variables, a configuration on standard input, an answer.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use dormouse_world::enter;
use serde_json::{Value, json};

use crate::binaries;

/// A call that is being prepared.
#[derive(Clone, Debug)]
pub struct Call {
    netns: Option<PathBuf>,
    binary: PathBuf,
    environment: BTreeMap<&'static str, String>,
    conf: Value,
    stdin: Option<Vec<u8>>,
}

impl Call {
    /// A call of our plugin in the calling thread's namespace.
    pub fn new(command: &str, conf: Value) -> Self {
        Self {
            netns: None,
            binary: binaries::plugin().to_owned(),
            environment: BTreeMap::from([("CNI_COMMAND", command.to_owned())]),
            conf,
            stdin: None,
        }
    }

    /// The configuration of our plugin for the network `pods`.
    pub fn network(socket: &Path, state_dir: &Path) -> Value {
        json!({
            "cniVersion": "1.1.0", "name": "pods", "type": "dormouse",
            "socket": socket, "stateDir": state_dir,
        })
    }

    /// Executes it in another namespace: the node's.
    #[must_use]
    pub fn on(mut self, netns: &Path) -> Self {
        self.netns = Some(netns.to_owned());
        self
    }

    /// Names the attachment: interface eth0 of this container.
    #[must_use]
    pub fn attachment(self, id: &str, netns: &Path) -> Self {
        self.env("CNI_CONTAINERID", id)
            .env("CNI_IFNAME", "eth0")
            .env("CNI_NETNS", netns.to_str().unwrap())
    }

    /// Executes another plugin.
    #[must_use]
    pub fn binary(mut self, path: &Path) -> Self {
        path.clone_into(&mut self.binary);
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: &'static str, value: &str) -> Self {
        self.environment.insert(name, value.to_owned());
        self
    }

    /// Takes a variable out.
    #[must_use]
    pub fn unset(mut self, name: &'static str) -> Self {
        self.environment.remove(name);
        self
    }

    /// The configuration as it will be sent.
    pub fn configuration(&self) -> &Value {
        &self.conf
    }

    /// Sets keys of the configuration.
    #[must_use]
    pub fn conf(mut self, more: &Value) -> Self {
        for (key, value) in more.as_object().unwrap() {
            self.conf[key] = value.clone();
        }
        self
    }

    /// Replaces the configuration.
    #[must_use]
    pub fn with_conf(mut self, conf: Value) -> Self {
        self.conf = conf;
        self
    }

    /// Takes a key out of the configuration.
    #[must_use]
    pub fn without(mut self, key: &str) -> Self {
        self.conf.as_object_mut().unwrap().remove(key);
        self
    }

    /// Sends this instead of the configuration.
    #[must_use]
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(bytes.into());
        self
    }

    /// The command, about to be executed; what is not set here is not set for the plugin.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.binary);
        command.env_clear().envs(&self.environment);
        // A group of its own, so that a delegate dies with it.
        command.process_group(0);
        command
    }

    /// Starts it with these streams.
    pub fn spawn(&self, stdin: Stdio, stdout: Stdio, stderr: Stdio) -> Child {
        let mut command = self.command();
        command.stdin(stdin).stdout(stdout).stderr(stderr);
        let spawned = match &self.netns {
            Some(netns) => enter(netns, || command.spawn()).unwrap(),
            None => command.spawn(),
        };
        spawned.unwrap_or_else(|error| panic!("{}: {error}", self.binary.display()))
    }

    /// Starts it; its configuration is written, its input stays open.
    pub fn open(&self) -> Child {
        let mut child = self.spawn(Stdio::piped(), Stdio::piped(), Stdio::piped());
        self.write(&mut child);
        child
    }

    /// Starts it, its configuration written and its input closed.
    pub fn start(&self) -> Child {
        let mut child = self.open();
        drop(child.stdin.take());
        child
    }

    /// Writes the configuration, then closes the plugin's input.
    pub fn feed(&self, child: &mut Child) {
        self.write(child);
        drop(child.stdin.take());
    }

    fn write(&self, child: &mut Child) {
        let conf = self.conf.to_string().into_bytes();
        let bytes = self.stdin.as_deref().unwrap_or(&conf);
        // A plugin may answer without reading.
        let _ = child.stdin.as_mut().unwrap().write_all(bytes);
    }

    /// Executes it to its end.
    pub fn run(&self) -> Output {
        self.start().wait_with_output().unwrap()
    }

    /// Executes it and expects success; its answer, or null if there is none.
    pub fn succeeds(&self) -> Value {
        let output = self.run();
        let text = String::from_utf8(output.stdout).unwrap();
        let log = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}{log}");
        if text.is_empty() {
            return Value::Null;
        }
        serde_json::from_str(&text).unwrap()
    }
}

/// The first address in ADD's result.
pub fn address_of(result: &Value) -> IpAddr {
    let text = result["ips"][0]["address"].as_str().unwrap();
    let (address, _length) = text.split_once('/').unwrap();
    address.parse().unwrap()
}
