//! URLs to listen on, in the form of etcd's flags.

use std::{fmt, str::FromStr};

/// A text that is no URL to listen on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no URL to listen on: write http://ADDRESS:PORT or https://ADDRESS:PORT, such as http://[::1]:2379"
)]
pub struct ListenUrlError(String);

/// `http://ADDRESS:PORT` or `https://ADDRESS:PORT`; an IPv6 address is in brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenUrl {
    tls: bool,
    host: String,
    port: u16,
}

impl ListenUrl {
    /// Whether the scheme is https.
    pub fn tls(&self) -> bool {
        self.tls
    }

    /// The address or name, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port; 0 lets the system choose one.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl FromStr for ListenUrl {
    type Err = ListenUrlError;

    fn from_str(text: &str) -> Result<Self, ListenUrlError> {
        parse(text).ok_or_else(|| ListenUrlError(text.into()))
    }
}

fn parse(text: &str) -> Option<ListenUrl> {
    let (scheme, rest) = text.split_once("://")?;
    let tls = match scheme {
        "http" => false,
        "https" => true,
        _ => return None,
    };
    let (host, port) = rest.strip_suffix('/').unwrap_or(rest).rsplit_once(':')?;
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let host = match bare {
        Some(address) => address.contains(':').then_some(address)?,
        None => (!host.is_empty() && !host.contains([':', '/', '@'])).then_some(host)?,
    };
    Some(ListenUrl {
        tls,
        host: host.into(),
        port: port.parse().ok()?,
    })
}

impl fmt::Display for ListenUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        if self.host.contains(':') {
            write!(f, "{scheme}://[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{scheme}://{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_and_written_alike() {
        for text in [
            "http://[::1]:2379",
            "https://0.0.0.0:2379",
            "http://localhost:0",
        ] {
            let url: ListenUrl = text.parse().unwrap();
            assert_eq!(url.to_string(), text);
        }
        let url: ListenUrl = "https://[fd00::1]:2381/".parse().unwrap();
        assert_eq!((url.tls(), url.host(), url.port()), (true, "fd00::1", 2381));
    }

    #[test]
    fn other_texts_are_refused_with_an_example() {
        for text in [
            "",
            "localhost:2379",
            "http://",
            "http://:2379",
            "http://::1:2379",
            "http://[]:2379",
            "http://[::1]",
            "http://a:70000",
            "http://a:1/path",
            "unix:///run/store",
        ] {
            let refused = text.parse::<ListenUrl>().unwrap_err().to_string();
            assert!(refused.contains("http://[::1]:2379"), "{text}: {refused}");
        }
    }
}
