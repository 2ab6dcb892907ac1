//! `dormouse scheduler`: the scheduler in a process of its own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use dormouse_scheduler::{Profile, Server};
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;

use crate::listen::listen;
use crate::metrics;
use crate::up::connect;

/// The options of `dormouse scheduler`.
#[derive(Args, Debug, Clone)]
pub struct Options {
    /// Listen address
    #[arg(long, default_value = "[::1]:10259")]
    pub listen: SocketAddr,
    /// URL of the store
    #[arg(long, default_value = "http://[::1]:2379", env = "DORMOUSE_STORE")]
    pub store: String,
    /// File of a KubeSchedulerConfiguration (v1), YAML or JSON; without it, kube-scheduler's default profile
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Listen address of the metrics and of /healthz
    #[arg(long, default_value = "[::1]:10251", env = "DORMOUSE_METRICS_LISTEN")]
    pub metrics_listen: SocketAddr,
}

/// Runs only the scheduler.
pub async fn run(options: Options, shutdown: CancellationToken) -> Result<()> {
    let profiles = match &options.config {
        Some(file) => profiles(file)?,
        None => vec![Profile::default()],
    };
    let client = connect(&options.store).await?;
    let listener = listen(options.listen, "scheduler").await?;
    let metrics_listener = listen(options.metrics_listen, "metrics").await?;
    let server = Server::new(client).with_profiles(profiles);
    let mut registry = Registry::default();
    server.register(&mut registry);
    let serving = async {
        let served = server.follow(listener, shutdown.clone()).await;
        shutdown.cancel();
        served.context("scheduler failed")
    };
    let metered = async {
        metrics::serve(metrics_listener, registry, None, shutdown.clone())
            .await
            .context("metrics failed")
    };
    tokio::try_join!(serving, metered).map(|_ended| ())
}

/// The profiles of a configuration. What is not supported is refused with its field's path.
fn profiles(file: &Path) -> Result<Vec<Profile>> {
    let place = file.display();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {place}"))?;
    let document = serde_saphyr::from_str(&text).with_context(|| format!("{place} is not YAML"))?;
    Profile::parse_configuration(&document).with_context(|| {
        format!(
            "cannot use {place}: remove the field, or run kube-scheduler for the pods that need it"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, text: &str) -> Result<Vec<Profile>> {
        let file = std::env::temp_dir().join(format!("dormouse-{}-{name}", std::process::id()));
        std::fs::write(&file, text).unwrap();
        let read = profiles(&file);
        std::fs::remove_file(&file).unwrap();
        read
    }

    #[test]
    fn a_configuration_has_its_profiles_and_what_is_not_supported_is_named() {
        let header =
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";
        let two = format!("{header}profiles:\n- schedulerName: one\n- schedulerName: two\n");
        let names: Vec<_> = read("two", &two).unwrap();
        let names: Vec<_> = names.iter().map(Profile::name).collect();
        assert_eq!(names, ["one", "two"]);
        let extender = format!("{header}extenders:\n- urlPrefix: http://[::1]:1\n");
        let refused = format!("{:#}", read("extender", &extender).unwrap_err());
        assert!(refused.ends_with("extenders: not supported"), "{refused}");
    }
}
