//! Every verb of every resource, and every path, by every identity: allowed or refused as `matrix.txt` says.

use std::collections::BTreeSet;

use futures::future::join_all;
use serde_json::{Value, json};

use crate::client::{request, until};
use crate::world::World;

/// The tokens of the identities, in the order of the table's columns.
const IDENTITIES: [&str; 8] = [
    "",
    "system:node:a/system:nodes",
    "system:node:b/system:nodes",
    "user",
    "view",
    "edit",
    "admin",
    ROOT,
];
const ROOT: &str = "root/system:masters";
/// The kinds without a namespace.
const OF_CLUSTER: [&str; 11] = [
    "nodes",
    "namespaces",
    "clusterroles",
    "clusterrolebindings",
    "persistentvolumes",
    "selfsubjectaccessreviews",
    "selfsubjectrulesreviews",
    "subjectaccessreviews",
    "selfsubjectreviews",
    "jointokens",
    "noderevocations",
];

/// A row of the table for one verb.
struct Row {
    /// `[GROUP/VERSION ]RESOURCE[/SUBRESOURCE][?QUERY]`, or a path.
    target: String,
    verb: String,
    /// `y` or `.` for each identity.
    allowed: String,
}

fn rows() -> Vec<Row> {
    let lines = include_str!("matrix.txt").lines();
    let rows = lines.filter(|line| !line.starts_with('#') && !line.is_empty());
    let rows = rows.flat_map(|line| {
        let [target, verbs, allowed] = line.split(" | ").collect::<Vec<_>>().try_into().unwrap();
        verbs.split(' ').map(|verb| Row {
            target: target.to_owned(),
            verb: verb.to_owned(),
            allowed: allowed.to_owned(),
        })
    });
    rows.collect()
}

impl Row {
    /// The method and the path of a request for the object of node `a`, or in the namespace `shop`.
    fn request(&self) -> String {
        let method = match self.verb.as_str() {
            "create" => "POST".to_owned(),
            "update" => "PUT".to_owned(),
            "list" | "watch" => "GET".to_owned(),
            verb => verb.to_uppercase(),
        };
        if self.target.starts_with('/') {
            return format!("{method} {}", self.target);
        }
        let (group, target) = self.target.split_once(' ').unwrap_or(("", &self.target));
        let (target, query) = target.split_once('?').unwrap_or((target, ""));
        let (resource, subresource) = target.split_once('/').unwrap_or((target, ""));
        let base = if group.is_empty() {
            "/api/v1".to_owned()
        } else {
            format!("/apis/{group}")
        };
        let namespace = if OF_CLUSTER.contains(&resource) {
            ""
        } else {
            "/namespaces/shop"
        };
        let is_of_many =
            subresource.is_empty() && ["create", "list", "watch"].contains(&self.verb.as_str());
        let name = match resource {
            _ if is_of_many => "",
            "nodes" => "/a",
            "namespaces" => "/shop",
            _ => "/one",
        };
        let subresource = Some(subresource).filter(|one| !one.is_empty());
        let subresource = subresource.map_or_else(String::new, |one| format!("/{one}"));
        let watch = if self.verb == "watch" {
            "&watch=1&resourceVersion=0&timeoutSeconds=1"
        } else {
            ""
        };
        format!(
            "{method} {base}{namespace}/{resource}{name}{subresource}?{query}{watch}&dryRun=All"
        )
    }
}

/// The pod, the node and the bindings of the table.
async fn prepare(world: &World) {
    let spec = json!({"nodeName": "a", "containers": [{"name": "a", "command": ["x"]}]});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": spec});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}});
    let mut all = vec![
        ("POST /api/v1/namespaces/shop/pods", pod),
        ("POST /api/v1/nodes", node),
    ];
    for name in ["view", "edit", "admin"] {
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": name},
            "roleRef": {"kind": "ClusterRole", "name": name}, "subjects": [{"kind": "User", "name": name}]});
        all.push((
            "POST /apis/rbac.authorization.k8s.io/v1/namespaces/shop/rolebindings",
            binding,
        ));
    }
    for (what, object) in all {
        let (code, answered) = request(world, ROOT, what, &object).await;
        assert_eq!(code, 201, "{what}: {answered}");
    }
    // The aggregated roles have their rules, and the bindings are in force.
    until(
        world,
        "view",
        "GET /apis/dormouse.dev/v1alpha1/namespaces/shop/apps",
        200,
    )
    .await;
    until(
        world,
        "edit",
        "GET /apis/dormouse.dev/v1alpha1/namespaces/shop/apps",
        200,
    )
    .await;
    until(
        world,
        "admin",
        "GET /apis/dormouse.dev/v1alpha1/namespaces/shop/apps",
        200,
    )
    .await;
    until(
        world,
        "admin",
        "GET /apis/rbac.authorization.k8s.io/v1/namespaces/shop/roles",
        200,
    )
    .await;
    until(
        world,
        "edit",
        "DELETE /apis/dormouse.dev/v1alpha1/namespaces/shop/apps/none",
        404,
    )
    .await;
    until(
        world,
        "admin",
        "DELETE /apis/dormouse.dev/v1alpha1/namespaces/shop/apps/none",
        404,
    )
    .await;
}

/// What each identity got.
async fn allowed(world: &World, row: &Row) -> String {
    let what = row.request();
    let answers = IDENTITIES.map(|identity| {
        let what = &what;
        async move {
            let (code, status) = request(world, identity, what, &Value::Null).await;
            let message = status["message"].as_str().unwrap_or_default();
            let is_refused = code == 403 && message.contains("forbidden: User ");
            assert_ne!(code, 401, "{what}");
            if is_refused { '.' } else { 'y' }
        }
    });
    join_all(answers).await.into_iter().collect()
}

#[tokio::test]
async fn every_request_is_allowed_to_exactly_those_whom_the_table_names() {
    let world = World::start_for_users().await;
    prepare(&world).await;
    let mut wrong = Vec::new();
    for part in rows().chunks(16) {
        let found = join_all(part.iter().map(|row| allowed(&world, row))).await;
        for (row, found) in part.iter().zip(found) {
            if row.allowed != found {
                wrong.push(format!(
                    "{} | {} | {found}, not {}",
                    row.target, row.verb, row.allowed
                ));
            }
        }
    }
    assert_eq!(wrong.join("\n"), "");
}

/// The resources and verbs that the API discovers, as in the table.
async fn discovered(world: &World) -> BTreeSet<(String, String)> {
    let get = async |path: String| {
        request(world, ROOT, &format!("GET {path}"), &Value::Null)
            .await
            .1
    };
    let groups = get("/apis".to_owned()).await;
    let groups = groups["groups"].as_array().unwrap();
    let groups = groups
        .iter()
        .map(|group| group["preferredVersion"]["groupVersion"].as_str().unwrap());
    let mut found = BTreeSet::new();
    for group in std::iter::once("").chain(groups) {
        let path = if group.is_empty() {
            "/api/v1".to_owned()
        } else {
            format!("/apis/{group}")
        };
        let list = get(path.clone()).await;
        found.insert((path, "get".to_owned()));
        if !group.is_empty() {
            let (name, _version) = group.split_once('/').unwrap();
            found.insert((format!("/apis/{name}"), "get".to_owned()));
        }
        for resource in list["resources"].as_array().unwrap() {
            let target = format!("{group} {}", resource["name"].as_str().unwrap());
            for verb in resource["verbs"].as_array().unwrap() {
                found.insert((target.trim().to_owned(), verb.as_str().unwrap().to_owned()));
            }
        }
    }
    let documents = get("/openapi/v3".to_owned()).await;
    for document in documents["paths"].as_object().unwrap().values() {
        let path = document["serverRelativeURL"].as_str().unwrap().to_owned();
        found.insert((path, "get".to_owned()));
    }
    found
}

#[tokio::test]
async fn every_verb_of_every_resource_has_a_row() {
    let world = World::start_for_users().await;
    let known: BTreeSet<(String, String)> = rows()
        .into_iter()
        .map(|row| (row.target, row.verb))
        .collect();
    let discovered = discovered(&world).await;
    let missing: Vec<_> = discovered.difference(&known).collect();
    assert!(missing.is_empty(), "without a row: {missing:?}");
    // A row of what is no longer there: its request would be answered 404.
    let gone = known.difference(&discovered);
    let gone: Vec<_> = gone
        .filter(|(target, _)| !target.starts_with('/') && !target.contains('?'))
        .collect();
    assert!(
        gone.is_empty(),
        "a row of what the API does not have: {gone:?}"
    );
}
