//! The flags of `run` about the source of Services: a folder of manifests, or a Kubernetes API server.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::source::kubernetes::{self, Access, AccessError};

/// The flags about the source of Services.
#[derive(Clone, Debug, clap::Args)]
pub struct SourceOptions {
    /// Folder of manifests (YAML or JSON: Service, EndpointSlice, Node) to serve; watched for changes
    #[arg(long, env = "DORMOUSE_MANIFESTS", conflicts_with_all = ["api_servers", "kubeconfig"])]
    pub manifests: Option<PathBuf>,
    /// URL of a Kubernetes API server whose Services to serve, like https://[2001:db8:d0::c]:6443; several are tried in turn.
    /// Give an address of the server itself: that of the Service `kubernetes` is served by this agent
    #[arg(
        long = "api-server",
        env = "DORMOUSE_API_SERVERS",
        value_name = "URL",
        value_delimiter = ','
    )]
    pub api_servers: Vec<String>,
    /// File with the credentials for the API server, and its URL unless --api-server is given; read again when it is refused.
    /// Without one, a node that has joined shows its certificate
    #[arg(long, env = "DORMOUSE_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Serve the Services of the cluster in whose pod the agent runs, with the pod's service account. Without --api-server,
    /// the server is that of KUBERNETES_SERVICE_HOST, which can be reached while kube-proxy or an earlier agent serves it
    #[arg(long, env = "DORMOUSE_IN_CLUSTER")]
    pub in_cluster: bool,
    /// Folder of the pod's service account (`token`, `ca.crt`); used with --in-cluster, and with --api-server if it exists
    #[arg(
        long,
        env = "DORMOUSE_SERVICE_ACCOUNT",
        value_name = "FOLDER",
        default_value = kubernetes::SERVICE_ACCOUNT
    )]
    pub service_account: PathBuf,
}

impl SourceOptions {
    /// Checks what clap cannot.
    pub(super) fn validate(&self) -> Result<()> {
        // By value: a variable that is `false` is present, too.
        let other = match (&self.manifests, &self.kubeconfig) {
            (Some(_), _) => Some("--manifests"),
            (_, Some(_)) => Some("--kubeconfig"),
            (None, None) => None,
        };
        if let Some(other) = other.filter(|_| self.in_cluster) {
            bail!("{other} cannot be used with --in-cluster: give one source of Services");
        }
        Ok(())
    }

    /// The Kubernetes API servers and the credentials, if Services come from there. `identity` is the folder of the node's certificate.
    pub(super) fn access(&self, identity: &Path) -> Result<Option<Access>, AccessError> {
        let variable = |name: &str| std::env::var(name).ok();
        let host = variable("KUBERNETES_SERVICE_HOST");
        let port = variable("KUBERNETES_SERVICE_PORT");
        Access::new(kubernetes::Flags {
            servers: &self.api_servers,
            kubeconfig: self.kubeconfig.as_deref(),
            in_cluster: self.in_cluster,
            service_account: &self.service_account,
            identity,
            service: [host.as_deref(), port.as_deref()],
        })
    }
}
