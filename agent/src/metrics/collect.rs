//! The collector: reads all values of the node at each scrape.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use dormouse_agent_datapath::SharedDatapath;
use dormouse_agent_inspect::neighbours::solicitations;
use dormouse_agent_pod::{Network, Usage};

use crate::source::fleet_state::FleetState;
use crate::source::kubernetes::KubernetesState;

/// The sources of the values.
pub struct Collected {
    /// Packets, drops, fill of maps.
    pub datapath: SharedDatapath,
    /// CNI requests, addresses; none: another plugin wires the pods.
    pub network: Option<Arc<Network>>,
    /// State of the fleet stream.
    pub fleet: Arc<FleetState>,
    /// State of the connections to the Kubernetes API server; none: Services have another source.
    pub kubernetes: Option<Arc<KubernetesState>>,
}

impl fmt::Debug for Collected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collected").finish_non_exhaustive()
    }
}

/// Prefix of the names of drop verdicts.
const DROPPED: &str = "dropped_";

/// One sample: labels and value.
type Sample = (Vec<(&'static str, String)>, u64);

impl Collector for Collected {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        build(&mut encoder)?;
        self.fleet(&mut encoder)?;
        self.kubernetes(&mut encoder)?;
        self.datapath(&mut encoder)?;
        match &self.network {
            Some(network) => cni(&mut encoder, network),
            None => Ok(()),
        }
    }
}

impl Collected {
    fn fleet(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        encoder
            .encode_descriptor(
                "dormouse_fleet_connected",
                "Whether the fleet stream to control is open (0 or 1)",
                None,
                MetricType::Gauge,
            )?
            .encode_gauge(&u64::from(self.fleet.is_connected()))?;
        if let Some(secured) = self.fleet.is_secured() {
            encoder
                .encode_descriptor(
                    "dormouse_fleet_secured",
                    "Whether the fleet stream to control has TLS (0 or 1); missing: there is no such stream",
                    None,
                    MetricType::Gauge,
                )?
                .encode_gauge(&u64::from(secured))?;
        }
        encoder
            .encode_descriptor(
                "dormouse_fleet_lag_seconds",
                "Seconds since control renewed the node lease",
                None,
                MetricType::Gauge,
            )?
            .encode_gauge(&self.fleet.lag_seconds())?;
        encoder
            .encode_descriptor(
                "dormouse_fleet_stale_seconds",
                "Seconds since the node uses its last entries without control and activators, also after the end of its lease (0: it does not)",
                None,
                MetricType::Gauge,
            )?
            .encode_gauge(&self.fleet.stale_seconds())
    }

    /// The connections to the Kubernetes API server, by kind.
    fn kubernetes(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(kubernetes) = &self.kubernetes else {
            return Ok(());
        };
        let of = |kind: &str| vec![("kind", kind.to_owned())];
        let kinds = || kubernetes.values();
        let help = "Whether the watch at the Kubernetes API server is open (0 or 1), by kind";
        let connected = kinds().map(|kind| (of(kind.kind), u64::from(kind.connected)));
        gauges(
            encoder,
            "dormouse_kubernetes_connected",
            help,
            connected.collect(),
        )?;
        let help = "Seconds since anything was received from the Kubernetes API server, by kind";
        let name = "dormouse_kubernetes_silence_seconds";
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for kind in kinds() {
            if let Some(silence) = kind.silence_seconds {
                metric
                    .encode_family(&of(kind.kind))?
                    .encode_gauge(&silence)?;
            }
        }
        let help = "Lists from the Kubernetes API server, by kind and reason";
        let lists = kinds().flat_map(|kind| {
            kind.lists.map(|(reason, count)| {
                let mut labels = of(kind.kind);
                labels.push(("reason", reason.to_string()));
                (labels, count)
            })
        });
        counters(encoder, "dormouse_kubernetes_lists", help, lists.collect())
    }

    fn datapath(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let stats = self.datapath.stats();
        let (drops, packets): (Vec<_>, Vec<_>) = stats
            .into_iter()
            .partition(|(verdict, _)| verdict.is_drop());
        let reason = |name: &str| name.trim_start_matches(DROPPED).to_owned();
        let packets = packets
            .into_iter()
            .map(|(verdict, count)| (vec![("verdict", verdict.name().to_owned())], count));
        let drops = drops
            .into_iter()
            .map(|(verdict, count)| (vec![("reason", reason(verdict.name()))], count));
        let help = "Packets and connections, by verdict of the eBPF programs";
        counters(encoder, "dormouse_packets", help, packets.collect())?;
        counters(
            encoder,
            "dormouse_drops",
            "Packets dropped, by reason",
            drops.collect(),
        )?;
        self.maps(encoder)?;
        let (answered, ignored) = solicitations(&self.datapath.stats());
        let of = |result: &str, count| (vec![("result", result.to_owned())], count);
        let help = "Neighbour Solicitations at the uplink for the node's prefix: answered (for a pod), ignored (no such pod)";
        let samples = vec![of("answered", answered), of("ignored", ignored)];
        counters(encoder, "dormouse_ndp_solicitations", help, samples)
    }

    /// Fill of the maps: a full map rejects or evicts entries.
    fn maps(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let (flows, opening) = (self.datapath.flow_fill(), self.datapath.opening_fill());
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let mut fill = self.datapath.fill();
        fill.push(("flow", count(flows.entries), count(flows.room)));
        fill.push(("opening", count(opening.entries), count(opening.room)));
        let of = |number: fn(&(&'static str, usize, usize)) -> usize| {
            fill.iter()
                .map(|map| {
                    let number = u64::try_from(number(map)).unwrap_or(u64::MAX);
                    (vec![("map", map.0.to_owned())], number)
                })
                .collect()
        };
        let help = "Used entries of the eBPF maps; of the flow tables (flow, opening), at most so many since their last sweep";
        gauges(encoder, "dormouse_map_entries", help, of(|map| map.1))?;
        let help = "Capacity of the eBPF maps, in entries";
        gauges(encoder, "dormouse_map_capacity", help, of(|map| map.2))?;
        let help = "Flows that the kernel is known to have evicted because their table (flow, or opening) was full";
        counters(
            encoder,
            "dormouse_flows_evicted",
            help,
            vec![(Vec::new(), flows.evicted)],
        )
    }
}

/// CNI requests and addresses.
fn cni(encoder: &mut DescriptorEncoder<'_>, network: &Network) -> Result<(), fmt::Error> {
    let counts = network.counters().snapshot();
    let requests = counts.iter().map(|((command, code), requests)| {
        (
            vec![
                ("command", (*command).to_owned()),
                ("code", code.to_string()),
            ],
            requests.count,
        )
    });
    let help = "CNI requests, by command and error code (0: success)";
    counters(encoder, "dormouse_cni_requests", help, requests.collect())?;
    let pods = network.pods();
    let ipv4 = pods.iter().filter(|pod| pod.address4.is_some()).count();
    let live = |family: &str, number: usize| {
        let labels = vec![("state", "live".to_owned()), ("family", family.to_owned())];
        (labels, u64::try_from(number).unwrap_or(u64::MAX))
    };
    let addresses = vec![live("ipv6", pods.len()), live("ipv4", ipv4)];
    gauges(
        encoder,
        "dormouse_addresses",
        "Addresses of live pods, by family",
        addresses,
    )?;
    let Usage {
        held,
        quarantined,
        free,
    } = network.usage();
    let of = |state: &str, count| (vec![("state", state.to_owned())], count);
    let help = "IPv6 addresses of the node's prefix: leased, quarantined (released a short time ago), free (for pods without a cohort)";
    let pool = vec![
        of("leased", held),
        of("quarantined", quarantined),
        of("free", free),
    ];
    gauges(encoder, "dormouse_address_pool", help, pool)
}

fn build(encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let labels = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
    gauges(
        encoder,
        "dormouse_build_info",
        "Version of the running agent",
        vec![(labels, 1)],
    )
}

fn counters(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: Vec<Sample>,
) -> Result<(), fmt::Error> {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, value) in samples {
        metric
            .encode_family(&labels)?
            .encode_counter::<NoLabelSet, _, u64>(&value, None)?;
    }
    Ok(())
}

fn gauges(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: Vec<Sample>,
) -> Result<(), fmt::Error> {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in samples {
        metric.encode_family(&labels)?.encode_gauge(&value)?;
    }
    Ok(())
}
