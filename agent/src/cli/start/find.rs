//! Finds out what the node uses: by flags, by its Node object, or by the copy of it from the last start. Where neither says it, the
//! node waits, and says for what.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dormouse_agent_inspect::kernel::Kernel;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tracing::{info, warn};

use super::{Listeners, Signals};
use crate::addresses::{self, Addresses};
use crate::cli::run::Run;
use crate::cni::{self, Refusal};
use crate::node_status::Local;
use crate::own_node::{Described, Given, Missing, NoPods, Place, choose, saved};
use crate::source::kubernetes::Kubernetes;
use crate::{metadata, metrics};

/// The pause between two questions to the metadata service.
const METADATA_AGAIN: Duration = Duration::from_secs(10);

/// What the node uses; none: a signal ended the wait for it.
pub(super) async fn find(
    run: &Run,
    kubernetes: Option<&mut Kubernetes>,
    listeners: &Listeners,
    signals: &mut Signals,
) -> Result<Option<Place>> {
    let given = run.node.given()?;
    check_address(&given)?;
    let saved = saved::load(&run.state_dir, &run.node.node);
    let missing = match try_find(run, &given, saved.as_ref()) {
        Ok(place) => return Ok(Some(place)),
        Err(missing) => missing,
    };
    let kubernetes = kubernetes.ok_or(missing)?;
    let waiting = Waiting { run, given };
    waiting.find(kubernetes, listeners, signals).await
}

/// What the status of the node needs to compare what it uses with what its object says.
pub(super) fn local(run: &Run, place: &Place) -> Local {
    Local {
        given: run.node.given().unwrap_or_default(),
        profile: run.node.network_profile,
        place: place.clone(),
        uplink: run.node.uplink.clone(),
        state_dir: run.state_dir.clone(),
    }
}

fn try_find(run: &Run, given: &Given, described: Option<&Described>) -> Result<Place, Missing> {
    // Without the list, no address of the object counts as this machine's.
    let local = addresses::all().unwrap_or_default();
    let (profile, node) = (run.node.network_profile, &run.node.node);
    choose(given, profile, node, described, &local)
}

/// Checks that the node has the address: activators send to it, and packets to another one would be lost silently.
fn check_address(given: &Given) -> Result<()> {
    let Some(address) = given.address else {
        return Ok(());
    };
    let here = addresses::all().context("failed to list this machine's addresses")?;
    ensure!(
        here.contains(&IpAddr::V6(address)),
        "--address {address}: no interface of this machine has it; give the node's own address on the uplink"
    );
    Ok(())
}

/// A node that waits for its Node object.
struct Waiting<'a> {
    run: &'a Run,
    given: Given,
}

impl Waiting<'_> {
    /// Waits until the object says what the node needs. Meanwhile, requests get the reason.
    async fn find(
        &self,
        kubernetes: &mut Kubernetes,
        listeners: &Listeners,
        signals: &mut Signals,
    ) -> Result<Option<Place>> {
        let mut addresses = Addresses::open().context("failed to watch the node's addresses")?;
        let (refusal, refused) = watch::channel(temporary(String::new()));
        let turned_away = cni::turn_away(&listeners.plugin, refused.clone());
        let incoming = metrics::incoming(twin(&listeners.metrics)?, listeners.metrics_tls.as_ref());
        let answered = metrics::serve_waiting(incoming, refused);
        let (mut turned_away, mut answered) =
            (std::pin::pin!(turned_away), std::pin::pin!(answered));
        loop {
            let missing = match self.attempt(kubernetes).await {
                Ok(place) => return Ok(Some(place)),
                Err(missing) => missing,
            };
            note(&missing, &refusal);
            let asks_again = matches!(missing, Missing::Metadata { .. });
            tokio::select! {
                batch = kubernetes.next() => drop(batch),
                () = tokio::time::sleep(METADATA_AGAIN), if asks_again => {}
                () = addresses.changed() => {}
                ended = &mut turned_away => ended.context("failed to serve the plugin")?,
                ended = &mut answered => ended.context("failed to serve metrics")?,
                () = signals.next() => return Ok(None),
            }
        }
    }

    /// What the object says now. A copy of it is saved, unless it gives pods no usable range: then the next agent reads the object again.
    async fn attempt(&self, kubernetes: &Kubernetes) -> Result<Place, Missing> {
        let node = kubernetes.own_node().borrow().clone();
        if node.is_none() && kubernetes.knows_node() {
            return Err(Missing::Absent(self.run.node.node.clone()));
        }
        let mut described = node.as_deref().map(Described::of);
        if let Some(described) = &mut described
            && self
                .given
                .asks_metadata(self.run.node.network_profile, described)
        {
            described.in_metadata = in_metadata(&self.run.node.uplink).await;
        }
        let place = try_find(self.run, &self.given, described.as_ref())?;
        info!(
            node = self.run.node.node,
            "the Node object says what this node needs"
        );
        if let Some(described) = &described
            && !place.pods.as_ref().is_err_and(NoPods::is_by_object)
            && let Err(error) = saved::save(&self.run.state_dir, described)
        {
            warn!(%error, "failed to save what the Node object says: the next agent waits for it");
        }
        Ok(place)
    }
}

/// The prefix of the uplink by the machine's metadata service. A service that does not answer is logged, and counts as one without.
async fn in_metadata(uplink: &str) -> Option<String> {
    let uplink = uplink.to_owned();
    let asked = tokio::task::spawn_blocking(move || {
        let links = Kernel::look()?.links;
        let link = links.iter().find(|link| link.name == uplink);
        link.map_or(Ok(None), |link| metadata::ipv6_prefix(&link.mac))
    });
    match asked.await.map_err(std::io::Error::other).flatten() {
        Ok(prefix) => prefix,
        Err(error) => {
            warn!(%error, "the metadata service was not read");
            None
        }
    }
}

/// Logs for what the node waits, once, and makes it the answer to requests.
fn note(missing: &Missing, refusal: &watch::Sender<Refusal>) {
    let new = temporary(missing.to_string());
    if *refusal.borrow() != new {
        warn!(reason = %missing, "waiting: nothing is changed on this node until then");
        refusal.send_replace(new);
    }
}

fn temporary(reason: String) -> Refusal {
    Refusal {
        reason,
        is_temporary: true,
    }
}

/// Another descriptor of the same listening socket.
fn twin(listener: &TcpListener) -> Result<TcpListener> {
    let copy = nix::unistd::dup(listener).context("failed to share the metrics server's socket")?;
    Ok(TcpListener::from_std(copy.into())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_another_machine_is_refused_by_its_flag() {
        let given = |address: &str| Given {
            address: Some(address.parse().unwrap()),
            ..Given::default()
        };
        check_address(&given("::1")).unwrap();
        let error = check_address(&given("2001:db8::77")).unwrap_err();
        assert!(error.to_string().starts_with("--address 2001:db8::77"));
    }
}
