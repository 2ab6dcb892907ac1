//! The steps of a decision, rendered as text.

use std::net::{IpAddr, SocketAddr};

use dormouse_agent_datapath::{FrontendAddress, Pinned, Verdict};
use dormouse_ebpf::maps::NO_SLOT;
use dormouse_ebpf::service::{Masquerade, Mode, Route, SHARE_WHOLE, Set};
use dormouse_ebpf::trace::{Step, StepRecord};
use serde::Serialize;

use super::names::{self, Names};

/// Maximum number of a set's backends that are listed by address.
const NAMED_MAX: usize = 3;

/// The evidence for a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Evidence {
    /// The program ran in the kernel and recorded the step.
    Run,
    /// The programs' decision function ran in user space, over the same maps.
    Read,
}

/// A line of an explanation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Line {
    /// The program whose step this is.
    pub hook: &'static str,
    /// The subject, as `frontend` or `backends`.
    pub topic: &'static str,
    /// The finding.
    pub text: String,
    /// The evidence for it.
    pub evidence: Evidence,
}

/// Renders recorded steps as lines of text.
#[derive(Debug)]
pub struct Renderer<'a> {
    /// The node's maps.
    pub pinned: &'a Pinned,
    /// The names of slots and frontends.
    pub names: &'a Names,
    /// The packet's destination, or the address that the socket connects to.
    pub target: FrontendAddress,
    /// The decision is a socket hook's, which picks a backend at random; a packet's pick is by hash.
    pub by_socket: bool,
}

type TopicText = (&'static str, String);

impl Renderer<'_> {
    /// The lines for the steps of one decision.
    pub fn render(&self, steps: &[StepRecord]) -> Vec<TopicText> {
        let find = |wanted: Step| {
            let mut found = steps
                .iter()
                .filter(|record| Step::of(record.step) == Some(wanted));
            found.next().map(|record| record.values)
        };
        let mut lines = Vec::new();
        let route = find(Step::Route).map(|[slot, word]| (number(slot), Route::unpack(word)));
        lines.push(self.frontend(find(Step::ClusterIp), find(Step::Frontend), route));
        if let Some([slot, ranged]) = find(Step::Frontend) {
            lines.extend(source(number(slot), ranged == 1, route));
        }
        let Some((_, route)) = route else {
            return lines;
        };
        lines.push(("answer", answer(&route)));
        let entry = find(Step::Affinity);
        if route.affinity && route.mode == Mode::Serve {
            lines.push(("affinity", self.affinity(entry)));
        }
        if let Some([_, word]) = find(Step::Set) {
            lines.push(("backends", self.backends(Set::unpack(word))));
        }
        if let Some([id, consistent]) = find(Step::Picked) {
            lines.push(("pick", self.pick(number(id), consistent == 1)));
        }
        lines
    }

    fn frontend(
        &self,
        cluster_ip: Option<[u64; 2]>,
        address: Option<[u64; 2]>,
        route: Option<(u32, Route)>,
    ) -> TopicText {
        let of = |slot: u64| {
            let named = self.names.at(&self.target).map(ToOwned::to_owned);
            let named = named.or_else(|| self.names.of_slot(self.pinned, number(slot)));
            format!(
                "of {}, slot {slot}",
                named.unwrap_or_else(|| "an unknown service".to_owned())
            )
        };
        let text = match (cluster_ip, address, route) {
            (Some([slot, _]), _, _) => format!("cluster IP {}", of(slot)),
            (_, Some([slot, _]), _) => format!("{} {}", self.kind(), of(slot)),
            (_, _, Some((vip, route))) if !route.is_service() => {
                let known = if route.present {
                    ""
                } else {
                    ", not followed by this node"
                };
                format!("app VIP {}, index {vip}{known}", self.target.address)
            }
            _ => format!("none: no service at {}", names::text(&self.target)),
        };
        ("frontend", text)
    }

    /// The kind of the frontend, as its Service names it.
    fn kind(&self) -> &'static str {
        match self.names.kind_at(&self.target) {
            Some("clusterIP") => "cluster IP",
            Some("external") => "external IP",
            Some("loadBalancer") => "load balancer's address",
            Some("nodePort") => "node port",
            _ => "address and port",
        }
    }

    fn affinity(&self, entry: Option<[u64; 2]>) -> String {
        let entry = entry.and_then(|[id, _]| self.pinned.endpoint(number(id)));
        entry.map_or_else(
            || "ClientIP, no entry for this client".to_owned(),
            |(address, port, _)| {
                format!(
                    "ClientIP, the client's entry names {}",
                    SocketAddr::new(address, port)
                )
            },
        )
    }

    fn backends(&self, set: Set) -> String {
        if set.count == 0 {
            return "none".to_owned();
        }
        let end = |(address, port): (IpAddr, u16)| SocketAddr::new(address, port).to_string();
        let named: Vec<String> = self.pinned.backends(set).take(NAMED_MAX).map(end).collect();
        let more = usize::from(set.count).saturating_sub(named.len());
        let more = if more == 0 {
            String::new()
        } else {
            format!(" and {more} more")
        };
        format!("{}: {}{more}", set.count, named.join(", "))
    }

    fn pick(&self, id: u32, consistent: bool) -> String {
        let end = self.pinned.endpoint(id);
        let end = end.map_or_else(
            || "a removed backend".to_owned(),
            |(address, port, _)| SocketAddr::new(address, port).to_string(),
        );
        let by = if consistent {
            "by rendezvous hash, the same on every node"
        } else if self.by_socket {
            "at random, for each socket"
        } else {
            "by the flow's hash"
        };
        format!("{end} (id {id}), {by}")
    }
}

/// Whether the packet bypassed the host's forwarding, and if so, whether it went into a pod of this node.
pub fn direct(steps: &[StepRecord]) -> Option<bool> {
    let mut records = steps.iter().rev();
    let record = records.find(|record| Step::of(record.step) == Some(Step::Direct))?;
    let [_, into_pod] = record.values;
    Some(into_pod == 1)
}

/// The parts of the answer that depend on the source address.
fn source(slot: u32, ranged: bool, route: Option<(u32, Route)>) -> Option<TopicText> {
    let admitted = if !ranged {
        None
    } else if route.is_some() {
        Some("in a source range of the load balancer".to_owned())
    } else {
        Some("in no source range of the load balancer".to_owned())
    };
    let inside = route
        .filter(|(other, _)| *other != slot)
        .map(|(inside, _)| {
            format!("from inside the cluster, policy Local does not apply: slot {inside}")
        });
    let both: Vec<String> = admitted.into_iter().chain(inside).collect();
    (!both.is_empty()).then(|| ("source", both.join("; ")))
}

/// A slot or id, which have 32 bits, from a step's 64-bit value.
fn number(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(NO_SLOT)
}

/// The answer of a slot: mode, policy, masquerade.
fn answer(route: &Route) -> String {
    let mode = match route.mode {
        Mode::Proxy => "proxy: to an activator",
        Mode::Serve => "serve",
        Mode::Reject => "reject: port unreachable",
        Mode::Drop => "drop: no endpoint on this node",
    };
    let mut parts = vec![mode.to_owned()];
    if route.is_service() {
        let policy = if route.local {
            "policy Local"
        } else {
            "policy Cluster"
        };
        parts.push(policy.to_owned());
        parts.extend(masquerade(route.masquerade).map(ToOwned::to_owned));
    } else {
        if route.share() > 0 {
            parts.push(format!("share {}/{SHARE_WHOLE}", route.share()));
        }
        parts.extend(route.asleep.then(|| "asleep".to_owned()));
        parts.extend(route.leased.then(|| "under the node lease".to_owned()));
    }
    parts.join(", ")
}

fn masquerade(masquerade: Masquerade) -> Option<&'static str> {
    match masquerade {
        Masquerade::None => None,
        Masquerade::External => Some("masquerades sources outside the pod ranges"),
        Masquerade::All => Some("masquerades every source"),
        Masquerade::Node => Some("masquerades the node's own address"),
    }
}

/// The reason why an activator receives the connection, for verdicts that send it to one.
pub fn activator(verdict: Verdict) -> Option<&'static str> {
    match verdict {
        Verdict::Proxied => Some("used: the app's entry is in proxy mode"),
        Verdict::LeaseOver => Some("used: the node lease has expired"),
        Verdict::Shared => Some("used: the activator's share of new connections"),
        Verdict::NoBackend => Some("used: no backend is available"),
        Verdict::OtherPort => Some("used, and refuses: the VIP has no such port"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_ebpf::service::Owner;

    #[test]
    fn an_answer_lists_policy_and_masquerade() {
        let route = Route {
            mode: Mode::Serve,
            owner: Owner::Service {
                role: 0,
                group: Some(0),
            },
            masquerade: Masquerade::All,
            ..Route::ABSENT
        };
        assert_eq!(
            answer(&route),
            "serve, policy Cluster, masquerades every source"
        );
        let app = Route {
            mode: Mode::Proxy,
            asleep: true,
            leased: true,
            ..Route::ABSENT
        };
        assert_eq!(
            answer(&app),
            "proxy: to an activator, asleep, under the node lease"
        );
    }

    #[test]
    fn every_verdict_that_uses_an_activator_has_a_reason() {
        let reasons = Verdict::ALL
            .iter()
            .filter_map(|verdict| activator(*verdict));
        assert_eq!(reasons.count(), 5);
    }
}
