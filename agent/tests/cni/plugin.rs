//! Calls of the real plugin on a node, and what is expected of them.

use std::net::{IpAddr, Ipv6Addr};

pub(crate) use dormouse_rig::Call;
use dormouse_rig::{Netns, binaries, plugin};
use serde_json::{Value, json};

use crate::node::Node;

/// Calls for a node's attachments.
pub(crate) trait Attach: Sized {
    fn add(node: &Node, id: &str, pod: &Netns) -> Self;
    fn check(node: &Node, id: &str, pod: &Netns, result: &Value) -> Self;
    fn del(node: &Node, id: &str) -> Self;
    fn status(node: &Node) -> Self;
    fn gc(node: &Node, conf: &Value) -> Self;

    /// The plugin keeps addresses for the pods of a reference plugin.
    fn delegated(self) -> Self;

    /// Executes a reference plugin, which finds ours by `CNI_PATH`.
    fn by(self, program: &str) -> Self;

    /// Lets the plugin start an agent of its own where none answers.
    fn offline(self) -> Self;

    /// Expects success; the answer, or null if there is none.
    fn ok(self) -> Value;

    /// Expects an error with this code and this part in its message.
    fn fails(self, code: u32, part: &str);
}

fn call(node: &Node, command: &str) -> Call {
    let conf = Call::network(&node.socket(), node.state_dir());
    Call::new(command, conf).on(node.netns().path())
}

impl Attach for Call {
    fn add(node: &Node, id: &str, pod: &Netns) -> Self {
        call(node, "ADD").attachment(id, pod.path())
    }

    fn check(node: &Node, id: &str, pod: &Netns, result: &Value) -> Self {
        let call = call(node, "CHECK").attachment(id, pod.path());
        call.conf(&json!({"prevResult": result}))
    }

    fn del(node: &Node, id: &str) -> Self {
        call(node, "DEL")
            .env("CNI_CONTAINERID", id)
            .env("CNI_IFNAME", "eth0")
    }

    fn status(node: &Node) -> Self {
        call(node, "STATUS")
    }

    fn gc(node: &Node, conf: &Value) -> Self {
        call(node, "GC").conf(conf)
    }

    fn delegated(self) -> Self {
        let conf = self.configuration();
        let conf = json!({
            "cniVersion": "1.0.0",
            "name": "pods",
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": true,
            "ipam": {
                "type": "dormouse-cni",
                "socket": conf["socket"],
                "stateDir": conf["stateDir"],
            },
        });
        self.with_conf(conf)
    }

    fn by(self, program: &str) -> Self {
        let folder = binaries::plugin().parent().unwrap().to_str().unwrap();
        self.binary(&binaries::reference_plugins().join(program))
            .env("CNI_PATH", folder)
    }

    fn offline(self) -> Self {
        let options = json!({"fallback": "offline", "agent": binaries::agent()});
        let Some(mut ipam) = self.configuration().get("ipam").cloned() else {
            return self.conf(&options);
        };
        for (key, value) in options.as_object().unwrap() {
            ipam[key] = value.clone();
        }
        self.conf(&json!({"ipam": ipam}))
    }

    fn ok(self) -> Value {
        self.succeeds()
    }

    fn fails(self, code: u32, part: &str) {
        let output = self.run();
        assert!(!output.status.success());
        let error: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(error["code"], code, "{error}");
        assert!(error["msg"].as_str().unwrap().contains(part), "{error}");
        assert!(error["cniVersion"].is_string(), "{error}");
    }
}

/// The IPv6 address in ADD's result.
pub(crate) fn address_of(result: &Value) -> Ipv6Addr {
    match plugin::address_of(result) {
        IpAddr::V6(address) => address,
        IpAddr::V4(address) => panic!("the first address is {address}"),
    }
}
