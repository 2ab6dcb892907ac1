//! The API servers, which are tried in turn, and the credentials, which are read again when they are refused.

mod config;

use std::error::Error;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dormouse_fleet::membership;
use dormouse_trust::folder::FolderError;
use hyper::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::ConfigExt;
use kube::config::KubeconfigError;
use kube::{Client, Config};
use tower::{BoxError, ServiceBuilder};

use config::TOKEN;

/// The folder of a pod's service account.
pub const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
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
    credentials: Credentials,
}

/// Where the credentials come from.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Credentials {
    Kubeconfig(PathBuf),
    /// The folder of a pod's service account.
    ServiceAccount(PathBuf),
    /// The folder of the certificate of a node that has joined.
    Node(PathBuf),
    /// The servers accept requests without.
    None,
}

/// The settings of the command line about the API server.
#[derive(Clone, Copy, Debug)]
pub struct Flags<'a> {
    /// URLs of the servers.
    pub servers: &'a [String],
    /// File with credentials.
    pub kubeconfig: Option<&'a Path>,
    /// The agent runs in a pod of the cluster.
    pub in_cluster: bool,
    /// The folder of the pod's service account.
    pub service_account: &'a Path,
    /// The folder of the node's certificate, if it has joined.
    pub identity: &'a Path,
    /// Host and port of the Service `kubernetes`, as the pod's environment has them.
    pub service: [Option<&'a str>; 2],
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
        source: KubeconfigError,
    },
    /// The agent does not run in a pod, or in one whose environment names no API server.
    #[error(
        "--in-cluster: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT do not name an API server, as they do in a pod; give --api-server"
    )]
    NoServer,
    /// The service account cannot be read or used.
    #[error("the pod's service account in {}", folder.display())]
    ServiceAccount {
        /// Its folder.
        folder: PathBuf,
        /// The cause.
        #[source]
        source: KubeconfigError,
    },
    /// The node's certificate cannot be read.
    #[error("the node's certificate in {}", folder.display())]
    Node {
        /// Its folder.
        folder: PathBuf,
        /// The cause.
        #[source]
        source: FolderError,
    },
    /// The node's certificate cannot be used.
    #[error("the node's certificate in {}", folder.display())]
    NodeConfig {
        /// Its folder.
        folder: PathBuf,
        /// The cause.
        #[source]
        source: KubeconfigError,
    },
    /// The certificates or the credentials cannot be used.
    #[error("the credentials for the API server")]
    Credentials(#[source] kube::Error),
}

impl Access {
    /// The servers and credentials of the command line; none, if it has none.
    pub fn new(flags: Flags<'_>) -> Result<Option<Self>, AccessError> {
        let parsed = flags.servers.iter().map(|text| url(text));
        let mut servers = parsed.collect::<Result<Vec<_>, _>>()?;
        if servers.is_empty() && flags.kubeconfig.is_none() && !flags.in_cluster {
            return Ok(None);
        }
        let account = flags.service_account;
        let credentials = match flags.kubeconfig {
            Some(path) => Credentials::Kubeconfig(path.to_owned()),
            None if flags.in_cluster || account.join(TOKEN).exists() => {
                Credentials::ServiceAccount(account.to_owned())
            }
            None if flags.identity.join(membership::NODE).exists() => {
                Credentials::Node(flags.identity.to_owned())
            }
            None => Credentials::None,
        };
        if flags.in_cluster && servers.is_empty() {
            servers.push(service_url(flags.service)?);
        }
        Ok(Some(Self {
            servers,
            credentials,
        }))
    }

    /// The configuration for one of the servers, with the credentials as they are now.
    async fn config(&self, turn: usize) -> Result<Config, AccessError> {
        let server = self.servers.get(turn % self.servers.len().max(1)).cloned();
        let mut config = match (&self.credentials, &server) {
            (Credentials::Kubeconfig(path), _) => config::kubeconfig(path).await?,
            (Credentials::ServiceAccount(folder), _) => config::service_account(folder).await?,
            (Credentials::Node(folder), _) => config::of_node(folder).await?,
            (Credentials::None, Some(server)) => Config::new(server.clone()),
            (Credentials::None, None) => return Err(AccessError::NoServer),
        };
        if let Some(server) = server {
            config.cluster_url = server;
        }
        Ok(config)
    }
}

/// The URL of the Service `kubernetes`.
fn service_url(service: [Option<&str>; 2]) -> Result<Uri, AccessError> {
    let [Some(host), Some(port)] = service else {
        return Err(AccessError::NoServer);
    };
    let text = match host.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) => format!("https://[{address}]:{port}"),
        _ => format!("https://{host}:{port}"),
    };
    text.parse().map_err(|_not_a_url| AccessError::NoServer)
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
    // BadSignature: authorities of different clusters often have the same name.
    if text.contains("UnknownIssuer") || text.contains("BadSignature") {
        text.push_str(
            "; the server's certificate is of another authority than the given one: is it another cluster's server?",
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use dormouse_trust::{Authority, Identity, Validity, folder};

    use super::*;

    fn access(servers: &[&str], kubeconfig: Option<&Path>) -> Result<Option<Access>, AccessError> {
        let servers: Vec<String> = servers.iter().map(|url| (*url).to_owned()).collect();
        Access::new(flags(&servers, kubeconfig))
    }

    fn flags<'a>(servers: &'a [String], kubeconfig: Option<&'a Path>) -> Flags<'a> {
        Flags {
            servers,
            kubeconfig,
            in_cluster: false,
            service_account: Path::new("/nowhere"),
            identity: Path::new("/nowhere"),
            service: [None; 2],
        }
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
    #[tokio::test]
    async fn a_node_that_has_joined_shows_its_certificate_unless_there_is_a_kubeconfig() {
        let folder = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let authority = Authority::create(now).unwrap();
        let validity = Validity::issued(now, Duration::from_hours(1), None);
        let node = authority.client(&Identity::node("a").unwrap(), validity);
        folder::keep(&folder.path().join(membership::NODE), &node.unwrap()).unwrap();
        let authorities = folder.path().join(membership::AUTHORITIES);
        folder::keep_certificates(&authorities, &[authority.certificate().clone()]).unwrap();
        let servers = ["https://[::1]:6443".to_owned()];
        let of = |kubeconfig| Flags {
            identity: folder.path(),
            ..flags(&servers, kubeconfig)
        };
        let access = Access::new(of(None)).unwrap().unwrap();
        assert_eq!(access.credentials, Credentials::Node(folder.path().into()));
        let config = access.config(0).await.unwrap();
        assert_eq!(config.cluster_url.to_string(), "https://[::1]:6443/");
        assert!(client(&config).is_ok());
        let given = Access::new(of(Some(Path::new("/config"))))
            .unwrap()
            .unwrap();
        assert_eq!(given.credentials, Credentials::Kubeconfig("/config".into()));
    }

    #[tokio::test]
    async fn in_a_pod_the_server_is_the_environments_unless_one_is_given() {
        let given = ["https://a:1".to_owned()];
        for (servers, service, url) in [
            (
                &[][..],
                ["2001:db8::1", "443"],
                "https://[2001:db8::1]:443/",
            ),
            (&[], ["10.96.0.1", "443"], "https://10.96.0.1:443/"),
            (&given, ["10.96.0.1", "443"], "https://a:1/"),
        ] {
            let access = Access::new(Flags {
                in_cluster: true,
                service: service.map(Some),
                ..flags(servers, None)
            });
            let access = access.unwrap().unwrap();
            let account = Credentials::ServiceAccount("/nowhere".into());
            assert_eq!(access.credentials, account);
            assert_eq!(access.servers[0].to_string(), url);
            let error = access.config(0).await.map(drop).unwrap_err();
            assert!(describe(&error).contains("/nowhere"), "{error}");
        }
        let outside = Access::new(Flags {
            in_cluster: true,
            ..flags(&[], None)
        });
        assert!(outside.unwrap_err().to_string().contains("--api-server"));
    }
}
