//! The attributes of a request, from its method, path and query, as kube-apiserver's `RequestInfo`.

use std::borrow::Cow;
use std::collections::HashMap;

use axum::extract::Query;
use dormouse_rbac::{Attributes, Resource, Target};
use http::{Method, Uri};
use percent_encoding::percent_decode_str;

use crate::api::{
    query::{ListQuery, Names, is_true},
    selector::Selector,
};

/// Subresources of namespaces; what else follows a namespace's name is a resource in it.
const OF_NAMESPACES: [&str; 2] = ["finalize", "status"];

/// The attributes of a request, and the names in its path, if that is a resource's.
pub(in crate::api) fn of(method: &Method, uri: &Uri) -> (Attributes, Option<Names>) {
    let path = uri.path();
    let segments = segments(path).unwrap_or_default();
    let words: Vec<&str> = segments.iter().map(|segment| &**segment).collect();
    let (group, version, rest) = match words.as_slice() {
        ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
        ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
        _ => {
            let verb = method.as_str().to_lowercase();
            return (Attributes::path(&verb, path), None);
        }
    };
    let (namespace, rest) = match rest {
        ["namespaces", namespace, of, ..] if !OF_NAMESPACES.contains(of) => {
            (*namespace, &rest[2..])
        }
        ["namespaces", namespace, ..] => (*namespace, rest),
        _ => ("", rest),
    };
    let word = |index: usize| rest.get(index).copied().unwrap_or_default().to_owned();
    let mut resource = Resource {
        group: group.to_owned(),
        version: version.to_owned(),
        namespace: namespace.to_owned(),
        resource: word(0),
        name: word(1),
        subresource: word(2),
        fields: Vec::new(),
    };
    let names = names_of(&resource);
    let is_of_many = resource.name.is_empty();
    let options = Some(uri).filter(|_| is_of_many).and_then(options);
    let option = |name: &str| options.as_ref()?.get(name).map(String::as_str);
    if is_of_many {
        narrow(&mut resource, option("fieldSelector").unwrap_or_default());
    }
    let is_watch = option("watch").is_some_and(is_true);
    let verb = verb(method, is_of_many, is_watch);
    (Attributes::resource(verb, resource), Some(names))
}

/// The names in a resource's path. As in Kubernetes, a namespace as an object is its own namespace for rules, but not for its key.
fn names_of(resource: &Resource) -> Names {
    let is_namespace = resource.group.is_empty() && resource.resource == "namespaces";
    Names {
        namespace: Some(&resource.namespace)
            .filter(|_| !is_namespace)
            .cloned()
            .unwrap_or_default(),
        name: resource.name.clone(),
    }
}

/// Whether the response may take as long as its client wants: that of a watch or a log.
pub(super) fn is_long(attributes: &Attributes) -> bool {
    let is_log = matches!(&attributes.target, Target::Resource(one) if one.subresource == "log");
    is_log || attributes.verb == "watch"
}

/// The options of a list or a watch; the default ones, if they cannot be decoded.
pub(super) fn list_query(uri: &Uri) -> ListQuery {
    let query = Query::<ListQuery>::try_from_uri(uri);
    query.map_or_else(|_undecoded| ListQuery::default(), |Query(query)| query)
}

fn verb(method: &Method, is_of_many: bool, is_watch: bool) -> &'static str {
    match *method {
        Method::GET | Method::HEAD if !is_of_many => "get",
        Method::GET | Method::HEAD if is_watch => "watch",
        Method::GET | Method::HEAD => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if is_of_many => "deletecollection",
        Method::DELETE => "delete",
        _ => "",
    }
}

/// Takes what the field selector of a list requires. A list of one name is a request for that object.
fn narrow(resource: &mut Resource, selector: &str) {
    let Ok(selector) = Selector::parse("", selector) else {
        return;
    };
    resource.fields = selector.exact_fields();
    resource.name = selector.name().unwrap_or_default();
}

fn options(uri: &Uri) -> Option<HashMap<String, String>> {
    let Query(options) = Query::try_from_uri(uri).ok()?;
    Some(options)
}

/// The decoded segments of a path; `None`: one of them has an encoded slash, and so no object's path has it.
fn segments(path: &str) -> Option<Vec<Cow<'_, str>>> {
    let segments = path.trim_matches('/').split('/');
    let segments = segments.map(|segment| percent_decode_str(segment).decode_utf8_lossy());
    let segments: Vec<_> = segments.collect();
    let is_split = segments.iter().any(|segment| segment.contains('/'));
    (!is_split).then_some(segments)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `VERB GROUP/VERSION NAMESPACE RESOURCE/SUBRESOURCE NAME`, or `VERB PATH`.
    fn check(method: &str, uri: &str, want: &str) {
        let (attributes, _) = of(&method.parse().unwrap(), &uri.parse().unwrap());
        let target = match &attributes.target {
            Target::Path(path) => path.clone(),
            Target::Resource(one) => format!(
                "{}/{} {} {} {}",
                one.group,
                one.version,
                one.namespace,
                one.combined(),
                one.name
            ),
        };
        assert_eq!(
            format!("{} {target}", attributes.verb),
            want,
            "{method} {uri}"
        );
    }

    #[test]
    fn the_attributes_are_those_of_kube_apiserver() {
        for (method, uri, want) in [
            (
                "GET",
                "/api/v1/namespaces/shop/pods/web",
                "get /v1 shop pods web",
            ),
            (
                "HEAD",
                "/api/v1/namespaces/shop/pods/web",
                "get /v1 shop pods web",
            ),
            ("GET", "/api/v1/namespaces/shop/pods", "list /v1 shop pods "),
            ("GET", "/api/v1/pods?watch=1", "watch /v1  pods "),
            ("GET", "/api/v1/pods?watch=false&limit=5", "list /v1  pods "),
            (
                "GET",
                "/api/v1/namespaces/shop/pods/web?watch=true",
                "get /v1 shop pods web",
            ),
            (
                "GET",
                "/api/v1/namespaces/shop/pods/web/log",
                "get /v1 shop pods/log web",
            ),
            (
                "POST",
                "/api/v1/namespaces/shop/pods/web/eviction",
                "create /v1 shop pods/eviction web",
            ),
            (
                "PUT",
                "/apis/dormouse.dev/v1alpha1/namespaces/shop/apps/web/status",
                "update dormouse.dev/v1alpha1 shop apps/status web",
            ),
            ("PATCH", "/api/v1/nodes/n1", "patch /v1  nodes n1"),
            ("DELETE", "/api/v1/nodes/n1", "delete /v1  nodes n1"),
            ("DELETE", "/api/v1/nodes", "deletecollection /v1  nodes "),
            ("GET", "/api/v1/namespaces", "list /v1  namespaces "),
            (
                "GET",
                "/api/v1/namespaces/shop",
                "get /v1 shop namespaces shop",
            ),
            (
                "PUT",
                "/api/v1/namespaces/shop/status",
                "update /v1 shop namespaces/status shop",
            ),
            (
                "GET",
                "/api/v1/nodes?fieldSelector=metadata.name%3Dn1",
                "list /v1  nodes n1",
            ),
            (
                "GET",
                "/api/v1/nodes?fieldSelector=metadata.name!%3Dn1",
                "list /v1  nodes ",
            ),
            ("GET", "/api", "get /api"),
            ("GET", "/api/v1", "get /api/v1"),
            (
                "GET",
                "/apis/dormouse.dev/v1alpha1",
                "get /apis/dormouse.dev/v1alpha1",
            ),
            ("POST", "/healthz", "post /healthz"),
            ("GET", "/", "get /"),
        ] {
            check(method, uri, want);
        }
    }

    #[test]
    fn an_encoded_path_has_the_attributes_of_what_the_router_finds() {
        check(
            "GET",
            "/api/v1/namespaces/%73hop/pods/w%65b",
            "get /v1 shop pods web",
        );
        check(
            "GET",
            "/api/v1/namespaces/a%2Fpods/pods/x",
            "get /api/v1/namespaces/a%2Fpods/pods/x",
        );
        check("GET", "/api/v1/nodes/%zz%+1%4", "get /v1  nodes %zz%+1%4");
    }

    #[test]
    fn a_path_has_names_only_if_it_is_that_of_a_resource() {
        for (uri, want) in [
            (
                "/api/v1/namespaces/%73hop/pods/w%65b/log",
                Some(("shop", "web")),
            ),
            ("/api/v1/namespaces/shop/pods", Some(("shop", ""))),
            ("/api/v1/namespaces/shop/status", Some(("", "shop"))),
            (
                "/api/v1/nodes?fieldSelector=metadata.name%3Dn1",
                Some(("", "")),
            ),
            ("/api/v1/namespaces/a%2Fb/pods", None),
            ("/api/v1/nodes/a%2fb/status", None),
            ("/apis/dormouse.dev/v1alpha1", None),
            ("/healthz", None),
        ] {
            let (_, names) = of(&Method::GET, &uri.parse().unwrap());
            let names = names.as_ref();
            let names = names.map(|names| (names.namespace.as_str(), names.name.as_str()));
            assert_eq!(names, want, "{uri}");
        }
    }

    #[test]
    fn a_field_selector_is_an_attribute_of_a_list() {
        let uri = "/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3Dn1,status.phase!%3DFailed";
        let (attributes, _) = of(&Method::GET, &uri.parse().unwrap());
        let Target::Resource(resource) = attributes.target else {
            panic!("{attributes:?}");
        };
        assert_eq!(
            resource.fields,
            [("spec.nodeName".to_owned(), "n1".to_owned())]
        );
    }
}
