//! A node with the real agent, and pods that it wires.

use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use dormouse_cni::message::{Attachment, Reply, Request, Wanted};
use dormouse_cni::wire;

use crate::place::{Place, wait};

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
    pub(crate) place: Place,
    flags: Flags,
    folder: tempfile::TempDir,
    cgroup: PathBuf,
    agent: Option<Child>,
}

/// A pod.
pub(crate) struct Pod {
    pub(crate) place: Place,
    pub(crate) address: Ipv6Addr,
}

impl Node {
    pub(crate) fn new(place: Place, flags: Flags) -> Self {
        let cgroup = cgroup_root().join(format!("dormouse-test-{}", place.name()));
        fs::create_dir(&cgroup).unwrap();
        Self {
            place,
            flags,
            folder: tempfile::tempdir().unwrap(),
            cgroup,
            agent: None,
        }
    }

    /// Runs the agent until it serves.
    pub(crate) fn start(&mut self) {
        let mut command = self.command("run");
        command
            .args(["--runtime", "none", "--uplink", UPLINK])
            .args(["--network-profile", self.flags.profile])
            .args(["--prefix", self.flags.prefix])
            .args(["--address", &self.flags.address.to_string()])
            .args(["--metrics", "[::1]:10249"])
            .stdin(Stdio::null());
        let mut agent = self.place.inside(|| command.spawn());
        wait("the agent", || {
            assert_eq!(agent.try_wait().unwrap(), None, "the agent ended");
            UnixStream::connect(self.socket()).is_ok()
        });
        self.agent = Some(agent);
        let served = self.ask(&Request::Status {}, None);
        assert!(matches!(served, Reply::Done), "{served:?}");
    }

    /// Ends it without a word.
    pub(crate) fn kill(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            agent.kill().unwrap();
            agent.wait().unwrap();
        }
    }

    /// Takes all off that the agent made, pods that live too; what it says.
    pub(crate) fn uninstall(&self) -> String {
        let mut command = self.command("uninstall");
        command.arg("--force");
        let output = self.place.inside(|| command.output());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// A command about this node.
    fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dormouse-agent"));
        command
            .args([verb, "--node", self.place.name(), "--state-dir"])
            .arg(self.folder.path().join("state"))
            .arg("--socket")
            .arg(self.socket())
            .arg("--bpffs")
            .arg(self.pins())
            .arg("--cgroup")
            .arg(&self.cgroup);
        command
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("agent.sock")
    }

    fn pins(&self) -> PathBuf {
        Path::new("/sys/fs/bpf/dormouse").join(self.place.name())
    }

    /// Wires a pod.
    pub(crate) fn add(&self, name: &str) -> Pod {
        self.add_at(name, None)
    }

    /// Wires a pod at a certain address.
    pub(crate) fn add_at(&self, name: &str, address: Option<Ipv6Addr>) -> Pod {
        let place = Place::new(name);
        let request = Request::Add {
            attachment: attachment(name),
            wanted: Wanted {
                addresses: address.map(IpAddr::V6).into_iter().collect(),
                ..Wanted::default()
            },
        };
        match self.ask(&request, Some(&place)) {
            Reply::Wired(wired) => Pod {
                place,
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

    fn ask(&self, request: &Request, pod: Option<&Place>) -> Reply {
        let stream = UnixStream::connect(self.socket()).unwrap();
        let netns = pod.map(|pod| pod.file().as_fd());
        wire::send_request(&stream, request, netns).unwrap();
        wire::receive_reply(&stream).unwrap()
    }

    /// The addresses in whose groups it is on behalf of pods.
    pub(crate) fn groups(&self) -> Vec<Ipv6Addr> {
        let entries = self.place.ip("-6 neighbour show proxy");
        let words = entries.lines().filter_map(|line| line.split(' ').next());
        let mut pods: Vec<_> = words.map(|word| word.parse().unwrap()).collect();
        pods.sort();
        pods
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
        let _ = dormouse_agent_datapath::detach(&self.pins());
        let _ = fs::remove_dir(&self.cgroup);
    }
}

fn attachment(name: &str) -> Attachment {
    Attachment {
        network: "pods".into(),
        container_id: name.into(),
        ifname: "eth0".into(),
    }
}

fn cgroup_root() -> PathBuf {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let mut fields = mounts.lines().map(|line| line.split(' '));
    let mount = fields.find_map(|mut fields| {
        let path = fields.nth(1)?;
        (fields.next()? == "cgroup2").then(|| PathBuf::from(path))
    });
    mount.expect("cgroup v2 is mounted")
}
