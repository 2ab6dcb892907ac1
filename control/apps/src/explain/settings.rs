//! The explanation of an app's settings: those that are not the defaults, each with its source, and what does not count.

use dormouse_autoscaler::settings::{Cluster, Given};
use dormouse_cluster::App;

use crate::record::AppRecord;
use crate::settings::InForce;

/// The least number of pods without load, with the setting that gives it.
pub(super) fn least(record: &AppRecord) -> String {
    let min = record.settings.min_scale;
    if min == 0 {
        return "enable-scale-to-zero false of the ConfigMap config-autoscaler".to_owned();
    }
    named(record, |given| given.min_scale.is_some(), "min", min)
}

/// The greatest number of pods, with the setting that gives it.
pub(super) fn most(record: &AppRecord) -> String {
    let max = record.settings.max_scale;
    named(record, |given| given.max_scale.is_some(), "max", max)
}

/// A number of pods with its source: `which` is the field of `spec.scale`, and begins the names of the annotation and of the key.
fn named(record: &AppRecord, is_given: fn(&Given) -> bool, which: &str, pods: i32) -> String {
    let Some(app) = record.app.as_deref() else {
        return format!("scale.{which} {pods}");
    };
    // Whether an annotation is there does not depend on the ConfigMap.
    let cluster = Cluster::starting_asleep(0);
    let annotations = app.metadata.annotations.as_ref();
    let is_annotated =
        annotations.is_some_and(|annotations| is_given(&cluster.annotated(annotations).0));
    if is_given(&app.spec.scale.given()) {
        format!("scale.{which} {pods}")
    } else if is_annotated {
        format!("annotation {which}-scale {pods}")
    } else {
        format!("{which}-scale {pods} of the ConfigMap config-autoscaler")
    }
}

/// The settings of an app, asleep or awake.
pub(crate) fn settings(app: &App, in_force: &InForce) -> Vec<String> {
    let cluster = in_force.get();
    let explained = app.explained_settings(&cluster, in_force.defaults());
    let explained = explained.iter();
    let explained = explained.map(|one| format!("{} {}: {}", one.name, one.value, one.source));
    let ignored = app.autoscaling(&cluster).ignored.into_iter();
    explained
        .chain(ignored.map(|fault| format!("ignored: annotation {fault}")))
        .collect()
}
