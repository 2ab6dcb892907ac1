//! The explanation of an app's settings: those that are not the defaults, each with its source, and what does not count.

use dormouse_cluster::App;

use crate::settings::InForce;

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
