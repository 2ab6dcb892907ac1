//! The flags of etcd 3.4 to 3.7 that the store does not carry, with the reason or the way out.

use super::Group;

/// The flag whose value names the members of a new cluster.
pub(super) const MEMBERS: &str = "initial-cluster";

/// The way out for a cluster of several members: each would be a cluster of its own.
pub(super) const OTHER_MEMBERS: &str = "it names several members, and the store replicates nothing: name this one only, and run the store on one machine";

/// Flags that are accepted without an effect.
pub(super) const IGNORED: &[Group] = &[
    Group {
        text: "the store is the only member of its cluster and has no peers",
        values: &[
            "client-cert-file",
            "client-key-file",
            "compact-hash-check-time",
            "corrupt-check-time",
            "downgrade-check-time",
            "election-timeout",
            "experimental-compact-hash-check-time",
            "experimental-corrupt-check-time",
            "experimental-downgrade-check-time",
            "experimental-max-learners",
            "experimental-snapshot-catchup-entries",
            "experimental-wait-cluster-ready-timeout",
            "heartbeat-interval",
            "initial-advertise-peer-urls",
            MEMBERS,
            "initial-cluster-state",
            "initial-cluster-token",
            "listen-peer-urls",
            "max-learners",
            "peer-cert-allowed-cn",
            "peer-cert-allowed-hostname",
            "peer-cert-file",
            "peer-client-cert-file",
            "peer-client-key-file",
            "peer-crl-file",
            "peer-key-file",
            "peer-trusted-ca-file",
            "raft-read-timeout",
            "raft-write-timeout",
            "snapshot-catchup-entries",
        ],
        switches: &[
            "experimental-compact-hash-check-enabled",
            "experimental-enable-lease-checkpoint",
            "experimental-enable-lease-checkpoint-persist",
            "experimental-initial-corrupt-check",
            "experimental-peer-skip-client-san-verification",
            "force-new-cluster",
            "initial-election-tick-advance",
            "peer-auto-tls",
            "peer-client-cert-auth",
            "peer-skip-client-san-verification",
            "pre-vote",
            "strict-reconfig-check",
        ],
    },
    Group {
        text: "the journal is in --data-dir, in segments of its own size; see --durability",
        values: &[
            "backend-batch-interval",
            "backend-batch-limit",
            "backend-bbolt-freelist-type",
            "bootstrap-defrag-threshold-megabytes",
            "experimental-backend-bbolt-freelist-type",
            "experimental-bootstrap-defrag-threshold-megabytes",
            "max-snapshots",
            "max-wals",
            "snapshot-count",
            "wal-dir",
        ],
        switches: &[
            "experimental-memory-mlock",
            "experimental-stop-grpc-service-on-defrag",
            "experimental-txn-mode-write-with-shared-buffer",
            "memory-mlock",
            "unsafe-no-fsync",
        ],
    },
    Group {
        text: "compaction frees memory in slices of its own",
        values: &[
            "compaction-batch-limit",
            "compaction-sleep-interval",
            "experimental-compaction-batch-limit",
            "experimental-compaction-sleep-interval",
        ],
        switches: &[],
    },
    Group {
        text: "the variable DORMOUSE_LOG sets what is logged, to standard error",
        values: &[
            "experimental-warning-apply-duration",
            "experimental-warning-unary-request-duration",
            "log-format",
            "log-level",
            "log-outputs",
            "log-package-levels",
            "log-rotation-config-json",
            "logger",
            "warning-apply-duration",
            "warning-unary-request-duration",
        ],
        switches: &["debug", "enable-log-rotation"],
    },
    Group {
        text: "the store has no JSON gateway and no profiles over HTTP",
        values: &["cors", "host-whitelist"],
        switches: &["enable-grpc-gateway", "enable-pprof", "enable-v2"],
    },
    Group {
        text: "all metrics are served, whatever the level",
        values: &["metrics"],
        switches: &[],
    },
    Group {
        text: "no pings of clients are refused, and one process listens on a port",
        values: &["grpc-keepalive-min-time"],
        switches: &["socket-reuse-address", "socket-reuse-port"],
    },
    Group {
        text: "the store sends no traces; --trace writes requests to a file",
        values: &[
            "distributed-tracing-address",
            "distributed-tracing-instance-id",
            "distributed-tracing-sampling-rate",
            "distributed-tracing-service-name",
            "experimental-distributed-tracing-address",
            "experimental-distributed-tracing-instance-id",
            "experimental-distributed-tracing-sampling-rate",
            "experimental-distributed-tracing-service-name",
        ],
        switches: &[
            "enable-distributed-tracing",
            "experimental-enable-distributed-tracing",
        ],
    },
    Group {
        text: "the store has no features that are off",
        values: &["feature-gates"],
        switches: &[],
    },
    Group {
        text: "it concerns the discovery of other members, which the store does not have",
        values: &[
            "discovery-dial-timeout",
            "discovery-fallback",
            "discovery-keepalive-time",
            "discovery-keepalive-timeout",
            "discovery-request-timeout",
            "discovery-srv-name",
        ],
        switches: &[
            "discovery-insecure-skip-tls-verify",
            "discovery-insecure-transport",
        ],
    },
    Group {
        text: "it is for --auto-tls, which the store does not have",
        values: &["self-signed-cert-validity"],
        switches: &[],
    },
];

/// Flags that are refused.
pub(super) const REFUSED: &[Group] = &[
    Group {
        text: "write the settings of the file as flags, or as variables such as ETCD_NAME",
        values: &["config-file"],
        switches: &[],
    },
    Group {
        text: "the store makes no certificates: create one and add --cert-file and --key-file",
        values: &[],
        switches: &["auto-tls"],
    },
    Group {
        text: "names in the certificates of clients are not compared: name an authority in --trusted-ca-file that signs the allowed clients only",
        values: &["client-cert-allowed-hostname"],
        switches: &[],
    },
    Group {
        text: "the store is the only member of its cluster: remove the flag",
        values: &[
            "discovery",
            "discovery-cacert",
            "discovery-cert",
            "discovery-endpoints",
            "discovery-key",
            "discovery-password",
            "discovery-proxy",
            "discovery-srv",
            "discovery-token",
            "discovery-user",
        ],
        switches: &[],
    },
    Group {
        text: "the store is no proxy: remove the flag",
        values: &["proxy"],
        switches: &[],
    },
];
