//! The answer to where a packet goes: what was decided, what becomes of it, and why, on a screen or for programs.

use std::net::SocketAddr;

use serde::Serialize;
use serde_json::{Value, json};

use super::API_VERSION;
use super::frame::{Opening, ends};
use super::names::protocol_name;
use super::reason::{Reason, code, reason};
use super::story::{How, Line, activator, direct};
use dormouse_agent_datapath::{Explained, Verdict};

/// What programs return: see `dormouse_ebpf`'s hooks.
const PASS: u32 = 0;
const DROP: u32 = 2;
const REDIRECT: u32 = 7;

/// Who sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum From {
    /// A pod of this node
    Pod,
    /// Somebody behind the uplink
    Outside,
    /// The node itself
    Node,
}

/// What becomes of the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It goes to somebody on this node.
    Delivered,
    /// It leaves by the uplink.
    Forwarded,
    /// It is none of ours: it goes where the kernel's routes say.
    Passed,
    /// It is refused, and the sender is told.
    Refused,
    /// It is dropped.
    Dropped,
}

/// The whole answer.
#[derive(Debug)]
pub struct Explanation {
    /// What was asked.
    pub opening: Opening,
    /// Who sends.
    pub from: From,
    /// Who has the target.
    pub service: Option<String>,
    /// What was decided, in order.
    pub lines: Vec<Line>,
    /// What becomes of the packet.
    pub outcome: Outcome,
    /// The ends that the packet has in the end.
    pub ends: Option<(SocketAddr, SocketAddr)>,
    /// Why it does not go its way.
    pub stopped: Option<(Reason, String)>,
}

impl Explanation {
    /// What the program's verdict means.
    pub(super) fn judge(
        &mut self,
        told: &Explained,
        sent: &Opening,
        stays: bool,
        say: impl Fn(&'static str, String, How) -> Line,
    ) {
        let counted = || told.counted.iter().map(|(verdict, _)| *verdict);
        for why in counted().filter_map(activator) {
            self.lines.push(say("activator", why.to_owned(), How::Run));
        }
        let refused = counted().find(|verdict| verdict.is_refusal());
        let stopped = counted().find(|verdict| reason(*verdict).is_some());
        self.ends = ends(&told.frame);
        match told.verdict {
            DROP => {
                self.stop(Outcome::Dropped, stopped);
                self.ends = None;
            }
            REDIRECT if refused.is_some() => {
                self.stop(Outcome::Refused, refused);
                self.ends = None;
            }
            REDIRECT if direct(&told.steps) == Some(true) => self.outcome = Outcome::Delivered,
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
                changes.push(format!("source {source}, a port drawn for each connection"));
            }
            if !changes.is_empty() {
                self.lines
                    .push(say("rewrite", changes.join(", "), How::Run));
            }
        }
    }

    pub(super) fn stop(&mut self, outcome: Outcome, verdict: Option<Verdict>) {
        self.outcome = outcome;
        self.stopped = verdict.and_then(|verdict| Some((reason(verdict)?, code(verdict))));
    }

    /// Whether the packet goes its way.
    pub fn goes(&self) -> bool {
        !matches!(self.outcome, Outcome::Refused | Outcome::Dropped)
    }

    /// The last lines of the screen: what becomes of the packet, and what to ask next.
    pub fn verdict(&self) -> (String, String) {
        let to = self
            .ends
            .map_or_else(|| "nobody".to_owned(), |(_, target)| target.to_string());
        let why = self.stopped.as_ref();
        let why = why.map_or(String::new(), |(reason, code)| {
            format!(": {} ({code})", reason.meaning)
        });
        let verdict = match self.outcome {
            Outcome::Delivered => format!("DELIVERED to {to} on this node"),
            Outcome::Forwarded => format!("FORWARDED to {to} by the uplink"),
            Outcome::Passed => format!("PASSED to {to}: the kernel's routes lead it"),
            Outcome::Refused => format!("REFUSED{why}"),
            Outcome::Dropped => format!("DROPPED{why}"),
        };
        let next = self.stopped.as_ref().map_or_else(
            || format!("dormouse-agent flows --to {}", self.opening.target.ip()),
            |(reason, _)| reason.next_for(self.service.as_deref(), self.opening.source.ip()),
        );
        (verdict, next)
    }

    /// The answer as people read it.
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
            let how = match line.how {
                How::Run => "run",
                How::Read => "read",
            };
            let (number, topic, said) = (place + 1, line.topic, &line.text);
            lines.push(format!(
                "{number:>2} {shown:<15} {topic:<9} {said:<width$}   {how}"
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
                    how,
                } = line;
                json!({"number": place + 1, "hook": hook, "topic": topic, "text": text, "how": how})
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
