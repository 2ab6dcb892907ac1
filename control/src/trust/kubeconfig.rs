//! Kubeconfigs with a certificate, for `dormouse` and `kubectl`.

use anyhow::Result;
use dormouse_trust::{Authority, Credentials};
use k8s_openapi::ByteString;
use serde_json::json;
use zeroize::Zeroizing;

/// The name of cluster, user and context.
const NAME: &str = "dormouse";

/// A kubeconfig for the API at `url`.
pub(super) fn text(
    url: &str,
    authority: &Authority,
    credentials: &Credentials,
) -> Result<Zeroizing<String>> {
    let key = credentials.key_pem();
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": NAME,
        "clusters": [{"name": NAME, "cluster": {
            "server": url,
            "certificate-authority-data": ByteString(authority.certificate_pem().into_bytes()),
        }}],
        "users": [{"name": NAME, "user": {
            "client-certificate-data": ByteString(credentials.chain_pem().into_bytes()),
            "client-key-data": ByteString(key.as_bytes().to_vec()),
        }}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME}}],
    });
    Ok(Zeroizing::new(serde_saphyr::to_string(&config)?))
}
