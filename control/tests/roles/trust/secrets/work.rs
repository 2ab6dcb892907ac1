//! Work with secrets, as clients and processes do it, also in vain.

use std::fs;

use dormouse_fleet::join;
use dormouse_trust::{Current, JoinLine};
use serde_json::{Value, json};
use tokio::process::Child;

use super::forms::Secret;
use super::{Evidence, admin, kept, log_all};
use crate::trust::{Trusted, output, text};
use crate::world::{dormouse, ip, until};

const PASSWORD: &str = "correct-horse-battery-staple-7";

/// Nodes join, renew, and are refused.
pub(super) async fn nodes(control: &Trusted, evidence: &mut Evidence) {
    let line = control.line(&["--node", "a"]).await;
    evidence.add_token("the token of a node", &line.reveal());
    let other = join::join(&line, "b").await.unwrap_err();
    let joined = join::join(&line, "a").await.unwrap();
    let again = join::join(&line, "a").await.unwrap_err();
    for error in [other, again] {
        evidence.add("a join that is refused", text(&error));
    }
    let pem = kept(control, "node.pem", &joined.credentials.key_pem());
    evidence.add_key("the key of a node", &pem);
    let current = Current::new(joined.credentials.clone()).unwrap();
    let url = format!("https://{}", line.address);
    join::renew(&url, &joined.authorities, current, "a")
        .await
        .unwrap();
    let wrong = JoinLine {
        token: dormouse_trust::Token::create().unwrap(),
        ..line
    };
    evidence.add_token("a wrong token", &wrong.token.reveal());
    let refused = join::join(&wrong, "c").await.unwrap_err();
    evidence.add("a join with a wrong token", text(&refused));
    let node = control.certificate(&joined.credentials);
    for path in ["/api/v1/nodes/a", "/api/v1/nodes"] {
        let answer = control.get(path, &node).await;
        evidence.add("an answer to a node", answer);
    }
}

/// Users with tokens, right and wrong ones, at ports that take them and at others.
pub(super) async fn users(control: &Trusted, evidence: &mut Evidence) {
    let token = control.user_token("ann", &["--group", "dev"]).await;
    let token = token.as_str();
    evidence.add_token("the token of a user", token);
    let ca = control.pki("ca.crt");
    let wrong = format!("{token}x");
    for shown in [token, &wrong] {
        let bearer = format!("Authorization: Bearer {shown}");
        for url in [
            "https://[::1]:6443/api/v1/nodes",
            "https://[::1]:6443/nothing",
            "https://[::1]:7445/dormouse.join.v1.Join/Sign",
            "https://[::1]:2379/v3/kv/range",
            "http://[::1]:6443/api/v1/nodes",
        ] {
            let args = [
                "-gsi",
                "--max-time",
                "5",
                "--cacert",
                &ca,
                "-H",
                &bearer,
                url,
            ];
            let (_, said) = output("curl", &args).await;
            evidence.add(url, said);
        }
    }
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "https://[::1]:6443", "certificate-authority": ca}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    });
    let kubeconfig = kept(control, "ann.kubeconfig", &kubeconfig.to_string());
    let dormouse = env!("CARGO_BIN_EXE_dormouse");
    let file = kubeconfig.to_str().unwrap();
    for words in [
        "get apps -A",
        "get nodes",
        "explain app web",
        "token create",
    ] {
        let args: Vec<&str> = words.split(' ').collect();
        let args = [&["--kubeconfig", file], &args[..]].concat();
        let (_, said) = evidence.run(dormouse, &args).await;
        assert!(said.contains("ann"), "{said}");
    }
    let (_, said) = evidence.command(control, "token delete none").await;
    assert!(said.contains("not found"), "{said}");
    let (ok, said) = control.admin(&["token", "delete", token]).await;
    assert!(ok, "{said}");
    evidence.add("token delete", said);
}

/// Files that cannot be used: their contents are secrets all the same.
pub(super) async fn damaged_files(control: &Trusted, evidence: &mut Evidence) {
    let dormouse = ["DORMOUSE_LOG=trace", env!("CARGO_BIN_EXE_dormouse")];
    let line = control.role_line("scheduler").await;
    evidence.add_token("the token of a damaged line", &line);
    let words = ["scheduler", "--state-dir", "/nowhere", "--join"];
    let cut = kept(control, "cut.line", &line[1..]);
    for damaged in [&line[1..], &format!("{line}x"), cut.to_str().unwrap()] {
        let args = [&dormouse[..], &words, &[damaged]].concat();
        let (ok, said) = evidence.run("env", &args).await;
        assert!(!ok && said.contains("--join"), "{said}");
    }
    let whole = admin(control);
    let user = |user: Value| {
        let mut damaged = whole.clone();
        damaged["users"][0]["user"] = user;
        damaged.to_string()
    };
    let key = &whole["users"][0]["user"]["client-key-data"];
    let text = whole.to_string();
    for damaged in [
        text[..text.len() - 60].to_owned(),
        text[60..].to_owned(),
        user(json!({"client-key-data": format!("x{}", key.as_str().unwrap())})),
        user(json!({"client-key-data": [key]})),
        user(json!({"client-certificate-data": key, "client-key-data": key})),
        user(json!({"token": {"key": key}})),
        user(json!([key])),
        user(key.clone()),
    ] {
        let file = kept(control, "damaged.kubeconfig", &damaged);
        let args = ["--kubeconfig", file.to_str().unwrap(), "get", "nodes"];
        let (ok, said) = evidence.run("env", &[&dormouse[..], &args].concat()).await;
        assert!(!ok, "{said}");
    }
    let key = fs::read_to_string(control.pki("ca.key")).unwrap();
    let cut = kept(control, "cut.key", &key[..key.len() - 40]);
    let data_dir = control.world.folder.path().join("other");
    ip("-6 addr add 2001:db8::d/128 dev lo nodad").await;
    let args = [
        "up",
        "--acting-prefix",
        "2001:db8:a1::/96",
        "--data-dir",
        data_dir.to_str().unwrap(),
    ];
    let ca = control.pki("ca.crt");
    for (certificate, key) in [
        (ca.as_str(), cut.to_str().unwrap()),
        (cut.to_str().unwrap(), cut.to_str().unwrap()),
    ] {
        let flags = [
            "--ca-cert",
            certificate,
            "--ca-key",
            key,
            "--address",
            "2001:db8::d",
        ];
        let args = [&dormouse[..], &args, &flags].concat();
        let (ok, _) = evidence.run("env", &args).await;
        assert!(!ok);
    }
}

/// A store with users: passwords and logins, right and wrong ones.
pub(super) async fn passwords(control: &Trusted, evidence: &mut Evidence) -> Child {
    let folder = control.world.folder.path();
    let url = "http://[::1]:2479";
    let mut command = dormouse(&["store", "--listen-client-urls", url]);
    command.arg("--data-dir").arg(folder.join("store"));
    log_all(&mut command, &folder.join("store.log"));
    let store = command.spawn().unwrap();
    evidence.add_command_line(&store);
    evidence.add_secret(Secret::of_text("a password", PASSWORD), PASSWORD.as_bytes());
    let user = format!("root:{PASSWORD}");
    let mut etcdctl = async |words: &str| {
        let args: Vec<&str> = words.split(' ').collect();
        let args = [&["--endpoints", url, "--command-timeout", "20s"], &args[..]].concat();
        evidence.run("etcdctl", &args).await
    };
    until("the store answers", async || etcdctl("get x").await.0).await;
    for words in [
        format!("user add {user}").as_str(),
        "role add root",
        "user grant-role root root",
        "auth enable",
        &format!("--user {user} put x y"),
        &format!("--user {user} user get root --detail"),
        &format!("--user {user} user list"),
    ] {
        let (ok, said) = etcdctl(words).await;
        assert!(ok, "{said}");
    }
    for words in [
        "get x",
        &format!("--user {user}x get x"),
        &format!("--user eve:{PASSWORD} get x"),
    ] {
        let (ok, said) = etcdctl(words).await;
        assert!(!ok, "{said}");
    }
    let (_, metrics) = output("curl", &["-gsf", &format!("{url}/metrics")]).await;
    evidence.add("metrics of the store", metrics);
    store
}

/// What all objects, states and metrics show.
pub(super) async fn shown(control: &Trusted, evidence: &mut Evidence) {
    let manifest = kept(
        control,
        "app.yaml",
        "apiVersion: dormouse.dev/v1alpha1\nkind: App\nmetadata:\n  name: web\nspec:\n  port: 80\n  targetPort: 8000\n  container:\n    command: [serve]\n",
    );
    let apply = format!("apply -f {}", manifest.display());
    let (ok, said) = evidence.command(control, &apply).await;
    assert!(ok, "{said}");
    for words in [
        "get apps -A -o yaml",
        "get nodes -o json",
        "get pods -A -o yaml",
        "events -A",
        "explain app web",
        "explain node a",
        "wake timeline web",
        "rollout status web --timeout 1s",
        "node revoke a",
    ] {
        evidence.command(control, words).await;
    }
    let root = control.certificate(&control.user("root", "system:masters"));
    for path in [
        "/readyz?verbose",
        "/openapi/v3",
        "/apis/dormouse.dev/v1alpha1",
        "/nothing",
    ] {
        let answer = control.get(path, &root).await;
        evidence.add(path, answer);
    }
    let ca = control.pki("ca.crt");
    for port in [9090, 9091, 10_251] {
        let url = format!("https://[::1]:{port}/metrics");
        let args = ["-gsf", "--cacert", &ca, &root[0], &root[1], &url];
        assert!(evidence.run("curl", &args).await.0, "{port}");
    }
}

/// The whole store, by its API; its files are searched, too.
pub(super) async fn stored(control: &Trusted, evidence: &mut Evidence) {
    let line = control.line(&["--role", "store"]).await;
    let joined = join::join(&line, "").await.unwrap();
    // Of a token that is not used up.
    let hash = control.line(&["--role", "store"]).await.token.hashed();
    let [_, pem] = control.certificate(&joined.credentials);
    evidence.add_key("the key of a role", pem.as_ref());
    let ca = control.pki("ca.crt");
    let args = [
        "--endpoints",
        "https://[::1]:2379",
        "--cacert",
        &ca,
        "--cert",
        &pem,
        "--key",
        &pem,
    ];
    let (ok, all) = evidence
        .run("etcdctl", &[&args[..], &["get", "", "--prefix"]].concat())
        .await;
    assert!(
        ok && all.contains(&hash),
        "the token's hash is not in the store"
    );
    let file = control.world.folder.path().join("snapshot.db");
    let save = ["snapshot", "save", file.to_str().unwrap()];
    let (ok, said) = evidence.run("etcdctl", &[&args[..], &save].concat()).await;
    assert!(ok, "{said}");
    evidence.add_file(&file);
}
