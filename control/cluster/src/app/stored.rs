//! An app as the store has it: the few fields that a sleeping app needs, decoded, and the whole object as JSON.

use std::collections::BTreeMap;
use std::{borrow::Cow, fmt, net::Ipv6Addr, time::Duration};

use dormouse_autoscaler::settings::{Cluster, Given, is_floor_annotation};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use super::scale::scale_of_any_version;
use super::{App, Mode, Scale, State, count, port_default, timeout_default, wake_timeout};
use crate::Period;

/// An app in the store. Decoding one costs a fraction of decoding the whole object.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts of the object"
)]
pub struct StoredApp {
    /// The store's revision of the object.
    pub revision: u64,
    /// `metadata.uid`; empty if it is not set.
    pub uid: String,
    /// The VIP; set on every app that the API created.
    pub vip: Option<Ipv6Addr>,
    /// The port of the VIP.
    pub port: u16,
    /// Requests in flight that a pod accepts; 0 is no limit.
    pub container_concurrency: u32,
    /// Longest time from the first byte of a request to the first byte of its response.
    pub timeout: Duration,
    /// Longest time for which a request is parked while the app has no ready pod.
    pub wake_timeout: Duration,
    /// Minimum number of pods in the manifest.
    min: Option<u32>,
    /// Number of pods in the manifest that a new app starts with.
    initial: Option<u32>,
    /// The annotations that set them.
    annotations: BTreeMap<String, String>,
    /// The minimum that its share of an app's traffic needs for now.
    floor: u32,
    /// A status was written about one of its manifests.
    is_observed: bool,
    /// Its traffic is divided between revisions, or moves: it has a full record, also while it sleeps.
    pub has_traffic: bool,
    /// Its traffic is divided, or may be by its manifest.
    pub may_divide: bool,
    /// The name of the app of which this is a revision that gets traffic.
    pub parent: Option<String>,
    /// The status is that of an app in proxy mode that has no pods, wants none, and has no problem.
    pub asleep: bool,
    json: Vec<u8>,
}

impl StoredApp {
    /// Decodes the value of an app's key.
    pub fn decode(json: Vec<u8>, revision: u64) -> Result<Self, serde_json::Error> {
        let brief: Brief<'_> = serde_json::from_slice(&json)?;
        let status = brief.status.as_ref();
        let has_traffic = status.is_some_and(Status::divides_traffic);
        Ok(Self {
            revision,
            uid: brief.metadata.uid.unwrap_or_default().into_owned(),
            vip: brief.spec.vip,
            port: brief.spec.port,
            container_concurrency: brief.spec.scale.container_concurrency,
            timeout: brief.spec.timeout.get(),
            wake_timeout: wake_timeout(brief.spec.wake_timeout.as_ref(), brief.spec.timeout.get()),
            min: brief.spec.scale.min,
            initial: brief.spec.scale.initial_scale,
            annotations: brief.metadata.annotations.unwrap_or_default().0,
            floor: status.map_or(0, |status| status.pods_min),
            is_observed: status.is_some_and(|status| status.observed_generation.is_some()),
            has_traffic,
            may_divide: has_traffic || brief.spec.divides_traffic(),
            parent: brief.metadata.labels.parent.map(Cow::into_owned),
            asleep: brief.status.is_some_and(|status| status.is_asleep()),
            json,
        })
    }

    /// Number of pods without load.
    pub fn pods_idle(&self, cluster: &Cluster) -> i32 {
        self.floors(cluster).0
    }

    /// Number of pods that a new app starts with; at least the minimum.
    pub fn pods_at_start(&self, cluster: &Cluster) -> i32 {
        let (min, initial) = self.floors(cluster);
        min.max(initial)
    }

    /// Whether no control has seen the app yet, and the app itself sets the number of pods that it starts with.
    pub fn is_unseen(&self, cluster: &Cluster) -> bool {
        !self.is_observed && self.given(cluster).initial_scale.is_some()
    }

    fn given(&self, cluster: &Cluster) -> Given {
        let given = Given {
            min_scale: self.min.map(count),
            initial_scale: self.initial.map(count),
            ..Given::default()
        };
        given.or(cluster.annotated(&self.annotations).0)
    }

    /// The minimum and the initial number of pods.
    fn floors(&self, cluster: &Cluster) -> (i32, i32) {
        let given = self.given(cluster);
        let settings = cluster.settings(&given, self.container_concurrency, true);
        let idle = settings.pods_idle().max(count(self.floor));
        (idle, settings.initial_scale)
    }

    /// The whole object.
    pub fn app(&self) -> Result<App, serde_json::Error> {
        let mut app: App = serde_json::from_slice(&self.json)?;
        app.metadata.resource_version = Some(self.revision.to_string());
        Ok(app)
    }
}

#[derive(Deserialize)]
struct Brief<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
    spec: Spec,
    #[serde(borrow, default)]
    status: Option<Status<'a>>,
}

#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(borrow, default)]
    uid: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    labels: Labels<'a>,
    #[serde(default)]
    annotations: Option<Annotations>,
}

/// The annotations that decide how many pods an app without load has. Others are not copied.
#[derive(Default)]
struct Annotations(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Annotations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(AnnotationsVisitor)
    }
}

struct AnnotationsVisitor;

impl<'de> Visitor<'de> for AnnotationsVisitor {
    type Value = Annotations;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("annotations")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Annotations, A::Error> {
        let mut found = BTreeMap::new();
        while let Some(Name(name)) = map.next_key()? {
            if is_floor_annotation(&name) {
                found.insert(name.into_owned(), map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(Annotations(found))
    }
}

/// A name that is copied only if it has escapes.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize, Default)]
struct Labels<'a> {
    #[serde(borrow, default, rename = "dormouse.dev/parent")]
    parent: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    vip: Option<Ipv6Addr>,
    #[serde(default = "port_default")]
    port: u16,
    #[serde(default = "timeout_default")]
    timeout: Period,
    #[serde(default)]
    wake_timeout: Option<Period>,
    #[serde(default, deserialize_with = "scale_of_any_version")]
    scale: Scale,
    #[serde(default)]
    traffic: Vec<IgnoredAny>,
    #[serde(default)]
    rollout: Option<IgnoredAny>,
}

impl Spec {
    fn divides_traffic(&self) -> bool {
        !self.traffic.is_empty() || self.rollout.is_some()
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Status<'a> {
    state: State,
    mode: Mode,
    ready: u32,
    wanted: u32,
    #[serde(borrow)]
    reason: Option<Cow<'a, str>>,
    traffic: Vec<IgnoredAny>,
    rollout: Option<IgnoredAny>,
    traffic_move: Option<IgnoredAny>,
    pods_min: u32,
    observed_generation: Option<IgnoredAny>,
}

impl Status<'_> {
    fn divides_traffic(&self) -> bool {
        !self.traffic.is_empty() || self.rollout.is_some() || self.traffic_move.is_some()
    }

    fn is_asleep(&self) -> bool {
        (self.state, self.mode) == (State::Asleep, Mode::Proxy)
            && (self.ready, self.wanted) == (0, 0)
            && self.reason.is_none()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::app::PARENT_LABEL;

    fn stored(status: &Value) -> StoredApp {
        let app = json!({
            "apiVersion": "dormouse.dev/v1alpha1", "kind": "App",
            "metadata": {"name": "web", "namespace": "shop", "uid": "a\"b"},
            "spec": {
                "vip": "fd00:10::1", "container": {"name": "app"}, "timeout": "7s", "wakeTimeout": "3s",
                "scale": {"initialScale": 2, "containerConcurrency": 3},
            },
            "status": status,
        });
        StoredApp::decode(serde_json::to_vec(&app).unwrap(), 9).unwrap()
    }

    #[test]
    fn the_decoded_fields_are_those_of_the_whole_object() {
        let stored = stored(&json!({}));
        let app = stored.app().unwrap();
        assert_eq!(app.metadata.uid.as_deref(), Some(stored.uid.as_str()));
        assert_eq!((app.vip(), app.spec.port), (stored.vip, stored.port));
        assert_eq!(app.spec.timeout(), stored.timeout);
        assert_eq!(app.spec.wake_timeout(), stored.wake_timeout);
        assert_eq!(stored.wake_timeout, Duration::from_secs(3));
        let limit = app.spec.scale.container_concurrency;
        assert_eq!((limit, stored.container_concurrency), (3, 3));
        assert_eq!(app.metadata.resource_version.as_deref(), Some("9"));
    }

    #[test]
    fn the_minimum_is_at_least_what_a_share_of_the_traffic_needs() {
        let (stored, cluster) = (stored(&json!({"podsMin": 3})), Cluster::default());
        assert_eq!(
            (stored.pods_idle(&cluster), stored.pods_at_start(&cluster)),
            (3, 3)
        );
    }

    #[test]
    fn the_least_numbers_of_pods_are_those_of_the_whole_object() {
        let text = |name: &str| format!("autoscaling.knative.dev/{name}");
        let annotations = [
            json!(null),
            json!({"note": "a\"b", text("min-scale"): "2"}),
            json!({text("minScale"): "2", text("initialScale"): "3", text("max-scale"): "1"}),
            json!({text("min-scale"): "-1", text("initial-scale"): "x"}),
            json!({text("initial-scale"): "0"}),
        ];
        let scales = [
            json!({}),
            json!({"min": 0}),
            json!({"min": 4, "initialScale": 5}),
        ];
        let with = |key: &str, value: &str| {
            let entries = [(key.to_owned(), value.to_owned())];
            Cluster::starting_asleep(1)
                .with_entries(&entries.into())
                .unwrap()
        };
        let clusters = [
            Cluster::starting_asleep(1),
            Cluster::default(),
            with("min-scale", "2"),
            with("initial-scale", "3"),
            with("enable-scale-to-zero", "false"),
        ];
        for cluster in clusters {
            for (annotations, scale) in annotations
                .iter()
                .flat_map(|one| scales.iter().map(move |scale| (one, scale)))
            {
                let mut app = serde_json::to_value(stored(&json!({})).app().unwrap()).unwrap();
                app["metadata"]["annotations"] = annotations.clone();
                app["spec"]["scale"] = scale.clone();
                let stored = StoredApp::decode(serde_json::to_vec(&app).unwrap(), 9).unwrap();
                let settings = stored.app().unwrap().autoscaling(&cluster).settings;
                assert_eq!(stored.pods_idle(&cluster), settings.pods_idle(), "{app}");
                let at_start = settings.pods_idle().max(settings.initial_scale);
                assert_eq!(stored.pods_at_start(&cluster), at_start, "{app}");
            }
        }
    }

    #[test]
    fn an_app_that_divides_traffic_and_a_child_are_known_as_such() {
        let known = |stored: StoredApp| (stored.has_traffic, stored.may_divide);
        let plain = stored(&json!({}));
        assert_eq!((known(plain.clone()), plain.parent), ((false, false), None));
        let target = json!({"revision": 1, "percent": 100, "vip": "fd00:10::2"});
        let rollout = json!({"revision": 2, "from": 1, "percent": 10});
        for status in [
            json!({"traffic": [target]}),
            json!({"rollout": rollout}),
            json!({"trafficMove": {"pods": 3}}),
        ] {
            assert_eq!(known(stored(&status)), (true, true), "{status}");
            let app = stored(&status).app().unwrap();
            assert!(app.status.unwrap().divides_traffic(), "{status}");
        }
        let of = |field: &str, value: Value| {
            let mut app = serde_json::to_value(stored(&json!({})).app().unwrap()).unwrap();
            app["spec"][field] = value;
            app["metadata"]["labels"] = json!({PARENT_LABEL: "web"});
            StoredApp::decode(serde_json::to_vec(&app).unwrap(), 9).unwrap()
        };
        let latest = json!([{"latestRevision": true, "percent": 100}]);
        // Until a split is in force, the app sleeps as any other.
        assert_eq!(known(of("traffic", latest)), (false, true));
        assert_eq!(
            known(of("rollout", json!({"duration": "10s"}))),
            (false, true)
        );
        let child = of("traffic", json!([]));
        assert_eq!(
            (known(child.clone()), child.parent.as_deref()),
            ((false, false), Some("web"))
        );
    }

    #[test]
    fn only_an_app_without_pods_and_problems_is_asleep() {
        assert!(stored(&json!({})).asleep);
        assert!(stored(&json!({"state": "Asleep", "mode": "Proxy", "lastWake": "x"})).asleep);
        let awake = [
            json!(null),
            json!({"state": "Waking"}),
            json!({"mode": "Serve"}),
            json!({"wanted": 1}),
            json!({"reason": "CrashLoopBackOff"}),
        ];
        for status in awake {
            assert!(!stored(&status).asleep, "{status}");
        }
    }
}
