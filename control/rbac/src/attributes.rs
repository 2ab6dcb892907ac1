//! The attributes of a request that its authorization depends on, as Kubernetes' `authorizer.Attributes`.

use std::borrow::Cow;

/// What a request does, and to what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes {
    /// The verb: `get`, `list`, `watch`, `create`, …; of a path the HTTP method in lower case.
    pub verb: String,
    /// The resource or the path.
    pub target: Target,
}

/// The target of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Objects of the API.
    Resource(Resource),
    /// Any other path, as `/healthz`.
    Path(String),
}

/// Objects of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version of the group.
    pub version: String,
    /// The namespace; empty for all namespaces, or a kind without.
    pub namespace: String,
    /// The plural name of the kind.
    pub resource: String,
    /// The subresource, as `log`; empty for the object itself.
    pub subresource: String,
    /// The name of the object; empty for a list or a create.
    pub name: String,
    /// The fields that must have a value, of a list or a watch with a field selector.
    pub fields: Vec<(String, String)>,
}

impl Resource {
    /// The name in rules: `pods`, `pods/log`.
    pub fn combined(&self) -> Cow<'_, str> {
        if self.subresource.is_empty() {
            return Cow::Borrowed(&self.resource);
        }
        Cow::Owned(format!("{}/{}", self.resource, self.subresource))
    }
}

impl Attributes {
    /// The attributes of a request for objects.
    pub fn resource(verb: &str, resource: Resource) -> Self {
        Self {
            verb: verb.to_owned(),
            target: Target::Resource(resource),
        }
    }

    /// The attributes of a request for a path that is no object's.
    pub fn path(verb: &str, path: &str) -> Self {
        Self {
            verb: verb.to_owned(),
            target: Target::Path(path.to_owned()),
        }
    }

    /// The namespace of the objects; empty if there is none.
    pub fn namespace(&self) -> &str {
        match &self.target {
            Target::Resource(resource) => &resource.namespace,
            Target::Path(_) => "",
        }
    }
}
