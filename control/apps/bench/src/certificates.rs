//! Certificates of nodes, issued by the authority of the measured control plane.

use std::time::{Duration, SystemTime};

use anyhow::Result;
use dormouse_fleet::client::Target;
use dormouse_trust::{Authority, Current, Identity, Validity, client, folder};

use crate::control::Site;

/// The URL of the fleet.
const FLEET: &str = "https://[::1]:7443";
/// Life of the certificates: longer than a run.
const LIFE: Duration = Duration::from_hours(24);

/// The authority of a control plane.
pub(crate) struct Certificates(Authority);

impl Certificates {
    /// The authority of a control plane that has started.
    pub(crate) fn of(site: Site<'_>) -> Result<Self> {
        Ok(Self(folder::embedded(&site.pki()?, SystemTime::now())?))
    }

    /// The fleet, as the node of this name reaches it.
    pub(crate) fn node(&self, name: &str) -> Result<Target> {
        let validity = Validity::issued(SystemTime::now(), LIFE, None);
        let credentials = self.0.client(&Identity::node(name)?, validity)?;
        let authorities = [self.0.certificate().clone()];
        let config = client::config(&authorities, Some(Current::new(credentials)?))?;
        Ok(Target::secured(FLEET, config)?)
    }
}
