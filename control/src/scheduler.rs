//! `dormouse scheduler`: the scheduler in a process of its own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;
use dormouse_cluster::Client;
use dormouse_scheduler::shards::{Leases, Role, Sharding};
use dormouse_scheduler::{Configuration, Election, Profile, Server, Webhook};
use dormouse_trust::CertificateFiles;
use kube::config::{KubeConfigOptions, Kubeconfig};
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;

use crate::cli::Connection;
use crate::listen::listen;
use crate::members::{self, Membership};
use crate::metrics;
use crate::role::{JoinFlags, Member, ROLES_MAX};
use crate::up::STORE_PORT;

/// The options of `dormouse scheduler`.
#[derive(Args, Debug, Clone)]
pub struct Options {
    /// Listen address
    #[arg(long, default_value = "[::1]:10259")]
    pub listen: SocketAddr,
    /// What it decides on, and by which profile.
    #[command(flatten)]
    pub cluster: Cluster,
    /// In a Kubernetes cluster, decide only while this scheduler holds its Lease; with --shards it always does
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    pub leader_elect: bool,
    /// Decide with shards: processes that have the nodes. This one leads them, and registers and serves them at its address
    #[arg(long, conflicts_with = "shard")]
    pub shards: bool,
    /// Run a shard in place of a scheduler: it has a part of the nodes, and answers the leader's questions about them
    #[arg(long)]
    pub shard: bool,
    /// With --shard, its name among the shards; two of one name refuse to run together [default: the host's name]
    #[arg(long, value_name = "NAME", requires = "shard")]
    pub name: Option<String>,
    /// With --shards, the relays below each relay and below the leader
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub fan_out: u16,
    /// With --shards, the attempts in flight. With 1, each decision sees all before it, as one scheduler's does; with more, a node
    /// that has changed meanwhile is scored again, but what other nodes have got meanwhile (affinity, spread) is not seen
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub attempts: u16,
    /// How it registers.
    #[command(flatten)]
    pub membership: Membership,
    /// Listen address of a ValidatingWebhook (HTTPS, path /admit): kube-apiserver sends pods that are being created, which are
    /// decided on before the watch shows them
    #[arg(long, value_name = "ADDR", env = "DORMOUSE_WEBHOOK_LISTEN", conflicts_with_all = ["shards", "shard"],
        requires_all = ["kubernetes", "webhook_cert", "webhook_key"])]
    pub webhook_listen: Option<SocketAddr>,
    /// Certificate of the webhook, PEM; read again when it changes
    #[arg(
        long,
        value_name = "FILE",
        env = "DORMOUSE_WEBHOOK_CERT",
        requires = "webhook_listen"
    )]
    pub webhook_cert: Option<PathBuf>,
    /// Private key of the webhook's certificate, PEM
    #[arg(
        long,
        value_name = "FILE",
        env = "DORMOUSE_WEBHOOK_KEY",
        requires = "webhook_listen"
    )]
    pub webhook_key: Option<PathBuf>,
    /// Listen address of the metrics and of /healthz. With a certificate it has TLS; without one, other hosts get /healthz only
    #[arg(long, default_value = "[::1]:10251", env = "DORMOUSE_METRICS_LISTEN")]
    pub metrics_listen: SocketAddr,
}

/// What decides, and where.
#[derive(Args, Debug, Clone)]
pub struct Cluster {
    /// URL of the store; by default port 2379 of the host at which this has joined, or http://[::1]:2379
    #[arg(long, env = "DORMOUSE_STORE")]
    pub store: Option<String>,
    /// Its certificate.
    #[command(flatten)]
    pub join: JoinFlags,
    /// File of a KubeSchedulerConfiguration (v1), YAML or JSON; without it, kube-scheduler's default profile
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Schedule the pods of a Kubernetes cluster, in place of those of the store: that of --kubeconfig, or the one in which
    /// this runs
    #[arg(long)]
    pub kubernetes: bool,
    /// Name of the scheduler's Lease; shards and relays of a scheduler have the same
    #[arg(long, default_value = "dormouse-scheduler", value_name = "NAME")]
    pub leader_elect_resource_name: String,
    /// Namespace of the Lease, and of those of shards and relays
    #[arg(long, default_value = "kube-system", value_name = "NAMESPACE")]
    pub leader_elect_resource_namespace: String,
}

impl Cluster {
    fn configuration(&self) -> Result<Configuration> {
        match &self.config {
            Some(file) => configuration(file),
            None => Ok(Configuration {
                profiles: vec![Profile::default()],
                extenders: Vec::new(),
            }),
        }
    }

    /// The one profile by which shards decide.
    pub(crate) fn only_profile(&self) -> Result<Profile> {
        let configuration = self.configuration()?;
        check_sharded(&configuration)?;
        let mut profiles = configuration.profiles;
        profiles.pop().context("no profile")
    }

    /// The Leases by which members find each other.
    pub(crate) async fn leases(&self, connection: &Connection, member: &Member) -> Result<Leases> {
        let namespace = &self.leader_elect_resource_namespace;
        Ok(if self.kubernetes {
            Leases::in_kubernetes(kubernetes(connection).await?, namespace)
        } else {
            Leases::in_store(self.store(member).await?, namespace)
        })
    }

    async fn store(&self, member: &Member) -> Result<Client> {
        let url = member.url(self.store.as_deref(), STORE_PORT);
        member.peers.store(&url).await
    }
}

/// Whether shards can decide by a configuration.
fn check_sharded(configuration: &Configuration) -> Result<()> {
    ensure!(
        configuration.extenders.is_empty(),
        "shards ask no extenders: remove them from --config, or run the scheduler without --shards"
    );
    ensure!(
        configuration.profiles.len() == 1,
        "shards decide by one profile, and --config has {}: start a scheduler for each, each with another --leader-elect-resource-name",
        configuration.profiles.len()
    );
    Ok(())
}

/// Runs only the scheduler, or a shard of one.
pub async fn run(
    options: Options,
    connection: Connection,
    shutdown: CancellationToken,
) -> Result<()> {
    let Options {
        cluster,
        membership,
        ..
    } = &options;
    if options.shard {
        let (name, listen) = (options.name.clone(), options.listen);
        let member = cluster.join.open(Role::Shard.name(), &shutdown).await?;
        let of = (cluster, &connection, &member);
        let join = membership.clone().join(Role::Shard, name, listen, of);
        let at = (options.listen, options.metrics_listen);
        return members::run(join.await?, at, &member, shutdown).await;
    }
    let member = cluster.join.open("scheduler", &shutdown).await?;
    let mut server = if cluster.kubernetes {
        Server::of_kubernetes(kubernetes(&connection).await?, options.election())
    } else {
        Server::new(cluster.store(&member).await?)
    };
    let configuration = cluster.configuration()?;
    if options.shards {
        let sharding = options
            .sharding(&configuration, &connection, &member)
            .await?;
        server = server.with_shards(sharding);
    }
    server = server
        .with_profiles(configuration.profiles)
        .with_extenders(configuration.extenders)?;
    Box::pin(serve(server, &options, &member, shutdown)).await
}

async fn serve(
    mut server: Server,
    options: &Options,
    member: &Member,
    shutdown: CancellationToken,
) -> Result<()> {
    let listener = listen(options.listen, "scheduler").await?;
    let connections_max = if options.shards {
        members::CONNECTIONS_MAX
    } else {
        ROLES_MAX
    };
    let incoming = member.incoming(listener, connections_max)?;
    let metrics_incoming = member.metrics(listen(options.metrics_listen, "metrics").await?);
    if let Some(webhook) = options.webhook().await? {
        server = server.with_webhook(webhook);
    }
    let mut registry = Registry::default();
    server.register(&mut registry);
    let serving = async {
        let ended = server.follow(incoming, shutdown.clone()).await;
        shutdown.cancel();
        ended.context("scheduler failed")
    };
    let metered = async {
        let pages = metrics::of_role(registry);
        metrics::serve(metrics_incoming, pages, None, shutdown.clone())
            .await
            .context("metrics failed")
    };
    tokio::try_join!(serving, metered).map(|_ended| ())
}

impl Options {
    async fn webhook(&self) -> Result<Option<Webhook>> {
        let files = self.webhook_cert.clone().zip(self.webhook_key.clone());
        let Some((address, (certificate, key))) = self.webhook_listen.zip(files) else {
            return Ok(None);
        };
        let listener = listen(address, "webhook").await?;
        let webhook = Webhook::new(listener, CertificateFiles { certificate, key });
        Ok(Some(webhook.context("the webhook cannot be served")?))
    }

    fn election(&self) -> Option<Election> {
        self.leader_elect.then(|| Election {
            namespace: self.cluster.leader_elect_resource_namespace.clone(),
            name: self.cluster.leader_elect_resource_name.clone(),
        })
    }

    async fn sharding(
        &self,
        configuration: &Configuration,
        connection: &Connection,
        member: &Member,
    ) -> Result<Sharding> {
        self.membership.check(self.listen)?;
        check_sharded(configuration)?;
        let Membership {
            advertise,
            lease_duration,
            straggler_timeout,
        } = self.membership.clone();
        Ok(Sharding {
            leases: self.cluster.leases(connection, member).await?,
            scheduler: self.cluster.leader_elect_resource_name.clone(),
            address: advertise,
            reach: members::reach(member),
            lease_duration,
            fan_out: usize::from(self.fan_out),
            window: usize::from(self.attempts),
            straggler_timeout,
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

/// A configuration. What is not supported is refused with its field's path.
fn configuration(file: &Path) -> Result<Configuration> {
    let place = file.display();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {place}"))?;
    let document = serde_saphyr::from_str(&text).with_context(|| format!("{place} is not YAML"))?;
    Configuration::parse(&document).with_context(|| {
        format!(
            "cannot use {place}: remove the field, or run kube-scheduler for the pods that need it"
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn read(name: &str, text: &str) -> Result<Configuration> {
        let file = std::env::temp_dir().join(format!("dormouse-{}-{name}", std::process::id()));
        std::fs::write(&file, text).unwrap();
        let read = configuration(&file);
        std::fs::remove_file(&file).unwrap();
        read
    }

    /// Its command line is that of the Deployment in `deploy/scheduler`.
    #[test]
    fn the_flags_and_variables_of_the_manifests_exist() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            options: Options,
        }
        let read = |file: &str| -> Value {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/scheduler");
            serde_saphyr::from_str(&std::fs::read_to_string(folder.join(file)).unwrap()).unwrap()
        };
        let container = |file: &str| read(file)["spec"]["template"]["spec"]["containers"][0].take();
        let command = container("base/deployment.yaml")["command"].take();
        let command: Vec<String> = serde_json::from_value(command).unwrap();
        assert_eq!(command[..2], ["/dormouse", "scheduler"]);
        let options = <Line as clap::Parser>::try_parse_from(&command[1..])
            .unwrap()
            .options;
        assert!(options.cluster.kubernetes && options.leader_elect);
        let line = <Line as clap::CommandFactory>::command();
        let known = |name: &str| {
            let mut all = line.get_arguments();
            all.any(|one| one.get_env().is_some_and(|variable| variable == name))
        };
        for set in container("webhook/deployment.yaml")["env"]
            .as_array()
            .unwrap()
        {
            let name = set["name"].as_str().unwrap();
            assert!(known(name), "{name}");
        }
    }

    #[test]
    fn a_configuration_has_its_profiles_and_what_is_not_supported_is_named() {
        let header =
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";
        let two = format!("{header}profiles:\n- schedulerName: one\n- schedulerName: two\n");
        let read_two = read("two", &two).unwrap();
        let names: Vec<_> = read_two.profiles.iter().map(Profile::name).collect();
        assert_eq!(names, ["one", "two"]);
        let extender =
            format!("{header}extenders:\n- urlPrefix: http://[::1]:1\n  preemptVerb: preempt\n");
        let refused = format!("{:#}", read("extender", &extender).unwrap_err());
        assert!(
            refused.ends_with("extenders[0].preemptVerb: not supported"),
            "{refused}"
        );
    }
}
