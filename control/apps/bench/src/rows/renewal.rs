//! Renewal of all certificates under load, with short lives: streams that end, and requests that fail.

mod load;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dormouse_fleet::client::Target;
use dormouse_fleet::membership::{FOLDER, Membership};
use dormouse_rows::{Bound, Row, say};
use dormouse_trust::Identity;
use tokio::process::Command;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::{Options, folder};
use crate::control::{Server, Site, warnings};
use crate::node::{self, Nodes};
use crate::place::ACTING_PREFIX;
use load::Load;

/// The store's URL.
const STORE: &str = "https://[::1]:2379";
/// Life of the certificates; they are renewed at two thirds of it.
const LIFE: &str = "10s";
const LIFE_TIME: Duration = Duration::from_secs(10);
/// Nodes, which have joined with a token and renew their certificates.
const NODES: u16 = 50;
/// Roles in processes of their own.
const ROLES: [&str; 2] = ["scheduler", "activator"];

pub(super) async fn run(options: &Options) -> Result<()> {
    let folder = folder()?;
    let site = options.site(&folder);
    let flags = ["--certificate-life", LIFE, "--without", &ROLES.join(",")];
    let up = site.secured(&flags).await?;
    let shutdown = CancellationToken::new();
    let _end = shutdown.clone().drop_guard();
    let roles = start_roles(site).await?;
    let line = token(site, &[]).await?;
    let mut targets = Vec::new();
    for number in 0..NODES {
        let identity = Identity::node(&node::name(number))?;
        targets.push(join(site, identity, &line, None, &shutdown).await?);
    }
    let line = token(site, &["--role", "bench"]).await?;
    let store = join(
        site,
        Identity::control("bench")?,
        &line,
        Some(STORE),
        &shutdown,
    )
    .await?;
    let nodes = Nodes::at(targets, &Handle::current());
    nodes.are_open().await?;
    let before = nodes.streams();
    let began = Instant::now();
    let load = Load::run(site, &store, &nodes, options.renewal_time).await?;
    let lost = nodes.streams().lost - before.lost;
    let times = began.elapsed().as_secs_f64() / (LIFE_TIME.as_secs_f64() * 2.0 / 3.0);
    report(&load, lost, times)?;
    for role in ROLES.into_iter().chain(["up"]) {
        let lines = warnings(site.folder, role);
        let name = format!("the same: warnings in the log of {role}");
        Row::new(name, lines.len() as f64, "").print()?;
        for line in lines.iter().take(5) {
            say(line);
        }
    }
    drop(nodes);
    for role in roles {
        role.stop().await?;
    }
    up.stop().await
}

fn report(load: &Load, lost: usize, times: f64) -> Result<()> {
    let name = format!(
        "renewal of the certificates of control, {} roles and {NODES} nodes, each about {times:.0} times, under load",
        ROLES.len()
    );
    Row::new(
        format!("{name}: streams of nodes that ended"),
        lost as f64,
        "",
    )
    .must(Bound::AtMost(0.0))
    .print()?;
    for (what, count) in load.counts() {
        Row::new(format!("the same: {what}"), count.sent as f64, "").print()?;
        Row::new(format!("the same: {what}, failed"), count.failed as f64, "")
            .must(Bound::AtMost(0.0))
            .print()?;
    }
    Ok(())
}

async fn start_roles(site: Site<'_>) -> Result<Vec<Server>> {
    let state = site.folder.join("roles");
    let state = state.to_str().context("a folder's name is not UTF-8")?;
    let mut roles = Vec::new();
    for role in ROLES {
        let line = token(site, &["--role", role]).await?;
        let metrics = if role == "scheduler" {
            "[::1]:10251"
        } else {
            "[::1]:9091"
        };
        let mut arguments = vec![
            role,
            "--join",
            &line,
            "--state-dir",
            state,
            "--metrics-listen",
            metrics,
        ];
        if role == "activator" {
            arguments.extend(["--acting-prefix", ACTING_PREFIX]);
        }
        roles.push(site.start(role, &arguments)?);
    }
    Ok(roles)
}

/// A new line with which processes join, as `dormouse token create` prints it.
async fn token(site: Site<'_>, words: &[&str]) -> Result<String> {
    let output = command(site)?
        .args(["token", "create"])
        .args(words)
        .output()
        .await;
    let output = output.context("failed to start dormouse")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`dormouse token create`: {errors}");
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// `dormouse` with the administrator's kubeconfig of that time.
fn command(site: Site<'_>) -> Result<Command> {
    let mut command = Command::new(site.program);
    command.env("KUBECONFIG", site.kubeconfig()?);
    command.kill_on_drop(true);
    Ok(command)
}

/// Joins, and renews the certificate until `shutdown`.
async fn join(
    site: Site<'_>,
    identity: Identity,
    line: &str,
    url: Option<&str>,
    shutdown: &CancellationToken,
) -> Result<Target> {
    let folder = site.folder.join(identity.name()).join(FOLDER);
    let membership = Membership::open(&folder, identity, Some(line)).await?;
    let membership = membership.context("a process has not joined")?;
    let target = membership.target(url)?;
    tokio::spawn(membership.renew(shutdown.clone()));
    Ok(target)
}
