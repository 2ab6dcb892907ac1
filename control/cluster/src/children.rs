//! Child apps: the revisions of an app that have a share of its traffic, or an address of their own. Each is an app with a VIP, which
//! sleeps, wakes and scales as any other; its template never changes, and its settings are those of its parent.

use dormouse_autoscaler::settings::is_annotation;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::app::PARENT_LABEL;
use crate::history::owner;
use crate::revision::key_of;
use crate::{App, AppSpec, Object, Scale, Template};

/// The child of an app that is the revision with this number, without uid and VIP. `pods_min`: `scale.min` of its manifest; if it is
/// not set, that of its parent.
pub fn child(parent: &App, number: u32, template: Template, pods_min: Option<u32>) -> App {
    let key = parent.key();
    let metadata = ObjectMeta {
        name: Some(key_of(&key, number).name),
        labels: Some([(PARENT_LABEL.to_owned(), key.name.clone())].into()),
        namespace: Some(key.namespace),
        owner_references: Some(vec![owner(parent)]),
        generation: Some(1),
        ..ObjectMeta::default()
    };
    let spec = spec(&parent.spec, template, pods_min);
    let mut child = App {
        metadata,
        spec,
        status: None,
    };
    copy_settings(parent, &mut child);
    child
}

/// Gives a child the annotations of its parent that are settings, and no others.
pub fn copy_settings(parent: &App, child: &mut App) {
    let annotations = child.metadata.annotations.get_or_insert_default();
    annotations.retain(|name, _| !is_annotation(name));
    let settings = parent.settings_annotations();
    annotations.extend(settings.map(|(name, value)| (name.clone(), value.clone())));
    if annotations.is_empty() {
        child.metadata.annotations = None;
    }
}

/// The manifest of a child with this template, without a VIP: the settings of its parent, which alone divides traffic.
pub fn spec(parent: &AppSpec, template: Template, pods_min: Option<u32>) -> AppSpec {
    AppSpec {
        vip: None,
        scale: Scale {
            min: pods_min.or(parent.scale.min),
            initial_scale: Some(0),
            // Else the scale may look like one that an earlier version wrote, in which the two zeros count as not set.
            serve_hysteresis: parent.scale.serve_hysteresis.or(Some(false)),
            ..parent.scale.clone()
        },
        paused: false,
        traffic: Vec::new(),
        rollout: None,
        sticky: None,
        ..parent.clone().with_template(template)
    }
}
