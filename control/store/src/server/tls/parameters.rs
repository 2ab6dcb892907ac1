//! What the server negotiates: versions and cipher suites.

use tokio_rustls::rustls::{
    SupportedCipherSuite, SupportedProtocolVersion,
    crypto::{CryptoProvider, ring},
    version::{TLS12, TLS13},
};

/// What the server negotiates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsParameters {
    /// Whether TLS 1.2 is offered.
    pub tls12: bool,
    /// Whether TLS 1.3 is offered.
    pub tls13: bool,
    /// The cipher suites of TLS 1.2, by their IANA names; empty: all. As in Go, those of TLS 1.3 are
    /// always offered. etcd's `--cipher-suites`.
    pub suites: Vec<String>,
}

impl Default for TlsParameters {
    fn default() -> Self {
        Self {
            tls12: true,
            tls13: true,
            suites: Vec::new(),
        }
    }
}

impl TlsParameters {
    /// The names of suites that the server does not have: mostly suites without forward secrecy.
    pub fn unknown_suites(&self) -> impl Iterator<Item = &str> {
        let all = ring::default_provider().cipher_suites;
        let known = move |name: &str| all.iter().any(|suite| is_named(suite, name));
        let names = self.suites.iter().map(String::as_str);
        names.filter(move |name| !known(name))
    }

    pub(super) fn provider(&self) -> CryptoProvider {
        let mut provider = ring::default_provider();
        if !self.suites.is_empty() {
            let named =
                |suite: &SupportedCipherSuite| self.suites.iter().any(|name| is_named(suite, name));
            provider
                .cipher_suites
                .retain(|suite| suite.tls13().is_some() || named(suite));
        }
        provider
    }

    pub(super) fn versions(&self) -> Vec<&'static SupportedProtocolVersion> {
        let versions = [(self.tls12, &TLS12), (self.tls13, &TLS13)];
        let offered = versions.into_iter().filter(|(offered, _)| *offered);
        offered.map(|(_, version)| version).collect()
    }
}

/// Go has names without the hash for the suites with ChaCha20.
fn is_named(suite: &SupportedCipherSuite, name: &str) -> bool {
    let full = format!("{:?}", suite.suite());
    full == name || full.strip_suffix("_SHA256") == Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&str]) -> TlsParameters {
        TlsParameters {
            suites: names.iter().map(|name| (*name).into()).collect(),
            ..TlsParameters::default()
        }
    }

    #[test]
    fn only_the_named_suites_of_tls_1_2_are_left() {
        let names = [
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
        ];
        let parameters = named(&names);
        let suites = parameters.provider().cipher_suites;
        let tls12 = suites.iter().filter(|suite| suite.tls13().is_none());
        assert_eq!(tls12.count(), 2);
        assert!(suites.iter().any(|suite| suite.tls13().is_some()));
        assert_eq!(parameters.unknown_suites().count(), 0);
        assert!(TlsParameters::default().provider().cipher_suites.len() > suites.len());
    }

    #[test]
    fn suites_that_are_missing_are_named() {
        let parameters = named(&[
            "TLS_RSA_WITH_AES_256_CBC_SHA",
            "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        ]);
        let unknown: Vec<_> = parameters.unknown_suites().collect();
        assert_eq!(unknown, ["TLS_RSA_WITH_AES_256_CBC_SHA"]);
    }
}
