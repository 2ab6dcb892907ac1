//! The plugins of each extension point, from the defaults and what a profile enables and disables.

use std::collections::BTreeSet;

use super::document::Field;
use crate::Malformed;
use crate::status::Plugin;

const PRE_ENQUEUE: [Plugin; 1] = [Plugin::SchedulingGates];
const PRE_FILTER: [Plugin; 11] = [
    Plugin::NodeAffinity,
    Plugin::NodePorts,
    Plugin::NodeResourcesFit,
    Plugin::VolumeRestrictions,
    Plugin::NodeVolumeLimits,
    Plugin::VolumeBinding,
    Plugin::VolumeZone,
    Plugin::PodTopologySpread,
    Plugin::InterPodAffinity,
    Plugin::DynamicResources,
    Plugin::NodeDeclaredFeatures,
];
const FILTER: [Plugin; 14] = [
    Plugin::NodeUnschedulable,
    Plugin::NodeName,
    Plugin::TaintToleration,
    Plugin::NodeAffinity,
    Plugin::NodePorts,
    Plugin::NodeResourcesFit,
    Plugin::VolumeRestrictions,
    Plugin::NodeVolumeLimits,
    Plugin::VolumeBinding,
    Plugin::VolumeZone,
    Plugin::PodTopologySpread,
    Plugin::InterPodAffinity,
    Plugin::DynamicResources,
    Plugin::NodeDeclaredFeatures,
];
const POST_FILTER: [Plugin; 2] = [Plugin::DynamicResources, Plugin::DefaultPreemption];
const PRE_SCORE: [Plugin; 6] = [
    Plugin::TaintToleration,
    Plugin::NodeAffinity,
    Plugin::NodeResourcesFit,
    Plugin::PodTopologySpread,
    Plugin::InterPodAffinity,
    Plugin::NodeResourcesBalancedAllocation,
];
/// With default weights. VolumeBinding and DynamicResources do not score.
const SCORE: [(Plugin, i64); 9] = [
    (Plugin::TaintToleration, 3),
    (Plugin::NodeAffinity, 2),
    (Plugin::NodeResourcesFit, 1),
    (Plugin::VolumeBinding, 1),
    (Plugin::PodTopologySpread, 2),
    (Plugin::InterPodAffinity, 2),
    (Plugin::DynamicResources, 2),
    (Plugin::NodeResourcesBalancedAllocation, 1),
    (Plugin::ImageLocality, 1),
];
const WEIGHT_MAX: i64 = 1_000_000;

/// The plugins of the extension points that decisions depend on.
#[derive(Clone, Debug)]
pub(super) struct Points {
    pub(super) pre_enqueue: Vec<Plugin>,
    pub(super) pre_filter: Vec<Plugin>,
    pub(super) filter: Vec<Plugin>,
    pub(super) post_filter: Vec<Plugin>,
    pub(super) pre_score: Vec<Plugin>,
    pub(super) score: Vec<(Plugin, i64)>,
}

/// What a profile says of one extension point.
#[derive(Default)]
struct Point {
    /// Plugins with their weights.
    enabled: Vec<(Plugin, i64)>,
    disabled: BTreeSet<Plugin>,
    disables_all: bool,
}

impl Default for Points {
    fn default() -> Self {
        Self {
            pre_enqueue: PRE_ENQUEUE.to_vec(),
            pre_filter: PRE_FILTER.to_vec(),
            filter: FILTER.to_vec(),
            post_filter: POST_FILTER.to_vec(),
            pre_score: PRE_SCORE.to_vec(),
            score: SCORE.to_vec(),
        }
    }
}

impl Points {
    pub(super) fn parse(field: &Field<'_>) -> Result<Self, Malformed> {
        field.only(&["multiPoint", "filter", "postFilter", "score"])?;
        let point = |name| Point::parse(field, name);
        let all = point("multiPoint")?;
        let (filter, post_filter, score) =
            (point("filter")?, point("postFilter")?, point("score")?);
        let keep = |plugins: &[Plugin]| -> Vec<Plugin> {
            let stay = plugins.iter().copied().filter(|one| !all.disables(*one));
            // Those that are enabled again come after all others, in the profile's order.
            let again = all.enabled.iter().map(|(plugin, _)| *plugin);
            let again = again.filter(|one| all.disables(*one) && plugins.contains(one));
            stay.chain(again).collect()
        };
        let kept_scores = keep(&SCORE.map(|(plugin, _)| plugin)).into_iter();
        let kept_scores =
            kept_scores.filter_map(|plugin| SCORE.into_iter().find(|(one, _)| *one == plugin));
        let with_weight = |(plugin, default)| (plugin, all.weight(plugin).unwrap_or(default));
        Ok(Self {
            pre_enqueue: keep(&PRE_ENQUEUE),
            pre_filter: keep(&PRE_FILTER),
            filter: filter.order(&keep(&FILTER)),
            post_filter: post_filter.order(&keep(&POST_FILTER)),
            pre_score: keep(&PRE_SCORE),
            score: score.apply(&kept_scores.map(with_weight).collect::<Vec<_>>()),
        })
    }
}

impl Point {
    fn parse(plugins: &Field<'_>, name: &str) -> Result<Self, Malformed> {
        let mut point = Self::default();
        let Some(field) = plugins.get(name) else {
            return Ok(point);
        };
        field.only(&["enabled", "disabled"])?;
        for one in field.items("disabled")? {
            one.only(&["name", "weight"])?;
            let named = one.required("name")?;
            if named.text()? == "*" {
                point.disables_all = true;
            } else {
                point.disabled.insert(plugin(&named)?);
            }
        }
        for one in field.items("enabled")? {
            one.only(&["name", "weight"])?;
            let named = one.required("name")?;
            let plugin = plugin(&named)?;
            if !can_extend(name, plugin) {
                return Err(named.error("the plugin does not extend this point"));
            }
            if point.enabled.iter().any(|(other, _)| *other == plugin) {
                return Err(named.error("a plugin is enabled twice"));
            }
            let weight = one.get("weight");
            let weight = weight
                .map(|weight| weight.integer(0..=WEIGHT_MAX))
                .transpose()?;
            // A weight of 0 is none, and counts as 1.
            let weight = weight.filter(|weight| *weight != 0).unwrap_or(1);
            point.enabled.push((plugin, weight));
        }
        Ok(point)
    }

    fn weight(&self, plugin: Plugin) -> Option<i64> {
        let enabled = self.enabled.iter().find(|(one, _)| *one == plugin);
        enabled.map(|(_, weight)| *weight)
    }

    fn disables(&self, plugin: Plugin) -> bool {
        self.disables_all || self.disabled.contains(&plugin)
    }

    /// The plugins of the point: the defaults to which the profile gives another weight, the other defaults, then what the profile enables
    /// that is no default.
    fn apply(&self, defaults: &[(Plugin, i64)]) -> Vec<(Plugin, i64)> {
        let stays = |plugin| !self.disables(plugin);
        let is_default = |plugin| defaults.iter().any(|(one, _)| *one == plugin);
        let configured = |plugin| is_default(plugin) && stays(plugin);
        let enabled = self.enabled.iter().copied();
        let (first, last): (Vec<_>, Vec<_>) = enabled.partition(|(plugin, _)| configured(*plugin));
        let others = defaults.iter().copied();
        let others = others.filter(|(plugin, _)| stays(*plugin) && self.weight(*plugin).is_none());
        first.into_iter().chain(others).chain(last).collect()
    }

    /// The same without weights.
    fn order(&self, defaults: &[Plugin]) -> Vec<Plugin> {
        let defaults: Vec<_> = defaults.iter().map(|plugin| (*plugin, 1)).collect();
        let all = self.apply(&defaults).into_iter();
        all.map(|(plugin, _)| plugin).collect()
    }
}

fn plugin(name: &Field<'_>) -> Result<Plugin, Malformed> {
    Plugin::by_name(name.text()?).ok_or_else(|| name.error("unknown plugin"))
}

fn can_extend(point: &str, plugin: Plugin) -> bool {
    match point {
        "filter" => FILTER.contains(&plugin),
        "postFilter" => POST_FILTER.contains(&plugin),
        "score" => SCORE.iter().any(|(one, _)| *one == plugin),
        _ => true,
    }
}
