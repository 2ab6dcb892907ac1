//! The users of the API under TLS: by certificates and by tokens.

use dormouse_fleet::join;
use dormouse_trust::JoinLine;

use super::{Trusted, output, refused as not_joined};
use crate::world::{in_namespace, until};

const APPS: &str = "/apis/dormouse.dev/v1alpha1/apps";

pub(super) async fn kubectl(control: &Trusted, words: &str) -> (bool, String) {
    let kubeconfig = control.pki("admin.kubeconfig");
    let mut args = vec!["--kubeconfig", &kubeconfig];
    args.extend(words.split(' '));
    output("kubectl", &args).await
}

/// Lets the group `dev` read.
pub(super) async fn bind(control: &Trusted) {
    let bind = "create clusterrolebinding dev --clusterrole view --group dev";
    let (ok, said) = kubectl(control, bind).await;
    assert!(ok, "{said}");
}

pub(super) fn bearer(token: &str) -> [String; 2] {
    ["-H".into(), format!("Authorization: Bearer {token}")]
}

/// Fails unless the API has refused a list of this user.
#[track_caller]
fn refused(answer: &str, user: &str) {
    let whole = format!("User \\\"{user}\\\" cannot list resource");
    assert!(
        answer.contains("\"code\":403") && answer.contains(&whole),
        "{answer}"
    );
}

#[test]
fn the_api_knows_users_by_their_certificates_and_health_needs_none() {
    in_namespace(async || {
        let control = Trusted::start(&[]).await;
        let (ok, nodes) = control.admin(&["get", "nodes"]).await;
        assert!(ok, "{nodes}");
        let (ok, namespaces) = kubectl(&control, "get namespaces").await;
        assert!(ok && namespaces.contains("default"), "{namespaces}");

        let nodes = "/api/v1/nodes";
        refused(&control.get(nodes, &[]).await, "system:anonymous");
        let line = control.line(&["--node", "a"]).await;
        let node = join::join(&line, "a").await.unwrap().credentials;
        let node = control.certificate(&node);
        refused(&control.get(nodes, &node).await, "system:node:a");
        let services = control.get("/api/v1/services", &node).await;
        assert!(services.contains("ServiceList"), "{services}");
        let line = control.line(&["--role", "store"]).await;
        let role = join::join(&line, "").await.unwrap().credentials;
        let role = control.certificate(&role);
        assert!(control.get(nodes, &role).await.contains("NodeList"));

        let ann = control.certificate(&control.user("ann", "dev"));
        refused(&control.get(APPS, &ann).await, "ann");
        bind(&control).await;
        until("the binding is in force", async || {
            control.get(APPS, &ann).await.contains("AppList")
        })
        .await;
    });
}

#[test]
fn a_users_token_is_the_user_until_it_is_deleted_or_expires() {
    in_namespace(async || {
        let control = Trusted::start(&[]).await;
        let token = control.user_token("ann", &["--group", "dev"]).await;
        let token = token.as_str();
        let ann = bearer(token);
        refused(&control.get(APPS, &ann).await, "ann");
        bind(&control).await;
        until("the binding is in force", async || {
            control.get(APPS, &ann).await.contains("AppList")
        })
        .await;

        let line = control.line(&[]).await;
        let of_join = bearer(&line.token.reveal());
        let wrong = bearer("wrong");
        for invalid in [of_join, wrong] {
            let answer = control.get(APPS, &invalid).await;
            assert!(answer.contains("\"code\":401"), "{answer}");
        }
        let line = JoinLine {
            token: token.parse().unwrap(),
            ..line
        };
        let refused = not_joined(join::join(&line, "b").await);
        assert!(refused.contains("the token is not valid"), "{refused}");
        let (ok, said) = control
            .admin(&["token", "create", "--user", "system:admin"])
            .await;
        assert!(!ok && said.contains("reserved name"), "{said}");

        let short = control
            .user_token("ann", &["--group", "dev", "--ttl", "1s"])
            .await;
        let short = bearer(short.trim());
        until("the token has expired", async || {
            control.get(APPS, &short).await.contains("\"code\":401")
        })
        .await;
        let delete = ["token", "delete", token];
        let (ok, said) = control.admin(&delete).await;
        let secret = token.split_once('.').unwrap().1;
        assert!(ok && !said.contains(secret), "{said}");
        let answer = control.get(APPS, &ann).await;
        assert!(answer.contains("\"code\":401"), "{answer}");
        let (ok, said) = control.admin(&delete).await;
        assert!(!ok && said.contains("not found"), "{said}");
    });
}
