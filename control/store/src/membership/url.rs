//! Peer URLs: which texts etcd accepts.

use http::Uri;

use super::MemberError;

/// Checks the peer URLs of a member: at least one, each `http` or `https` with host and port and
/// without a path, or of a Unix socket.
pub(super) fn check(urls: &[String]) -> Result<(), MemberError> {
    if !urls.is_empty() && urls.iter().all(|url| is_peer(url.trim())) {
        Ok(())
    } else {
        Err(MemberError::BadUrls)
    }
}

fn is_peer(url: &str) -> bool {
    let Some((scheme, address)) = url.split_once("://") else {
        return false;
    };
    match scheme {
        // The parser takes an absent path for the path "/".
        "http" | "https" => url
            .parse::<Uri>()
            .is_ok_and(|uri| uri.port().is_some() && !address.contains('/')),
        "unix" | "unixs" => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_url_has_a_known_scheme_host_and_port_and_no_path() {
        for good in ["http://10.9.9.9:2380", " https://[::1]:1", "unix://a/b:0"] {
            assert_eq!(check(&[good.into()]), Ok(()), "{good}");
        }
        let bad = [
            "",
            "x",
            "not a url",
            "http://10.9.9.9",
            "http://10.9.9.9:1/",
            "http://10.9.9.9:1/path",
            "http://a b:1",
            "ftp://10.9.9.9:1",
        ];
        for bad in bad {
            assert_eq!(check(&[bad.into()]), Err(MemberError::BadUrls), "{bad}");
        }
        assert_eq!(check(&[]), Err(MemberError::BadUrls));
    }
}
