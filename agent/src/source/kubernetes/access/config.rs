//! The configurations of kube's client by their credentials: a kubeconfig, a pod's service account, or the certificate of a node that has joined.

use std::path::Path;

use dormouse_fleet::membership;
use dormouse_trust::folder;
use k8s_openapi::ByteString;
use kube::Config;
use kube::config::{
    AuthInfo, Cluster, Context, KubeConfigOptions, Kubeconfig, KubeconfigError, NamedAuthInfo,
    NamedCluster, NamedContext,
};
use serde_json::{Value, json};

use super::AccessError;

/// The token in the folder of a service account, which kubelet replaces before it expires.
pub(super) const TOKEN: &str = "token";
/// The certificates of the server's authority in that folder.
const AUTHORITY: &str = "ca.crt";

/// The configuration of a file.
pub(super) async fn kubeconfig(path: &Path) -> Result<Config, AccessError> {
    let failed = |source| AccessError::Kubeconfig {
        path: path.to_owned(),
        source,
    };
    let read = Kubeconfig::read_from(path).map_err(failed)?;
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(read, &options).await;
    config.map_err(failed)
}

/// The configuration with a pod's service account. Its token is read again every minute, and with all else when a server
/// refuses it.
pub(super) async fn service_account(folder: &Path) -> Result<Config, AccessError> {
    let cluster = cluster(&folder.join(AUTHORITY));
    let user = AuthInfo {
        token_file: Some(text(&folder.join(TOKEN))),
        ..AuthInfo::default()
    };
    let config = config_of(cluster, user).await;
    config.map_err(|source| AccessError::ServiceAccount {
        folder: folder.to_owned(),
        source,
    })
}

/// The configuration with the certificate of a node that has joined. A renewed one is read when a server refuses this one.
pub(super) async fn of_node(folder: &Path) -> Result<Config, AccessError> {
    let file = folder.join(membership::NODE);
    let credentials = folder::load(&file, &file).map_err(|source| AccessError::Node {
        folder: folder.to_owned(),
        source,
    })?;
    let user = AuthInfo {
        client_certificate_data: Some(base64(credentials.chain_pem().into_bytes())),
        client_key_data: Some(base64(credentials.key_pem().as_bytes().to_vec()).into()),
        ..AuthInfo::default()
    };
    let cluster = cluster(&folder.join(membership::AUTHORITIES));
    let config = config_of(cluster, user).await;
    config.map_err(|source| AccessError::NodeConfig {
        folder: folder.to_owned(),
        source,
    })
}

/// A cluster with an authority.
fn cluster(authority: &Path) -> Cluster {
    Cluster {
        // Replaced by the address of the command line or of the environment.
        server: Some("https://localhost".to_owned()),
        certificate_authority: Some(text(authority)),
        ..Cluster::default()
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

async fn config_of(cluster: Cluster, user: AuthInfo) -> Result<Config, KubeconfigError> {
    let name = || "cluster".to_owned();
    let context = Context {
        cluster: name(),
        user: Some(name()),
        ..Context::default()
    };
    let all = Kubeconfig {
        clusters: vec![NamedCluster {
            name: name(),
            cluster: Some(cluster),
            ..NamedCluster::default()
        }],
        auth_infos: vec![NamedAuthInfo {
            name: name(),
            auth_info: Some(user),
            ..NamedAuthInfo::default()
        }],
        contexts: vec![NamedContext {
            name: name(),
            context: Some(context),
            ..NamedContext::default()
        }],
        current_context: Some(name()),
        ..Kubeconfig::default()
    };
    Config::from_custom_kubeconfig(all, &KubeConfigOptions::default()).await
}

/// Kubeconfigs have data in base64, as objects of the API.
fn base64(bytes: Vec<u8>) -> String {
    match json!(ByteString(bytes)) {
        Value::String(text) => text,
        _ => String::new(),
    }
}
