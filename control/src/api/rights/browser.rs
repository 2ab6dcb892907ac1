//! Requests of web pages. With `--insecure` each process on the host is the administrator, and a browser is one that sends what any page
//! asks it to. It names the page's origin, and the host that the page has asked for, which after DNS rebinding is the page's own.

use std::net::IpAddr;

use http::{HeaderMap, Uri, header, uri::Authority};

use crate::api::Failure;

/// Fails if a request without credentials comes from a page of another origin, or is for a name that anybody's DNS may resolve to this host.
pub(super) fn check(uri: &Uri, headers: &HeaderMap) -> Result<(), Failure> {
    let host = match uri.authority() {
        Some(authority) => Some(authority.clone()),
        None => authority_of(headers.get(header::HOST).map(AsRef::as_ref))?,
    };
    if let Some(host) = host.as_ref().filter(|host| !is_local(host.host())) {
        return Err(Failure::forbidden_request(format!(
            "with --insecure, the API answers to IP addresses and localhost only, not to {host:?}"
        )));
    }
    for origin in headers.get_all(header::ORIGIN) {
        let page = origin.to_str().ok().and_then(|text| text.parse().ok());
        let page = page.and_then(|page: Uri| page.into_parts().authority);
        if page.is_none() || page != host {
            return Err(Failure::forbidden_request(format!(
                "with --insecure, web pages of other origins are refused: {origin:?}"
            )));
        }
    }
    Ok(())
}

fn authority_of(host: Option<&[u8]>) -> Result<Option<Authority>, Failure> {
    let host = host.map(Authority::try_from).transpose();
    host.map_err(|_malformed| Failure::bad_request("the header Host is malformed"))
}

/// Whether a host is no name, or one that browsers do not ask DNS for.
fn is_local(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    address.parse::<IpAddr>().is_ok() || name == "localhost" || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    fn is_allowed(uri: &str, headers: &[(HeaderName, &str)]) -> bool {
        let pairs = headers.iter().cloned();
        let headers = pairs.map(|(name, value)| (name, value.parse().unwrap()));
        check(&uri.parse().unwrap(), &headers.collect()).is_ok()
    }

    #[test]
    fn only_addresses_and_localhost_are_hosts() {
        for (host, want) in [
            ("127.0.0.1:6443", true),
            ("[::1]:6443", true),
            ("[::1]", true),
            ("localhost:6443", true),
            ("LocalHost.", true),
            ("api.localhost", true),
            ("evil.example:6443", false),
            ("127.0.0.1.evil.example", false),
            ("notlocalhost", false),
            ("localhost.evil.example", false),
            ("", false),
        ] {
            assert_eq!(is_allowed("/", &[(header::HOST, host)]), want, "{host}");
            let uri = format!("http://{host}/");
            if !host.is_empty() {
                assert_eq!(is_allowed(&uri, &[]), want, "{uri}");
            }
        }
        assert!(is_allowed("/", &[]));
    }

    #[test]
    fn only_pages_of_the_same_origin_are_answered() {
        for (origin, want) in [
            ("http://localhost:6443", true),
            ("http://LOCALHOST:6443", true),
            ("http://localhost:8080", false),
            ("http://localhost", false),
            ("https://evil.example", false),
            ("null", false),
            ("", false),
        ] {
            let headers = [(header::HOST, "localhost:6443"), (header::ORIGIN, origin)];
            assert_eq!(is_allowed("/", &headers), want, "{origin}");
        }
        assert!(!is_allowed("/", &[(header::ORIGIN, "http://localhost")]));
    }
}
