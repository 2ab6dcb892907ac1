//! What is attached to nodes, and how much room drivers have.

use k8s_openapi::api::storage::v1::{CSIDriver, CSIStorageCapacity, VolumeAttachment};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::Volumes;
use crate::Malformed;
use crate::amount::Amount;
use crate::selector::{Labels, Selector};

/// A volume that is attached to a node, whether a pod uses it or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attachment {
    pub(crate) driver: String,
    pub(crate) volume: String,
}

/// The room that a driver has for volumes of a class on some nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Capacity {
    class: String,
    /// The largest volume that fits.
    largest: Option<Amount>,
    /// A selector that is missing or cannot be parsed selects no node.
    nodes: Selector,
}

impl Attachment {
    /// The name of the node and what is attached; `None` for a source that is no persistent volume.
    pub(crate) fn parse(attachment: &VolumeAttachment) -> Option<(String, Self)> {
        let spec = &attachment.spec;
        let volume = spec.source.persistent_volume_name.clone()?;
        let parsed = Self {
            driver: spec.attacher.clone(),
            volume,
        };
        (!spec.attacher.is_empty()).then(|| (spec.node_name.clone(), parsed))
    }
}

impl Capacity {
    pub(crate) fn parse(capacity: &CSIStorageCapacity) -> Result<Self, Malformed> {
        let amount = |field: &str, quantity: &Option<Quantity>| {
            let amount = quantity.as_ref().map(|quantity| Amount::parse(&quantity.0));
            amount
                .transpose()
                .map_err(|reason| Malformed::new(field, reason))
        };
        let largest = amount("maximumVolumeSize", &capacity.maximum_volume_size)?;
        let total = amount("capacity", &capacity.capacity)?;
        Ok(Self {
            class: capacity.storage_class_name.clone(),
            largest: largest.or(total),
            nodes: Selector::of(capacity.node_topology.as_ref()).unwrap_or(Selector::Nothing),
        })
    }

    fn holds(&self, class: &str, size: Amount, labels: &Labels) -> bool {
        let is_enough = self
            .largest
            .is_some_and(|largest| largest.value() >= size.value());
        self.class == class && is_enough && self.nodes.matches(labels)
    }
}

/// Whether a driver publishes the room that it has.
pub(crate) fn publishes_capacity(driver: &CSIDriver) -> bool {
    driver.spec.storage_capacity == Some(true)
}

impl Volumes {
    /// Whether `driver` has room for a volume of `class` on a node with `labels`; one that does not say has.
    pub(crate) fn has_room(
        &self,
        driver: &str,
        (class, size): (&str, Amount),
        labels: &Labels,
    ) -> bool {
        let mut all = self.capacities.values();
        !self.publishing.contains(driver) || all.any(|one| one.holds(class, size, labels))
    }
}
