//! `dormouse up` with certificates as a process: each port with TLS admits and refuses the right identities, with real clients; renewal of all certificates while
//! they are used.

mod api;
mod attacks;
mod disk;
mod ending;
mod files;
mod matrix;
mod metrics;
mod ports;
mod processes;
mod renewal;
mod secrets;
mod shards;
mod streams;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::SystemTime;

use dormouse_fleet::Boottime;
use dormouse_fleet::client::{Link, Target, connect, endpoint};
use dormouse_fleet::join::{self, JoinError, Joined};
use dormouse_fleet::join_proto::SignRequest;
use dormouse_fleet::join_proto::join_client::JoinClient;
use dormouse_fleet::node::Node;
use dormouse_trust::{Credentials, Current, Identity, JoinLine, Validity, client, folder};
use tokio::process::{Child, Command};

use crate::world::{TIMEOUT, World, dormouse, in_namespace, until};

const FLEET: &str = "https://[::1]:7443";
/// The `/readyz` of the API, which needs no identity.
const READY: &str = "https://[::1]:6443/readyz";

/// A control plane with certificates.
struct Trusted {
    world: World,
    process: Child,
}

impl Trusted {
    async fn start(more: &[&str]) -> Self {
        Self::start_with(more, |_control, _folder| ()).await
    }

    /// The same; `set` sets more of its process, for which there is a folder.
    async fn start_with(more: &[&str], set: impl FnOnce(&mut Command, &Path)) -> Self {
        let world = World::new().await;
        let authority = world.folder.path().join("control/pki/ca.crt");
        Self::start_in(world, more, &authority, set).await
    }

    /// Starts in this world, with the authority of this file.
    async fn start_in(
        world: World,
        more: &[&str],
        authority: &Path,
        set: impl FnOnce(&mut Command, &Path),
    ) -> Self {
        let flags = [&["--without", "activator"], more].concat();
        let mut control = world.up_command("control", &flags);
        // Not a pipe, which no task reads: control logs each attempt of the world's node, whose stream is plain text.
        control.stderr(File::create(world.folder.path().join("up.log")).unwrap());
        set(&mut control, world.folder.path());
        let process = control.spawn().unwrap();
        let trusted = Self { world, process };
        let path = authority.to_str().unwrap();
        until("the API answers", async || {
            let args = ["-gs", "--cacert", path, READY];
            let text = output("curl", &args).await.1;
            text.contains("activator failed: no activator is attached")
        })
        .await;
        trusted
    }

    fn pki(&self, name: &str) -> String {
        let folder: PathBuf = self.world.folder.path().join("control/pki");
        folder.join(name).to_str().unwrap().to_owned()
    }

    /// Runs `dormouse` as the administrator.
    async fn admin(&self, args: &[&str]) -> (bool, String) {
        let mut command = dormouse(args);
        command.env("KUBECONFIG", self.pki("admin.kubeconfig"));
        let output = command.stdout(Stdio::piped()).output().await.unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    }

    /// The answer of the API to a GET, with these arguments for curl.
    async fn get(&self, path: &str, shown: &[String]) -> String {
        let (ca, url) = (self.pki("ca.crt"), format!("https://[::1]:6443{path}"));
        let mut args = vec!["-gs", "--cacert", &ca, &url];
        args.extend(shown.iter().map(String::as_str));
        output("curl", &args).await.1
    }

    /// The arguments with which curl shows a certificate.
    fn certificate(&self, credentials: &Credentials) -> [String; 2] {
        self.certificate_as("client", credentials)
    }

    /// The same, in a file of this name.
    fn certificate_as(&self, name: &str, credentials: &Credentials) -> [String; 2] {
        let file = self.world.folder.path().join(format!("{name}.pem"));
        folder::keep(&file, credentials).unwrap();
        ["--cert".into(), file.to_str().unwrap().into()]
    }

    /// The credentials of a user, from the cluster's authority.
    fn user(&self, name: &str, group: &str) -> Credentials {
        let now = SystemTime::now();
        let pki: PathBuf = self.pki("").into();
        let authority = folder::embedded(&pki, now).unwrap();
        let user = Identity::user(name, vec![group.to_owned()]).unwrap();
        let validity = Validity::issued(now, TIMEOUT, None);
        authority.client(&user, validity).unwrap()
    }

    /// A token of a user, of `dormouse token create` with these further arguments.
    async fn user_token(&self, name: &str, more: &[&str]) -> String {
        let create = [&["token", "create", "--user", name], more].concat();
        let (ok, token) = self.admin(&create).await;
        assert!(ok, "{token}");
        token.trim().to_owned()
    }

    async fn line(&self, args: &[&str]) -> JoinLine {
        let (_, line) = self.admin(&[&["token", "create"], args].concat()).await;
        line.parse().unwrap_or_else(|_| panic!("{line}"))
    }
}

async fn output(program: &str, args: &[&str]) -> (bool, String) {
    let output = Command::new(program).args(args).output().await.unwrap();
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

fn target(joined: &Joined) -> Target {
    let current = Current::new(joined.credentials.clone()).unwrap();
    let config = client::config(&joined.authorities, Some(current)).unwrap();
    Target::secured(FLEET, config).unwrap()
}

async fn open(joined: &Joined, node: &str) -> Result<Link, String> {
    open_at(target(joined), node).await
}

async fn open_at(target: Target, node: &str) -> Result<Link, String> {
    let opened = async {
        let mut node = Node::new(node.into(), "boot".into(), "0.1.0".into(), &[]);
        let channel = connect(target).await?;
        let mut stream = Link::open(channel, node.open(Boottime::now())).await?;
        stream.receive().await?;
        Ok(stream)
    };
    opened
        .await
        .map_err(|error: dormouse_fleet::client::LinkError| text(&error))
}

fn text(error: &dyn std::error::Error) -> String {
    dormouse_command::error_chain(error)
}

fn refused(joined: Result<Joined, JoinError>) -> String {
    text(&joined.expect_err("it joined"))
}

#[test]
fn a_node_joins_with_a_token_once_and_is_revoked_at_once() {
    in_namespace(async || {
        let control = Trusted::start(&[]).await;
        let line = control.line(&["--node", "a"]).await;
        assert!(refused(join::join(&line, "b").await).contains("the token is for the node a"));
        let joined = join::join(&line, "a").await.unwrap();
        let used = refused(join::join(&line, "a").await);
        assert!(used.contains("used before"), "{used}");

        let mut stream = open(&joined, "a").await.unwrap();
        let other = open(&joined, "b").await.err().unwrap();
        assert!(
            other.contains("system:node:a, not of the node b"),
            "{other}"
        );
        let any = control.line(&["--ttl", "10m"]).await;
        let taken = refused(join::join(&any, "a").await);
        assert!(taken.contains("token create --node a"), "{taken}");
        assert!(join::join(&any, "c").await.is_ok());

        let (revoked, said) = control.admin(&["node", "revoke", "a"]).await;
        assert!(revoked, "{said}");
        let end = async { while stream.receive().await.is_ok() {} };
        tokio::time::timeout(TIMEOUT, end).await.unwrap();
        let again = open(&joined, "a").await.err().unwrap();
        assert!(again.contains("node a was revoked"), "{again}");
        let services = "/api/v1/services";
        let services = control
            .get(services, &control.certificate(&joined.credentials))
            .await;
        assert!(
            services.contains("\"code\":401") && services.contains("system:node:a was revoked"),
            "{services}"
        );
        let current = Current::new(joined.credentials.clone()).unwrap();
        let url = format!("https://{}", line.address);
        let renewed = join::renew(&url, &joined.authorities, current, "a").await;
        assert!(refused(renewed).contains("was revoked"));
        let line = control.line(&["--node", "a"]).await;
        let joined = join::join(&line, "a").await.unwrap();
        until("the node is admitted again", async || {
            open(&joined, "a").await.is_ok()
        })
        .await;
    });
}

#[test]
fn the_fleet_refuses_strangers() {
    in_namespace(async || {
        let control = Trusted::start(&[]).await;
        let line = control.line(&["--node", "a"]).await;
        let joined = join::join(&line, "a").await.unwrap();
        let none = client::config(&joined.authorities, None).unwrap();
        let none = Target::secured(FLEET, none).unwrap();
        let refused = open_at(none, "a").await.err().unwrap();
        assert!(refused.contains("needs a certificate"), "{refused}");
        let plain = endpoint("http://[::1]:7443").unwrap();
        let refused = open_at(plain.into(), "a").await.err().unwrap();
        assert!(refused.contains("token create --node a"), "{refused}");
        let admin = Joined {
            credentials: control.user("eve", "system:masters"),
            ..joined
        };
        let refused = open(&admin, "a").await.err().unwrap();
        assert!(
            refused.contains("has the certificate of eve, not of the node a"),
            "{refused}"
        );
    });
}

#[test]
fn tokens_that_are_guessed_are_refused_and_then_not_tried() {
    in_namespace(async || {
        let control = Trusted::start(&[]).await;
        let line = control.line(&[]).await;
        let wrong = JoinLine {
            token: dormouse_trust::Token::create().unwrap(),
            ..line.clone()
        };
        for _ in 0..5 {
            let refused = refused(join::join(&wrong, "b").await);
            assert!(refused.contains("the token is not valid"), "{refused}");
        }
        let waits = refused(join::join(&line, "b").await);
        assert!(waits.contains("too many wrong tokens"), "{waits}");
    });
}

#[test]
fn a_join_that_is_refused_does_not_use_up_its_token() {
    in_namespace(async || {
        let control = Trusted::start(&[]).await;
        let line = control.line(&["--node", "a"]).await;
        let config = client::joining(line.authority).unwrap();
        let url = format!("https://{}", line.address);
        let channel = connect(Target::secured(&url, config).unwrap()).await;
        let asked = SignRequest {
            token: line.token.reveal().to_string(),
            node: "a".to_owned(),
            request: b"no request for a certificate".to_vec(),
        };
        let refused = JoinClient::new(channel.unwrap()).sign(asked).await;
        let refused = refused.unwrap_err();
        assert!(refused.message().contains("not readable"), "{refused:?}");
        join::join(&line, "a").await.unwrap();
    });
}
