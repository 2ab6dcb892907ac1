//! An unmodified kube-apiserver, with the manifests of `deploy/` and a token of their service account. `KUBEBUILDER_ASSETS` names the
//! folder of `kube-apiserver` and `kubectl`, as for the tests of Kubernetes' operators; without it, these tests are skipped.

use std::env;
use std::fs::{self, File};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use dormouse_rig::address::NODE;
use dormouse_rig::{Node, binaries, on_node, wait};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::server::TLS;
use crate::{
    credentials, log, programmed, service, slice, start_with, wait_for, wait_for_absence,
    wait_for_log,
};

const ASSETS: &str = "KUBEBUILDER_ASSETS";
const URL: &str = "https://[::1]:6443";
const SERVER: &str = "[::1]:6443";
const STORE: &str = "[::1]:2379";
/// The only token that is a file of the server; its user is an administrator.
const ADMIN: &str = "administrator";
const MANIFESTS: [&str; 4] = ["namespace", "rbac", "config", "daemonset"];

/// A program that is killed when dropped.
struct Program(Child);

impl Program {
    fn start(command: &mut Command, log: &Path) -> Self {
        let log = File::options().create(true).append(true).open(log).unwrap();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null());
        Self(child.stderr(log).spawn().unwrap())
    }

    fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }

    /// Ends it as a service manager does.
    fn stop(mut self) {
        let pid = Pid::from_raw(self.0.id().try_into().unwrap());
        kill(pid, Signal::SIGTERM).unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server and its store, in the calling thread's namespace.
struct Cluster {
    assets: PathBuf,
    folder: PathBuf,
    server: Option<Program>,
    _store: Program,
}

/// The folder of programs; says so if there is none.
fn assets() -> Option<PathBuf> {
    let folder = env::var_os(ASSETS).map(PathBuf::from);
    if folder.is_none() {
        println!("skipped: {ASSETS} does not name a folder with kube-apiserver and kubectl");
    }
    folder
}

impl Cluster {
    fn start(assets: PathBuf, node: &Node) -> Self {
        let folder = node.dir().join("cluster");
        fs::create_dir(&folder).unwrap();
        fs::write(
            folder.join("tokens"),
            format!("{ADMIN},admin,1,system:masters\n"),
        )
        .unwrap();
        let mut cluster = Self {
            _store: Program::start(&mut store(&folder), &folder.join("store.log")),
            assets,
            folder,
            server: None,
        };
        wait("the store", || TcpStream::connect(STORE).is_ok());
        cluster.serve();
        cluster
    }

    /// Starts the server, and returns when it is ready.
    fn serve(&mut self) {
        let mut server = Command::new(self.assets.join("kube-apiserver"));
        let tls = |name: &str| Path::new(TLS).join(name);
        server
            .args(["--etcd-servers", &format!("http://{STORE}")])
            .args(["--bind-address", "::1", "--secure-port", "6443"])
            .args(["--advertise-address", &NODE.to_string()])
            .args(["--service-cluster-ip-range", "fd00:20::/112"])
            .args(["--authorization-mode", "RBAC"])
            .args(["--service-account-issuer", URL])
            .arg("--token-auth-file")
            .arg(self.folder.join("tokens"))
            .arg("--tls-cert-file")
            .arg(tls("server.pem"))
            .arg("--tls-private-key-file")
            .arg(tls("server.key"))
            .arg("--service-account-signing-key-file")
            .arg(tls("server.key"))
            .arg("--service-account-key-file")
            .arg(tls("server.pem"));
        let log = self.folder.join("server.log");
        let server = self.server.insert(Program::start(&mut server, &log));
        wait("the server to listen", || {
            assert!(!server.has_ended(), "{}", fs::read_to_string(&log).unwrap());
            TcpStream::connect(SERVER).is_ok()
        });
        wait("the server to be ready", || {
            let ready = self.kubectl(&["get", "--raw", "/readyz"]).output().unwrap();
            ready.status.success()
        });
    }

    fn stop(&mut self) {
        self.server.take().unwrap().stop();
    }

    fn kubectl(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.assets.join("kubectl"));
        command
            .args([
                "--server",
                URL,
                "--token",
                ADMIN,
                "--kubeconfig",
                "/dev/null",
            ])
            .arg("--certificate-authority")
            .arg(Path::new(TLS).join("ca.pem"))
            .args(arguments)
            .env("HOME", &self.folder)
            .stdin(Stdio::null());
        command
    }

    /// The output of a command that succeeds.
    fn run(&self, arguments: &[&str]) -> String {
        let output = self.kubectl(arguments).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn apply(&self, object: &Value) {
        let file = self.folder.join("object.json");
        fs::write(&file, object.to_string()).unwrap();
        self.apply_file(&file);
    }

    /// Applies a manifest, every field of which the server must know.
    fn apply_file(&self, file: &Path) {
        let file = file.to_str().unwrap();
        self.run(&["apply", "--server-side", "--validate=strict", "-f", file]);
    }

    /// Sets a Service with these backends.
    fn put(&self, number: u16, hosts: &[u16]) {
        self.apply(&service(number));
        self.apply(&slice(number, hosts));
    }

    /// A token of the manifests' service account, until this Secret is deleted.
    fn token(&self, secret: &str) -> String {
        let namespace = "--namespace=dormouse-system";
        self.run(&[namespace, "create", "secret", "generic", secret]);
        let bound = [
            "--bound-object-kind",
            "Secret",
            "--bound-object-name",
            secret,
        ];
        let create = [namespace, "create", "token", "dormouse-agent"];
        self.run(&[&create[..], &bound].concat()).trim().to_owned()
    }
}

/// The store of this repository.
fn store(folder: &Path) -> Command {
    let mut store = Command::new(binaries::control());
    store.arg("store");
    let url = format!("http://{STORE}");
    store.arg("--data-dir").arg(folder.join("data"));
    store.args([
        "--listen-client-urls",
        &url,
        "--advertise-client-urls",
        &url,
    ]);
    store
}

/// The manifests of the node are those of a cluster with this API: all fields are known, and the ClusterRole's rights suffice.
#[test]
fn an_unmodified_server_is_followed_with_the_rights_of_the_manifests_through_restarts_and_a_revoked_token()
 {
    let Some(assets) = assets() else {
        return;
    };
    on_node(|node| {
        node.take_address();
        let mut cluster = Cluster::start(assets, node);
        let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/node/base");
        for name in MANIFESTS {
            cluster.apply_file(&base.join(name).with_extension("yaml"));
        }
        cluster.apply(&json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"},
        }));
        // The server's own Service has the first cluster IP.
        for number in 11..=13 {
            cluster.put(number, &[number, 100 + number]);
        }
        let account = credentials::write_account(node, &cluster.token("first"), "ca.pem");
        let flags = ["--in-cluster", "--service-account", &account];
        let agent = start_with(node, URL, &flags);
        wait_for(node, 13, &[13, 113]);
        cluster.put(11, &[1, 201]);
        cluster.run(&[
            "--namespace=shop",
            "delete",
            "service/s12",
            "endpointslice/s12-a",
        ]);
        wait_for(node, 11, &[1, 201]);
        wait_for_absence(node, 12);

        // Before the first stop: a server that starts refuses what it does not know yet.
        let text = fs::read_to_string(log(node)).unwrap();
        assert!(!text.contains("(403)"), "{text}");

        let before = programmed(node);
        cluster.stop();
        wait_for_log(node, "cannot be followed");
        assert_eq!(programmed(node), before);
        cluster.serve();
        cluster.put(11, &[1, 202]);
        wait_for(node, 11, &[1, 202]);

        // The server may accept a token for some seconds longer, until it starts again.
        cluster.run(&["--namespace=dormouse-system", "delete", "secret", "first"]);
        cluster.stop();
        cluster.serve();
        wait_for_log(node, "(401 ");
        cluster.put(11, &[1, 203]);
        credentials::write_account(node, &cluster.token("second"), "ca.pem");
        wait_for(node, 11, &[1, 203]);

        let followed = programmed(node);
        agent.kill();
        node.home().detach();
        let _agent = start_with(node, URL, &flags);
        wait("the same maps", || programmed(node) == followed);
    });
}
