//! Calls the real plugin as a container runtime does.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::node::{Netns, Node};

/// The plugin beside this test, built first: cargo builds binaries only for tests of their own package.
pub(crate) fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let test = std::env::current_exe().unwrap();
        let profile = test.ancestors().nth(2).unwrap();
        let target = profile.parent().unwrap();
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml");
        let mut build = Command::new(env!("CARGO"));
        build.args([
            "build",
            "--quiet",
            "--package",
            "dormouse-cni",
            "--manifest-path",
            manifest,
        ]);
        build.arg("--target-dir").arg(target);
        if profile.ends_with("release") {
            build.arg("--release");
        }
        assert!(build.status().unwrap().success(), "dormouse-cni builds");
        profile.join("dormouse-cni")
    })
}

/// One call that is being prepared.
pub(crate) struct Call<'a> {
    node: &'a Node,
    environment: BTreeMap<&'static str, String>,
    conf: Value,
    stdin: Option<String>,
    program: PathBuf,
}

impl<'a> Call<'a> {
    fn new(node: &'a Node, command: &str) -> Self {
        let conf = json!({
            "cniVersion": "1.1.0",
            "name": "pods",
            "type": "dormouse",
            "socket": node.socket(),
            "stateDir": node.state_dir(),
        });
        let environment = BTreeMap::from([("CNI_COMMAND", command.to_owned())]);
        Self {
            node,
            environment,
            conf,
            stdin: None,
            program: binary().to_owned(),
        }
    }

    pub(crate) fn add(node: &'a Node, id: &str, pod: &Netns) -> Self {
        Self::del(node, id)
            .env("CNI_COMMAND", "ADD")
            .env("CNI_NETNS", pod.path().to_str().unwrap())
    }

    pub(crate) fn check(node: &'a Node, id: &str, pod: &Netns, result: &Value) -> Self {
        Self::add(node, id, pod)
            .env("CNI_COMMAND", "CHECK")
            .conf(&json!({"prevResult": result}))
    }

    pub(crate) fn del(node: &'a Node, id: &str) -> Self {
        Self::new(node, "DEL")
            .env("CNI_CONTAINERID", id)
            .env("CNI_IFNAME", "eth0")
    }

    pub(crate) fn status(node: &'a Node) -> Self {
        Self::new(node, "STATUS")
    }

    pub(crate) fn gc(node: &'a Node, conf: &Value) -> Self {
        Self::new(node, "GC").conf(conf)
    }

    pub(crate) fn env(mut self, name: &'static str, value: &str) -> Self {
        self.environment.insert(name, value.to_owned());
        self
    }

    /// Sets keys of the configuration.
    pub(crate) fn conf(mut self, more: &Value) -> Self {
        for (key, value) in more.as_object().unwrap() {
            self.conf[key] = value.clone();
        }
        self
    }

    /// Sends this instead of a configuration.
    pub(crate) fn stdin(mut self, text: &str) -> Self {
        self.stdin = Some(text.to_owned());
        self
    }

    /// The plugin keeps addresses for the pods of a reference plugin.
    pub(crate) fn delegated(mut self) -> Self {
        self.conf = json!({
            "cniVersion": "1.0.0",
            "name": "pods",
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": true,
            "ipam": {
                "type": "dormouse-cni",
                "socket": self.node.socket(),
                "stateDir": self.node.state_dir(),
            },
        });
        self
    }

    /// Executes another plugin on the node, which finds ours by `CNI_PATH`.
    pub(crate) fn by(mut self, program: &str) -> Self {
        self.program = PathBuf::from("/usr/lib/cni").join(program);
        let folder = binary().parent().unwrap().to_str().unwrap();
        self.env("CNI_PATH", folder)
    }

    /// Lets the plugin start an agent of its own where none answers.
    pub(crate) fn offline(self) -> Self {
        let agent = env!("CARGO_BIN_EXE_dormouse-agent");
        let options = json!({"fallback": "offline", "agent": agent});
        let Some(mut ipam) = self.conf.get("ipam").cloned() else {
            return self.conf(&options);
        };
        for (key, value) in options.as_object().unwrap() {
            ipam[key] = value.clone();
        }
        self.conf(&json!({"ipam": ipam}))
    }

    /// Starts the plugin on the node; its standard input has the configuration and stays open.
    pub(crate) fn spawn(&self) -> Child {
        let stdin = self.stdin.clone().unwrap_or_else(|| self.conf.to_string());
        self.node.netns().inside(|| {
            let mut child = Command::new(&self.program)
                .envs(&self.environment)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()?;
            // The plugin may answer without reading.
            let _ = child.stdin.as_mut().unwrap().write_all(stdin.as_bytes());
            Ok(child)
        })
    }

    /// Executes the plugin on the node.
    pub(crate) fn run(self) -> Output {
        self.spawn().wait_with_output().unwrap()
    }

    /// Expects success; the answer, or null if there is none.
    pub(crate) fn ok(self) -> Value {
        let output = self.run();
        let text = String::from_utf8(output.stdout).unwrap();
        let log = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}{log}");
        if text.is_empty() {
            Value::Null
        } else {
            serde_json::from_str(&text).unwrap()
        }
    }

    /// Expects an error with this code and this part in its message.
    pub(crate) fn fails(self, code: u32, part: &str) {
        let output = self.run();
        assert!(!output.status.success());
        let error: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(error["code"], code, "{error}");
        assert!(error["msg"].as_str().unwrap().contains(part), "{error}");
        assert!(error["cniVersion"].is_string(), "{error}");
    }
}

/// The address in ADD's result.
pub(crate) fn address_of(result: &Value) -> Ipv6Addr {
    let text = result["ips"][0]["address"].as_str().unwrap();
    let (address, _length) = text.split_once('/').unwrap();
    address.parse().unwrap()
}
