//! The node of one case, the plugin under test, and one version of the specification.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use dormouse_rig::{Call, Netns};
use serde_json::{Value, json};

use crate::conformance::call::Judge as _;
use crate::conformance::check::{Outcome, holds};
use crate::conformance::kernel::World;
use crate::conformance::subject::Subject;
use crate::node::Node;

/// The network that cases use unless they name another.
pub(crate) const NETWORK: &str = "pods";

/// How long the kernel may take to remove what belongs to a dead namespace, and a plugin to end.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// The node of a case.
pub(crate) struct Stage<'s> {
    pub(crate) subject: &'s Subject,
    pub(crate) version: String,
    pub(crate) node: Node,
}

impl<'s> Stage<'s> {
    pub(crate) fn open(subject: &'s Subject, version: &str) -> Self {
        Self {
            subject,
            version: version.to_owned(),
            node: Node::start(),
        }
    }

    /// The plain configuration of the plugin under test.
    pub(crate) fn conf(&self) -> Value {
        let mut conf = (self.subject.conf)(&self.node);
        conf["cniVersion"] = self.version.clone().into();
        conf["name"] = NETWORK.into();
        conf
    }

    pub(crate) fn pod(&self, name: &str) -> Netns {
        self.node.pod(name)
    }

    pub(crate) fn call(&self, command: &str) -> Call {
        Call::new(command, self.conf())
            .env("CNI_PATH", &self.subject.path)
            .binary(&self.subject.binary)
            .on(self.node.netns().path())
    }

    fn attachment(&self, command: &str, id: &str, pod: &Netns) -> Call {
        self.call(command).attachment(id, pod.path())
    }

    pub(crate) fn add(&self, id: &str, pod: &Netns) -> Call {
        self.attachment("ADD", id, pod)
    }

    /// As runtimes do from 0.4.0 on, with ADD's result.
    pub(crate) fn del(&self, id: &str, pod: &Netns, result: &Value) -> Call {
        self.attachment("DEL", id, pod)
            .conf(&json!({"prevResult": result}))
    }

    pub(crate) fn check(&self, id: &str, pod: &Netns, result: &Value) -> Call {
        self.attachment("CHECK", id, pod)
            .conf(&json!({"prevResult": result}))
    }

    /// Garbage collection that keeps these (container id, interface).
    pub(crate) fn gc(&self, valid: &[(&str, &str)]) -> Call {
        let items = valid
            .iter()
            .map(|(id, ifname)| json!({"containerID": id, "ifname": ifname}));
        let list: Value = items.collect();
        // libcni sends both keys.
        self.call("GC")
            .conf(&json!({"cni.dev/valid-attachments": list, "cni.dev/attachments": list}))
    }

    /// What there is on the node, with the addresses that are taken.
    pub(crate) fn world(&self) -> World {
        let leases = (self.subject.leases)(&self.node);
        World::of(self.node.netns()).with(leases.into_iter().map(|at| format!("lease {at}")))
    }

    /// The node as it is once it has wired a pod and let it go: bridges and gateways stay.
    pub(crate) fn settled(&self) -> Outcome<World> {
        let pod = self.pod("first");
        let result = self.add("first", &pod).ok()?;
        self.del("first", &pod, &result).silent()?;
        Ok(self.world())
    }

    /// Waits until the node is as it was: the kernel takes its time with a dead namespace.
    pub(crate) fn becomes(&self, before: &World) -> Outcome {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let seen = self.world().is_as(before);
            if seen.is_ok() || Instant::now() > deadline {
                return seen;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until the kernel has taken away the links that were not there before.
    pub(crate) fn links_go(&self, before: &World) -> Outcome {
        let gone = || World::of(self.node.netns()).links() == before.links();
        let deadline = Instant::now() + PATIENCE;
        while !gone() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        holds(gone(), || "the links of a dead namespace stay".to_owned())
    }

    /// CHECK, where the version has it.
    pub(crate) fn check_if_known(&self, id: &str, pod: &Netns, result: &Value) -> Outcome {
        if self.version.as_str() < "0.4.0" {
            return Ok(());
        }
        self.check(id, pod, result).silent()
    }

    /// Restarts the daemon behind the plugin, if it has one.
    pub(crate) fn restart_daemon(&mut self) {
        if self.subject.daemon {
            self.node.restart();
        }
    }

    /// The daemon behind the plugin goes away.
    pub(crate) fn stop_daemon(&mut self) -> Outcome {
        holds(self.subject.daemon, || "there is no daemon".to_owned())?;
        self.node.stop();
        Ok(())
    }
}

/// The addresses of a result of 0.3.0 or newer, with their prefix lengths.
pub(crate) fn addresses(result: &Value) -> Vec<&str> {
    let ips = result["ips"].as_array().into_iter().flatten();
    ips.filter_map(|ip| ip["address"].as_str()).collect()
}

/// Its first address.
pub(crate) fn address(result: &Value) -> Outcome<IpAddr> {
    let text = addresses(result).first().copied().unwrap_or_default();
    let parsed = text.split('/').next().and_then(|at| at.parse().ok());
    parsed.ok_or_else(|| format!("no address in {result}"))
}
