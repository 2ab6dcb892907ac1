//! Who is admitted at the other ports, and with which TLS.

use std::process::Stdio;

use dormouse_fleet::join;
use dormouse_trust::folder;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::{Trusted, output};
use crate::node;
use crate::world::{TIMEOUT, World, dormouse, ended, in_namespace, until};

#[test]
fn the_store_admits_the_control_plane_and_administrators_and_no_node() {
    in_namespace(async || {
        let control = Trusted::start(&[]).await;
        let line = control.line(&["--node", "a"]).await;
        let node = join::join(&line, "a").await.unwrap().credentials;
        let line = control.line(&["--role", "store"]).await;
        let role = join::join(&line, "").await.unwrap().credentials;
        let folder = control.world.folder.path();
        let ca = control.pki("ca.crt");
        let mut outcomes = Vec::new();
        for (name, credentials) in [("node", Some(node)), ("role", Some(role)), ("none", None)] {
            let mut args = vec!["--endpoints", "https://[::1]:2379", "--cacert", &ca];
            args.extend(["--command-timeout", "3s", "--dial-timeout", "3s"]);
            let path = folder.join(format!("{name}.pem"));
            let path = path.to_str().unwrap();
            if let Some(credentials) = &credentials {
                folder::keep(path.as_ref(), credentials).unwrap();
                args.extend(["--cert", path, "--key", path]);
            }
            args.extend(["get", "--prefix", "--keys-only", "/registry/dormouse.dev/"]);
            let mut command = Command::new("etcdctl");
            let output = command.env("ETCDCTL_API", "3").args(&args).output().await;
            let output = output.unwrap();
            let keys = String::from_utf8(output.stdout).unwrap();
            outcomes.push((name, output.status.success(), keys.contains("/fleet/epoch")));
        }
        let expected = [
            ("node", false, false),
            ("role", true, true),
            ("none", false, false),
        ];
        assert_eq!(outcomes, expected);
    });
}

#[test]
fn openssl_gets_tls_1_3_only_and_no_session_to_resume() {
    in_namespace(async || {
        let control = Trusted::start(&[]).await;
        let ca = control.pki("ca.crt");
        for port in ["6443", "7445"] {
            let to = format!("[::1]:{port}");
            let begin = [
                "s_client",
                "-CAfile",
                &ca,
                "-verify_return_error",
                "-connect",
                &to,
            ];
            let (ok, said) = output("openssl", &begin).await;
            assert!(ok && said.contains("Verify return code: 0 (ok)"), "{said}");
            assert!(
                said.contains("TLSv1.3") && !said.contains("Post-Handshake New Session"),
                "{said}"
            );
        }
        // OpenSSL has the earliest versions at its lowest level of security only.
        for port in ["2379", "6443", "7443", "7444", "7445", "10259"] {
            let to = format!("[::1]:{port}");
            for version in ["-tls1_2", "-tls1_1", "-tls1"] {
                let begin = ["s_client", "-CAfile", &ca, "-connect", &to, version];
                let lowest = ["-cipher", "DEFAULT:@SECLEVEL=0"];
                let (ok, said) = output("openssl", &[begin.as_slice(), &lowest].concat()).await;
                let alert = match version {
                    "-tls1_2" => "alert protocol version",
                    _ => "SSL alert number",
                };
                let is_refused =
                    said.contains(alert) && said.contains("no peer certificate available");
                assert!(!ok && is_refused, "{port} {version}: {said}");
            }
        }
    });
}

/// The log of a process until a line has all of these words.
async fn logged(process: &mut Child, words: &[&str]) -> Vec<String> {
    let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
    let mut log = Vec::new();
    let reading = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            let found = words.iter().all(|word| line.contains(word));
            log.push(line);
            if found {
                return;
            }
        }
        panic!("the process has ended: {log:?}");
    };
    timeout(TIMEOUT, reading).await.unwrap();
    log
}

#[test]
fn plain_text_is_refused_where_others_reach_it_and_warned_about_elsewhere() {
    in_namespace(async || {
        let world = World::new().await;
        let (status, log) = ended(world.up("control", &["--address", node::POD])).await;
        assert_eq!(status.code(), Some(1), "{log}");
        assert!(
            log.contains(node::POD) && log.contains("--address ::1"),
            "{log}"
        );
        assert!(!world.folder.path().join("control").exists());
        let mut control = world.control().await;
        let log = logged(&mut control, &["WARN", "--insecure"]).await;
        assert_eq!(log.len(), 1, "{log:?}");
    });
}

#[test]
fn a_plain_client_and_the_port_with_tls_both_say_what_is_wrong() {
    in_namespace(async || {
        let world = World::new().await;
        let mut control = world
            .up_command("control", &["--without", "activator"])
            .spawn()
            .unwrap();
        let wrong = "Client sent an HTTP request to an HTTPS server";
        let url = "http://[::1]:6443";
        until("the API answers plain text", async || {
            output("curl", &["-gs", url]).await.1.contains(wrong)
        })
        .await;
        logged(
            &mut control,
            &["a client is refused", "must begin with https://"],
        )
        .await;
        let mut command = dormouse(&["--endpoint", url, "get", "nodes"]);
        let shown = command.stdout(Stdio::piped()).output().await.unwrap();
        let shown = String::from_utf8(shown.stderr).unwrap();
        assert!(shown.contains(wrong), "{shown}");
    });
}
