//! The API servers, which are tried in turn, and the credentials, which are read again when they are refused.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::ConfigExt;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tower::{BoxError, ServiceBuilder};

/// The token of a pod's service account; the CA's certificate is beside it.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
/// Maximum time to connect, over all addresses of a server's name.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// A watch may be silent for minutes: a server that is gone without a word is found out by TCP, after
/// `KEEPALIVE + KEEPALIVE_RETRIES * KEEPALIVE_INTERVAL`.
const KEEPALIVE: Duration = Duration::from_secs(20);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;

/// The API servers and the credentials.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Access {
    /// URLs of the servers; none: the kubeconfig's.
    servers: Vec<Uri>,
    /// Credentials; none: the service account of the pod in which the agent runs, if there is one.
    kubeconfig: Option<PathBuf>,
}

/// Why no API server can be asked.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The URL of a server is wrong.
    #[error("--api-server {url:?}: write it like https://[2001:db8:d0::c]:6443")]
    Url {
        /// The URL.
        url: String,
    },
    /// The kubeconfig cannot be read or used.
    #[error("--kubeconfig {}", path.display())]
    Kubeconfig {
        /// Its path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: kube::config::KubeconfigError,
    },
    /// The service account's token or certificate cannot be read.
    #[error("the pod's service account")]
    ServiceAccount(#[source] kube::config::InClusterError),
    /// The certificates or the credentials cannot be used.
    #[error("the credentials for the API server")]
    Credentials(#[source] kube::Error),
}

impl Access {
    /// The servers and credentials of the command line; none, if it has none.
    pub fn new(servers: &[String], kubeconfig: Option<&Path>) -> Result<Option<Self>, AccessError> {
        let parsed = servers.iter().map(|text| url(text));
        let servers = parsed.collect::<Result<Vec<_>, _>>()?;
        if servers.is_empty() && kubeconfig.is_none() {
            return Ok(None);
        }
        let kubeconfig = kubeconfig.map(Path::to_owned);
        Ok(Some(Self {
            servers,
            kubeconfig,
        }))
    }

    /// The configuration for one of the servers, with the credentials as they are now.
    async fn config(&self, turn: usize) -> Result<Config, AccessError> {
        let server = self.servers.get(turn % self.servers.len().max(1)).cloned();
        let mut config = match (&self.kubeconfig, &server) {
            (Some(path), _) => kubeconfig(path).await?,
            (None, Some(server)) if !Path::new(TOKEN).exists() => Config::new(server.clone()),
            (None, _) => Config::incluster_dns().map_err(AccessError::ServiceAccount)?,
        };
        if let Some(server) = server {
            config.cluster_url = server;
        }
        Ok(config)
    }
}

/// Parses the URL of a server.
fn url(text: &str) -> Result<Uri, AccessError> {
    let url: Option<Uri> = text.parse().ok();
    let is_server =
        |url: &Uri| matches!(url.scheme_str(), Some("http" | "https")) && url.query().is_none();
    url.filter(is_server).ok_or_else(|| AccessError::Url {
        url: text.to_owned(),
    })
}

async fn kubeconfig(path: &Path) -> Result<Config, AccessError> {
    let failed = |source| AccessError::Kubeconfig {
        path: path.to_owned(),
        source,
    };
    let read = Kubeconfig::read_from(path).map_err(failed)?;
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(read, &options).await;
    config.map_err(failed)
}

/// The servers of one follower, in turn.
pub(super) struct Servers {
    access: Access,
    turn: usize,
    client: Option<(Client, String)>,
}

impl Servers {
    /// Begins with the first server.
    pub(super) fn new(access: Access) -> Self {
        Self {
            access,
            turn: 0,
            client: None,
        }
    }

    /// A client of the current server, and the server's URL.
    pub(super) async fn client(&mut self) -> Result<(Client, String), AccessError> {
        if let Some(client) = &self.client {
            return Ok(client.clone());
        }
        let config = self.access.config(self.turn).await?;
        let name = config.cluster_url.to_string();
        let client = client(&config).map_err(AccessError::Credentials)?;
        Ok(self.client.insert((client, name)).clone())
    }

    /// Reads the credentials again before the next request.
    pub(super) fn renew(&mut self) {
        self.client = None;
    }

    /// Turns to the next server.
    pub(super) fn turn(&mut self) {
        self.turn = self.turn.wrapping_add(1);
        self.client = None;
    }
}

/// A client without kube's own retries and time limits: the follower has them.
fn client(config: &Config) -> Result<Client, kube::Error> {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_connect_timeout(Some(CONNECT_MAX));
    http.set_keepalive(Some(KEEPALIVE));
    http.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    http.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
    let https = config.rustls_https_connector_with_connector(http)?;
    let pool = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(https);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .map_err(BoxError::from)
        .service(pool);
    Ok(Client::new(service, config.default_namespace.clone()))
}

/// An error with all its causes, and what to do about the frequent ones.
pub(super) fn describe(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    if text.contains("UnknownIssuer") {
        text.push_str(
            "; the server's certificate is of another authority than the given one: is it another cluster's server?",
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(servers: &[&str], kubeconfig: Option<&Path>) -> Result<Option<Access>, AccessError> {
        let servers: Vec<String> = servers.iter().map(|url| (*url).to_owned()).collect();
        Access::new(&servers, kubeconfig)
    }

    #[test]
    fn a_wrong_url_is_refused_with_its_flag() {
        for wrong in ["10.0.0.1:6443", "ftp://a", "https://", "https://a?b=c", ""] {
            let error = access(&[wrong], None).unwrap_err().to_string();
            assert!(error.starts_with("--api-server"), "{error}");
        }
        assert!(access(&["https://[::1]:6443", "http://a:80/"], None).is_ok());
        assert_eq!(access(&[], None).unwrap(), None);
    }

    #[tokio::test]
    async fn servers_are_tried_in_turn_and_a_kubeconfig_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        let write = |server: &str| {
            let text = format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
                 clusters: [{{name: c, cluster: {{server: '{server}'}}}}]\n\
                 users: [{{name: c, user: {{token: t}}}}]\n\
                 contexts: [{{name: c, context: {{cluster: c, user: c}}}}]\n"
            );
            std::fs::write(&path, text).unwrap();
        };
        write("http://first:1");
        let mut servers = Servers::new(access(&[], Some(&path)).unwrap().unwrap());
        assert_eq!(servers.client().await.unwrap().1, "http://first:1/");
        write("http://second:1");
        assert_eq!(servers.client().await.unwrap().1, "http://first:1/");
        servers.renew();
        assert_eq!(servers.client().await.unwrap().1, "http://second:1/");
        let several = access(&["http://a:1", "http://b:1"], Some(&path));
        let mut servers = Servers::new(several.unwrap().unwrap());
        for expected in ["http://a:1/", "http://b:1/", "http://a:1/"] {
            assert_eq!(servers.client().await.unwrap().1, expected);
            servers.turn();
        }
        std::fs::remove_file(&path).unwrap();
        let error = servers.client().await.map(drop).unwrap_err();
        assert!(describe(&error).contains("--kubeconfig"));
    }
}
