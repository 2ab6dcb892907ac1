//! The steps of a decision, told for people.

use std::net::{IpAddr, SocketAddr};

use dormouse_ebpf::maps::NO_SLOT;
use dormouse_ebpf::service::{Hide, Mode, Route, SHARE_WHOLE, Set};
use dormouse_ebpf::trace::{Step, Told};
use serde::Serialize;

use super::names::{Names, text};
use dormouse_agent_datapath::{Pinned, Place, Verdict};

/// So many backends of a set are named.
const NAMED_MAX: usize = 3;

/// How a line is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// The program ran in the kernel and said so.
    Run,
    /// The same function was asked over the same maps, outside of the kernel.
    Read,
}

/// A line of an explanation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Line {
    /// The hook at which it is decided.
    pub hook: &'static str,
    /// What it is about.
    pub topic: &'static str,
    /// What was found.
    pub text: String,
    /// How that is known.
    pub how: How,
}

/// Who tells.
#[derive(Debug)]
pub struct Teller<'a> {
    /// The maps.
    pub pinned: &'a Pinned,
    /// Names.
    pub names: &'a Names,
    /// What is asked for.
    pub target: Place,
    /// A socket asks, not a packet: it draws anew each time.
    pub by_socket: bool,
}

type Said = (&'static str, String);

impl Teller<'_> {
    /// What a decision's steps mean.
    pub fn tell(&self, steps: &[Told]) -> Vec<Said> {
        let find = |wanted: Step| {
            let mut found = steps
                .iter()
                .filter(|told| Step::of(told.step) == Some(wanted));
            found.next().map(|told| told.values)
        };
        let mut said = Vec::new();
        let route = find(Step::Route).map(|[slot, word]| (number(slot), Route::unpack(word)));
        said.push(self.frontend(find(Step::ClusterIp), find(Step::Address), route));
        if let Some([slot, ranged]) = find(Step::Address) {
            said.extend(source(number(slot), ranged == 1, route));
        }
        let Some((_, route)) = route else {
            return said;
        };
        said.push(("answer", answer(&route)));
        let kept = find(Step::Kept);
        if route.sticky && route.mode == Mode::Serve {
            said.push(("affinity", self.affinity(kept)));
        }
        if let Some([_, word]) = find(Step::Set) {
            said.push(("backends", self.backends(Set::unpack(word))));
        }
        if let Some([id, alike]) = find(Step::Picked) {
            said.push(("pick", self.pick(number(id), alike == 1)));
        }
        said
    }

    fn frontend(
        &self,
        cluster_ip: Option<[u64; 2]>,
        address: Option<[u64; 2]>,
        route: Option<(u32, Route)>,
    ) -> Said {
        let who = |slot: u64| {
            let named = self.names.at(&self.target).map(ToOwned::to_owned);
            let named = named.or_else(|| self.names.of_slot(self.pinned, number(slot)));
            format!(
                "of {}, slot {slot}",
                named.unwrap_or_else(|| "nobody known".to_owned())
            )
        };
        let told = match (cluster_ip, address, route) {
            (Some([slot, _]), _, _) => format!("cluster IP {}", who(slot)),
            (_, Some([slot, _]), _) => format!("{} {}", self.kind(), who(slot)),
            (_, _, Some((vip, route))) if !route.service => {
                let known = if route.present {
                    ""
                } else {
                    ", which this node does not follow"
                };
                format!("app VIP {}, index {vip}{known}", self.target.address)
            }
            _ => format!("none: nothing answers at {}", text(&self.target)),
        };
        ("frontend", told)
    }

    /// What the target is, where no slot of its own says so.
    fn kind(&self) -> &'static str {
        match self.names.kind_at(&self.target) {
            Some("clusterIP") => "cluster IP",
            Some("external") => "external IP",
            Some("loadBalancer") => "load balancer's address",
            Some("nodePort") => "node port",
            _ => "address and port",
        }
    }

    fn affinity(&self, kept: Option<[u64; 2]>) -> String {
        let kept = kept.and_then(|[id, _]| self.pinned.endpoint(number(id)));
        kept.map_or_else(
            || "ClientIP, and nothing remembered of this client".to_owned(),
            |(address, port, _)| format!("the client keeps {}", SocketAddr::new(address, port)),
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

    fn pick(&self, id: u32, alike: bool) -> String {
        let end = self.pinned.endpoint(id);
        let end = end.map_or_else(
            || "a backend that is gone".to_owned(),
            |(address, port, _)| SocketAddr::new(address, port).to_string(),
        );
        let by = if alike {
            "nearest to the flow's hash, on every node"
        } else if self.by_socket {
            "drawn at random by each socket"
        } else {
            "drawn by the flow's hash"
        };
        format!("{end} (id {id}), {by}")
    }
}

/// Whether a packet was led past the host's own forwarding, and then if into a pod of this node.
pub fn direct(steps: &[Told]) -> Option<bool> {
    let mut told = steps.iter().rev();
    let told = told.find(|told| Step::of(told.step) == Some(Step::Direct))?;
    let [_, into_pod] = told.values;
    Some(into_pod == 1)
}

/// What of the answer depends on who asks.
fn source(slot: u32, ranged: bool, route: Option<(u32, Route)>) -> Option<Said> {
    let admitted = if !ranged {
        None
    } else if route.is_some() {
        Some("in a source range of the load balancer".to_owned())
    } else {
        Some("in no source range of the load balancer".to_owned())
    };
    let inside = route
        .filter(|(other, _)| *other != slot)
        .map(|(inside, _)| format!("from inside, so policy Local does not bind it: slot {inside}"));
    let both: Vec<String> = admitted.into_iter().chain(inside).collect();
    (!both.is_empty()).then(|| ("source", both.join("; ")))
}

/// Numbers of slots and ids have 32 bits; steps have room for more.
fn number(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(NO_SLOT)
}

/// What a slot answers.
fn answer(route: &Route) -> String {
    let mode = match route.mode {
        Mode::Proxy => "proxy: to an activator",
        Mode::Serve => "serve",
        Mode::Reject => "reject: port unreachable",
        Mode::Drop => "drop: no endpoint on this node",
    };
    let mut parts = vec![mode.to_owned()];
    if route.service {
        let policy = if route.local {
            "policy Local"
        } else {
            "policy Cluster"
        };
        parts.push(policy.to_owned());
        parts.extend(hides(route.hide).map(ToOwned::to_owned));
    } else {
        if route.share > 0 {
            parts.push(format!("share {}/{SHARE_WHOLE}", route.share));
        }
        parts.extend(route.asleep.then(|| "asleep".to_owned()));
        parts.extend(route.leased.then(|| "by lease".to_owned()));
    }
    parts.join(", ")
}

fn hides(hide: Hide) -> Option<&'static str> {
    match hide {
        Hide::Nobody => None,
        Hide::Foreign => Some("hides sources that are no pods"),
        Hide::Everybody => Some("hides every source"),
        Hide::Node => Some("hides the node's own source"),
    }
}

/// Why an activator stands in, if that is what the verdict says.
pub fn activator(verdict: Verdict) -> Option<&'static str> {
    match verdict {
        Verdict::Proxied => Some("stands in: the app's entry says so"),
        Verdict::LeaseOver => Some("stands in: the node lease is over"),
        Verdict::Shared => Some("gets its share of new connections"),
        Verdict::NoBackend => Some("stands in: no backend can be used"),
        Verdict::OtherPort => Some("stands in, and refuses: the VIP has no such port"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_say_what_binds_them() {
        let route = Route {
            mode: Mode::Serve,
            service: true,
            hide: Hide::Everybody,
            ..Route::ABSENT
        };
        assert_eq!(answer(&route), "serve, policy Cluster, hides every source");
        let app = Route {
            mode: Mode::Proxy,
            asleep: true,
            leased: true,
            ..Route::ABSENT
        };
        assert_eq!(answer(&app), "proxy: to an activator, asleep, by lease");
    }

    #[test]
    fn every_verdict_that_leads_to_an_activator_says_why() {
        let told = Verdict::ALL
            .iter()
            .filter_map(|verdict| activator(*verdict));
        assert_eq!(told.count(), 5);
    }
}
