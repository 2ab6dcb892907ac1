//! A profile: the plugins of each extension point, their weights, and their arguments.

mod args;
mod document;
mod extender;
mod plugins;

use std::collections::BTreeSet;

use serde_json::Value;

use crate::Malformed;
use crate::node_selector::{NodeSelector, Preferences};
use crate::spread::{Action, Constraint};
use crate::status::Plugin;
use document::Field;
pub use extender::Extender;

/// The API version of a configuration.
const API_VERSION: &str = "kubescheduler.config.k8s.io/v1";
/// The name of the profile of pods that name none.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// A profile.
#[derive(Clone, Debug)]
pub struct Profile {
    name: String,
    pub(crate) pre_enqueue: Vec<Plugin>,
    pub(crate) pre_filter: Vec<Plugin>,
    pub(crate) filter: Vec<Plugin>,
    pub(crate) post_filter: Vec<Plugin>,
    pub(crate) pre_score: Vec<Plugin>,
    /// Plugins with their weights.
    pub(crate) score: Vec<(Plugin, i64)>,
    /// Percent of the nodes that are enough if they are feasible; 0 adapts to the number of nodes.
    pub(crate) percentage: i32,
    pub(crate) fit: FitArgs,
    /// The resources of NodeResourcesBalancedAllocation.
    pub(crate) balanced: Vec<String>,
    pub(crate) affinity: AffinityArgs,
    pub(crate) spread: SpreadArgs,
    pub(crate) node_affinity: NodeAffinityArgs,
    pub(crate) preemption: PreemptionArgs,
}

/// The arguments of NodeResourcesFit.
#[derive(Clone, Debug)]
pub(crate) struct FitArgs {
    pub(crate) ignored: BTreeSet<String>,
    pub(crate) ignored_groups: BTreeSet<String>,
    pub(crate) strategy: Strategy,
    pub(crate) resources: Vec<WeightedResource>,
}

/// How requested resources are scored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Strategy {
    LeastAllocated,
    MostAllocated,
    RequestedToCapacityRatio(Vec<ShapePoint>),
}

/// A point of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShapePoint {
    /// Percent.
    pub(crate) utilization: i64,
    /// From 0 to 100.
    pub(crate) score: i64,
}

/// A resource and its weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WeightedResource {
    pub(crate) name: String,
    pub(crate) weight: i64,
}

/// The arguments of InterPodAffinity.
#[derive(Clone, Debug)]
pub(crate) struct AffinityArgs {
    /// The weight of required affinity terms of pods that are there.
    pub(crate) hard_weight: i64,
    pub(crate) ignores_existing_preferences: bool,
}

/// The arguments of PodTopologySpread.
#[derive(Clone, Debug)]
pub(crate) struct SpreadArgs {
    pub(crate) constraints: Vec<Constraint>,
    /// The constraints are Kubernetes' own.
    pub(crate) is_system: bool,
}

/// The arguments of NodeAffinity.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeAffinityArgs {
    pub(crate) required: Option<NodeSelector>,
    pub(crate) preferred: Option<Preferences>,
}

/// The arguments of DefaultPreemption.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PreemptionArgs {
    /// Percent of the nodes on which preemption is tried.
    pub(crate) candidates_percentage: usize,
    /// The number of nodes on which it is tried at least.
    pub(crate) candidates_min: usize,
}

impl Default for FitArgs {
    fn default() -> Self {
        Self {
            ignored: BTreeSet::new(),
            ignored_groups: BTreeSet::new(),
            strategy: Strategy::LeastAllocated,
            resources: args::default_resources(),
        }
    }
}

impl Default for AffinityArgs {
    fn default() -> Self {
        Self {
            hard_weight: 1,
            ignores_existing_preferences: false,
        }
    }
}

impl Default for SpreadArgs {
    fn default() -> Self {
        let soft = |key, max_skew| Constraint::of_default(Action::ScheduleAnyway, key, max_skew);
        Self {
            constraints: vec![
                soft("kubernetes.io/hostname", 3),
                soft("topology.kubernetes.io/zone", 5),
            ],
            is_system: true,
        }
    }
}

impl Default for PreemptionArgs {
    fn default() -> Self {
        Self {
            candidates_percentage: 10,
            candidates_min: 100,
        }
    }
}

impl Default for Profile {
    fn default() -> Self {
        let points = plugins::Points::default();
        Self {
            name: DEFAULT_SCHEDULER.to_owned(),
            pre_enqueue: points.pre_enqueue,
            pre_filter: points.pre_filter,
            filter: points.filter,
            post_filter: points.post_filter,
            pre_score: points.pre_score,
            score: points.score,
            percentage: 0,
            fit: FitArgs::default(),
            balanced: args::default_resources()
                .into_iter()
                .map(|one| one.name)
                .collect(),
            affinity: AffinityArgs::default(),
            spread: SpreadArgs::default(),
            node_affinity: NodeAffinityArgs::default(),
            preemption: PreemptionArgs::default(),
        }
    }
}

/// A `KubeSchedulerConfiguration`.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// The profiles; without any, the default one.
    pub profiles: Vec<Profile>,
    /// The extenders, in the order in which they are asked.
    pub extenders: Vec<Extender>,
}

impl Configuration {
    /// Parses a configuration. What is not supported is refused.
    pub fn parse(document: &Value) -> Result<Self, Malformed> {
        let extenders = Extender::all(&Field::root(document))?;
        let mut document = document.clone();
        if let Some(fields) = document.as_object_mut() {
            fields.remove("extenders");
        }
        let mut profiles = Profile::parse_configuration(&document)?;
        for profile in &mut profiles {
            let ignored = extenders.iter().flat_map(|one| &one.ignored);
            profile.fit.ignored.extend(ignored.cloned());
        }
        Ok(Self {
            profiles,
            extenders,
        })
    }
}

impl Profile {
    /// The profiles of a `KubeSchedulerConfiguration`; without any, the default one. Extenders are refused.
    pub fn parse_configuration(document: &Value) -> Result<Vec<Self>, Malformed> {
        let document = Field::root(document);
        // The last seven have no influence on decisions.
        document.only(&[
            "apiVersion",
            "kind",
            "profiles",
            "percentageOfNodesToScore",
            "parallelism",
            "clientConnection",
            "leaderElection",
            "podInitialBackoffSeconds",
            "podMaxBackoffSeconds",
            "enableProfiling",
            "enableContentionProfiling",
        ])?;
        document.required("apiVersion")?.equals(API_VERSION)?;
        document
            .required("kind")?
            .equals("KubeSchedulerConfiguration")?;
        let global = percentage(&document)?.unwrap_or(0);
        let mut profiles = Vec::new();
        for field in document.items("profiles")? {
            let mut profile = Self::of_field(&field)?;
            if field.get("percentageOfNodesToScore").is_none() {
                profile.percentage = global;
            }
            if profiles
                .iter()
                .any(|other: &Self| other.name == profile.name)
            {
                return Err(field.error("two profiles have the same schedulerName"));
            }
            profiles.push(profile);
        }
        if profiles.is_empty() {
            profiles.push(Self::default().with_percentage(global));
        }
        Ok(profiles)
    }

    /// One profile; what is missing has its default. What is not supported is refused.
    pub fn parse(profile: &Value) -> Result<Self, Malformed> {
        Self::of_field(&Field::root(profile))
    }

    fn of_field(field: &Field<'_>) -> Result<Self, Malformed> {
        field.only(&[
            "schedulerName",
            "percentageOfNodesToScore",
            "plugins",
            "pluginConfig",
        ])?;
        let mut profile = Self::default();
        if let Some(name) = field.get("schedulerName") {
            name.text()?.clone_into(&mut profile.name);
        }
        profile.percentage = percentage(field)?.unwrap_or(0);
        if let Some(plugins) = field.get("plugins") {
            profile.set_plugins(&plugins)?;
        }
        let mut seen = BTreeSet::new();
        for config in field.items("pluginConfig")? {
            config.only(&["name", "args"])?;
            let name = config.required("name")?;
            if !seen.insert(name.text()?.to_owned()) {
                return Err(name.error("a plugin is configured twice"));
            }
            if let Some(args) = config.get("args") {
                profile.set_args(&name, &args)?;
            }
        }
        Ok(profile)
    }

    fn set_plugins(&mut self, field: &Field<'_>) -> Result<(), Malformed> {
        let points = plugins::Points::parse(field)?;
        self.pre_enqueue = points.pre_enqueue;
        self.pre_filter = points.pre_filter;
        self.filter = points.filter;
        self.post_filter = points.post_filter;
        self.pre_score = points.pre_score;
        self.score = points.score;
        Ok(())
    }

    /// The scheduler name of its pods.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The profile with another percentage of nodes to score: 0 adapts to the number of nodes.
    #[must_use]
    pub fn with_percentage(mut self, percentage: i32) -> Self {
        self.percentage = percentage.clamp(0, 100);
        self
    }
}

fn percentage(field: &Field<'_>) -> Result<Option<i32>, Malformed> {
    let Some(field) = field.get("percentageOfNodesToScore") else {
        return Ok(None);
    };
    let percentage = field.integer(0..=100)?;
    Ok(i32::try_from(percentage).ok())
}

#[cfg(test)]
mod tests;
