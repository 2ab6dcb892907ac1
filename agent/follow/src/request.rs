//! Requests of a follower: paths and queries, and the head of a response.

use std::fmt::{self, Write};
use std::time::Duration;

use k8s_openapi::Resource;

/// Objects of a page.
const PAGE: u32 = 500;

/// The objects that are followed: those of one kind that match a selector.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scope {
    path: String,
    selector: String,
}

impl Scope {
    /// All objects of the kind, in all namespaces, that proxies serve: EndpointSlices of headless Services and Services of
    /// other proxies are left out by the server.
    pub fn proxied<T: Resource>() -> Self {
        Self {
            path: path::<T>(),
            selector: selector(
                "labelSelector",
                "!service.kubernetes.io/headless,!service.kubernetes.io/service-proxy-name",
            ),
        }
    }

    /// The object of the kind with this name.
    pub fn named<T: Resource>(name: &str) -> Self {
        Self {
            path: path::<T>(),
            selector: selector("fieldSelector", &format!("metadata.name={name}")),
        }
    }

    fn request(&self, query: &str) -> String {
        let Self { path, selector } = self;
        format!("{path}?{selector}{query}")
    }
}

fn path<T: Resource>() -> String {
    let (group, version, kind) = (T::GROUP, T::VERSION, T::URL_PATH_SEGMENT);
    if group.is_empty() {
        format!("/api/{version}/{kind}")
    } else {
        format!("/apis/{group}/{version}/{kind}")
    }
}

fn selector(parameter: &str, value: &str) -> String {
    format!("{parameter}={}", encode(value))
}

/// Percent-encodes a value of a query.
fn encode(value: &str) -> String {
    let mut encoded = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(byte.into());
        } else {
            // Writing to a String cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// Why objects are listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relist {
    /// For the first time.
    Start,
    /// The server no longer has the events since the known version (410).
    Expired,
    /// The server's newest version is older than the known one: its store was restored from a backup, or replaced.
    Reset,
    /// The list before broke off.
    Interrupted,
    /// The server does not accept the known version or page (400).
    Rejected,
}

impl Relist {
    /// All reasons.
    pub const ALL: [Self; 5] = [
        Self::Start,
        Self::Expired,
        Self::Reset,
        Self::Interrupted,
        Self::Rejected,
    ];
}

impl fmt::Display for Relist {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Start => "start",
            Self::Expired => "expired",
            Self::Reset => "reset",
            Self::Interrupted => "interrupted",
            Self::Rejected => "rejected",
        })
    }
}

/// A GET request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Path and query.
    pub target: String,
    /// Why a list begins with it; none: it does not.
    pub relist: Option<Relist>,
    /// The server ends the response after this time; none: as soon as it is complete.
    pub lasts: Option<Duration>,
}

/// The head of a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// HTTP status.
    pub status: u16,
    /// Whether the body is compressed by gzip (`content-encoding`).
    pub gzip: bool,
    /// `retry-after`.
    pub retry_after: Option<Duration>,
}

impl Request {
    /// A list as the first part of a watch.
    pub(crate) fn stream(scope: &Scope, lasts: Duration, relist: Relist) -> Self {
        let query = format!(
            "&watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds={}",
            lasts.as_secs()
        );
        Self {
            target: scope.request(&query),
            relist: Some(relist),
            lasts: Some(lasts),
        }
    }

    /// The first page of a list.
    pub(crate) fn first_page(scope: &Scope, relist: Relist) -> Self {
        Self {
            relist: Some(relist),
            ..Self::short(scope, &format!("&limit={PAGE}"))
        }
    }

    /// The page that this token continues with.
    pub(crate) fn next_page(scope: &Scope, token: &str) -> Self {
        Self::short(scope, &format!("&limit={PAGE}&continue={}", encode(token)))
    }

    /// A list that succeeds only if the server has this version, or a newer one.
    pub(crate) fn check(scope: &Scope, version: &str) -> Self {
        let version = encode(version);
        let query = format!("&resourceVersion={version}&resourceVersionMatch=NotOlderThan&limit=1");
        Self::short(scope, &query)
    }

    /// The changes after this version.
    pub(crate) fn watch(scope: &Scope, version: &str, lasts: Duration) -> Self {
        let query = format!(
            "&watch=true&allowWatchBookmarks=true&resourceVersion={}&timeoutSeconds={}",
            encode(version),
            lasts.as_secs()
        );
        Self {
            lasts: Some(lasts),
            ..Self::short(scope, &query)
        }
    }

    fn short(scope: &Scope, query: &str) -> Self {
        Self {
            target: scope.request(query),
            relist: None,
            lasts: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Node, Service};
    use k8s_openapi::api::discovery::v1::EndpointSlice;

    use super::*;

    #[test]
    fn requests_have_the_paths_and_selectors_of_kube_proxy() {
        let proxied = "labelSelector=%21service.kubernetes.io%2Fheadless%2C%21service.kubernetes.io%2Fservice-proxy-name";
        let services = Request::first_page(&Scope::proxied::<Service>(), Relist::Start);
        assert_eq!(
            services.target,
            format!("/api/v1/services?{proxied}&limit=500")
        );
        let slices = Request::next_page(&Scope::proxied::<EndpointSlice>(), "a+b=");
        let path = "/apis/discovery.k8s.io/v1/endpointslices";
        assert_eq!(
            slices.target,
            format!("{path}?{proxied}&limit=500&continue=a%2Bb%3D")
        );
        let node = Request::watch(&Scope::named::<Node>("node-a"), "7", Duration::from_secs(9));
        assert!(
            node.target
                .starts_with("/api/v1/nodes?fieldSelector=metadata.name%3Dnode-a&watch=true")
        );
        assert!(node.target.ends_with("&resourceVersion=7&timeoutSeconds=9"));
    }
}
