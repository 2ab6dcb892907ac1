//! The apps controller, with the fleet's epoch, which it holds as long as it runs.

use anyhow::{Context, Result, bail, ensure};
use dormouse_activator::link;
use dormouse_apps::epoch;
use dormouse_cluster::claim::Claims;
use dormouse_cluster::{Channel, Client};
use dormouse_fleet::ServerConfig;
use dormouse_scheduler::SchedulerClient;

use super::store::Standby;
use super::{Roles, checks};

/// The controller's handles.
pub(super) struct Controller {
    /// The epoch of this control plane.
    pub(super) epoch: u64,
    pub(super) fleet: dormouse_fleet::Handle,
    pub(super) hub: link::Hub,
    pub(super) apps: dormouse_apps::Handle,
}

impl Roles {
    /// Takes the fleet's epoch, and starts the scheduler, the fleet, the link to the activators and the apps controller.
    pub(super) async fn controller(
        &mut self,
        claims: &Claims,
        client: &Client,
        (scheduler, standby): (Channel, Option<Standby>),
    ) -> Result<Controller> {
        let epoch = epoch::take(client)
            .await
            .context("failed to take control of the fleet")?;
        let node_config = self.options.node_config(claims.ranges(), epoch.cluster);
        let epoch = epoch.number;
        let config = ServerConfig {
            lease: self.options.node_lease,
            reserved: self.options.service_networks(),
            own: self.options.own_addresses(),
            ..ServerConfig::new(epoch, node_config)
        };
        let (fleet, fleet_events) = dormouse_fleet::start(config, self.shutdown.clone());
        self.hold_epoch(client.clone(), epoch, fleet.clone());
        let (hub, link_events) = link::start(epoch);
        let changes = self.follow(client, standby);
        let config = dormouse_apps::Config {
            ranges: claims.ranges().to_vec(),
            scale_to_zero_grace: self.options.scale_to_zero_grace,
            tick: dormouse_apps::TICK,
            epoch,
            node_lease: self.options.node_lease,
            limits: self.options.limits(),
        };
        let parts = dormouse_apps::Parts {
            client: client.clone(),
            claims: claims.clone(),
            changes,
            scheduler: SchedulerClient::new(scheduler),
            fleet: fleet.clone(),
            fleet_events,
            hub: hub.clone(),
            link_events,
        };
        let (apps, controller) = dormouse_apps::start(config, parts, self.shutdown.clone());
        apps.register(&mut self.registry);
        let checked = apps.clone();
        self.checks
            .add("apps", move || checks::apps(checked.clone()));
        let shutdown = self.shutdown.clone();
        self.running.spawn(async move {
            controller.await;
            ensure!(
                shutdown.is_cancelled(),
                "the apps controller lost its watch of the store: restart the control plane, it lists the store at start"
            );
            Ok(())
        });
        Ok(Controller {
            epoch,
            fleet,
            hub,
            apps,
        })
    }

    /// Confirms the epoch for the fleet. Ends this control plane when another one has taken it: its own writes are refused from then
    /// on.
    fn hold_epoch(&mut self, client: Client, epoch: u64, fleet: dormouse_fleet::Handle) {
        let (shutdown, lease) = (self.shutdown.clone(), self.options.node_lease);
        self.running.spawn(async move {
            let held = epoch::hold(&client, epoch, lease, &fleet);
            match shutdown.run_until_cancelled(held).await {
                None => Ok(()),
                Some(newer) => bail!(
                    "another control plane has taken over the fleet with epoch {newer}, this one had {epoch}: it ends, so that only one scales the apps"
                ),
            }
        });
    }
}
