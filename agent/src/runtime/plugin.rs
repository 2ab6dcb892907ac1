//! The caller of the CNI plugin, as in a container runtime: environment, configuration on stdin, result on stdout.

use std::io;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::{NETWORK, POD_IFNAME, RuntimeConfig};

/// Time limit of a call.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Why a call of the plugin failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum PluginError {
    #[error("failed to execute {path}")]
    Execute {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the plugin did not end within {TIMEOUT:?}")]
    Timeout,
    #[error("{0}")]
    Refused(String),
    #[error("the plugin's result contains no IPv6 address: {0}")]
    NoAddress(String),
}

/// The pod of a call.
pub(super) struct Attachment<'a> {
    pub(super) config: &'a RuntimeConfig,
    pub(super) uid: &'a str,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) cohort: Option<u32>,
}

impl Attachment<'_> {
    /// ADD: connects the pod to the network. Returns its IPv6 address.
    pub(super) async fn add(&self) -> Result<Ipv6Addr, PluginError> {
        let answer = self.call("ADD").await?;
        address(&answer).ok_or_else(|| PluginError::NoAddress(answer.to_string()))
    }

    /// DEL: disconnects the pod, whatever exists of its wiring.
    pub(super) async fn del(&self) -> Result<(), PluginError> {
        self.call("DEL").await.map(|_nothing| ())
    }

    async fn call(&self, command: &str) -> Result<Value, PluginError> {
        let path = &self.config.cni;
        let fail = |source| PluginError::Execute {
            path: path.clone(),
            source,
        };
        let mut child = Command::new(path)
            .env_clear()
            .env("CNI_COMMAND", command)
            .env("CNI_CONTAINERID", self.uid)
            .env("CNI_NETNS", self.config.netns_path(self.uid))
            .env("CNI_IFNAME", POD_IFNAME)
            .env("CNI_PATH", path.parent().unwrap_or(Path::new("/")))
            .env("CNI_ARGS", self.arguments())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(fail)?;
        if let Some(mut stdin) = child.stdin.take() {
            // A plugin that refuses early does not read stdin: its result says more than EPIPE.
            let _ = stdin.write_all(self.configuration().as_bytes()).await;
        }
        let output = tokio::time::timeout(TIMEOUT, child.wait_with_output())
            .await
            .map_err(|_elapsed| PluginError::Timeout)?
            .map_err(fail)?;
        if output.status.success() {
            return Ok(serde_json::from_slice(&output.stdout).unwrap_or(Value::Null));
        }
        Err(PluginError::Refused(refusal(
            &output.stdout,
            &output.stderr,
        )))
    }

    fn arguments(&self) -> String {
        format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={}",
            self.namespace, self.name
        )
    }

    fn configuration(&self) -> String {
        json!({
            "cniVersion": "1.1.0",
            "name": NETWORK,
            "type": "dormouse-cni",
            "socket": self.config.socket,
            "stateDir": self.config.state_dir,
            "runtimeConfig": { "cohort": self.cohort },
        })
        .to_string()
    }
}

/// The first IPv6 address of ADD's result.
fn address(result: &Value) -> Option<Ipv6Addr> {
    let ips = result.get("ips")?.as_array()?;
    ips.iter().find_map(|ip| {
        let (address, _length) = ip.get("address")?.as_str()?.split_once('/')?;
        address.parse().ok()
    })
}

/// The error of a failed call: the specification's error object, or the plugin's output.
fn refusal(stdout: &[u8], stderr: &[u8]) -> String {
    let error: Value = serde_json::from_slice(stdout).unwrap_or(Value::Null);
    let text = |key: &str| {
        error
            .get(key)
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty())
    };
    match (text("msg"), text("details")) {
        (Some(message), Some(details)) => format!("{message}: {details}"),
        (Some(message), None) => message.to_owned(),
        _ => String::from_utf8_lossy(stderr).trim().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_the_results_first_ipv6_one() {
        let result =
            json!({ "ips": [{ "address": "10.0.0.1/24" }, { "address": "2001:db8::7/128" }] });
        assert_eq!(address(&result), Some("2001:db8::7".parse().unwrap()));
        assert_eq!(address(&json!({ "ips": [] })), None);
        assert_eq!(address(&Value::Null), None);
    }

    #[test]
    fn an_error_object_is_quoted() {
        let object = br#"{"code":11,"msg":"no address left","details":"500 of 500"}"#;
        assert_eq!(refusal(object, b""), "no address left: 500 of 500");
        assert_eq!(refusal(b"", b"panicked\n"), "panicked");
    }
}
