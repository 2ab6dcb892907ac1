//! Control as the node reaches it: with the certificate for which it joins, or in plain text on the same host.

use anyhow::Result;
use dormouse_fleet::client::Target;
use dormouse_fleet::membership::{self, Membership};
use dormouse_trust::Identity;
use tracing::warn;

use crate::cli::run::Run;

/// The node's membership in a cluster with certificates, and control; none without `--control` and `--join`.
pub(super) async fn open(run: &Run) -> Result<(Option<Membership>, Option<Target>)> {
    // Before the node joins: its token may be valid once.
    let plain = plain(run)?;
    let membership = membership(run).await?;
    let control = control(run, plain, membership.as_ref())?;
    Ok((membership, control))
}

/// The node's certificate, which it joins for first if there is a line for it.
async fn membership(run: &Run) -> Result<Option<Membership>> {
    let folder = run.state_dir.join(membership::FOLDER);
    Ok(Membership::open(&folder, identity(run), run.join.as_deref()).await?)
}

fn identity(run: &Run) -> Identity {
    Identity::Node(run.node.node.clone())
}

/// Control on this host, as the node reaches it in plain text, also if it has a certificate of an earlier time.
fn plain(run: &Run) -> Result<Option<Target>> {
    let is_plain = |url: &&str| url.starts_with("http:");
    let Some(url) = run.control.as_deref().filter(is_plain) else {
        return Ok(None);
    };
    let target = membership::plain(url, &identity(run))?;
    warn!(
        url,
        "the stream is plain text: every process on this host can start pods here"
    );
    Ok(Some(target))
}

/// Control as the node reaches it.
fn control(
    run: &Run,
    plain: Option<Target>,
    membership: Option<&Membership>,
) -> Result<Option<Target>> {
    let url = run.control.as_deref();
    match (plain, membership, url) {
        (Some(target), ..) => Ok(Some(target)),
        (None, Some(membership), url) => Ok(Some(membership.target(url)?)),
        (None, None, Some(url)) => Ok(Some(membership::plain(url, &identity(run))?)),
        (None, None, None) => Ok(None),
    }
}
