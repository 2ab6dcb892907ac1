//! Profiles: defaults, order and weights of plugins, and refusals with their fields.

use serde_json::json;

use super::*;

fn refused(profile: &Value) -> String {
    Profile::parse(profile).unwrap_err().to_string()
}

#[test]
fn an_empty_profile_has_kubernetes_defaults() {
    let profile = Profile::parse(&json!({})).unwrap();
    assert_eq!(profile.name(), "default-scheduler");
    assert_eq!(profile.score[0], (Plugin::TaintToleration, 3));
    assert_eq!(profile.filter.len(), 14);
    assert!(profile.spread.is_system);
}

#[test]
fn scores_are_weighed_anew_or_left_out() {
    let scores = json!({"enabled": [{"name": "ImageLocality", "weight": 20}, {"name": "TaintToleration"}],
        "disabled": [{"name": "TaintToleration"}, {"name": "NodeAffinity"}]});
    let profile = Profile::parse(&json!({"plugins": {"score": scores}})).unwrap();
    let expected = [
        (Plugin::ImageLocality, 20),
        (Plugin::NodeResourcesFit, 1),
        (Plugin::VolumeBinding, 1),
        (Plugin::PodTopologySpread, 2),
        (Plugin::InterPodAffinity, 2),
        (Plugin::DynamicResources, 2),
        (Plugin::NodeResourcesBalancedAllocation, 1),
        (Plugin::TaintToleration, 1),
    ];
    assert_eq!(profile.score, expected);
    assert!(profile.filter.contains(&Plugin::TaintToleration));
}

#[test]
fn a_plugin_that_is_off_is_off_everywhere() {
    let off = json!({"disabled": [{"name": "TaintToleration"}, {"name": "DefaultPreemption"}]});
    let profile = Profile::parse(&json!({"plugins": {"multiPoint": off}})).unwrap();
    assert!(!profile.filter.contains(&Plugin::TaintToleration));
    assert_eq!(profile.score[0], (Plugin::NodeAffinity, 2));
    assert_eq!(profile.post_filter, [Plugin::DynamicResources]);
}

#[test]
fn what_is_not_supported_is_refused_with_its_field() {
    let config = |name: &str, args: Value| json!({"pluginConfig": [{"name": name, "args": args}]});
    let all = [
        (json!({"extenders": []}), "extenders: not supported"),
        (
            json!({"plugins": {"bind": {}}}),
            "plugins.bind: not supported",
        ),
        (
            json!({"plugins": {"score": {"enabled": [{"name": "Mine"}]}}}),
            "plugins.score.enabled[0].name: unknown plugin",
        ),
        (
            config("GangScheduling", json!({})),
            "pluginConfig[0].name: not supported",
        ),
        (
            config("InterPodAffinity", json!({"hardPodAffinityWeight": 101})),
            "pluginConfig[0].args.hardPodAffinityWeight: not an integer from 0 to 100",
        ),
        (
            config(
                "NodeResourcesFit",
                json!({"scoringStrategy": {"type": "Best"}}),
            ),
            "pluginConfig[0].args.scoringStrategy.type: unknown strategy",
        ),
        (
            config(
                "PodTopologySpread",
                json!({"defaultingType": "List", "defaultConstraints": [
                {"maxSkew": 0, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}]}),
            ),
            "pluginConfig[0].args.defaultConstraints[0].maxSkew: not an integer from 1 to 2147483647",
        ),
    ];
    for (profile, expected) in all {
        assert_eq!(refused(&profile), expected);
    }
}

#[test]
fn a_configuration_has_profiles_with_its_percentage() {
    let document = json!({"apiVersion": API_VERSION, "kind": "KubeSchedulerConfiguration",
        "percentageOfNodesToScore": 30,
        "profiles": [{"schedulerName": "a"}, {"schedulerName": "b", "percentageOfNodesToScore": 5}]});
    let profiles = Profile::parse_configuration(&document).unwrap();
    let percentages: Vec<_> = profiles.iter().map(|one| one.percentage).collect();
    assert_eq!(percentages, [30, 5]);
    let error =
        Profile::parse_configuration(&json!({"apiVersion": "v2", "kind": "x"})).unwrap_err();
    assert_eq!(error.field, "apiVersion");
}
