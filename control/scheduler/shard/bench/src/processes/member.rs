//! One member, which this program runs as in `dormouse scheduler` and `dormouse relay`.

use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use dormouse_cluster::Client;
use dormouse_scheduler::shards::{self, Join, Leases, MemberMetrics, Sharding};
use dormouse_scheduler::{Profile, Server};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// The name of the scheduler's Lease.
const SCHEDULER: &str = "bench";
/// The namespace of all Leases.
const NAMESPACE: &str = "kube-system";
/// No member is to leave while the machine is busy.
const LEASE: Duration = Duration::from_mins(1);
/// The relays below a relay, or below the leader.
const FAN_OUT: usize = 16;

/// The role of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    Leader,
    Relay,
    Shard,
}

impl Role {
    /// Its name as an argument.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Relay => "relay",
            Self::Shard => "shard",
        }
    }
}

/// Arguments of a member.
#[derive(Parser)]
pub(crate) struct Options {
    role: Role,
    #[arg(long)]
    name: String,
    #[arg(long)]
    store: String,
    #[arg(long)]
    window: usize,
}

/// Runs until it is killed.
#[tokio::main]
pub(crate) async fn run(options: Options) -> Result<()> {
    let client = Client::connect(&options.store).await?;
    let leases = Leases::in_store(client.clone(), NAMESPACE);
    let listener = TcpListener::bind("[::1]:0").await?;
    let never = CancellationToken::new();
    let role = match options.role {
        Role::Leader => {
            let sharding = Sharding {
                leases,
                scheduler: SCHEDULER.to_owned(),
                address: None,
                reach: shards::in_plain_text(),
                lease_duration: LEASE,
                fan_out: FAN_OUT,
                window: options.window,
                straggler_timeout: None,
            };
            let server = Server::new(client).with_shards(sharding);
            return server
                .follow(listener, never)
                .await
                .context("the leader failed");
        }
        Role::Relay => shards::Role::Relay,
        Role::Shard => shards::Role::Shard,
    };
    let join = Join {
        leases,
        scheduler: SCHEDULER.to_owned(),
        role,
        name: options.name,
        address: None,
        reach: shards::in_plain_text(),
        lease_duration: LEASE,
        straggler_timeout: None,
        profile: Profile::default(),
    };
    let metrics = MemberMetrics::registered(role, &mut Registry::default());
    join.run(listener.into(), metrics, never)
        .await
        .context("a member failed")
}
