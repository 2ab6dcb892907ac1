//! Changes of the objects that plugins look up: namespaces, budgets, workloads, volumes.

use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{
    Namespace, PersistentVolume as ApiVolume, PersistentVolumeClaim, ReplicationController, Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::{
    CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment,
};

use super::Snapshot;
use crate::Malformed;
use crate::budgets::Budget;
use crate::volumes::{
    Attachment, Capacity, Claim, Class, PersistentVolume, limits, publishes_capacity,
};
use crate::workloads::{key, set};

impl Snapshot {
    /// Notes a change, if it is one.
    fn note(&mut self, is_new: bool) {
        self.objects_revision += u64::from(is_new);
    }

    /// Notes a change of what the rules of pods refer to, if it is one.
    fn note_selector(&mut self, is_new: bool) {
        self.selectors_revision += u64::from(is_new);
        self.note(is_new);
    }

    /// Adds a namespace, or replaces it. One that is unknown has no labels.
    pub fn set_namespace(&mut self, namespace: &Namespace) {
        let labels = namespace.metadata.labels.clone().unwrap_or_default();
        let name = key(&namespace.metadata).1;
        let is_new = set(&mut self.namespaces, name, labels.into());
        self.note_selector(is_new);
    }

    /// Removes a namespace.
    pub fn remove_namespace(&mut self, name: &str) {
        let is_known = self.namespaces.remove(name).is_some();
        self.note_selector(is_known);
    }

    /// Adds a PodDisruptionBudget, or replaces it.
    pub fn set_budget(&mut self, budget: &PodDisruptionBudget) {
        let parsed = Budget::parse(budget);
        let is_new = set(&mut self.budgets, key(&budget.metadata), parsed);
        self.note(is_new);
    }

    /// Removes a PodDisruptionBudget.
    pub fn remove_budget(&mut self, namespace: &str, name: &str) {
        let key = (namespace.to_owned(), name.to_owned());
        let is_known = self.budgets.remove(&key).is_some();
        self.note(is_known);
    }

    /// Adds a Service, or replaces it.
    pub fn set_service(&mut self, service: &Service) {
        let is_new = self.workloads.set_service(service);
        self.note_selector(is_new);
    }

    /// Removes a Service.
    pub fn remove_service(&mut self, namespace: &str, name: &str) {
        let is_new = self.workloads.remove_service(namespace, name);
        self.note_selector(is_new);
    }

    /// Adds a ReplicationController, or replaces it.
    pub fn set_replication_controller(&mut self, controller: &ReplicationController) {
        let is_new = self.workloads.set_replication_controller(controller);
        self.note_selector(is_new);
    }

    /// Removes a ReplicationController.
    pub fn remove_replication_controller(&mut self, namespace: &str, name: &str) {
        let is_new = self
            .workloads
            .remove_replication_controller(namespace, name);
        self.note_selector(is_new);
    }

    /// Adds a ReplicaSet, or replaces it.
    pub fn set_replica_set(&mut self, set: &ReplicaSet) {
        let is_new = self.workloads.set_replica_set(set);
        self.note_selector(is_new);
    }

    /// Removes a ReplicaSet.
    pub fn remove_replica_set(&mut self, namespace: &str, name: &str) {
        let is_new = self.workloads.remove_replica_set(namespace, name);
        self.note_selector(is_new);
    }

    /// Adds a StatefulSet, or replaces it.
    pub fn set_stateful_set(&mut self, set: &StatefulSet) {
        let is_new = self.workloads.set_stateful_set(set);
        self.note_selector(is_new);
    }

    /// Removes a StatefulSet.
    pub fn remove_stateful_set(&mut self, namespace: &str, name: &str) {
        let is_new = self.workloads.remove_stateful_set(namespace, name);
        self.note_selector(is_new);
    }

    /// Adds a claim, or replaces it.
    pub fn set_claim(&mut self, claim: &PersistentVolumeClaim) -> Result<(), Malformed> {
        let parsed = Claim::parse(claim)?;
        let is_new = set(&mut self.volumes.claims, key(&claim.metadata), parsed);
        self.note(is_new);
        Ok(())
    }

    /// Removes a claim.
    pub fn remove_claim(&mut self, namespace: &str, name: &str) {
        let key = (namespace.to_owned(), name.to_owned());
        let is_known = self.volumes.claims.remove(&key).is_some();
        self.note(is_known);
    }

    /// Adds a persistent volume, or replaces it.
    pub fn set_volume(&mut self, volume: &ApiVolume) -> Result<(), Malformed> {
        let parsed = PersistentVolume::parse(volume)?;
        let name = parsed.name.clone();
        let is_new = set(&mut self.volumes.persistent, name, parsed);
        self.note(is_new);
        Ok(())
    }

    /// Removes a persistent volume.
    pub fn remove_volume(&mut self, name: &str) {
        let is_known = self.volumes.persistent.remove(name).is_some();
        self.note(is_known);
    }

    /// Adds a storage class, or replaces it.
    pub fn set_storage_class(&mut self, class: &StorageClass) -> Result<(), Malformed> {
        let (name, parsed) = Class::parse(class)?;
        let is_new = set(&mut self.volumes.classes, name, parsed);
        self.note(is_new);
        Ok(())
    }

    /// Removes a storage class.
    pub fn remove_storage_class(&mut self, name: &str) {
        let is_known = self.volumes.classes.remove(name).is_some();
        self.note(is_known);
    }

    /// Adds the attach limits of a node, or replaces them.
    pub fn set_csi_node(&mut self, node: &CSINode) -> Result<(), Malformed> {
        let (name, limits) = limits(node)?;
        let is_new = set(&mut self.volumes.limits, name, limits);
        self.note(is_new);
        Ok(())
    }

    /// Removes the attach limits of a node.
    pub fn remove_csi_node(&mut self, name: &str) {
        let is_known = self.volumes.limits.remove(name).is_some();
        self.note(is_known);
    }

    /// Adds an attachment of a volume to a node, or replaces it.
    pub fn set_attachment(&mut self, attachment: &VolumeAttachment) {
        let name = key(&attachment.metadata).1;
        let parsed = Attachment::parse(attachment);
        let mut known = self.volumes.attachments.iter();
        let known = known.find_map(|(node, all)| Some((node, all.get(&name)?)));
        if known == parsed.as_ref().map(|(node, one)| (node, one)) {
            return;
        }
        self.remove_attachment(&name);
        if let Some((node, parsed)) = parsed {
            let of_node = self.volumes.attachments.entry(node).or_default();
            of_node.insert(name, parsed);
            self.note(true);
        }
    }

    /// Removes an attachment.
    pub fn remove_attachment(&mut self, name: &str) {
        let mut is_known = false;
        for of_node in self.volumes.attachments.values_mut() {
            is_known |= of_node.remove(name).is_some();
        }
        self.note(is_known);
    }

    /// Adds a CSI driver, or replaces it.
    pub fn set_csi_driver(&mut self, driver: &CSIDriver) {
        let name = key(&driver.metadata).1;
        let is_new = if publishes_capacity(driver) {
            self.volumes.publishing.insert(name)
        } else {
            self.volumes.publishing.remove(&name)
        };
        self.note(is_new);
    }

    /// Removes a CSI driver.
    pub fn remove_csi_driver(&mut self, name: &str) {
        let is_known = self.volumes.publishing.remove(name);
        self.note(is_known);
    }

    /// Adds the room that a driver has, or replaces it.
    pub fn set_capacity(&mut self, capacity: &CSIStorageCapacity) -> Result<(), Malformed> {
        let parsed = Capacity::parse(capacity)?;
        let key = key(&capacity.metadata);
        let is_new = set(&mut self.volumes.capacities, key, parsed);
        self.note(is_new);
        Ok(())
    }

    /// Removes the room that a driver has.
    pub fn remove_capacity(&mut self, namespace: &str, name: &str) {
        let key = (namespace.to_owned(), name.to_owned());
        let is_known = self.volumes.capacities.remove(&key).is_some();
        self.note(is_known);
    }
}
