//! Roles in processes of their own: they join with tokens, and speak TLS with each other.

use dormouse_fleet::join;
use tokio::process::{Child, Command};

use super::{READY, Trusted, output};
use crate::world::{dormouse, ended, in_namespace, kill, until};

impl Trusted {
    /// Starts a role that keeps its certificate in the world's folder.
    pub(super) fn role(&self, role: &[&str], more: &[&str]) -> Child {
        self.role_with(role, more, |_process| ())
    }

    /// The same; `set` sets more of its process.
    pub(super) fn role_with(
        &self,
        role: &[&str],
        more: &[&str],
        set: impl FnOnce(&mut Command),
    ) -> Child {
        let mut command = dormouse(role);
        let folder = self.world.folder.path().join("roles");
        command.arg("--state-dir").arg(folder).args(more);
        set(&mut command);
        command.spawn().unwrap()
    }

    pub(super) async fn role_line(&self, role: &str) -> String {
        let (ok, line) = self.admin(&["token", "create", "--role", role]).await;
        assert!(ok, "{line}");
        line.trim().to_owned()
    }

    pub(super) async fn until_ready(&self) {
        let ca = self.pki("ca.crt");
        until("all roles are ready", async || {
            let args = ["-gs", "--cacert", &ca, READY];
            output("curl", &args).await.1 == "ok"
        })
        .await;
    }
}

pub(super) const ACTIVATOR: [&str; 5] = [
    "activator",
    "--acting-prefix",
    "2001:db8:a1::/96",
    "--metrics-listen",
    "[::1]:9091",
];

#[test]
fn scheduler_and_activator_join_with_a_token_and_start_again_without_it() {
    in_namespace(async || {
        let control = Trusted::start(&["--without", "scheduler"]).await;
        let line = control.role_line("scheduler").await;
        let scheduler = control.role(&["scheduler"], &["--join", &line]);
        let line = control.role_line("activator").await;
        let _activator = control.role(&ACTIVATOR, &["--join", &line]);
        control.until_ready().await;
        kill(scheduler).await;
        let _scheduler = control.role(&["scheduler"], &[]);
        control.until_ready().await;

        let line = control.line(&["--node", "a"]).await;
        let node = join::join(&line, "a").await.unwrap().credentials;
        let [cert, file] = control.certificate(&node);
        let ca = control.pki("ca.crt");
        for port in [10_259, 7_444] {
            let url = format!("https://[::1]:{port}/");
            for shown in [&[][..], &[cert.as_str(), &file]] {
                let args = [&["-gs", "--http2", "--cacert", &ca, &url], shown].concat();
                let (ok, said) = output("curl", &args).await;
                assert!(!ok, "{url} {shown:?}: {said}");
            }
        }
    });
}

#[test]
fn a_role_without_a_certificate_is_refused_with_the_command_that_makes_one() {
    in_namespace(async || {
        let control = Trusted::start(&["--without", "scheduler"]).await;
        let store = ["--store", "https://[::1]:2379"];
        let (status, log) = ended(control.role(&["scheduler"], &store)).await;
        assert_eq!(status.code(), Some(1), "{log}");
        assert!(
            log.contains("dormouse token create --role scheduler"),
            "{log}"
        );
        let other = ["--control", "http://[2001:db8::c]:7444"];
        let (status, log) = ended(control.role(&ACTIVATOR, &other)).await;
        assert_eq!(status.code(), Some(1), "{log}");
        assert!(log.contains("plain text to another host"), "{log}");
        let line = control.role_line("activator").await;
        let (status, log) = ended(control.role(&["scheduler"], &["--join", &line])).await;
        assert_eq!(status.code(), Some(1), "{log}");
        assert!(log.contains("system:control:activator"), "{log}");
    });
}
