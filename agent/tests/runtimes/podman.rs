//! Podman with its CNI backend.

use std::fs;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::image;
use crate::machine::{Machine, fail, succeed};

/// Podman on a machine, with storage of its own and the pause image in it.
pub(crate) struct Podman<'a> {
    machine: &'a Machine<'a>,
    folder: PathBuf,
}

impl<'a> Podman<'a> {
    /// Configures it and imports the image.
    pub(crate) fn start(machine: &'a Machine<'a>) -> Self {
        let folder = machine.folder().join("podman");
        fs::create_dir(&folder).unwrap();
        let podman = Self { machine, folder };
        let configuration = format!(
            "[containers]\npids_limit = 0\n\
             [network]\nnetwork_backend = \"cni\"\nnetwork_config_dir = \"{}\"\ncni_plugin_dirs = [\"{}\"]\n\
             [engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"none\"\n",
            machine.networks().display(),
            machine.plugins().display(),
        );
        fs::write(podman.folder.join("containers.conf"), configuration).unwrap();
        let archive = image::pause(machine.folder());
        succeed(podman.command("load").arg("--input").arg(archive));
        podman
    }

    fn command(&self, verb: &str) -> Command {
        let at = |name: &str| self.folder.join(name);
        let mut command = self.machine.command("podman");
        command.env("CONTAINERS_CONF", at("containers.conf"));
        command.arg("--root").arg(at("root"));
        command.arg("--runroot").arg(at("run"));
        command.arg("--tmpdir").arg(at("tmp"));
        command.args(["--storage-driver", "vfs", "--runtime", "runc", verb]);
        command
    }

    /// Builds an image by the repository's Containerfile from these programs; returns its id, the digest of its configuration, which has
    /// the digests of its layers.
    pub(crate) fn build(&self, programs: &Path) -> String {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../Containerfile");
        let mut build = self.command("build");
        build.args(["--timestamp", "0", "--no-cache", "--quiet", "--file", file]);
        succeed(build.arg(programs)).trim().to_owned()
    }

    /// `podman run` of a pause container in the network that is shipped.
    fn run(&self, name: &str, options: &[&str]) -> Command {
        let mut run = self.command("run");
        run.args(["--detach", "--name", name, "--network", "dormouse"]);
        // A test has no right to raise limits, and conmon needs no cgroup.
        run.args([
            "--ulimit",
            "nofile=1024:1024",
            "--ulimit",
            "nproc=1024:1024",
        ]);
        run.args([
            "--cgroups",
            "no-conmon",
            "--cgroup-parent",
            &self.machine.cgroup(),
        ]);
        run.args(options).arg(image::PAUSE);
        run
    }

    /// Starts a container.
    pub(crate) fn start_container(&self, name: &str, options: &[&str]) -> Container {
        succeed(&mut self.run(name, options));
        self.inspect(name)
    }

    /// Restarts a container.
    pub(crate) fn restart(&self, name: &str) -> Container {
        succeed(self.command("restart").args(["--time", "0", name]));
        self.inspect(name)
    }

    fn inspect(&self, name: &str) -> Container {
        let text = succeed(self.command("inspect").arg(name));
        let inspected: Value = serde_json::from_str(&text).unwrap();
        Container(inspected[0].clone())
    }

    /// Tries to start a container that must be refused; returns the errors.
    pub(crate) fn refuse(&self, name: &str, options: &[&str]) -> String {
        fail(&mut self.run(name, options))
    }

    /// Removes a container.
    pub(crate) fn remove(&self, name: &str) {
        succeed(self.command("rm").args(["--force", "--time", "0", name]));
    }
}

/// What podman knows about a running container.
pub(crate) struct Container(Value);

impl Container {
    fn network(&self) -> &Value {
        &self.0["NetworkSettings"]["Networks"]["dormouse"]
    }

    pub(crate) fn address(&self) -> Ipv6Addr {
        let text = self.network()["GlobalIPv6Address"].as_str().unwrap();
        text.parse()
            .unwrap_or_else(|_| panic!("{}", self.0["NetworkSettings"]))
    }

    pub(crate) fn mac(&self) -> &str {
        self.network()["MacAddress"].as_str().unwrap()
    }

    /// The file that names its network namespace.
    pub(crate) fn namespace(&self) -> &Path {
        Path::new(self.0["NetworkSettings"]["SandboxKey"].as_str().unwrap())
    }
}
