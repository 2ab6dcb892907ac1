//! A process in a network namespace of its own, with an address as a pod has: it reaches the ports of the control plane, and nothing behind them.

use std::collections::BTreeSet;
use std::fs;
use std::process::Stdio;

use tokio::process::{Child, Command};

use crate::trust::{Trusted, output};
use crate::world::{World, in_namespace, ip, until};

const CONTROL: &str = "2001:db8::c";
/// Answers to all: nothing is in them but health and the version.
const OPEN: [&str; 4] = ["/healthz", "/livez", "/readyz", "/version"];

/// A network namespace that is connected to the one of the test.
struct Pod(Child);

impl Pod {
    async fn start() -> Self {
        let mut command = Command::new("unshare");
        command.args(["--net", "sleep", "1000"]).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let pod = Self(command.spawn().unwrap());
        let namespace = format!("/proc/{}/ns/net", pod.id());
        let own = fs::read_link("/proc/thread-self/ns/net").unwrap();
        until("the namespace of the pod", async || {
            fs::read_link(&namespace).is_ok_and(|other| other != own)
        })
        .await;
        ip(&format!(
            "link add pod0 type veth peer name eth0 netns {}",
            pod.id()
        ))
        .await;
        ip("-6 addr add 2001:db8:f::1/64 dev pod0 nodad").await;
        ip("link set pod0 up").await;
        for words in [
            "link set lo up",
            "-6 addr add 2001:db8:f::2/64 dev eth0 nodad",
            "link set eth0 up",
            "-6 route add default via 2001:db8:f::1",
        ] {
            let words: Vec<&str> = words.split(' ').collect();
            let (ok, said) = pod.run(&[&["ip"], &words[..]].concat()).await;
            assert!(ok, "{said}");
        }
        pod
    }

    fn id(&self) -> u32 {
        self.0.id().unwrap()
    }

    /// Runs a program in the pod's network.
    async fn run(&self, words: &[&str]) -> (bool, String) {
        let id = self.id().to_string();
        let enter = ["--target", &id, "--net", "--"];
        output("nsenter", &[&enter, words].concat()).await
    }

    /// The body that a path of a port answers.
    async fn get(&self, url: &str, more: &[&str]) -> String {
        let args = [&["curl", "-gsk", "--max-time", "10", url], more].concat();
        self.run(&args).await.1
    }
}

/// The ports on which the control plane listens at its address.
async fn ports() -> BTreeSet<String> {
    let (_, sockets) = output("ss", &["-Hltn"]).await;
    let local = sockets
        .lines()
        .filter_map(|line| line.split_whitespace().nth(3));
    let ports = local.filter_map(|socket| {
        let (host, port) = socket.rsplit_once(':')?;
        let host = host.trim_matches(['[', ']']);
        [CONTROL, "*", "::"]
            .contains(&host)
            .then(|| port.to_owned())
    });
    ports.collect()
}

#[test]
fn a_pod_gets_nothing_from_any_port_of_the_control_plane() {
    in_namespace(async || {
        let world = World::new().await;
        ip(&format!("-6 addr add {CONTROL}/128 dev lo nodad")).await;
        let flags = ["--without", "activator", "--address", CONTROL];
        let process = world.up_command("control", &flags).spawn().unwrap();
        let control = Trusted { world, process };
        until("the API answers", async || {
            control.admin(&["get", "nodes"]).await.0
        })
        .await;
        let pod = Pod::start().await;
        let api = format!("https://[{CONTROL}]:6443");
        for path in OPEN {
            let answer = pod.get(&format!("{api}{path}"), &[]).await;
            assert!(
                !answer.is_empty() && !answer.contains("orbidden"),
                "{answer}"
            );
        }
        let listens = ports().await;
        let expected = ["2379", "6443", "7443", "7444", "7445", "9090", "10259"];
        assert_eq!(listens, expected.map(str::to_owned).into());
        for port in listens {
            for path in [
                "/",
                "/metrics",
                "/version/x",
                "/health",
                "/v3/kv/range",
                "/api/v1/pods",
            ] {
                let plain = pod
                    .get(&format!("http://[{CONTROL}]:{port}{path}"), &[])
                    .await;
                let is_hint = plain.contains("Client sent an HTTP request to an HTTPS server");
                assert!(plain.is_empty() || is_hint, "{port}{path}: {plain}");
                let url = format!("https://[{CONTROL}]:{port}{path}");
                for more in [&[][..], &["--http2"], &["-d", "{}"]] {
                    let answer = pod.get(&url, more).await;
                    let is_refusal = answer.contains("\"code\":403");
                    assert!(answer.is_empty() || is_refusal, "{port}{path}: {answer}");
                }
            }
        }
        let store = format!("https://[{CONTROL}]:2379");
        let insecure = [
            "--insecure-skip-tls-verify",
            "--command-timeout",
            "3s",
            "--dial-timeout",
            "3s",
        ];
        let get = ["etcdctl", "--endpoints", &store, "get", "", "--prefix"];
        let (ok, said) = pod.run(&[&get[..], &insecure].concat()).await;
        assert!(!ok && !said.contains("registry"), "{said}");
        // Tokens and certificates of pods' own making.
        for shown in [
            "Authorization: Bearer system:admin",
            "Impersonate-User: system:admin",
            "X-Remote-User: system:admin",
        ] {
            let answer = pod.get(&format!("{api}/api/v1/pods"), &["-H", shown]).await;
            let is_refusal = answer.contains("\"code\":403") || answer.contains("\"code\":401");
            assert!(is_refusal, "{shown}: {answer}");
        }
    });
}
