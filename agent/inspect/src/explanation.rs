//! The explanation of a packet's path: steps, outcome and reason, as a screen for people or a document for programs.

use std::net::SocketAddr;

use dormouse_agent_datapath::{Explained, Hook, Verdict, protocol_name};
use serde::Serialize;
use serde_json::{Value, json};

use super::API_VERSION;
use super::frame::{Opening, ends};
use super::reason::{Reason, code, reason};
use super::render::{Evidence, Line, activator, direct};

/// The return codes of the packet programs (TC_ACT_*).
const PASS: u32 = 0;
const DROP: u32 = 2;
const REDIRECT: u32 = 7;

/// The origin of the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum From {
    /// A pod of this node
    Pod,
    /// A host behind the uplink
    Outside,
    /// The node itself
    Node,
}

/// The end of the packet on this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Delivered to a pod or a socket of this node.
    Delivered,
    /// Forwarded by the uplink.
    Forwarded,
    /// Not changed by the data path: the kernel's routes forward it.
    Passed,
    /// Refused with an ICMP error or a reset to the sender.
    Refused,
    /// Dropped without a reply.
    Dropped,
}

/// A complete explanation.
#[derive(Debug)]
pub struct Explanation {
    /// The packet that is explained.
    pub opening: Opening,
    /// The packet's origin.
    pub from: From,
    /// The Service port that the destination belongs to.
    pub service: Option<String>,
    /// The steps, in order.
    pub lines: Vec<Line>,
    /// The end of the packet.
    pub outcome: Outcome,
    /// Source and destination of the packet as it is delivered or forwarded; none if it is refused or dropped.
    pub ends: Option<(SocketAddr, SocketAddr)>,
    /// The reason and its code, if it is refused or dropped.
    pub stopped: Option<(Reason, String)>,
}

impl Explanation {
    /// Derives the outcome from the program's verdict, its counters and the rewritten frame.
    pub(super) fn conclude(
        &mut self,
        run: &Explained,
        sent: &Opening,
        stays: bool,
        line: impl Fn(&'static str, String, Evidence) -> Line,
    ) {
        let counted = || run.counted.iter().map(|(verdict, _)| *verdict);
        for why in counted().filter_map(activator) {
            self.lines
                .push(line("activator", why.to_owned(), Evidence::Run));
        }
        let refused = counted().find(|verdict| verdict.is_refusal());
        let stopped = counted().find(|verdict| reason(*verdict).is_some());
        self.ends = ends(&run.frame);
        match run.verdict {
            DROP => {
                self.stop(Outcome::Dropped, stopped);
                self.ends = None;
            }
            REDIRECT if refused.is_some() => {
                self.stop(Outcome::Refused, refused);
                self.ends = None;
            }
            REDIRECT if direct(&run.steps) == Some(true) => self.outcome = Outcome::Delivered,
            REDIRECT => self.outcome = Outcome::Forwarded,
            PASS => self.outcome = Outcome::Delivered,
            _ if stays => self.outcome = Outcome::Delivered,
            _ => self.outcome = Outcome::Passed,
        }
        if let Some((source, target)) = self.ends {
            let mut changes = Vec::new();
            if target != sent.target {
                changes.push(format!("target {target}"));
            }
            if source != sent.source {
                changes.push(format!(
                    "source {source}, with a NAT port for each connection"
                ));
            }
            if !changes.is_empty() {
                self.lines
                    .push(line("rewrite", changes.join(", "), Evidence::Run));
            }
        }
    }

    pub(super) fn stop(&mut self, outcome: Outcome, verdict: Option<Verdict>) {
        self.outcome = outcome;
        self.stopped = verdict.and_then(|verdict| Some((reason(verdict)?, code(verdict))));
    }

    /// Concludes that the packet came from the router, and would leave to it again.
    pub(super) fn returned(&mut self) {
        self.lines.push(Line {
            hook: Hook::UplinkOut.program(),
            topic: "answer",
            text: "drop: it came in by the uplink, to an external address of a Service".to_owned(),
            evidence: Evidence::Read,
        });
        self.stop(Outcome::Dropped, Some(Verdict::DroppedReturned));
        self.ends = None;
    }

    /// Whether the packet is delivered or forwarded, rather than refused or dropped.
    pub fn is_delivered(&self) -> bool {
        !matches!(self.outcome, Outcome::Refused | Outcome::Dropped)
    }

    /// The last lines of the screen: the outcome and the next step.
    pub fn verdict(&self) -> (String, String) {
        let to = self.ends.map_or_else(
            || "no destination".to_owned(),
            |(_, target)| target.to_string(),
        );
        let why = self.stopped.as_ref();
        let why = why.map_or(String::new(), |(reason, code)| {
            format!(": {} ({code})", reason.meaning)
        });
        let verdict = match self.outcome {
            Outcome::Delivered => format!("DELIVERED to {to} on this node"),
            Outcome::Forwarded => format!("FORWARDED to {to} by the uplink"),
            Outcome::Passed => format!("PASSED to {to}: forwarded by the kernel's routes"),
            Outcome::Refused => format!("REFUSED{why}"),
            Outcome::Dropped => format!("DROPPED{why}"),
        };
        let next = self.stopped.as_ref().map_or_else(
            || format!("dormouse-agent flows --to {}", self.opening.target.ip()),
            |(reason, _)| reason.next_for(self.service.as_deref(), self.opening.source.ip()),
        );
        (verdict, next)
    }

    /// The explanation as text, one line per step.
    pub fn screen(&self) -> String {
        let Opening {
            source,
            target,
            protocol,
        } = self.opening;
        let from = match self.from {
            From::Pod => "a pod of this node",
            From::Outside => "outside",
            From::Node => "the node itself",
        };
        let service = self
            .service
            .as_ref()
            .map_or(String::new(), |name| format!("   {name}"));
        let protocol = protocol_name(protocol);
        let mut lines = vec![format!(
            "{source}  ->  {target}  {protocol}   from {from}{service}"
        )];
        let width = self
            .lines
            .iter()
            .map(|line| line.text.chars().count())
            .max()
            .unwrap_or(0);
        let mut hook = "";
        for (place, line) in self.lines.iter().enumerate() {
            let shown = if line.hook == hook { "" } else { line.hook };
            hook = line.hook;
            let evidence = match line.evidence {
                Evidence::Run => "run",
                Evidence::Read => "read",
            };
            let (number, topic, text) = (place + 1, line.topic, &line.text);
            lines.push(format!(
                "{number:>2} {shown:<15} {topic:<9} {text:<width$}   {evidence}"
            ));
        }
        let (verdict, next) = self.verdict();
        lines.push(format!("verdict  {verdict}\nnext     {next}\n"));
        lines.join("\n")
    }

    /// The answer for programs.
    pub fn value(&self) -> Value {
        let steps: Vec<Value> = self
            .lines
            .iter()
            .enumerate()
            .map(|(place, line)| {
                let Line {
                    hook,
                    topic,
                    text,
                    evidence,
                } = line;
                json!({"number": place + 1, "hook": hook, "topic": topic, "text": text, "evidence": evidence})
            })
            .collect();
        let (verdict, next) = self.verdict();
        json!({
            "apiVersion": API_VERSION,
            "kind": "FlowExplanation",
            "source": self.opening.source,
            "target": self.opening.target,
            "protocol": protocol_name(self.opening.protocol),
            "from": self.from,
            "service": self.service,
            "steps": steps,
            "verdict": self.outcome,
            "text": verdict,
            "seenFrom": self.ends.map(|(source, _)| source),
            "sentTo": self.ends.map(|(_, target)| target),
            "reason": self.stopped.as_ref().map(|(reason, _)| reason),
            "code": self.stopped.as_ref().map(|(_, code)| code),
            "next": next,
        })
    }
}
