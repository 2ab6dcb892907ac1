//! The ports of the metrics: TLS, health for all, and the metrics for whom the policy or, in a role of its own, the control plane's identities admit.

use dormouse_fleet::join;

use super::api::kubectl;
use super::{Trusted, output};
use crate::world::{in_namespace, until};

/// The status and the text with which a path is answered, at a port of this host.
pub(super) async fn page(
    control: &Trusted,
    port: u16,
    path: &str,
    shown: &[String],
) -> (String, String) {
    let (ca, url) = (control.pki("ca.crt"), format!("https://[::1]:{port}{path}"));
    let mut args = vec!["-gs", "-w", "\n%{http_code}", "--cacert", &ca, &url];
    args.extend(shown.iter().map(String::as_str));
    let (_, text) = output("curl", &args).await;
    let (text, status) = text.rsplit_once('\n').unwrap();
    (status.to_owned(), text.to_owned())
}

async fn metrics(control: &Trusted, port: u16, shown: &[String]) -> String {
    let (status, text) = page(control, port, "/metrics", shown).await;
    assert_eq!(status == "200", text.contains("# EOF"), "{text}");
    status
}

/// The arguments with which a node, a role and the administrator show their certificates.
pub(super) async fn shown(control: &Trusted) -> [Vec<String>; 3] {
    let line = control.line(&["--node", "a"]).await;
    let node = join::join(&line, "a").await.unwrap().credentials;
    let line = control.line(&["--role", "store"]).await;
    let role = join::join(&line, "").await.unwrap().credentials;
    let all = [
        ("node", node),
        ("role", role),
        ("admin", control.user("eve", "system:masters")),
    ];
    all.map(|(name, credentials)| control.certificate_as(name, &credentials).to_vec())
}

#[test]
fn the_metrics_of_up_are_for_those_whom_the_policy_admits_and_health_for_all() {
    in_namespace(async || {
        let control = Trusted::start(&[]).await;
        let (status, text) = page(&control, 9090, "/healthz", &[]).await;
        assert_eq!((&*status, &*text), ("200", "ok"));
        let (ok, said) = output("curl", &["-gs", "http://[::1]:9090/healthz"]).await;
        assert!(
            ok && said.contains("HTTP request to an HTTPS server"),
            "{said}"
        );
        let [node, role, admin] = shown(&control).await;
        assert_eq!(metrics(&control, 9090, &role).await, "200");
        assert_eq!(metrics(&control, 9090, &admin).await, "200");
        assert_eq!(metrics(&control, 9090, &node).await, "403");
        assert_eq!(metrics(&control, 9090, &[]).await, "403");

        let token = control.user_token("prometheus", &[]).await;
        let bearer = [
            "-H".into(),
            format!("Authorization: Bearer {}", token.trim()),
        ];
        assert_eq!(metrics(&control, 9090, &bearer).await, "403");
        let wrong = ["-H".into(), "Authorization: Bearer wrong".into()];
        assert_eq!(metrics(&control, 9090, &wrong).await, "401");
        for create in [
            "create clusterrole metrics --verb get --non-resource-url /metrics",
            "create clusterrolebinding metrics --clusterrole metrics --user prometheus",
        ] {
            let (ok, said) = kubectl(&control, create).await;
            assert!(ok, "{said}");
        }
        until("the binding is in force", async || {
            metrics(&control, 9090, &bearer).await == "200"
        })
        .await;
    });
}

#[test]
fn the_metrics_of_a_role_are_for_the_control_plane_and_administrators_and_health_for_all() {
    in_namespace(async || {
        let control = Trusted::start(&[]).await;
        let line = control.role_line("activator").await;
        let _activator = control.role(&super::processes::ACTIVATOR, &["--join", &line]);
        until("the activator is healthy", async || {
            page(&control, 9091, "/healthz", &[]).await == ("200".to_owned(), "ok".to_owned())
        })
        .await;
        let [node, role, admin] = shown(&control).await;
        assert_eq!(metrics(&control, 9091, &role).await, "200");
        assert_eq!(metrics(&control, 9091, &admin).await, "200");
        for other in [&node[..], &[]] {
            let (status, text) = page(&control, 9091, "/metrics", other).await;
            assert_eq!(status, "403");
            assert!(text.contains("administrators and roles"), "{text}");
        }
    });
}
