//! `dormouse scheduler --shard` and `dormouse relay`: members of a sharded scheduler, each in a process of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use dormouse_scheduler::shards::{Join, MemberMetrics, Reach, Role};
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;

use crate::cli::Connection;
use crate::flags::period;
use crate::listen::listen;
use crate::metrics;
use crate::role::Member;
use crate::scheduler::Cluster;

/// Open connections from other members; further ones wait. Each member has one to each other, at most.
pub(crate) const CONNECTIONS_MAX: usize = 4_096;

/// What `dormouse relay --help` says first.
pub const RELAY: &str = "Run a relay of a sharded scheduler

A scheduler with shards (dormouse scheduler --shards) asks all of them about each pod. With tens of shards, put relays between: \
each passes questions on to the members below it, merges their answers, and gathers all answers for its part of the pods. \
Relays and shards register by Leases; the leader finds them there, and divides nodes and pods among them again when one comes or goes. \
A relay holds no state that lasts: kill and restart it as you like.";

/// What the help of `dormouse scheduler` and `dormouse relay` says last.
pub const EXAMPLE: &str = "Examples:
  A scheduler with two shards and a relay on this host (docs/SCHEDULER.md):
    dormouse store &
    dormouse scheduler --shards &
    dormouse scheduler --shard --name a --listen [::1]:10260 --metrics-listen [::1]:10261 &
    dormouse scheduler --shard --name b --listen [::1]:10262 --metrics-listen [::1]:10263 &
    dormouse relay --name a &";

/// The options that all members have.
#[derive(Args, Debug, Clone)]
pub struct Membership {
    /// URL at which the other members reach this one; with an address to listen on that is not of one interface, it must be
    /// given [default: the listen address]
    #[arg(long, value_name = "URL")]
    pub advertise: Option<String>,
    /// Time without a renewal after which a member has left, or another leader may take the Lease; whole seconds
    #[arg(long, default_value = "15s", value_parser = period, value_name = "TIME")]
    pub lease_duration: Duration,
    /// Leave out shards that have not answered in this time [default: wait for all]. Decisions without all answers are inexact: they
    /// are counted, and the pod's event says so. Relays need it too
    #[arg(long, value_parser = period, value_name = "TIME")]
    pub straggler_timeout: Option<Duration>,
}

impl Membership {
    /// Checks what the parser cannot.
    pub(crate) fn check(&self, listen: SocketAddr) -> Result<()> {
        ensure!(
            self.lease_duration >= Duration::from_secs(1),
            "--lease-duration is at least 1s: Leases have whole seconds"
        );
        ensure!(
            self.advertise.is_some() || !listen.ip().is_unspecified(),
            "--listen {listen} is every address of this host: give the one at which members reach it, as --advertise https://HOST:PORT"
        );
        Ok(())
    }

    /// A shard or a relay with these options.
    pub(crate) async fn join(
        self,
        role: Role,
        name: Option<String>,
        listen: SocketAddr,
        (cluster, connection, member): (&Cluster, &Connection, &Member),
    ) -> Result<Join> {
        self.check(listen)?;
        Ok(Join {
            profile: cluster.only_profile()?,
            leases: cluster.leases(connection, member).await?,
            scheduler: cluster.leader_elect_resource_name.clone(),
            role,
            name: name.unwrap_or_else(dormouse_scheduler::host),
            address: self.advertise,
            reach: reach(member),
            lease_duration: self.lease_duration,
            straggler_timeout: self.straggler_timeout,
        })
    }
}

/// The options of `dormouse relay`.
#[derive(Args, Debug, Clone)]
pub struct RelayOptions {
    /// Name among the relays; two of one name refuse to run together [default: the host's name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Listen address
    #[arg(long, default_value = "[::1]:10264")]
    pub listen: SocketAddr,
    /// How it registers.
    #[command(flatten)]
    pub membership: Membership,
    /// What it decides on, and by which profile.
    #[command(flatten)]
    pub cluster: Cluster,
    /// Listen address of the metrics and of /healthz. With a certificate it has TLS; without one, other hosts get /healthz only
    #[arg(long, default_value = "[::1]:10265", env = "DORMOUSE_METRICS_LISTEN")]
    pub metrics_listen: SocketAddr,
}

/// Runs a relay.
pub async fn run_relay(
    options: RelayOptions,
    connection: Connection,
    shutdown: CancellationToken,
) -> Result<()> {
    let RelayOptions {
        name,
        listen,
        membership,
        cluster,
        metrics_listen,
    } = options;
    let at = (listen, metrics_listen);
    let member = cluster.join.open(Role::Relay.name(), &shutdown).await?;
    let of = (&cluster, &connection, &member);
    let join = membership.join(Role::Relay, name, listen, of);
    run(join.await?, at, &member, shutdown).await
}

/// How a process reaches the members of its scheduler: as the other roles.
pub(crate) fn reach(member: &Member) -> Reach {
    let peers = member.peers.clone();
    Arc::new(move |url| peers.target(url).map_err(|error| format!("{error:#}")))
}

/// Runs a shard or a relay.
pub(crate) async fn run(
    join: Join,
    (listen_at, metrics_at): (SocketAddr, SocketAddr),
    member: &Member,
    shutdown: CancellationToken,
) -> Result<()> {
    let role = join.role;
    let incoming = member.incoming(listen(listen_at, role.name()).await?, CONNECTIONS_MAX)?;
    let metrics_incoming = member.metrics(listen(metrics_at, "metrics").await?);
    let mut registry = Registry::default();
    let member_metrics = MemberMetrics::registered(role, &mut registry);
    let running = async {
        let ended = join.run(incoming, member_metrics, shutdown.clone()).await;
        shutdown.cancel();
        ended.with_context(|| format!("the {} failed", role.name()))
    };
    let metered = async {
        let pages = metrics::of_role(registry);
        metrics::serve(metrics_incoming, pages, None, shutdown.clone())
            .await
            .context("metrics failed")
    };
    tokio::try_join!(running, metered).map(|_ended| ())
}
