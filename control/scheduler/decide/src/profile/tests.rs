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

fn extender(more: &Value) -> Result<Configuration, String> {
    let mut extender = json!({"urlPrefix": "http://[::1]:1/x/", "filterVerb": "filter"});
    for (field, value) in more.as_object().unwrap() {
        extender[field] = value.clone();
    }
    let document = json!({"apiVersion": API_VERSION, "kind": "KubeSchedulerConfiguration", "extenders": [extender]});
    Configuration::parse(&document).map_err(|error| error.to_string())
}

#[test]
fn an_extender_has_kubernetes_defaults_and_its_ignored_resources_are_those_of_the_profiles() {
    let resources = json!([{"name": "gpu", "ignoredByScheduler": true}, {"name": "fpga"}]);
    let more = json!({"httpTimeout": "150ms", "managedResources": resources, "bindVerb": ""});
    let Configuration {
        profiles,
        extenders,
    } = extender(&more).unwrap();
    assert!(profiles[0].fit.ignored.contains("gpu") && !profiles[0].fit.ignored.contains("fpga"));
    assert_eq!(extenders[0].url_prefix, "http://[::1]:1/x");
    assert_eq!(extenders[0].timeout.as_millis(), 150);
    assert!(!extenders[0].ignorable && !extenders[0].node_cache_capable);
    let pod = |part: &str, resource: &str| {
        let container = json!({"name": "c", "resources": {part: {resource: "1"}}});
        serde_json::from_value(json!({"spec": {"containers": [container]}})).unwrap()
    };
    let is_interested = |part, resource| extenders[0].is_interested(&pod(part, resource));
    assert!(is_interested("requests", "gpu") && is_interested("limits", "fpga"));
    assert!(!is_interested("requests", "cpu"));
    let all = extender(&json!({"httpTimeout": "0s"})).unwrap().extenders;
    assert!(all[0].is_interested(&pod("requests", "cpu")));
    assert_eq!(all[0].timeout.as_secs(), 5);
}

#[test]
fn what_an_extender_cannot_have_is_refused_with_its_field() {
    for (more, reason) in [
        (
            json!({"preemptVerb": "preempt"}),
            "extenders[0].preemptVerb: not supported",
        ),
        (
            json!({"tlsConfig": {"insecure": true}}),
            "extenders[0].tlsConfig.insecure: not supported",
        ),
        (
            json!({"enableHTTPS": true}),
            "extenders[0].enableHTTPS: tlsConfig.caFile is required",
        ),
        (
            json!({"urlPrefix": "ftp://x"}),
            "extenders[0].urlPrefix: not the URL of an HTTP service",
        ),
        (
            json!({"urlPrefix": "https://x"}),
            "extenders[0]: a URL of https needs tlsConfig.caFile",
        ),
        (
            json!({"httpTimeout": "soon"}),
            "extenders[0].httpTimeout: not a duration",
        ),
        (
            json!({"prioritizeVerb": "p"}),
            "extenders[0]: an extender with a prioritizeVerb has a positive weight",
        ),
        (
            json!({"weight": -1}),
            "extenders[0].weight: not an integer from",
        ),
    ] {
        let refused = extender(&more).unwrap_err();
        assert!(refused.starts_with(reason), "{refused}");
    }
    let binder = json!({"urlPrefix": "http://x", "bindVerb": "bind"});
    let two = json!({"apiVersion": API_VERSION, "kind": "KubeSchedulerConfiguration", "extenders": [binder, binder]});
    let refused = Configuration::parse(&two).unwrap_err().to_string();
    assert_eq!(refused, "extenders[1]: only one extender can bind");
}
