//! The arguments of plugins.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::NodeAffinity;
use serde::Deserialize;

use super::document::Field;
use super::{
    AffinityArgs, FitArgs, NodeAffinityArgs, PreemptionArgs, Profile, ShapePoint, SpreadArgs,
    Strategy, WeightedResource,
};
use crate::Malformed;
use crate::label_syntax::key_errors;
use crate::node_selector::{NodeSelector, Preferences};
use crate::spread::{Action, Constraint};

/// The largest score of a point of a shape.
const SHAPE_SCORE_MAX: i64 = 10;

/// CPU and memory with the same weight.
pub(super) fn default_resources() -> Vec<WeightedResource> {
    let resource = |name: &str| WeightedResource {
        name: name.to_owned(),
        weight: 1,
    };
    vec![resource("cpu"), resource("memory")]
}

impl Profile {
    /// Sets the arguments of the plugin `name`.
    pub(super) fn set_args(&mut self, name: &Field<'_>, args: &Field<'_>) -> Result<(), Malformed> {
        match name.text()? {
            "NodeResourcesFit" => self.fit = fit(args)?,
            "NodeResourcesBalancedAllocation" => self.balanced = balanced(args)?,
            "InterPodAffinity" => self.affinity = affinity(args)?,
            "PodTopologySpread" => self.spread = spread(args)?,
            "NodeAffinity" => self.node_affinity = node_affinity(args)?,
            "DefaultPreemption" => self.preemption = preemption(args)?,
            // The time that binding may take has no influence on decisions.
            "VolumeBinding" => only(args, &["bindTimeoutSeconds"])?,
            _ => return Err(name.error("not supported")),
        }
        Ok(())
    }
}

/// An error if the arguments have other fields; their kind and version are not looked at.
fn only(args: &Field<'_>, names: &[&str]) -> Result<(), Malformed> {
    args.only(&[names, &["apiVersion", "kind"]].concat())
}

fn fit(args: &Field<'_>) -> Result<FitArgs, Malformed> {
    only(
        args,
        &[
            "ignoredResources",
            "ignoredResourceGroups",
            "scoringStrategy",
        ],
    )?;
    let mut parsed = FitArgs {
        ignored: names(args, "ignoredResources")?,
        ignored_groups: names(args, "ignoredResourceGroups")?,
        ..FitArgs::default()
    };
    for group in args.items("ignoredResourceGroups")? {
        if group.text()?.contains('/') {
            return Err(group.error("a group has no slash"));
        }
    }
    if let Some(field) = args.get("scoringStrategy") {
        field.only(&["type", "resources", "requestedToCapacityRatio"])?;
        parsed.strategy = strategy(&field)?;
        let resources = resources(&field, 1..=100)?;
        if !resources.is_empty() {
            parsed.resources = resources;
        }
    }
    Ok(parsed)
}

fn names(args: &Field<'_>, list: &str) -> Result<BTreeSet<String>, Malformed> {
    let mut all = BTreeSet::new();
    for name in args.items(list)? {
        let text = name.text()?;
        if let Some(error) = key_errors(text).first() {
            return Err(name.error(error));
        }
        all.insert(text.to_owned());
    }
    Ok(all)
}

fn strategy(field: &Field<'_>) -> Result<Strategy, Malformed> {
    const RATIO: &str = "requestedToCapacityRatio";
    let kind = field.required("type")?;
    let strategy = match kind.text()? {
        "LeastAllocated" => Strategy::LeastAllocated,
        "MostAllocated" => Strategy::MostAllocated,
        "RequestedToCapacityRatio" => {
            let ratio = field.required(RATIO)?;
            ratio.only(&["shape"])?;
            return shape(&ratio).map(Strategy::RequestedToCapacityRatio);
        }
        _ => return Err(kind.error("unknown strategy")),
    };
    match field.get(RATIO) {
        Some(ratio) => Err(ratio.error("only for the type RequestedToCapacityRatio")),
        None => Ok(strategy),
    }
}

fn shape(ratio: &Field<'_>) -> Result<Vec<ShapePoint>, Malformed> {
    let mut points: Vec<ShapePoint> = Vec::new();
    for point in ratio.items("shape")? {
        point.only(&["utilization", "score"])?;
        let number = |name: &str, max| {
            let field = point.get(name);
            field.map_or(Ok(0), |field| field.integer(0..=max))
        };
        let utilization = number("utilization", 100)?;
        if points
            .last()
            .is_some_and(|last| last.utilization >= utilization)
        {
            return Err(point.error("utilizations must increase"));
        }
        points.push(ShapePoint {
            utilization,
            score: number("score", SHAPE_SCORE_MAX)? * SHAPE_SCORE_MAX,
        });
    }
    if points.is_empty() {
        return Err(ratio.error("shape needs a point"));
    }
    Ok(points)
}

fn resources(
    args: &Field<'_>,
    weights: std::ops::RangeInclusive<i64>,
) -> Result<Vec<WeightedResource>, Malformed> {
    let mut all = Vec::new();
    for resource in args.items("resources")? {
        resource.only(&["name", "weight"])?;
        let weight = resource
            .get("weight")
            .filter(|weight| weight.value().as_i64() != Some(0));
        all.push(WeightedResource {
            name: resource.required("name")?.text()?.to_owned(),
            weight: weight.map_or(Ok(1), |weight| weight.integer(weights.clone()))?,
        });
    }
    Ok(all)
}

fn balanced(args: &Field<'_>) -> Result<Vec<String>, Malformed> {
    only(args, &["resources"])?;
    let mut given = resources(args, 1..=1)?;
    if given.is_empty() {
        given = default_resources();
    }
    let mut all = Vec::new();
    for resource in given {
        if all.contains(&resource.name) {
            return Err(args.error("a resource is named twice"));
        }
        all.push(resource.name);
    }
    Ok(all)
}

fn affinity(args: &Field<'_>) -> Result<AffinityArgs, Malformed> {
    const HARD: &str = "hardPodAffinityWeight";
    const IGNORE: &str = "ignorePreferredTermsOfExistingPods";
    only(args, &[HARD, IGNORE])?;
    Ok(AffinityArgs {
        hard_weight: args
            .get(HARD)
            .map_or(Ok(1), |weight| weight.integer(0..=100))?,
        ignores_existing_preferences: args.get(IGNORE).map_or(Ok(false), |flag| flag.flag())?,
    })
}

fn spread(args: &Field<'_>) -> Result<SpreadArgs, Malformed> {
    only(args, &["defaultConstraints", "defaultingType"])?;
    let constraints = args.items("defaultConstraints")?;
    let kind = args.get("defaultingType");
    match kind.as_ref().map(Field::text).transpose()? {
        None | Some("System") if constraints.is_empty() => Ok(SpreadArgs::default()),
        None | Some("System") => Err(args.error("defaultConstraints need the defaultingType List")),
        Some("List") => Ok(SpreadArgs {
            constraints: constraints
                .iter()
                .map(constraint)
                .collect::<Result<_, _>>()?,
            is_system: false,
        }),
        Some(_) => Err(args.error("unknown defaultingType")),
    }
}

fn constraint(field: &Field<'_>) -> Result<Constraint, Malformed> {
    field.only(&["maxSkew", "topologyKey", "whenUnsatisfiable"])?;
    let key = field.required("topologyKey")?;
    if let Some(error) = key_errors(key.text()?).first() {
        return Err(key.error(error));
    }
    let action = field.required("whenUnsatisfiable")?;
    let parsed = Action::parse(action.text()?).ok_or_else(|| action.error("unknown action"))?;
    let max_skew = field
        .required("maxSkew")?
        .integer(1..=i64::from(i32::MAX))?;
    Ok(Constraint::of_default(parsed, key.text()?, max_skew))
}

fn node_affinity(args: &Field<'_>) -> Result<NodeAffinityArgs, Malformed> {
    only(args, &["addedAffinity"])?;
    let Some(field) = args.get("addedAffinity") else {
        return Ok(NodeAffinityArgs::default());
    };
    let parsed = NodeAffinity::deserialize(field.value());
    let parsed = parsed.map_err(|error| field.error(&error.to_string()))?;
    let required = parsed.required_during_scheduling_ignored_during_execution;
    let required = required.as_ref().map(NodeSelector::lenient);
    if let Some(error) = required.as_ref().and_then(NodeSelector::errors) {
        return Err(field.error(&error));
    }
    let preferred = parsed.preferred_during_scheduling_ignored_during_execution;
    let preferred = preferred.filter(|terms| !terms.is_empty());
    let preferred = preferred
        .map(|terms| Preferences::parse(&terms))
        .transpose();
    Ok(NodeAffinityArgs {
        required,
        preferred: preferred.map_err(|error| field.error(&error))?,
    })
}

fn preemption(args: &Field<'_>) -> Result<PreemptionArgs, Malformed> {
    const PERCENTAGE: &str = "minCandidateNodesPercentage";
    const ABSOLUTE: &str = "minCandidateNodesAbsolute";
    only(args, &[PERCENTAGE, ABSOLUTE])?;
    let number = |name, default: usize, max| {
        let field = args.get(name);
        let number = field.map(|field| field.integer(0..=max)).transpose()?;
        Ok(number.map_or(default, |number| usize::try_from(number).unwrap_or(default)))
    };
    let default = PreemptionArgs::default();
    let parsed = PreemptionArgs {
        candidates_percentage: number(PERCENTAGE, default.candidates_percentage, 100)?,
        candidates_min: number(ABSOLUTE, default.candidates_min, i64::from(i32::MAX))?,
    };
    if parsed.candidates_percentage == 0 && parsed.candidates_min == 0 {
        return Err(args.error("preemption needs a candidate"));
    }
    Ok(parsed)
}
