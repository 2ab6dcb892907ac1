//! Plain text, which leaves no host: a host on the path could start pods, and read and change what the control plane stores.

use std::net::IpAddr;

use tonic::transport::Uri;

use super::{LinkError, Target, endpoint};

/// A server of plain text on this host. `remedy` is how the process gets a certificate, as the end of an error; empty: it has one.
pub fn plain(url: &str, remedy: &str) -> Result<Target, LinkError> {
    let endpoint = endpoint(url)?;
    if is_of_this_host(url) {
        return Ok(endpoint.into());
    }
    Err(LinkError::PlainText {
        url: url.to_owned(),
        remedy: remedy.to_owned(),
    })
}

/// Whether the host of a URL is a loopback address.
fn is_of_this_host(url: &str) -> bool {
    let uri: Option<Uri> = url.parse().ok();
    let host = uri.as_ref().and_then(Uri::host).unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_leaves_no_host() {
        for url in [
            "http://[::1]:1",
            "http://127.0.0.1:1",
            "http://127.9.9.9:1",
            "http://localhost:1",
        ] {
            assert!(plain(url, "").is_ok(), "{url}");
        }
        for url in [
            "http://[2001:db8::c]:1",
            "http://[fe80::1]:1",
            "http://[::]:1",
            "http://[::ffff:10.0.0.1]:1",
            "http://10.0.0.1:1",
            "http://control:1",
            "http://localhost.example:1",
            "http://127.0.0.1.example:1",
            "http://localhost@control:1",
            "HTTP://control:1",
        ] {
            let error = plain(url, ": join").err().unwrap().to_string();
            assert!(
                error.contains(url)
                    && error.contains("plain text to another host")
                    && error.ends_with("join"),
                "{error}"
            );
        }
    }
}
