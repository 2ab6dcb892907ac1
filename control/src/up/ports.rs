//! The control plane's ports.

/// The store's port, as etcd's.
pub const STORE_PORT: u16 = 2379;
/// The REST API's port, as kube-apiserver's.
pub const API_PORT: u16 = 6443;
/// The fleet's port, to which agents connect.
pub const FLEET_PORT: u16 = 7443;
/// The scheduler's port, as kube-scheduler's.
pub const SCHEDULER_PORT: u16 = 10259;
/// The port to which activators in other processes connect.
pub const ACTIVATOR_PORT: u16 = 7444;
/// The port at which processes join the cluster.
pub const JOIN_PORT: u16 = 7445;
/// The port of the metrics.
pub const METRICS_PORT: u16 = 9090;

/// The ports of the control plane. No app may have one of them: the activator could not listen on it.
pub const OWN_PORTS: [u16; 7] = [
    STORE_PORT,
    API_PORT,
    FLEET_PORT,
    ACTIVATOR_PORT,
    JOIN_PORT,
    METRICS_PORT,
    SCHEDULER_PORT,
];
