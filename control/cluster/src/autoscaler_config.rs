//! Knative's ConfigMap `config-autoscaler`: the autoscaling settings of apps that set none.

use std::collections::BTreeMap;

use dormouse_autoscaler::settings::{Cluster, Fault, Refused};
use k8s_openapi::api::core::v1::ConfigMap;

use crate::Key;

/// The namespace of the ConfigMap.
pub const NAMESPACE: &str = "dormouse-system";
/// The name of the ConfigMap.
pub const NAME: &str = "config-autoscaler";

/// The key of the ConfigMap.
pub fn key() -> Key {
    Key::new(NAMESPACE, NAME)
}

/// The settings of a ConfigMap. Its keys that are absent have the values of `defaults`; unknown ones are ignored, as Knative does.
pub fn settings(map: &ConfigMap, defaults: Cluster) -> Result<Cluster, Refused> {
    of_entries(map.data.as_ref().unwrap_or(&BTreeMap::new()), defaults)
}

/// The settings of a ConfigMap that is not valid: each key counts that is valid together with those before it.
pub fn settings_of_valid_keys(map: &ConfigMap, defaults: &Cluster) -> Cluster {
    let (mut valid, mut settings) = (BTreeMap::new(), defaults.clone());
    for (key, value) in map.data.iter().flatten() {
        valid.insert(key.clone(), value.clone());
        match of_entries(&valid, defaults.clone()) {
            Ok(read) => settings = read,
            Err(_) => drop(valid.remove(key)),
        }
    }
    settings
}

fn of_entries(entries: &BTreeMap<String, String>, defaults: Cluster) -> Result<Cluster, Refused> {
    let cluster = defaults.with_entries(entries)?;
    // An app that sets nothing must be valid: there is no autoscaler of another class.
    let (_, faults): (_, Vec<Fault>) = cluster.annotated(&BTreeMap::new());
    if faults.is_empty() {
        Ok(cluster)
    } else {
        Err(Refused { faults })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: &[(&str, &str)]) -> ConfigMap {
        let entries = entries.iter();
        let data = entries.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        ConfigMap {
            data: Some(data.collect()),
            ..ConfigMap::default()
        }
    }

    #[test]
    fn the_settings_are_those_of_the_keys_and_of_the_defaults() {
        let defaults = Cluster::starting_asleep(7_000);
        let read = |entries: &[(&str, &str)]| settings(&map(entries), defaults.clone());
        assert_eq!(read(&[("_example", "x: y")]), Ok(defaults.clone()));
        let set = read(&[("min-scale", "2")]).unwrap();
        let set = set.settings(&set.annotated(&BTreeMap::new()).0, 0, true);
        assert_eq!((set.min_scale, set.scale_to_zero_grace_ms), (2, 7_000));
        let empty = settings(&ConfigMap::default(), defaults.clone());
        assert_eq!(empty, Ok(defaults.clone()));
    }

    #[test]
    fn of_a_config_map_that_is_not_valid_the_other_keys_count() {
        let defaults = Cluster::starting_asleep(1);
        let of = |entries: &[(&str, &str)]| settings_of_valid_keys(&map(entries), &defaults);
        let valid = [("min-scale", "2"), ("stable-window", "40s")];
        let expected = settings(&map(&valid), defaults.clone()).unwrap();
        let all: Vec<_> = [("max-scale-limit", "x"), ("pod-autoscaler-class", "y")]
            .into_iter()
            .chain(valid)
            .collect();
        assert_eq!(of(&all), expected);
        let limits = [("max-scale", "3"), ("max-scale-limit", "5")];
        let expected = settings(&map(&limits), defaults.clone()).unwrap();
        let [max, limit] = limits;
        assert_eq!(of(&[max, limit, ("min-scale", "4")]), expected);
        // A limit needs a maximum.
        assert_eq!(of(&[limit]), defaults);
    }

    #[test]
    fn a_class_without_an_autoscaler_is_refused() {
        let read = |class| {
            let map = map(&[("pod-autoscaler-class", class)]);
            settings(&map, Cluster::starting_asleep(1))
        };
        assert!(read("kpa.autoscaling.knative.dev").is_ok());
        let refused = read("hpa.autoscaling.knative.dev").unwrap_err();
        assert_eq!(refused.faults[0].key, "pod-autoscaler-class");
    }
}
