//! The flags of the command. Their names and defaults are etcd's where the meaning is the same.

use std::{path::PathBuf, time::Duration};

use clap::{ArgAction, Args, ValueEnum, builder::PossibleValuesParser};

use crate::{durability::DurabilityFlags, duration, listen::ListenUrl};

/// What the compaction's retention counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompactionMode {
    /// A duration, or a number of hours.
    Periodic,
    /// Revisions.
    Revision,
}

/// The flags of the store.
#[derive(Args, Clone, Debug)]
pub struct Flags {
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
    /// URLs to serve clients on; either all http or all https
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
    /// URLs to serve metrics and health on, besides those for clients; http only
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    pub listen_metrics_urls: Vec<ListenUrl>,
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
    /// Certificate of the server, PEM
    #[arg(long, value_name = "FILE", requires = "key_file")]
    pub cert_file: Option<PathBuf>,
    /// Private key of the certificate, PEM
    #[arg(long, value_name = "FILE", requires = "cert_file")]
    pub key_file: Option<PathBuf>,
    /// Certificate authorities of the clients, PEM; with them each client needs a certificate
    #[arg(long, value_name = "FILE", requires = "cert_file")]
    pub trusted_ca_file: Option<PathBuf>,
    /// Take the common name of a client's certificate as its user
    #[arg(
        long,
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_value_t = false,
        default_missing_value = "true"
    )]
    pub client_cert_auth: bool,
    /// Kind of the tokens of logins
    #[arg(long, value_name = "KIND", default_value = "simple", value_parser = PossibleValuesParser::new(["simple"]))]
    pub auth_token: String,
    /// Time to live of an unused token, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    pub auth_token_ttl: u64,
    /// Cost of the hashes of passwords
    #[arg(long, value_name = "COST", default_value_t = 10, value_parser = clap::value_parser!(u32).range(4..=31))]
    pub bcrypt_cost: u32,
    /// Append each request and response to this file, as lines of JSON without passwords and tokens
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Flags without an effect.
    #[command(flatten)]
    pub ignored: Ignored,
}

/// Flags of etcd about peers, disks and checks that the store does not have. They are accepted, so that
/// a manifest for etcd needs no change.
#[derive(Args, Clone, Debug, Default)]
pub struct Ignored {
    #[arg(long, hide = true)]
    listen_peer_urls: Option<String>,
    #[arg(long, hide = true)]
    initial_advertise_peer_urls: Option<String>,
    #[arg(long, hide = true)]
    initial_cluster: Option<String>,
    #[arg(long, hide = true)]
    initial_cluster_state: Option<String>,
    #[arg(long, hide = true)]
    initial_cluster_token: Option<String>,
    #[arg(long, hide = true)]
    peer_cert_file: Option<String>,
    #[arg(long, hide = true)]
    peer_key_file: Option<String>,
    #[arg(long, hide = true)]
    peer_trusted_ca_file: Option<String>,
    #[arg(long, hide = true)]
    snapshot_count: Option<String>,
    #[arg(long, hide = true)]
    heartbeat_interval: Option<String>,
    #[arg(long, hide = true)]
    election_timeout: Option<String>,
    #[arg(long, hide = true)]
    feature_gates: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    peer_client_cert_auth: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    experimental_initial_corrupt_check: Option<String>,
}

impl Ignored {
    /// The flags that were given.
    pub fn given(&self) -> impl Iterator<Item = &'static str> {
        let flags = [
            ("--listen-peer-urls", &self.listen_peer_urls),
            (
                "--initial-advertise-peer-urls",
                &self.initial_advertise_peer_urls,
            ),
            ("--initial-cluster", &self.initial_cluster),
            ("--initial-cluster-state", &self.initial_cluster_state),
            ("--initial-cluster-token", &self.initial_cluster_token),
            ("--peer-cert-file", &self.peer_cert_file),
            ("--peer-key-file", &self.peer_key_file),
            ("--peer-trusted-ca-file", &self.peer_trusted_ca_file),
            ("--snapshot-count", &self.snapshot_count),
            ("--heartbeat-interval", &self.heartbeat_interval),
            ("--election-timeout", &self.election_timeout),
            ("--feature-gates", &self.feature_gates),
            ("--peer-client-cert-auth", &self.peer_client_cert_auth),
            (
                "--experimental-initial-corrupt-check",
                &self.experimental_initial_corrupt_check,
            ),
        ];
        let given = flags.map(|(flag, value)| value.is_some().then_some(flag));
        given.into_iter().flatten()
    }
}
