//! Containerd with its CRI plugin, as a kubelet uses it.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use dormouse_rig::{binaries, wait};

use crate::cri::{Cri, PodConfig};
use crate::image::{self, PAUSE};
use crate::machine::{Machine, succeed};

/// A running containerd with the pause image; killed when dropped.
pub(crate) struct Containerd<'a> {
    machine: &'a Machine<'a>,
    folder: PathBuf,
    process: Child,
    pub(crate) cri: Cri,
}

impl<'a> Containerd<'a> {
    /// Starts it, and waits until it has read the network configuration.
    pub(crate) fn start(machine: &'a Machine<'a>) -> Self {
        let mut containerd = Self::unready(machine);
        wait("containerd to report its network ready", || {
            containerd.cri.network_ready()
        });
        containerd
    }

    /// Starts it on a machine that has no network configuration yet.
    pub(crate) fn unready(machine: &'a Machine<'a>) -> Self {
        let loopback = machine.plugins().join("loopback");
        symlink(binaries::reference_plugins().join("loopback"), loopback).unwrap();
        let folder = machine.folder().join("containerd");
        fs::create_dir(&folder).unwrap();
        let socket = folder.join("sock");
        fs::write(folder.join("config.toml"), configuration(machine, &folder)).unwrap();
        let log = File::create(folder.join("log")).unwrap();
        let process = machine
            .command("containerd")
            .arg("--config")
            .arg(folder.join("config.toml"))
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("containerd: {error}: cargo xtask setup"));
        let cri = Cri::new(&socket);
        let mut containerd = Self {
            machine,
            folder,
            process,
            cri,
        };
        wait("containerd to answer", || containerd.cri.answers());
        containerd.import(&image::pause(machine.folder()), PAUSE);
        containerd
    }

    /// Imports the image of an archive.
    pub(crate) fn import(&mut self, archive: &Path, name: &str) {
        let mut import = self.machine.command("ctr");
        import.arg("--address").arg(self.folder.join("sock"));
        import.args(["--namespace", "k8s.io", "images", "import", "--no-unpack"]);
        succeed(import.arg(archive));
        // The CRI plugin learns of the image by an event.
        wait("the image", || self.cri.has_image(name));
    }

    /// A pod to start on this machine.
    pub(crate) fn pod(&self, name: &str) -> PodConfig {
        PodConfig::new(name, self.machine.cgroup())
    }
}

impl Drop for Containerd<'_> {
    fn drop(&mut self) {
        // What its shims started is in the node's cgroup, and ends with that.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            eprintln!("containerd's log:\n{log}");
        }
    }
}

/// Its files below `folder`, the machine's plugins and networks, and no more rights than a test has.
fn configuration(machine: &Machine<'_>, folder: &Path) -> String {
    let at = |name: &str| folder.join(name).display().to_string();
    format!(
        r#"
version = 2
root = "{root}"
state = "{state}"
[grpc]
address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE}"
disable_apparmor = true
restrict_oom_score_adj = true
tolerate_missing_hugetlb_controller = true
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{plugins}"
conf_dir = "{networks}"
[plugins."io.containerd.internal.v1.opt"]
path = "{opt}"
"#,
        root = at("root"),
        state = at("state"),
        socket = at("sock"),
        opt = at("opt"),
        plugins = machine.plugins().display(),
        networks = machine.networks().display(),
    )
}
