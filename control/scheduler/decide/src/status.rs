//! The names of the plugins, and the verdicts that they give.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A plugin, in the order of its default profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are Kubernetes'")]
pub enum Plugin {
    SchedulingGates,
    PrioritySort,
    NodeUnschedulable,
    NodeName,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    VolumeRestrictions,
    NodeVolumeLimits,
    VolumeBinding,
    VolumeZone,
    PodTopologySpread,
    InterPodAffinity,
    DynamicResources,
    NodeDeclaredFeatures,
    DefaultPreemption,
    NodeResourcesBalancedAllocation,
    ImageLocality,
    DefaultBinder,
}

impl Plugin {
    /// All plugins.
    pub const ALL: [Self; 20] = [
        Self::SchedulingGates,
        Self::PrioritySort,
        Self::NodeUnschedulable,
        Self::NodeName,
        Self::TaintToleration,
        Self::NodeAffinity,
        Self::NodePorts,
        Self::NodeResourcesFit,
        Self::VolumeRestrictions,
        Self::NodeVolumeLimits,
        Self::VolumeBinding,
        Self::VolumeZone,
        Self::PodTopologySpread,
        Self::InterPodAffinity,
        Self::DynamicResources,
        Self::NodeDeclaredFeatures,
        Self::DefaultPreemption,
        Self::NodeResourcesBalancedAllocation,
        Self::ImageLocality,
        Self::DefaultBinder,
    ];

    /// The plugin by its name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|plugin| plugin.to_string() == name)
    }
}

impl fmt::Display for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The kind of a verdict against a node or a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Code {
    /// Preemption could help.
    Unschedulable,
    /// Preemption cannot help.
    UnschedulableAndUnresolvable,
    /// The attempt failed.
    Error,
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A verdict against a node or a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Status {
    /// The plugin that gave it.
    pub plugin: Option<Plugin>,
    /// Its kind.
    pub code: Code,
    /// The reasons.
    pub reasons: Vec<String>,
}

impl Status {
    pub(crate) fn new(code: Code, reason: impl Into<String>) -> Self {
        Self {
            plugin: None,
            code,
            reasons: vec![reason.into()],
        }
    }

    /// A verdict that preemption could change.
    pub fn unschedulable(reason: impl Into<String>) -> Self {
        Self::new(Code::Unschedulable, reason)
    }

    /// A verdict that preemption cannot change.
    pub fn unresolvable(reason: impl Into<String>) -> Self {
        Self::new(Code::UnschedulableAndUnresolvable, reason)
    }

    pub(crate) fn error(reason: impl Into<String>) -> Self {
        Self::new(Code::Error, reason)
    }

    pub(crate) fn of(mut self, plugin: Plugin) -> Self {
        self.plugin = Some(plugin);
        self
    }

    /// The reasons as one text.
    pub fn message(&self) -> String {
        self.reasons.join(", ")
    }
}
