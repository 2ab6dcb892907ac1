//! The flags of the command. Their names and defaults are etcd's where the meaning is the same.

use std::{path::PathBuf, time::Duration};

use clap::{ArgAction, Args, ValueEnum, builder::BoolishValueParser};
use dormouse_store::auth::BCRYPT_COSTS;
use dormouse_store::server::STREAMS_MAX;

use crate::{
    durability::DurabilityFlags,
    duration,
    environment::{Environment, variable_of},
    foreign::Foreign,
    listen::ListenUrl,
};

/// What the compaction's retention counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompactionMode {
    /// A duration, or a number of hours.
    Periodic,
    /// Revisions.
    Revision,
}

/// A version of TLS, with etcd's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum TlsVersion {
    /// TLS 1.2.
    #[value(name = "TLS1.2")]
    V1_2,
    /// TLS 1.3.
    #[value(name = "TLS1.3")]
    V1_3,
}

/// The kind of a token, which etcd may follow by options.
fn token_kind(text: &str) -> Result<String, &'static str> {
    match text {
        "simple" => Ok(text.into()),
        _ => Err(
            "the store has no signed tokens: write simple; clients of both log in by themselves",
        ),
    }
}

/// The flags of the store.
#[derive(Args, Clone, Debug)]
#[command(mut_args(variable_of))]
pub struct Flags {
    /// Variables of etcd without an effect; the first field, since the parser takes out what it has read.
    #[command(flatten)]
    pub environment: Environment,
    /// Directory that keeps the state; without one it is in memory only
    #[arg(long, value_name = "DIRECTORY")]
    pub data_dir: Option<PathBuf>,
    /// Durability of the writes, with --data-dir.
    #[command(flatten)]
    pub durability: DurabilityFlags,
    /// Bytes at which a segment of the journal is full; a snapshot is taken when it replaces as many
    #[arg(long, value_name = "BYTES", default_value_t = 67_108_864, value_parser = clap::value_parser!(u64).range(4_096..))]
    pub journal_segment_bytes: u64,
    /// First revision of a store without a data directory; the default is the time in microseconds, so
    /// that revisions do not go back when it restarts
    #[arg(long, value_name = "REVISION", conflicts_with = "data_dir", value_parser = clap::value_parser!(i64).range(1..1 << 53))]
    pub initial_revision: Option<i64>,
    /// URLs to serve clients on: http://ADDRESS:PORT for clients on this host, or unix://FILE for a socket; with
    /// TLS, all are https or unixs
    #[arg(
        long,
        value_name = "URL",
        value_delimiter = ',',
        default_value = "http://[::1]:2379"
    )]
    pub listen_client_urls: Vec<ListenUrl>,
    /// URLs of this member in the list of the cluster's members; the default is those it listens on
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    pub advertise_client_urls: Vec<String>,
    /// URLs to serve metrics and health on, besides those for clients; http only, for clients on this host
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    pub listen_metrics_urls: Vec<ListenUrl>,
    /// The same for etcd's HTTP clients: JSON requests are not served
    #[arg(long, value_name = "URL", value_delimiter = ',', hide = true)]
    pub listen_client_http_urls: Vec<ListenUrl>,
    /// Name of this member
    #[arg(long, default_value = "dormouse")]
    pub name: String,
    /// Memory for keys, history, leases and watches, in bytes; 0 is 2 GiB, a negative number no limit
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    pub quota_backend_bytes: i64,
    /// Operations of one list of a transaction
    #[arg(long, value_name = "COUNT", default_value_t = 128)]
    pub max_txn_ops: usize,
    /// Size of a write, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1_572_864)]
    pub max_request_bytes: usize,
    /// What --auto-compaction-retention counts
    #[arg(long, value_name = "MODE", default_value = "periodic")]
    pub auto_compaction_mode: CompactionMode,
    /// History that is kept by compaction: a duration, a number of hours or a number of revisions; 0
    /// leaves compaction to the clients
    #[arg(long, value_name = "RETENTION", default_value = "0")]
    pub auto_compaction_retention: String,
    /// Interval of progress notifications to idle watches that ask for them
    #[arg(
        long,
        alias = "experimental-watch-progress-notify-interval",
        value_name = "DURATION",
        default_value = "10m",
        value_parser = duration::parse
    )]
    pub watch_progress_notify_interval: Duration,
    /// Requests and watches in flight on one connection; further ones wait
    #[arg(long, value_name = "COUNT", default_value_t = STREAMS_MAX, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_concurrent_streams: u32,
    /// Interval of pings that detect a client that is gone; 0 sends none
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse_or_zero)]
    pub grpc_keepalive_interval: Duration,
    /// Time in which a client answers a ping, above 0
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = duration::parse)]
    pub grpc_keepalive_timeout: Duration,
    /// Certificate of the server, PEM
    #[arg(long, help_heading = "TLS", value_name = "FILE", requires = "key_file")]
    pub cert_file: Option<PathBuf>,
    /// Private key of the certificate, PEM
    #[arg(
        long,
        help_heading = "TLS",
        value_name = "FILE",
        requires = "cert_file"
    )]
    pub key_file: Option<PathBuf>,
    /// Certificate authorities of the clients, PEM; with them each client needs a certificate
    #[arg(
        long,
        help_heading = "TLS",
        value_name = "FILE",
        requires = "cert_file"
    )]
    pub trusted_ca_file: Option<PathBuf>,
    /// Take the common name of a client's certificate as its user
    #[arg(
        long, help_heading = "TLS",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_value_t = false,
        default_missing_value = "true",
        value_parser = BoolishValueParser::new()
    )]
    pub client_cert_auth: bool,
    /// Certificates of clients that are refused: a revocation list, read for each connection
    #[arg(
        long,
        help_heading = "TLS",
        value_name = "FILE",
        requires = "trusted_ca_file"
    )]
    pub client_crl_file: Option<PathBuf>,
    /// Lowest version of TLS
    #[arg(
        long,
        help_heading = "TLS",
        value_name = "VERSION",
        default_value = "TLS1.2"
    )]
    pub tls_min_version: TlsVersion,
    /// Highest version of TLS; the default is the highest one there is
    #[arg(long, help_heading = "TLS", value_name = "VERSION")]
    pub tls_max_version: Option<TlsVersion>,
    /// Cipher suites of TLS 1.2, by their IANA names; the default is all that are secure
    #[arg(long, help_heading = "TLS", value_name = "NAME", value_delimiter = ',')]
    pub cipher_suites: Vec<String>,
    /// Kind of the tokens of logins: simple
    #[arg(long, help_heading = "Users", value_name = "KIND", default_value = "simple", value_parser = token_kind)]
    pub auth_token: String,
    /// Time to live of an unused token, in seconds
    #[arg(long, help_heading = "Users", value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    pub auth_token_ttl: u64,
    /// Cost of the hashes of passwords
    #[arg(long, help_heading = "Users", value_name = "COST", default_value_t = 10, value_parser = clap::value_parser!(u32).range(i64::from(*BCRYPT_COSTS.start())..=i64::from(*BCRYPT_COSTS.end())))]
    pub bcrypt_cost: u32,
    /// Append each request and response to this file, as lines of JSON without passwords and tokens
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Flags of etcd that the store does not carry.
    #[command(flatten)]
    pub foreign: Foreign,
}
