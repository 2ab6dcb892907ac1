//! The flags as a configuration without contradictions.

use std::{path::PathBuf, time::Duration};

use dormouse_store::{
    Limits, auth,
    server::{self, CertificateFiles, TlsFiles, TlsParameters},
};

use crate::{
    compaction::Policy,
    duration,
    flags::{CompactionMode, Flags, TlsVersion},
    listen::ListenUrl,
};

/// Flags that contradict each other, with the way out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The durability of a store in memory.
    #[error("--durability needs a directory that keeps the state: add --data-dir")]
    NoDataDir,
    /// URLs for clients with different schemes.
    #[error("--listen-client-urls has http and https URLs: use one scheme for all")]
    MixedSchemes,
    /// A URL for clients without TLS that other hosts reach.
    #[error(
        "--listen-client-urls: {0} can be reached from other hosts, and plain text makes each of its clients an administrator: add --cert-file, --key-file, --trusted-ca-file and --client-cert-auth, and write https://; or listen on this host only, such as on http://[::1]:2379"
    )]
    PlainText(ListenUrl),
    /// A URL for metrics that other hosts reach.
    #[error(
        "{0} can be reached from other hosts, and metrics are plain text there: read them at the URLs of clients, which have them, too, with TLS; or listen on this host only, such as on http://[::1]:2381"
    )]
    PlainMetrics(ListenUrl),
    /// A https URL without a certificate.
    #[error("--listen-client-urls is https: add --cert-file and --key-file")]
    NoCertificate,
    /// A certificate that no URL uses.
    #[error("--cert-file needs https: write https:// in --listen-client-urls")]
    UnusedCertificate,
    /// Users by certificate without authorities that sign these.
    #[error(
        "--client-cert-auth needs the certificate authorities of clients: add --trusted-ca-file"
    )]
    NoAuthorities,
    /// A URL for metrics with TLS.
    #[error(
        "metrics are served without TLS only: write http:// in --listen-metrics-urls and --listen-client-http-urls"
    )]
    MetricsScheme,
    /// Versions of TLS that exclude each other.
    #[error("--tls-max-version is below --tls-min-version: raise it, or remove it")]
    TlsVersions,
    /// A flag of etcd that asks for something the store does not do.
    #[error("--{0}: {1}")]
    Refused(&'static str, &'static str),
    /// A retention that does not fit its mode.
    #[error("--auto-compaction-retention {0} is {1}")]
    Retention(String, &'static str),
}

/// What the command runs.
#[derive(Clone, Debug)]
pub struct Config {
    /// Limits of the store.
    pub limits: Limits,
    /// Options of the server, without TLS and trace: their files are opened when it starts.
    pub server: server::Options,
    /// `None`: no TLS.
    pub tls: Option<TlsFiles>,
    /// URLs for clients.
    pub client_urls: Vec<ListenUrl>,
    /// URLs for metrics and health only.
    pub metrics_urls: Vec<ListenUrl>,
    /// `None`: clients compact.
    pub compaction: Option<Policy>,
    /// The file of a trace.
    pub trace: Option<PathBuf>,
}

impl Config {
    /// The configuration of the flags.
    pub fn new(flags: &Flags) -> Result<Self, ConfigError> {
        if let Some((flag, way_out)) = flags.foreign.refused() {
            return Err(ConfigError::Refused(flag, way_out));
        }
        let tls = tls(flags)?;
        if flags.durability.is_given() && flags.data_dir.is_none() {
            return Err(ConfigError::NoDataDir);
        }
        let metrics = [
            &flags.listen_metrics_urls[..],
            &flags.listen_client_http_urls,
        ]
        .concat();
        if metrics.iter().any(ListenUrl::tls) {
            return Err(ConfigError::MetricsScheme);
        }
        if let Some(url) = flags.listen_client_urls.iter().find(|url| url.is_open()) {
            return Err(ConfigError::PlainText(url.clone()));
        }
        if let Some(url) = metrics.iter().find(|url| url.is_open()) {
            return Err(ConfigError::PlainMetrics(url.clone()));
        }
        Ok(Self {
            limits: limits(flags),
            server: server::Options {
                tls: None,
                certificate_users: flags.client_cert_auth,
                name: flags.name.clone(),
                client_urls: flags.advertise_client_urls.clone(),
                streams_max: flags.max_concurrent_streams,
                keepalive_interval: flags.grpc_keepalive_interval,
                keepalive_timeout: flags.grpc_keepalive_timeout,
                trace: None,
                ..server::Options::default()
            },
            tls,
            client_urls: flags.listen_client_urls.clone(),
            metrics_urls: metrics,
            compaction: compaction(flags)?,
            trace: flags.trace.clone(),
        })
    }
}

fn limits(flags: &Flags) -> Limits {
    let defaults = Limits::default();
    Limits {
        request_bytes_max: flags.max_request_bytes,
        txn_ops_max: flags.max_txn_ops,
        quota_bytes: match flags.quota_backend_bytes {
            0 => defaults.quota_bytes,
            bytes => u64::try_from(bytes).unwrap_or(u64::MAX),
        },
        journal_segment_bytes: flags.journal_segment_bytes,
        progress_interval: flags.watch_progress_notify_interval,
        auth: auth::Options {
            token_ttl: Duration::from_secs(flags.auth_token_ttl),
            bcrypt_cost: flags.bcrypt_cost,
        },
    }
}

fn tls(flags: &Flags) -> Result<Option<TlsFiles>, ConfigError> {
    let with_tls = flags.listen_client_urls.iter().filter(|url| url.tls());
    let with_tls = match with_tls.count() {
        0 => false,
        count if count == flags.listen_client_urls.len() => true,
        _ => return Err(ConfigError::MixedSchemes),
    };
    if flags.client_cert_auth && flags.trusted_ca_file.is_none() {
        return Err(ConfigError::NoAuthorities);
    }
    match (&flags.cert_file, &flags.key_file) {
        (Some(certificate), Some(key)) if with_tls => Ok(Some(TlsFiles {
            certificate: CertificateFiles {
                certificate: certificate.clone(),
                key: key.clone(),
            },
            client_authorities: flags.trusted_ca_file.clone(),
            revoked: flags.client_crl_file.clone(),
            parameters: tls_parameters(flags)?,
        })),
        (None, None) if !with_tls => Ok(None),
        _ if with_tls => Err(ConfigError::NoCertificate),
        _ => Err(ConfigError::UnusedCertificate),
    }
}

fn tls_parameters(flags: &Flags) -> Result<TlsParameters, ConfigError> {
    let max = flags.tls_max_version.unwrap_or(TlsVersion::V1_3);
    if max < flags.tls_min_version {
        return Err(ConfigError::TlsVersions);
    }
    Ok(TlsParameters {
        tls12: flags.tls_min_version == TlsVersion::V1_2,
        tls13: max == TlsVersion::V1_3,
        suites: flags.cipher_suites.clone(),
    })
}

fn compaction(flags: &Flags) -> Result<Option<Policy>, ConfigError> {
    let text = &flags.auto_compaction_retention;
    let invalid = |reason| ConfigError::Retention(text.clone(), reason);
    let number: Option<u32> = text.parse().ok();
    match (flags.auto_compaction_mode, number) {
        (_, Some(0)) => Ok(None),
        (CompactionMode::Revision, Some(count)) => Ok(Some(Policy::Revisions(count.into()))),
        (CompactionMode::Revision, None) => Err(invalid("no number of revisions, such as 1000")),
        (CompactionMode::Periodic, Some(hours)) => {
            Ok(Some(Policy::Period(Duration::from_hours(hours.into()))))
        }
        (CompactionMode::Periodic, None) => {
            let period = duration::parse(text);
            let period = period.or(Err(invalid("neither a duration, such as 30m, nor hours")))?;
            Ok(Some(Policy::Period(period)))
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        flags: Flags,
    }

    fn config(arguments: &[&str]) -> Result<Config, ConfigError> {
        let command = Command::try_parse_from([&["store"], arguments].concat());
        Config::new(&command.unwrap_or_else(|error| panic!("{error}")).flags)
    }

    fn refused(arguments: &[&str]) -> ConfigError {
        config(arguments).unwrap_err()
    }

    #[test]
    fn the_defaults_are_those_of_etcd() {
        let config = config(&[]).unwrap();
        let (limits, defaults) = (config.limits, Limits::default());
        assert_eq!(limits.request_bytes_max, defaults.request_bytes_max);
        assert_eq!(limits.txn_ops_max, defaults.txn_ops_max);
        assert_eq!(limits.quota_bytes, defaults.quota_bytes);
        assert_eq!(limits.journal_segment_bytes, defaults.journal_segment_bytes);
        assert_eq!(limits.progress_interval, defaults.progress_interval);
        assert_eq!(limits.auth, defaults.auth);
        assert_eq!(config.client_urls[0].to_string(), "http://[::1]:2379");
        assert_eq!(config.compaction, None);
    }

    #[test]
    fn the_manifest_of_kubeadm_is_accepted() {
        let config = config(&[
            "--advertise-client-urls=https://10.0.0.1:2379",
            "--cert-file=/etc/kubernetes/pki/etcd/server.crt",
            "--client-cert-auth=true",
            "--experimental-initial-corrupt-check=true",
            "--feature-gates=InitialCorruptCheck=true",
            "--initial-advertise-peer-urls=https://10.0.0.1:2380",
            "--initial-cluster=cp=https://10.0.0.1:2380",
            "--key-file=/etc/kubernetes/pki/etcd/server.key",
            "--listen-client-urls=https://127.0.0.1:2379,https://10.0.0.1:2379",
            "--listen-metrics-urls=http://127.0.0.1:2381",
            "--listen-peer-urls=https://10.0.0.1:2380",
            "--name=cp",
            "--peer-cert-file=/etc/kubernetes/pki/etcd/peer.crt",
            "--peer-client-cert-auth=true",
            "--peer-key-file=/etc/kubernetes/pki/etcd/peer.key",
            "--peer-trusted-ca-file=/etc/kubernetes/pki/etcd/ca.crt",
            "--snapshot-count=10000",
            "--trusted-ca-file=/etc/kubernetes/pki/etcd/ca.crt",
            "--watch-progress-notify-interval=5s",
            "--max-concurrent-streams=1000",
            "--tls-min-version=TLS1.3",
            "--cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        ])
        .unwrap();
        assert_eq!(config.client_urls.len(), 2);
        let tls = config.tls.unwrap();
        assert!(tls.client_authorities.is_some());
        assert!(!tls.parameters.tls12 && tls.parameters.tls13);
        assert_eq!(tls.parameters.suites.len(), 2);
        assert_eq!(config.server.streams_max, 1_000);
        assert!(config.server.certificate_users);
        assert_eq!(config.limits.progress_interval, Duration::from_secs(5));
    }

    #[test]
    fn a_quota_of_0_is_the_default_and_a_negative_one_no_limit() {
        let quota = |text| {
            config(&["--quota-backend-bytes", text])
                .unwrap()
                .limits
                .quota_bytes
        };
        assert_eq!(quota("1048576"), 1 << 20);
        assert_eq!(quota("0"), 2 << 30);
        assert_eq!(quota("-1"), u64::MAX);
    }

    #[test]
    fn a_retention_is_a_duration_or_hours_or_revisions() {
        let policy = |mode, retention| {
            let mode = ["--auto-compaction-mode", mode];
            let retention = ["--auto-compaction-retention", retention];
            config(&[mode, retention].concat()).map(|config| config.compaction)
        };
        let minutes = |minutes| Ok(Some(Policy::Period(Duration::from_mins(minutes))));
        assert_eq!(policy("periodic", "30m"), minutes(30));
        assert_eq!(policy("periodic", "2"), minutes(120));
        assert_eq!(
            policy("revision", "1000"),
            Ok(Some(Policy::Revisions(1000)))
        );
        assert_eq!(policy("revision", "0"), Ok(None));
        for (mode, retention) in [("revision", "1h"), ("periodic", "x"), ("revision", "-5")] {
            let retention = format!("--auto-compaction-retention={retention}");
            let refused = refused(&["--auto-compaction-mode", mode, &retention]);
            assert!(matches!(refused, ConfigError::Retention(..)), "{refused}");
        }
    }

    #[test]
    fn contradictions_are_refused() {
        let files = ["--cert-file=c", "--key-file=k"];
        let mixed = "--listen-client-urls=http://a:1,https://a:2";
        assert_eq!(refused(&[mixed]), ConfigError::MixedSchemes);
        let https = "--listen-client-urls=https://a:1";
        assert_eq!(refused(&[https]), ConfigError::NoCertificate);
        assert_eq!(refused(&files), ConfigError::UnusedCertificate);
        let users = [https, "--client-cert-auth", files[0], files[1]];
        assert_eq!(refused(&users), ConfigError::NoAuthorities);
        for metrics in ["metrics-urls=https://a:1", "client-http-urls=unixs:///a"] {
            let refused = refused(&[&format!("--listen-{metrics}")]);
            assert_eq!(refused, ConfigError::MetricsScheme);
        }
        let tls = [https, files[0], files[1]];
        let versions = ["--tls-min-version=TLS1.3", "--tls-max-version=TLS1.2"];
        assert_eq!(
            refused(&[&tls[..], &versions].concat()),
            ConfigError::TlsVersions
        );
        let members = refused(&["--initial-cluster=a=http://a:1,b=http://b:1"]);
        assert!(
            members
                .to_string()
                .starts_with("--initial-cluster: it names several"),
            "{members}"
        );
        let durability = ["--durability", "/a/=none"];
        assert_eq!(refused(&durability), ConfigError::NoDataDir);
    }

    #[test]
    fn plain_text_is_for_this_host_only() {
        for of_this_host in [
            "http://[::1]:1",
            "http://127.0.0.2:1",
            "http://localhost:1",
            "unix:///a",
        ] {
            for flag in ["client", "metrics"] {
                config(&[&format!("--listen-{flag}-urls={of_this_host}")]).unwrap();
            }
        }
        for other in ["[2001:db8::5]:1", "0.0.0.0:1", "[::]:1", "store:1"] {
            let of_others = refused(&[&format!(
                "--listen-client-urls=http://[::1]:1,http://{other}"
            )]);
            let text = of_others.to_string();
            assert!(
                text.contains(&format!("http://{other} can be reached")),
                "{text}"
            );
            let metrics = refused(&[&format!("--listen-metrics-urls=http://{other}")]);
            assert!(matches!(metrics, ConfigError::PlainMetrics(_)), "{metrics}");
            let https = format!("--listen-client-urls=https://{other}");
            config(&[&https, "--cert-file=a", "--key-file=b"]).unwrap();
        }
    }

    #[test]
    fn other_kinds_of_tokens_are_refused() {
        for arguments in [
            ["--auth-token", "jwt,pub-key=a,priv-key=b,sign-method=RS256"],
            ["--bcrypt-cost", "3"],
            ["--max-txn-ops", "x"],
        ] {
            assert!(Command::try_parse_from([&["store"], &arguments[..]].concat()).is_err());
        }
    }
}
