//! `dormouse scheduler`: the scheduler in a process of its own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use dormouse_scheduler::{Election, Profile, Server};
use kube::config::{KubeConfigOptions, Kubeconfig};
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;

use crate::cli::Connection;
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
    /// Schedule the pods of a Kubernetes cluster, in place of those of the store: that of --kubeconfig, or the one in which
    /// this runs
    #[arg(long)]
    pub kubernetes: bool,
    /// In a Kubernetes cluster, decide only while this scheduler holds its Lease
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    pub leader_elect: bool,
    /// Name of the Lease
    #[arg(long, default_value = "dormouse-scheduler", value_name = "NAME")]
    pub leader_elect_resource_name: String,
    /// Namespace of the Lease
    #[arg(long, default_value = "kube-system", value_name = "NAMESPACE")]
    pub leader_elect_resource_namespace: String,
    /// Listen address of the metrics and of /healthz
    #[arg(long, default_value = "[::1]:10251", env = "DORMOUSE_METRICS_LISTEN")]
    pub metrics_listen: SocketAddr,
}

/// Runs only the scheduler.
pub async fn run(
    options: Options,
    connection: Connection,
    shutdown: CancellationToken,
) -> Result<()> {
    let profiles = match &options.config {
        Some(file) => profiles(file)?,
        None => vec![Profile::default()],
    };
    let server = if options.kubernetes {
        Server::of_kubernetes(kubernetes(&connection).await?, options.election())
    } else {
        Server::new(connect(&options.store).await?)
    };
    let listener = listen(options.listen, "scheduler").await?;
    let metrics_listener = listen(options.metrics_listen, "metrics").await?;
    let server = server.with_profiles(profiles);
    let mut registry = Registry::default();
    server.register(&mut registry);
    let serving = async {
        let ended = server.follow(listener, shutdown.clone()).await;
        shutdown.cancel();
        ended.context("scheduler failed")
    };
    let metered = async {
        metrics::serve(metrics_listener, registry, None, shutdown.clone())
            .await
            .context("metrics failed")
    };
    tokio::try_join!(serving, metered).map(|_ended| ())
}

impl Options {
    fn election(&self) -> Option<Election> {
        self.leader_elect.then(|| Election {
            namespace: self.leader_elect_resource_namespace.clone(),
            name: self.leader_elect_resource_name.clone(),
        })
    }
}

/// A client of the API server of a kubeconfig; without one, of the cluster in which this process runs.
async fn kubernetes(connection: &Connection) -> Result<kube::Client> {
    let config = if connection.kubeconfig.is_none() && connection.context.is_none() {
        kube::Config::infer().await?
    } else {
        let read = match &connection.kubeconfig {
            Some(file) => Kubeconfig::read_from(file),
            None => Kubeconfig::read(),
        };
        let options = KubeConfigOptions {
            context: connection.context.clone(),
            ..KubeConfigOptions::default()
        };
        kube::Config::from_custom_kubeconfig(read?, &options).await?
    };
    Ok(kube::Client::try_from(config)?)
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
