//! A node with the real agent, and pods that it wires.

use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use dormouse_cni::message::{Attachment, Reply, Request, Wanted};
use dormouse_cni::wire;
use dormouse_rig::{Agent, Netns, OwnedHome};

use crate::host;

/// The interface to the outside of every node.
pub(crate) const UPLINK: &str = "up0";

/// How a node's agent is run.
#[derive(Clone)]
pub(crate) struct Flags {
    pub(crate) profile: &'static str,
    pub(crate) prefix: &'static str,
    pub(crate) address: Ipv6Addr,
}

/// A node; its agent runs from [`Node::start`] on.
pub(crate) struct Node {
    agent: Option<Agent>,
    home: OwnedHome,
    pub(crate) netns: Netns,
    flags: Flags,
    more: Vec<&'static str>,
}

/// A pod.
pub(crate) struct Pod {
    pub(crate) netns: Netns,
    pub(crate) address: Ipv6Addr,
}

impl Node {
    pub(crate) fn new(netns: Netns, flags: Flags) -> Self {
        Self {
            home: OwnedHome::new(netns.name()),
            netns,
            flags,
            more: Vec::new(),
            agent: None,
        }
    }

    /// Gives its agent these flags, too.
    pub(crate) fn also(mut self, more: &[&'static str]) -> Self {
        self.more.extend(more);
        self
    }

    /// Runs the agent until it serves.
    pub(crate) fn start(&mut self) {
        let mut command = self.home.command(&["run", "--runtime", "none"]);
        command
            .args(["--uplink", UPLINK, "--metrics", "[::1]:10249"])
            .args(["--network-profile", self.flags.profile])
            .args(["--prefix", self.flags.prefix])
            .args(&self.more)
            .args(["--address", &self.flags.address.to_string()]);
        let start = || Agent::serving(&mut command, &self.home.socket());
        self.agent = Some(self.netns.enter(start));
        assert_eq!(self.fault(), None);
    }

    /// Why the node cannot take pods (STATUS).
    pub(crate) fn fault(&self) -> Option<String> {
        match self.ask(&Request::Status {}, None) {
            Reply::Done => None,
            Reply::Failed(error) => Some(error.msg),
            other => panic!("{other:?}"),
        }
    }

    /// Kills it, as a crash would.
    pub(crate) fn kill(&mut self) {
        self.agent = None;
    }

    /// Removes everything that the agent made, running pods' networks too; returns the output.
    pub(crate) fn uninstall(&self) -> String {
        let mut command = self.home.command(&["uninstall", "--force"]);
        let output = self.netns.inside(|| command.output());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Wires a pod.
    pub(crate) fn add(&self, name: &str) -> Pod {
        self.add_at(name, None)
    }

    /// Wires a pod at a certain address.
    pub(crate) fn add_at(&self, name: &str, address: Option<Ipv6Addr>) -> Pod {
        let netns = host(name);
        let request = Request::Add {
            attachment: attachment(name),
            wanted: Wanted {
                addresses: address.map(IpAddr::V6).into_iter().collect(),
                ..Wanted::default()
            },
        };
        match self.ask(&request, Some(&netns)) {
            Reply::Wired(wired) => Pod {
                netns,
                address: wired.address,
            },
            other => panic!("{other:?}"),
        }
    }

    /// Unwires it.
    pub(crate) fn del(&self, name: &str) {
        let attachment = attachment(name);
        let reply = self.ask(&Request::Del { attachment }, None);
        assert!(matches!(reply, Reply::Done), "{reply:?}");
    }

    fn ask(&self, request: &Request, pod: Option<&Netns>) -> Reply {
        let stream = UnixStream::connect(self.home.socket()).unwrap();
        let netns = pod.map(|pod| pod.file().as_fd());
        wire::send_request(&stream, request, netns).unwrap();
        wire::receive_reply(&stream).unwrap()
    }

    /// The addresses in whose groups it is on behalf of pods.
    pub(crate) fn groups(&self) -> Vec<Ipv6Addr> {
        let entries = self.netns.ip("-6 neighbour show proxy");
        let words = entries.lines().filter_map(|line| line.split(' ').next());
        let mut pods: Vec<_> = words.map(|word| word.parse().unwrap()).collect();
        pods.sort();
        pods
    }
}

fn attachment(name: &str) -> Attachment {
    Attachment {
        network: "pods".into(),
        container_id: name.into(),
        ifname: "eth0".into(),
    }
}
