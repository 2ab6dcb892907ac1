//! The ClusterRole of `deploy/` grants the requests that the agent makes, and no other.

use std::collections::BTreeSet;
use std::fs;

use k8s_openapi::api::rbac::v1::ClusterRole;
use serde_json::Value;

use crate::server::Server;

/// A verb on a resource of a group.
type Right = (String, String, String);

/// The rights that the requests to the server need.
pub(crate) fn used(server: &Server) -> BTreeSet<Right> {
    let requests = server.requests().into_iter();
    requests
        .map(|(method, path, watches)| {
            // `/api/VERSION/RESOURCE` or `/apis/GROUP/VERSION/RESOURCE`, then the name and the subresource of an object.
            let parts: Vec<_> = path.split('/').skip(1).collect();
            let (group, rest) = match &parts[..] {
                ["api", _, rest @ ..] => ("", rest),
                ["apis", group, _, rest @ ..] => (*group, rest),
                _ => panic!("{path}"),
            };
            let rest = rest
                .strip_prefix(&["namespaces"])
                .map_or(rest, |below| &below[1..]);
            let (resource, is_named) = match rest {
                [resource] => ((*resource).to_owned(), false),
                [resource, _] => ((*resource).to_owned(), true),
                [resource, _, part] => (format!("{resource}/{part}"), true),
                _ => panic!("{path}"),
            };
            let verb = match (&*method, is_named, watches) {
                ("GET", _, true) => "watch",
                ("GET", false, false) => "list",
                ("GET", true, false) => "get",
                ("POST", ..) => "create",
                ("PUT", ..) => "update",
                ("PATCH", ..) => "patch",
                ("DELETE", ..) => "delete",
                _ => panic!("{method}"),
            };
            (group.to_owned(), resource, verb.to_owned())
        })
        .collect()
}

/// The rights that the ClusterRole grants.
pub(crate) fn granted() -> BTreeSet<Right> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/node/base/rbac.yaml");
    let text = fs::read_to_string(file).unwrap();
    let objects = serde_saphyr::from_multiple::<Value>(&text).unwrap();
    let mut objects = objects.into_iter();
    let role = objects.find(|object| object["kind"] == "ClusterRole");
    let role: ClusterRole = serde_json::from_value(role.unwrap()).unwrap();
    let mut granted = BTreeSet::new();
    for rule in role.rules.unwrap() {
        assert!(rule.resource_names.is_none() && rule.non_resource_urls.is_none());
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                for verb in &rule.verbs {
                    let right = (group.clone(), resource.clone(), verb.clone());
                    assert!(granted.insert(right), "{resource} {verb} is granted twice");
                }
            }
        }
    }
    granted
}
