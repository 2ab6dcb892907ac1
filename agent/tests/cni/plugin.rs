//! Calls the real plugin as a container runtime does.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
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

    /// Executes the plugin on the node.
    pub(crate) fn run(self) -> Output {
        let stdin = self.stdin.unwrap_or_else(|| self.conf.to_string());
        let (binary, environment) = (binary(), &self.environment);
        self.node.netns().inside(|| {
            let mut child = Command::new(binary)
                .envs(environment)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()?;
            // The plugin may answer without reading.
            let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
            child.wait_with_output()
        })
    }

    /// Expects success; the answer, or null if there is none.
    pub(crate) fn ok(self) -> Value {
        let output = self.run();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
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
    text.strip_suffix("/128").unwrap().parse().unwrap()
}
