//! `dormouse explain`: why an app is as it is, from the running system; what a code means, from the binary.

use std::io::Write;

use clap::Args;
use serde_json::Value;

use super::{
    Context, Exit, Failure,
    codes::{self, Code},
    context::OBJECT,
    noun::{self, APP},
    output::{self, Output},
};

/// Fewest columns before the reasons begin.
const MARGIN_MIN: usize = 11;

/// What to explain.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  dormouse explain app web              its scale and mode, with the numbers
  dormouse explain app/web -o json
  dormouse explain DM1203               what a code means; asks no server")]
pub struct Arguments {
    /// app NAME, app/NAME, or a code.
    #[arg(required = true, num_args = 1..=2)]
    what: Vec<String>,
    /// The form of the answer.
    #[arg(short, long)]
    output: Option<Output>,
}

/// Explains a code, which needs no server; `None` when something else is asked for.
pub(super) fn offline(arguments: &Arguments, out: &mut dyn Write) -> Result<Option<Exit>, Failure> {
    let [word] = arguments.what.as_slice() else {
        return Ok(None);
    };
    if let Some(text) = codes::runbook(word) {
        write!(out, "{}\n{text}", word.to_uppercase())?;
        return Ok(Some(Exit::Yes));
    }
    let digits = word.get(2..).unwrap_or_default();
    if word.to_uppercase().starts_with("DM")
        && !digits.is_empty()
        && digits.chars().all(|c| c.is_ascii_digit())
    {
        let known: Vec<&str> = codes::ALL.iter().map(|(_, id, _)| *id).collect();
        let message = format!("there is no code {word}");
        let failure = Failure::new(
            Code::Kind,
            Exit::NotFound,
            message,
            "dormouse explain DM1104",
        );
        return Err(failure.note(format!("known: {}", known.join(", "))));
    }
    Ok(None)
}

pub(super) async fn run(arguments: Arguments, context: &mut Context) -> Result<Exit, Failure> {
    if let Some(exit) = offline(&arguments, &mut context.out)? {
        return Ok(exit);
    }
    let (noun, names) = noun::objects(&arguments.what)?;
    let [name] = names.as_slice() else {
        return Err(Failure::new(
            Code::Kind,
            Exit::Usage,
            "cannot explain: which app?",
            "dormouse explain app NAME",
        ));
    };
    if noun != APP {
        let message = format!(
            "cannot explain a {}: only apps are explained",
            noun.singular
        );
        return Err(Failure::new(
            Code::Kind,
            Exit::Usage,
            message,
            "dormouse explain app NAME",
        ));
    }
    let path = format!("{}/explain", APP.path_of(&context.namespace, name));
    let explanation = context
        .get(
            &path,
            OBJECT,
            &format!("explain app {}/{name}", context.namespace),
        )
        .await?;
    match arguments.output {
        Some(output @ (Output::Json | Output::Yaml)) => {
            output::value(&mut context.out, &explanation, output)?;
        }
        _ => context.out.write_all(screen(&explanation).as_bytes())?,
    }
    Ok(Exit::Yes)
}

/// The explanation for people: topics at the margin, reasons in line.
fn screen(explanation: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let subject = text(&explanation["subject"]);
    let subject = subject
        .split_once('/')
        .map_or(subject.as_str(), |(_, rest)| rest)
        .to_owned();
    let mut paragraphs = vec![(subject, vec![text(&explanation["summary"])])];
    for topic in explanation["topics"].as_array().into_iter().flatten() {
        let lines = topic["lines"]
            .as_array()
            .into_iter()
            .flatten()
            .map(text)
            .collect();
        paragraphs.push((text(&topic["name"]), lines));
    }
    let margin = paragraphs
        .iter()
        .map(|(name, _)| name.chars().count() + 3)
        .max()
        .unwrap_or(0)
        .max(MARGIN_MIN);
    let mut screen = String::new();
    for (name, lines) in &paragraphs {
        for (index, line) in lines.iter().enumerate() {
            let name = if index == 0 { name.as_str() } else { "" };
            screen.push_str(format!("{name:<margin$}{line}").trim_end());
            screen.push('\n');
        }
    }
    screen
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn topics_stand_at_the_margin_and_reasons_in_line() {
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
        assert_eq!(screen(&explanation), want);
    }

    #[test]
    fn a_code_is_explained_without_a_server() {
        let explain = |word: &str| {
            let mut out = Vec::new();
            let arguments = Arguments {
                what: vec![word.to_owned()],
                output: None,
            };
            (
                offline(&arguments, &mut out).map_err(|failure| failure.exit),
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
