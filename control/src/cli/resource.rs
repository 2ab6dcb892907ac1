//! API resources as the command line names them, and their paths.

use dormouse_cluster::decode::closest;
use dormouse_command::{CommandError, Exit};
use serde_json::Value;

use super::codes::Code;

/// A resource of the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Resource {
    /// Its name for one object, as printed.
    pub(super) singular: &'static str,
    plural: &'static str,
    short: &'static str,
    /// Its kind, as in manifests.
    pub(super) kind: &'static str,
    api_version: &'static str,
    base: &'static str,
    /// Whether its objects have a namespace.
    pub(super) namespaced: bool,
}

const CORE: &str = "/api/v1";

pub(super) const APP: Resource = Resource {
    singular: "app",
    plural: "apps",
    short: "app",
    kind: "App",
    api_version: "dormouse.dev/v1alpha1",
    base: "/apis/dormouse.dev/v1alpha1",
    namespaced: true,
};

pub(super) const POD: Resource = Resource {
    singular: "pod",
    plural: "pods",
    short: "po",
    kind: "Pod",
    api_version: "v1",
    base: CORE,
    namespaced: true,
};

pub(super) const NODE: Resource = Resource {
    singular: "node",
    plural: "nodes",
    short: "no",
    kind: "Node",
    api_version: "v1",
    base: CORE,
    namespaced: false,
};

pub(super) const NAMESPACE: Resource = Resource {
    singular: "namespace",
    plural: "namespaces",
    short: "ns",
    kind: "Namespace",
    api_version: "v1",
    base: CORE,
    namespaced: false,
};

pub(super) const REVISION: Resource = Resource {
    singular: "revision",
    plural: "revisions",
    short: "rev",
    kind: "Revision",
    api_version: "dormouse.dev/v1alpha1",
    base: "/apis/dormouse.dev/v1alpha1",
    namespaced: true,
};

pub(super) const EVENT: Resource = Resource {
    singular: "event",
    plural: "events",
    short: "ev",
    kind: "Event",
    api_version: "v1",
    base: CORE,
    namespaced: true,
};

pub(super) const CONFIG_MAP: Resource = Resource {
    singular: "configmap",
    plural: "configmaps",
    short: "cm",
    kind: "ConfigMap",
    api_version: "v1",
    base: CORE,
    namespaced: true,
};

pub(super) const SERVICE: Resource = Resource {
    singular: "service",
    plural: "services",
    short: "svc",
    kind: "Service",
    api_version: "v1",
    base: CORE,
    namespaced: true,
};

pub(super) const ENDPOINT_SLICE: Resource = Resource {
    singular: "endpointslice",
    plural: "endpointslices",
    short: "eps",
    kind: "EndpointSlice",
    api_version: "discovery.k8s.io/v1",
    base: "/apis/discovery.k8s.io/v1",
    namespaced: true,
};

const RESOURCES: [Resource; 9] = [
    APP,
    REVISION,
    POD,
    NODE,
    NAMESPACE,
    SERVICE,
    ENDPOINT_SLICE,
    EVENT,
    CONFIG_MAP,
];

impl Resource {
    /// Parses a singular, plural or short name.
    pub(super) fn parse(text: &str) -> Result<Self, CommandError> {
        let text = text.to_lowercase();
        let found = RESOURCES.into_iter().find(|resource| {
            [resource.singular, resource.plural, resource.short].contains(&text.as_str())
        });
        found.ok_or_else(|| {
            let message = format!("there is no resource called {text:?}");
            let names = RESOURCES.map(|resource| [resource.singular, resource.plural]);
            let hint = match closest(&text, names.as_flattened()) {
                Some(name) => format!("did you mean {name}?"),
                None => "use app, revision, pod, node, namespace, service, endpointslice, event or configmap"
                    .to_owned(),
            };
            CommandError::new(Code::Kind, Exit::Usage, message, hint)
        })
    }

    /// The resource of a manifest's document, by `apiVersion` and `kind`.
    pub(super) fn of_document(document: &Value) -> Option<Self> {
        let is = |resource: &Resource| {
            document["apiVersion"] == resource.api_version && document["kind"] == resource.kind
        };
        RESOURCES.into_iter().find(is)
    }

    /// The path of its collection; of all namespaces if `namespace` is `None`.
    pub(super) fn path(&self, namespace: Option<&str>) -> String {
        match namespace.filter(|_| self.namespaced) {
            Some(namespace) => format!(
                "{}/namespaces/{}/{}",
                self.base,
                encoded(namespace),
                self.plural
            ),
            None => format!("{}/{}", self.base, self.plural),
        }
    }

    /// The path of one object.
    pub(super) fn path_of(&self, namespace: &str, name: &str) -> String {
        format!("{}/{}", self.path(Some(namespace)), encoded(name))
    }
}

/// Parses `RESOURCE`, `RESOURCE NAME...` or `RESOURCE/NAME...`; all objects must be of one resource. After `RESOURCE`, a name may have
/// its resource too, as `-o name` prints it.
pub(super) fn objects(words: &[String]) -> Result<(Resource, Vec<String>), CommandError> {
    let first = words.first().map_or("", String::as_str);
    if !first.contains('/') {
        let resource = Resource::parse(first)?;
        let names = words.iter().skip(1);
        let names: Result<Vec<String>, CommandError> =
            names.map(|word| name_of(resource, word)).collect();
        return Ok((resource, names?));
    }
    let split = |word: &String| {
        word.split_once('/')
            .map(|(resource, name)| (resource.to_owned(), name.to_owned()))
    };
    let pairs: Option<Vec<(String, String)>> = words.iter().map(split).collect();
    let pairs = pairs.unwrap_or_default();
    let resources: Result<Vec<Resource>, CommandError> = pairs
        .iter()
        .map(|(resource, _)| Resource::parse(resource))
        .collect();
    match resources?.as_slice() {
        [resource, rest @ ..] if rest.iter().all(|one| one == resource) => {
            Ok((*resource, pairs.into_iter().map(|(_, name)| name).collect()))
        }
        _ => {
            let message = format!(
                "cannot read {:?}: name objects of one resource, each as RESOURCE/NAME",
                words.join(" ")
            );
            Err(CommandError::new(
                Code::Kind,
                Exit::Usage,
                message,
                "dormouse get app/web app/api",
            ))
        }
    }
}

/// As [`objects`]. A name alone is refused with how `command` takes it.
pub(super) fn objects_of(
    command: &str,
    words: &[String],
) -> Result<(Resource, Vec<String>), CommandError> {
    objects(words).map_err(|error| match words {
        [name] if !name.contains('/') => {
            let message = format!("{name:?} is no resource: name an object as RESOURCE/NAME");
            let hint = format!("dormouse {command} app/{name}");
            CommandError::new(Code::Kind, Exit::Usage, message, hint)
        }
        _ => error,
    })
}

/// The name in `NAME` or `RESOURCE/NAME`.
fn name_of(resource: Resource, word: &str) -> Result<String, CommandError> {
    let Some((before, name)) = word.split_once('/') else {
        return Ok(word.to_owned());
    };
    match Resource::parse(before) {
        Ok(same) if same == resource => Ok(name.to_owned()),
        parsed => {
            let singular = resource.singular;
            let message = format!("{word:?} is no name of a {singular}");
            let hint = match parsed {
                Ok(other) => format!("dormouse get {}/{name}", other.singular),
                Err(_) => format!("give the namespace with -n: -n {before} {singular} {name}"),
            };
            Err(CommandError::new(Code::Kind, Exit::Usage, message, hint))
        }
    }
}

/// `text` percent-encoded for a path segment or a query value.
pub(super) fn encoded(text: &str) -> String {
    let one = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(words: &str, want: Option<(&str, &[&str])>) {
        let words: Vec<String> = words.split_whitespace().map(String::from).collect();
        let found = objects(&words).ok();
        let found = found.as_ref().map(|(resource, names)| {
            (
                resource.plural,
                names.iter().map(String::as_str).collect::<Vec<_>>(),
            )
        });
        assert_eq!(
            found,
            want.map(|(plural, names)| (plural, names.to_vec())),
            "{words:?}"
        );
    }

    #[test]
    fn a_resource_has_a_singular_a_plural_and_a_short_name() {
        check("apps", Some(("apps", &[])));
        check("App web", Some(("apps", &["web"])));
        check("po/a pod/b", Some(("pods", &["a", "b"])));
        check("no n1 n2", Some(("nodes", &["n1", "n2"])));
        check("svc web", Some(("services", &["web"])));
        check("deployment", None);
        check("app/a pod/b", None);
        check("app/a b", None);
        check("pod pod/a b", Some(("pods", &["a", "b"])));
        check("pod app/a", None);
        check("pod shop/a", None);
    }

    #[test]
    fn a_misspelt_resource_gets_a_suggestion() {
        let hint = |text| Resource::parse(text).unwrap_err().hint;
        assert_eq!(hint("ap"), "did you mean app?");
        assert_eq!(hint("Evnets"), "did you mean events?");
        assert_eq!(
            hint("deployment"),
            "use app, revision, pod, node, namespace, service, endpointslice, event or configmap"
        );
    }

    #[test]
    fn a_name_is_encoded_and_cannot_change_the_path() {
        assert_eq!(
            APP.path_of("a b", "../x"),
            "/apis/dormouse.dev/v1alpha1/namespaces/a%20b/apps/..%2Fx"
        );
    }
}
