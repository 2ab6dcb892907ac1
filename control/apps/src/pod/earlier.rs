//! Pods that an earlier version created: the hash of their template has another form.

use std::hash::{DefaultHasher, Hash, Hasher};

use dormouse_cluster::{App, Object};

use super::{ObservedPod, template};

/// The hash of what a pod runs in today's form. A pod of an earlier version that runs what its app does has the app's hash,
/// so that an upgrade replaces no pod.
pub(crate) fn template_of(pod: &ObservedPod, app: Option<&App>) -> String {
    match app {
        Some(app) if pod.port.is_none() && pod.template == earlier(app) => template(app),
        _ => pod.template.clone(),
    }
}

/// The hash that pods without [`PORT_ANNOTATION`](super::PORT_ANNOTATION) have.
fn earlier(app: &App) -> String {
    let mut hasher = DefaultHasher::new();
    let key = app.key();
    (key.namespace, key.name, &app.metadata.uid).hash(&mut hasher);
    let container = serde_json::to_string(&app.spec.container).unwrap_or_default();
    (container, &app.spec.node_selector, app.spec.target_port()).hash(&mut hasher);
    app.spec.termination_grace_period_seconds.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn app(port: u16) -> App {
        let app = json!({
            "apiVersion": "dormouse.dev/v1alpha1", "kind": "App",
            "metadata": {"name": "web", "namespace": "shop", "uid": "a"},
            "spec": {"port": port, "container": {"name": "app", "command": ["serve"]}},
        });
        serde_json::from_value(app).unwrap()
    }

    #[test]
    fn a_pod_of_an_earlier_version_that_runs_what_its_app_does_has_the_apps_hash() {
        let pod = ObservedPod {
            template: "23a0fddfc21eeb56".into(),
            ..ObservedPod::default()
        };
        assert_eq!(earlier(&app(80)), pod.template);
        assert_eq!(template_of(&pod, Some(&app(80))), template(&app(80)));
        assert_eq!(template_of(&pod, Some(&app(81))), pod.template);
        assert_eq!(template_of(&pod, None), pod.template);
        let port = Some(80);
        let newer = ObservedPod { port, ..pod };
        assert_eq!(template_of(&newer, Some(&app(80))), newer.template);
    }
}
