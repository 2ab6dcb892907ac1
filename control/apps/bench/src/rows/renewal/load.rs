//! The load during a renewal: requests to the store on one connection and on new ones, commands to the API, and wakes of apps.

use std::time::{Duration, Instant};

use anyhow::Result;
use dormouse_cluster::{Client, channel};
use dormouse_fleet::client::Target;
use dormouse_rows::say;
use tokio::time::MissedTickBehavior;

use super::command;
use crate::app::Fleet;
use crate::control::Site;
use crate::node::Nodes;
use crate::watch::Watch;

/// Interval of requests to the store on one connection, of those on new ones, of commands and of wakes.
const KEPT: Duration = Duration::from_millis(2);
const NEW: Duration = Duration::from_millis(50);
const COMMANDS: Duration = Duration::from_millis(200);
const WAKES: Duration = Duration::from_millis(50);
/// Longest time until the last woken app has its pod.
const WAKE_LIMIT: Duration = Duration::from_secs(30);
/// A prefix without keys.
const PREFIX: &str = "/registry/dormouse.dev/none/";

/// Requests of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Count {
    pub(super) sent: u64,
    pub(super) failed: u64,
}

/// The counts of a run.
pub(super) struct Load {
    kept: Count,
    new: Count,
    commands: Count,
    wakes: Count,
}

impl Load {
    /// Loads a control plane for this long.
    pub(super) async fn run(
        site: Site<'_>,
        store: &Target,
        nodes: &Nodes,
        time: Duration,
    ) -> Result<Self> {
        let client = client(store).await?;
        let apps = u32::try_from(time.as_millis() / WAKES.as_millis())?;
        let fleet = Fleet::usual(0, apps);
        fleet.put(&client).await?;
        let watch = Watch::start(&client).await?;
        let until = Instant::now() + time;
        let (kept, new, commands, wakes) = futures::try_join!(
            each(KEPT, until, async || read(&client).await),
            each(NEW, until, async || read(&self::client(store).await?).await),
            each(COMMANDS, until, async || get(site).await),
            wake(fleet, nodes, &watch),
        )?;
        Ok(Self {
            kept,
            new,
            commands,
            wakes,
        })
    }

    /// The counts by name.
    pub(super) fn counts(&self) -> [(&'static str, Count); 4] {
        [
            ("requests to the store on one connection", self.kept),
            ("requests to the store on a new connection each", self.new),
            (
                "`dormouse get apps` with the administrator's kubeconfig",
                self.commands,
            ),
            ("wakes of apps", self.wakes),
        ]
    }
}

async fn client(store: &Target) -> Result<Client> {
    Ok(Client::over(channel::over(store.clone().lazy())).await?)
}

async fn read(client: &Client) -> Result<()> {
    client.range(PREFIX, 0).await?;
    Ok(())
}

async fn get(site: Site<'_>) -> Result<()> {
    let output = command(site)?
        .args(["get", "apps", "--namespace", "tenant-000"])
        .output()
        .await?;
    let errors = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "`dormouse get apps`: {errors}");
    Ok(())
}

/// Sends a request in each interval, one after the other.
async fn each(
    interval: Duration,
    until: Instant,
    request: impl AsyncFn() -> Result<()>,
) -> Result<Count> {
    let mut count = Count::default();
    let mut pace = tokio::time::interval(interval);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while Instant::now() < until {
        pace.tick().await;
        count.sent += 1;
        if let Err(error) = request().await {
            count.failed += 1;
            say(&format!("a request failed: {error:#}"));
        }
    }
    Ok(count)
}

/// Wakes one app after the other; one has failed if it has no pod in time.
async fn wake(fleet: Fleet, nodes: &Nodes, watch: &Watch) -> Result<Count> {
    let mut pace = tokio::time::interval(WAKES);
    for vip in fleet.vips() {
        pace.tick().await;
        nodes.wake(std::iter::once(vip)).await?;
    }
    let keys: Vec<_> = fleet.vips().map(|vip| fleet.key(vip)).collect();
    let all = watch.until("a pod of each app", WAKE_LIMIT, |seen| {
        seen.has_first(&keys)
    });
    if let Err(error) = all.await {
        say(&format!("{error:#}"));
    }
    let has_none = |key: &&_| watch.first(key).is_none();
    Ok(Count {
        sent: keys.len() as u64,
        failed: keys.iter().filter(has_none).count() as u64,
    })
}
