//! The host of a request: its `Host` field and the authority of its target (RFC 9112, 3.2; RFC 9113, 8.3.1).

use http::header::HOST;
use http::uri::Authority;
use http::{HeaderValue, Request, Version};

/// Why a request's host is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HostError {
    #[error("the request has no Host field")]
    Missing,
    #[error("the request has more than one Host field")]
    Several,
    #[error("the request's host is malformed")]
    Malformed,
    #[error("the Host field differs from :authority")]
    Differs,
}

/// Checks that a request identifies one host. A target in absolute form takes precedence over `Host`, as RFC 9112
/// requires.
pub(crate) fn check<B>(request: &Request<B>) -> Result<(), HostError> {
    let mut fields = request.headers().get_all(HOST).iter();
    let host = fields.next();
    if fields.next().is_some() {
        return Err(HostError::Several);
    }
    if host.is_none() && request.version() == Version::HTTP_11 {
        return Err(HostError::Missing);
    }
    let host = host.map(parse).transpose()?.flatten();
    let target = request.uri().authority();
    if target.is_some_and(|target| !is_host_and_port(target)) {
        return Err(HostError::Malformed);
    }
    match (host, target) {
        (Some(host), Some(target))
            if request.version() == Version::HTTP_2 && !same(&host, target) =>
        {
            Err(HostError::Differs)
        }
        _ => Ok(()),
    }
}

/// The authority in a field; `None` if it is empty, which is valid.
fn parse(field: &HeaderValue) -> Result<Option<Authority>, HostError> {
    let field = field.as_bytes();
    if field.is_empty() {
        return Ok(None);
    }
    let authority = Authority::try_from(field).ok().filter(is_host_and_port);
    authority.map(Some).ok_or(HostError::Malformed)
}

/// Whether there is a host, no user, and a port in digits if any.
fn is_host_and_port(authority: &Authority) -> bool {
    let host = authority.host();
    let rest = authority.as_str().strip_prefix(host);
    let port = rest.and_then(|rest| {
        rest.strip_prefix(':')
            .or_else(|| rest.is_empty().then_some(""))
    });
    !host.is_empty() && port.is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether two authorities of the scheme `http` are equivalent.
fn same(left: &Authority, right: &Authority) -> bool {
    let port = |authority: &Authority| authority.port_u16().unwrap_or(80);
    left.host().eq_ignore_ascii_case(right.host()) && port(left) == port(right)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(version: Version, target: &str, hosts: &[&str]) -> Result<(), HostError> {
        let mut request = Request::builder().version(version).uri(target);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        check(&request.body(()).unwrap())
    }

    #[test]
    fn a_request_of_http_1_1_has_one_host() {
        let http11 = |hosts: &[&str]| checked(Version::HTTP_11, "/", hosts);
        assert_eq!(http11(&[]), Err(HostError::Missing));
        assert_eq!(http11(&["a", "a"]), Err(HostError::Several));
        for valid in [
            "",
            "a",
            "a.test:80",
            "a_b",
            "192.0.2.1",
            "[2001:db8::1]:8080",
            "a:",
        ] {
            assert_eq!(http11(&[valid]), Ok(()), "{valid}");
        }
        for malformed in ["a/b", "a b", "user@a", "a:port", ":80", "a,b/", "[::1"] {
            assert_eq!(
                http11(&[malformed]),
                Err(HostError::Malformed),
                "{malformed}"
            );
        }
        assert_eq!(checked(Version::HTTP_10, "/", &[]), Ok(()));
        assert_eq!(
            checked(Version::HTTP_10, "/", &["a", "b"]),
            Err(HostError::Several)
        );
    }

    #[test]
    fn an_absolute_target_needs_a_host_and_takes_precedence() {
        let absolute = |hosts: &[&str]| checked(Version::HTTP_11, "http://a.test/", hosts);
        assert_eq!(absolute(&["b.test"]), Ok(()));
        assert_eq!(absolute(&[]), Err(HostError::Missing));
        let user = checked(Version::HTTP_11, "http://user@a.test/", &["a.test"]);
        assert_eq!(user, Err(HostError::Malformed));
    }

    #[test]
    fn host_and_authority_of_http_2_are_equivalent() {
        let http2 = |hosts: &[&str]| checked(Version::HTTP_2, "http://a.test/", hosts);
        assert_eq!(http2(&[]), Ok(()));
        assert_eq!(http2(&["A.test:80"]), Ok(()));
        assert_eq!(http2(&["b.test"]), Err(HostError::Differs));
        assert_eq!(http2(&["a.test:81"]), Err(HostError::Differs));
    }
}
