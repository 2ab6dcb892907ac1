//! Who is admitted at the other ports, and with which TLS.

use dormouse_fleet::join;
use dormouse_trust::folder;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use super::{Trusted, output};
use crate::node;
use crate::world::{TIMEOUT, World, in_namespace};

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
            let (ok, said) = output("openssl", &[&begin[..], &["-tls1_2"]].concat()).await;
            assert!(!ok && said.contains("protocol version"), "{said}");
        }
    });
}

#[test]
fn plain_text_where_others_reach_it_is_warned_about() {
    in_namespace(async || {
        let world = World::new().await;
        let flags = ["--without", "activator", "--address", node::POD];
        let mut control = world.up("control", &flags);
        let mut lines = BufReader::new(control.stderr.take().unwrap()).lines();
        let warned = async {
            while let Some(line) = lines.next_line().await.unwrap() {
                if line.contains("without --tls") {
                    return line;
                }
            }
            panic!("control has ended");
        };
        let line = timeout(TIMEOUT, warned).await.unwrap();
        assert!(line.contains("WARN") && line.contains(node::POD), "{line}");
    });
}
