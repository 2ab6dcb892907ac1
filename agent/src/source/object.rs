//! The objects that sources read, and their changes.

use std::fmt;
use std::sync::Arc;

use dormouse_agent_services::{Event, change};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// An object. Its name is not empty; a Node has no namespace.
#[derive(Clone, PartialEq, Debug)]
pub enum Object {
    /// `v1 Service`.
    Service(Box<Service>),
    /// `discovery.k8s.io/v1 EndpointSlice`.
    EndpointSlice(Box<EndpointSlice>),
    /// `v1 Node`.
    Node(Box<Node>),
}

/// A change of an object.
#[derive(Clone, PartialEq, Debug)]
pub enum Change {
    /// New or changed.
    Applied(Object),
    /// Deleted; this contains only its namespace and name.
    Deleted(Object),
}

impl Object {
    /// The object as [`dormouse_agent_services`] expects it.
    pub fn borrow(&self) -> change::Object<'_> {
        match self {
            Self::Service(service) => change::Object::Service(service),
            Self::EndpointSlice(slice) => change::Object::EndpointSlice(slice),
            Self::Node(node) => change::Object::Node(node),
        }
    }

    /// Writes the whole object: objects that differ are written differently.
    pub(super) fn write(&self, to: &mut Vec<u8>) {
        let written = match self {
            Self::Service(service) => serde_json::to_writer(to, service),
            Self::EndpointSlice(slice) => serde_json::to_writer(to, slice),
            Self::Node(node) => serde_json::to_writer(to, node),
        };
        debug_assert!(
            written.is_ok(),
            "what was read from JSON is written as JSON"
        );
    }
}

impl From<Service> for Object {
    fn from(service: Service) -> Self {
        Self::Service(Box::new(service))
    }
}

impl From<EndpointSlice> for Object {
    fn from(slice: EndpointSlice) -> Self {
        Self::EndpointSlice(Box::new(slice))
    }
}

impl From<Node> for Object {
    fn from(node: Node) -> Self {
        Self::Node(Box::new(node))
    }
}

impl Change {
    /// The change as [`dormouse_agent_services`] expects it.
    pub fn event(&self) -> Event<'_> {
        match self {
            Self::Applied(object) => Event::Applied(object.borrow()),
            Self::Deleted(object) => Event::Deleted(object.borrow()),
        }
    }
}

/// The kinds that are read, in the order of a batch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Kind {
    Node,
    Service,
    EndpointSlice,
}

impl Kind {
    /// All kinds, in the order of a batch.
    pub(super) const ALL: [Self; 3] = [Self::Node, Self::Service, Self::EndpointSlice];

    /// The kind's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Node => "Node",
            Self::Service => "Service",
            Self::EndpointSlice => "EndpointSlice",
        }
    }

    /// The kind with this name in this API group; none if it is not read.
    pub(super) fn named(api_version: &str, kind: &str) -> Option<Self> {
        match (api_version, kind) {
            ("v1", "Node") => Some(Self::Node),
            ("v1", "Service") => Some(Self::Service),
            ("discovery.k8s.io/v1", "EndpointSlice") => Some(Self::EndpointSlice),
            _ => None,
        }
    }
}

/// The identity of an object.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Key {
    pub(super) kind: Kind,
    /// Empty for a Node.
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
}

impl Key {
    /// An object with this name and nothing else.
    pub(super) fn object(&self) -> Object {
        let namespace = (self.kind != Kind::Node).then(|| self.namespace.as_ref().to_owned());
        let metadata = ObjectMeta {
            name: Some(self.name.as_ref().to_owned()),
            namespace,
            ..ObjectMeta::default()
        };
        match self.kind {
            Kind::Node => Object::Node(Box::new(Node {
                metadata,
                ..Node::default()
            })),
            Kind::Service => Object::Service(Box::new(Service {
                metadata,
                ..Service::default()
            })),
            Kind::EndpointSlice => Object::EndpointSlice(Box::new(EndpointSlice {
                metadata,
                ..EndpointSlice::default()
            })),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (namespace, name) = (&self.namespace, &self.name);
        match self.kind {
            Kind::Node => write!(f, "Node {name}"),
            Kind::Service => write!(f, "Service {namespace}/{name}"),
            Kind::EndpointSlice => write!(f, "EndpointSlice {namespace}/{name}"),
        }
    }
}
