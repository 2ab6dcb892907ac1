//! `dormouse explain`: the reasons for an app's scale and mode, from the running system, and the runbook of a code,
//! from the binary.

use std::io::{self, Write};

use clap::Args;
use dormouse_command::{CommandError, Exit, OutputFormat, screen_width, wrap, write_value};
use serde_json::Value;

use super::Context;
use super::codes::{self, Code};
use super::resource::{self, APP};

/// Narrowest column of topic names, in characters.
const MARGIN_MIN: usize = 11;
/// Width of the left column of a runbook, in characters.
const RUNBOOK_MARGIN: usize = 9;

/// The flags of `explain`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  dormouse explain app web              its scale and mode, with the numbers
  dormouse explain app/web -o json
  dormouse explain DM1203               the runbook of a code; needs no server")]
pub struct Arguments {
    /// app NAME, app/NAME, or a code such as DM1203.
    #[arg(required = true, num_args = 1..=2, value_name = "OBJECT")]
    object: Vec<String>,
    /// Output format.
    #[arg(short, long)]
    output: Option<OutputFormat>,
}

/// Prints the runbook of a code, which needs no server; `None` if the argument is not a code.
pub(super) fn offline(
    arguments: &Arguments,
    out: &mut dyn Write,
) -> Result<Option<Exit>, CommandError> {
    let [word] = arguments.object.as_slice() else {
        return Ok(None);
    };
    if let Some(text) = codes::runbook(word) {
        writeln!(out, "{}", word.to_uppercase())?;
        for line in text.lines() {
            write_hanging(out, line)?;
        }
        return Ok(Some(Exit::Yes));
    }
    let digits = word.get(2..).unwrap_or_default();
    if word.to_uppercase().starts_with("DM")
        && !digits.is_empty()
        && digits.chars().all(|c| c.is_ascii_digit())
    {
        let known: Vec<&str> = codes::ALL.iter().map(|(_, id, _)| *id).collect();
        let message = format!("there is no code {word}");
        let error = CommandError::new(
            Code::Kind,
            Exit::NotFound,
            message,
            "dormouse explain DM1104",
        );
        return Err(error.note(format!("known: {}", known.join(", "))));
    }
    Ok(None)
}

pub(super) async fn run(arguments: Arguments, context: &mut Context) -> Result<Exit, CommandError> {
    if let Some(exit) = offline(&arguments, &mut context.out)? {
        return Ok(exit);
    }
    let (resource, names) = resource::objects(&arguments.object)?;
    let usage = |message: String| {
        CommandError::new(
            Code::Kind,
            Exit::Usage,
            message,
            "dormouse explain app NAME",
        )
    };
    let [name] = names.as_slice() else {
        return Err(usage("cannot explain: which app?".to_owned()));
    };
    if resource != APP {
        return Err(usage(format!(
            "cannot explain a {}: only apps are explained",
            resource.singular
        )));
    }
    let path = format!("{}/explain", APP.path_of(&context.namespace, name));
    let action = format!("explain app {}/{name}", context.namespace);
    let explanation = context.get(&path, &action).await?;
    if let Some(format @ (OutputFormat::Json | OutputFormat::Yaml)) = arguments.output {
        write_value(&mut context.out, &explanation, format)?;
    } else {
        let text = render(&explanation, screen_width());
        context.out.write_all(text.as_bytes())?;
    }
    Ok(Exit::Yes)
}

/// Writes a line of a runbook: its part is in the left column.
fn write_hanging(out: &mut dyn Write, line: &str) -> io::Result<()> {
    let (part, text) = line.split_at_checked(RUNBOOK_MARGIN).unwrap_or((line, ""));
    let width = screen_width().map(|width| width.saturating_sub(RUNBOOK_MARGIN));
    for (number, text) in wrap(text, width).iter().enumerate() {
        let part = if number == 0 { part } else { "" };
        writeln!(out, "{part:<RUNBOOK_MARGIN$}{text}")?;
    }
    Ok(())
}

/// The explanation as text: topic names in the left column, their lines aligned in the right one, wrapped to the screen's width.
fn render(explanation: &Value, screen: Option<usize>) -> String {
    let string = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let subject = string(&explanation["subject"]);
    let subject = subject
        .split_once('/')
        .map_or(subject.as_str(), |(_, rest)| rest)
        .to_owned();
    let mut paragraphs = vec![(subject, vec![string(&explanation["summary"])])];
    for topic in explanation["topics"].as_array().into_iter().flatten() {
        let lines = topic["lines"]
            .as_array()
            .into_iter()
            .flatten()
            .map(string)
            .collect();
        paragraphs.push((string(&topic["name"]), lines));
    }
    let margin = paragraphs
        .iter()
        .map(|(name, _)| name.chars().count() + 3)
        .max()
        .unwrap_or(0)
        .max(MARGIN_MIN);
    let mut text = String::new();
    for (name, lines) in &paragraphs {
        let width = screen.map(|screen| screen.saturating_sub(margin));
        let lines = lines.iter().flat_map(|line| wrap(line, width));
        for (index, line) in lines.enumerate() {
            let name = if index == 0 { name.as_str() } else { "" };
            text.push_str(format!("{name:<margin$}{line}").trim_end());
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn topics_are_in_the_left_column_and_their_lines_are_aligned() {
        let explanation = json!({
            "subject": "app/shop/web", "summary": "awake, 2 ready of 2 wanted",
            "topics": [{"name": "scale", "lines": ["want 2 = min", "no panic"]}, {"name": "mode", "lines": ["proxy"]}],
        });
        let want = "\
shop/web   awake, 2 ready of 2 wanted
scale      want 2 = min
           no panic
mode       proxy
";
        assert_eq!(render(&explanation, None), want);
        let narrow = "\
shop/web   awake, 2 ready of 2
           wanted
scale      want 2 = min
           no panic
mode       proxy
";
        assert_eq!(render(&explanation, Some(31)), narrow);
    }

    #[test]
    fn the_runbook_of_a_code_needs_no_server() {
        let explain = |word: &str| {
            let mut out = Vec::new();
            let arguments = Arguments {
                object: vec![word.to_owned()],
                output: None,
            };
            (
                offline(&arguments, &mut out).map_err(|error| error.exit),
                String::from_utf8(out).unwrap(),
            )
        };
        let (exit, text) = explain("dm1203");
        assert_eq!(exit, Ok(Some(Exit::Yes)));
        assert!(
            text.starts_with("DM1203\nmeaning  the server did not take the connection"),
            "{text}"
        );
        assert_eq!(explain("DM9999").0, Err(Exit::NotFound));
        assert_eq!(explain("app/web").0, Ok(None));
    }
}
