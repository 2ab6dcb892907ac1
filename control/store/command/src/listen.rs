//! URLs to listen on, in the form of etcd's flags.

use std::{fmt, net::IpAddr, path::PathBuf, str::FromStr};

/// A text that is no URL to listen on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no URL to listen on: write http://ADDRESS:PORT or https://ADDRESS:PORT, such as http://[::1]:2379, or unix://FILE"
)]
pub struct ListenUrlError(String);

/// `http://ADDRESS:PORT`, in which an IPv6 address is in brackets, or `unix://FILE`; with TLS, the
/// schemes are https and unixs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenUrl {
    tls: bool,
    address: Address,
}

/// What a URL listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// An address or a name, without brackets, and a port; port 0 lets the system choose one.
    Tcp(String, u16),
    /// The file of a socket.
    Unix(PathBuf),
}

impl ListenUrl {
    /// Whether the scheme is https or unixs.
    pub fn tls(&self) -> bool {
        self.tls
    }

    /// What it listens on.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Whether it has no TLS, and other hosts may reach it.
    pub fn is_open(&self) -> bool {
        let is_of_this_host = match &self.address {
            Address::Unix(_) => true,
            Address::Tcp(host, _) => {
                let address = host.parse::<IpAddr>();
                host == "localhost" || address.is_ok_and(|address| address.is_loopback())
            }
        };
        !self.tls && !is_of_this_host
    }
}

impl FromStr for ListenUrl {
    type Err = ListenUrlError;

    fn from_str(text: &str) -> Result<Self, ListenUrlError> {
        parse(text).ok_or_else(|| ListenUrlError(text.into()))
    }
}

fn parse(text: &str) -> Option<ListenUrl> {
    let (scheme, rest) = text.trim().split_once("://")?;
    let (tls, address) = match scheme {
        "http" => (false, tcp(rest)?),
        "https" => (true, tcp(rest)?),
        "unix" => (false, unix(rest)?),
        "unixs" => (true, unix(rest)?),
        _ => return None,
    };
    Some(ListenUrl { tls, address })
}

fn tcp(rest: &str) -> Option<Address> {
    let (host, port) = rest.strip_suffix('/').unwrap_or(rest).rsplit_once(':')?;
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let host = match bare {
        Some(address) => address.contains(':').then_some(address)?,
        None => (!host.is_empty() && !host.contains([':', '/', '@'])).then_some(host)?,
    };
    Some(Address::Tcp(host.into(), port.parse().ok()?))
}

/// As in etcd, a text without a leading slash is a file of the current directory.
fn unix(rest: &str) -> Option<Address> {
    (!rest.is_empty()).then(|| Address::Unix(rest.into()))
}

impl fmt::Display for ListenUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secure = if self.tls { "s" } else { "" };
        match &self.address {
            Address::Tcp(host, port) if host.contains(':') => {
                write!(f, "http{secure}://[{host}]:{port}")
            }
            Address::Tcp(host, port) => write!(f, "http{secure}://{host}:{port}"),
            Address::Unix(path) => write!(f, "unix{secure}://{}", path.display()),
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
            "unix:///run/store.sock",
            "unixs://localhost:2379",
        ] {
            let url: ListenUrl = text.parse().unwrap();
            assert_eq!(url.to_string(), text);
        }
        let url: ListenUrl = "https://[fd00::1]:2381/".parse().unwrap();
        assert!(url.tls());
        assert_eq!(*url.address(), Address::Tcp("fd00::1".into(), 2381));
        let url: ListenUrl = "unix:///run/store.sock".parse().unwrap();
        assert_eq!(*url.address(), Address::Unix("/run/store.sock".into()));
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
            "unix://",
        ] {
            let refused = text.parse::<ListenUrl>().unwrap_err().to_string();
            assert!(refused.contains("http://[::1]:2379"), "{text}: {refused}");
        }
    }
}
