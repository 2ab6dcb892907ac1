//! `dormouse explain`: the reasons for an app's scale and mode, from the running system; pods, nodes and wakes, from their objects;
//! codes and reasons, from the binary.

mod objects;
mod output;
mod reasons;
mod screen;

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{self, Write};

use super::Context;
use super::codes::{self, Code};
use super::resource::{self, APP, EVENT, NODE, POD, encoded};
use super::wake;
use clap::Args;
use dormouse_cluster::decode::closest;
use dormouse_command::{
    CommandError, Exit, OutputFormat, REASONS, Reason, runbooks, wrap, write_value,
};

/// Width of the left column of a runbook, in characters.
const RUNBOOK_MARGIN: usize = 9;

/// The flags of `explain`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  dormouse explain app web              its scale and mode, with the numbers
  dormouse explain app/web -o json
  dormouse explain pod web-7c9f         why it is not ready
  dormouse explain node node-1          its state, and what runs there
  dormouse explain wake web             the stages of the last wake, and what shortens them
  dormouse explain NotListening         a reason of an event or a condition; needs no server
  dormouse explain DM1203               the runbook of a code; needs no server")]
pub struct Arguments {
    /// app, pod, node or wake with a NAME, a reason such as NotListening, or a code such as DM1203.
    #[arg(required = true, num_args = 1..=2, value_name = "OBJECT")]
    object: Vec<String>,
    /// Output format.
    #[arg(short, long)]
    output: Option<OutputFormat>,
}

/// Prints the text about a code or a reason, which needs no server; `None` if the argument is neither.
pub(super) fn offline(
    arguments: &Arguments,
    out: &mut dyn Write,
    width: Option<usize>,
) -> Result<Option<Exit>, CommandError> {
    let [word] = arguments.object.as_slice() else {
        return Ok(None);
    };
    if let Some(text) = text_of(word) {
        for line in text.lines() {
            write_hanging(out, line, width)?;
        }
        return Ok(Some(Exit::Yes));
    }
    let digits = word.get(2..).unwrap_or_default();
    if word.to_uppercase().starts_with("DM")
        && !digits.is_empty()
        && digits.chars().all(|c| c.is_ascii_digit())
    {
        let message = format!("there is no code {word}");
        let error = CommandError::new(
            Code::Kind,
            Exit::NotFound,
            message,
            "dormouse explain DM1104",
        );
        return Err(error.note(format!("known: {}", known_codes().join(", "))));
    }
    Ok(None)
}

/// The codes of both programs in order. Some are printed by both.
fn known_codes() -> Vec<&'static str> {
    let control = codes::ALL.iter().map(|(_, id, _)| *id);
    let drops = REASONS.iter().map(|drop| drop.code);
    let all: BTreeSet<&str> = control.chain(runbooks::codes()).chain(drops).collect();
    all.into_iter().collect()
}

pub(super) async fn run(arguments: Arguments, context: &mut Context) -> Result<Exit, CommandError> {
    if let Some(exit) = offline(&arguments, &mut context.out, context.width)? {
        return Ok(exit);
    }
    let explanation = match wake_of(&arguments.object) {
        Some(name) => wake::explanation(name, context).await?,
        None => of_object(&arguments.object, context).await?,
    };
    if let Some(format @ (OutputFormat::Json | OutputFormat::Yaml)) = arguments.output {
        write_value(&mut context.out, &explanation, format)?;
    } else {
        let text = screen::render(&explanation, context.width);
        context.out.write_all(text.as_bytes())?;
    }
    Ok(Exit::Yes)
}

/// The NAME of `wake NAME` or `wake/NAME`.
fn wake_of(words: &[String]) -> Option<&str> {
    match words {
        [noun, name] if ["wake", "wakes"].contains(&noun.as_str()) => Some(name),
        [word] => word
            .strip_prefix("wake/")
            .or_else(|| word.strip_prefix("wakes/")),
        _ => None,
    }
}

/// The explanation of an app, by the server, or of a pod or node, from its object.
async fn of_object(words: &[String], context: &Context) -> Result<Value, CommandError> {
    let usage = |message: &str| {
        let hint = "dormouse explain app NAME";
        CommandError::new(Code::Kind, Exit::Usage, message, hint)
    };
    let (resource, names) = match (words, resource::objects(words)) {
        (_, Ok(found)) => found,
        ([word], Err(_)) if !word.contains('/') => {
            let message = format!("cannot explain {word:?}: it is no resource, code or reason");
            let known: Vec<&str> = reasons::REASONS.iter().map(|reason| reason.name).collect();
            let error = usage(&message);
            return Err(match closest(word, &known) {
                Some(name) => error.note(format!("did you mean {name}?")),
                None => error,
            });
        }
        (_, Err(error)) => return Err(error),
    };
    let [name] = names.as_slice() else {
        return Err(usage(&format!(
            "cannot explain: which {}?",
            resource.singular
        )));
    };
    let path = resource.path_of(&context.namespace, name);
    let action = format!("explain {} {name}", resource.singular);
    if resource == APP {
        let mut explanation = context.get(&format!("{path}/explain"), &action).await?;
        let topics = explanation["topics"].as_array();
        if topics.is_some_and(|topics| topics.iter().any(|topic| topic["name"] == "pods")) {
            add_logs(&mut explanation, name, None, context).await;
        }
        return Ok(explanation);
    }
    if resource != POD && resource != NODE {
        let message = format!(
            "cannot explain {} {name}: apps, pods, nodes and wakes are explained",
            resource.singular
        );
        return Err(usage(&message));
    }
    let object = context.get(&path, &action).await?;
    let kind = resource.kind;
    let fields = format!("involvedObject.kind={kind},involvedObject.name={name}");
    let fields = encoded(&fields);
    let namespace = Some(context.namespace.as_str()).filter(|_| resource.namespaced);
    let events = format!("{}?fieldSelector={fields}", EVENT.path(namespace));
    let events = context.get(&events, "list events").await?;
    if resource == POD {
        let mut explanation = objects::pod(&object, &events, Timestamp::now());
        add_decision(&mut explanation, &path, context).await;
        if let Some(app) = object["metadata"]["labels"]["dormouse.dev/app"].as_str() {
            add_logs(&mut explanation, app, Some(name), context).await;
        }
        return Ok(explanation);
    }
    let fields = encoded(&format!("spec.nodeName={name}"));
    let pods = format!("{}?fieldSelector={fields}", POD.path(None));
    let pods = context.get(&pods, "list the node's pods").await?;
    Ok(objects::node(&object, &pods, &events, Timestamp::now()))
}

/// Adds what the scheduler knows of a pod. A server that has no such explanations, as kube-apiserver, adds nothing.
async fn add_decision(explanation: &mut Value, path: &str, context: &Context) {
    let explained = context
        .get(&format!("{path}/explain"), "explain the pod")
        .await;
    let (Ok(explained), Some(topics)) = (explained, explanation["topics"].as_array_mut()) else {
        return;
    };
    topics.extend(
        explained["topics"]
            .as_array()
            .into_iter()
            .flatten()
            .cloned(),
    );
}

/// Adds how much an app's pods write, or one of them. Without an answer the explanation lacks that.
async fn add_logs(explanation: &mut Value, app: &str, only: Option<&str>, context: &Context) {
    let path = APP.path_of(&context.namespace, app);
    let path = format!("{path}/logs?running=true");
    if let Ok(logs) = context.get(&path, "list the logs").await {
        output::add(explanation, &logs, only);
    }
}

/// The text about a code of either program, or about a reason of an event or a condition.
fn text_of(word: &str) -> Option<String> {
    let code = word.to_uppercase();
    if let Some(text) = codes::runbook(word).or_else(|| runbooks::runbook(word)) {
        return Some(format!("{code}\n{text}"));
    }
    if let Some(drop) = Reason::of_code(word) {
        let Reason {
            kind,
            name,
            meaning,
            next,
            ..
        } = drop;
        return Some(format!(
            "{code}\nmeaning  a node {kind} a packet ({name}): {meaning}\nfind out dormouse-agent get drops, on the node\nmend     {next}\n"
        ));
    }
    let reason = reasons::find(word)?;
    Some(format!(
        "{}\nmeaning  {}\nmend     {}\n",
        reason.name, reason.meaning, reason.mend
    ))
}

/// Writes a line of a runbook: its part is in the left column.
fn write_hanging(out: &mut dyn Write, line: &str, width: Option<usize>) -> io::Result<()> {
    let (part, text) = line.split_at_checked(RUNBOOK_MARGIN).unwrap_or((line, ""));
    let width = width.map(|width| width.saturating_sub(RUNBOOK_MARGIN));
    for (number, text) in wrap(text, width).iter().enumerate() {
        let part = if number == 0 { part } else { "" };
        writeln!(
            out,
            "{}",
            format!("{part:<RUNBOOK_MARGIN$}{text}").trim_end()
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// The lines of a topic of an explanation; none if it lacks the topic.
    pub(super) fn lines(explanation: &Value, topic: &str) -> Vec<String> {
        let topics = explanation["topics"].as_array().unwrap();
        let found = topics.iter().find(|one| one["name"] == topic);
        let lines = found.map(|one| one["lines"].as_array().unwrap().clone());
        let lines = lines.unwrap_or_default();
        lines
            .iter()
            .map(|line| line.as_str().unwrap().to_owned())
            .collect()
    }

    /// What `explain` prints without a server.
    fn explain(word: &str) -> (Result<Option<Exit>, Exit>, String) {
        let mut out = Vec::new();
        let arguments = Arguments {
            object: vec![word.to_owned()],
            output: None,
        };
        let ended = offline(&arguments, &mut out, None).map_err(|error| error.exit);
        (ended, String::from_utf8(out).unwrap())
    }

    /// The codes in the source texts of a folder, except in tests.
    fn codes_in(folder: &Path, codes: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                let name = path.file_name().unwrap();
                if name != "tests" && name != "target" {
                    codes_in(&path, codes);
                }
            } else if path.extension().is_some_and(|end| end == "rs") {
                let text = fs::read_to_string(path).unwrap();
                let code = text.split("#[cfg(test)]").next().unwrap();
                let quoted = code.split('"').skip(1).step_by(2);
                let is_code = |text: &&str| {
                    text.strip_prefix("DM").is_some_and(|digits| {
                        digits.len() == 4 && digits.chars().all(|c| c.is_ascii_digit())
                    })
                };
                codes.extend(quoted.filter(is_code).map(str::to_owned));
            }
        }
    }

    #[test]
    fn every_code_in_the_sources_of_both_programs_is_explained() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut codes = BTreeSet::new();
        for folder in ["control", "agent", "cni"] {
            codes_in(&root.join(folder), &mut codes);
        }
        assert!(codes.len() > 35, "{codes:?}");
        // What an unlisted code would have.
        codes.remove("DM0000");
        for code in codes {
            let (ended, text) = explain(&code);
            assert_eq!(ended, Ok(Some(Exit::Yes)), "{code}");
            let has = |part: &str| text.lines().any(|line| line.starts_with(part));
            assert!(has(&code) && has("meaning") && has("mend"), "{text}");
        }
    }

    #[test]
    fn a_reason_needs_no_server_and_a_wrong_one_is_guessed() {
        let (ended, text) = explain("notlistening");
        assert_eq!(ended, Ok(Some(Exit::Yes)));
        assert!(
            text.starts_with("NotListening\nmeaning  the process runs"),
            "{text}"
        );
        assert_eq!(explain("NotListenin").0, Ok(None));
    }

    #[test]
    fn the_runbook_of_a_code_needs_no_server() {
        let (exit, text) = explain("dm1203");
        assert_eq!(exit, Ok(Some(Exit::Yes)));
        assert!(
            text.starts_with("DM1203\nmeaning  the server did not take the connection"),
            "{text}"
        );
        assert_eq!(explain("DM9999").0, Err(Exit::NotFound));
        let known = known_codes();
        assert!(known.is_sorted_by(|a, b| a < b), "{known:?}");
        assert_eq!(explain("app/web").0, Ok(None));
    }
}
