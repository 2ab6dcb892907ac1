//! `dormouse logs`: what the pods of an app wrote to standard output and standard error.

mod source;
mod visible;

use std::time::Duration;

use clap::Args;
use dormouse_command::{CommandError, Exit};
use futures::stream::{self, Stream, select_all};
use futures::{AsyncBufRead, AsyncBufReadExt, StreamExt, TryStreamExt};

use super::Context;
use super::codes::Code;
use super::resource::{self, APP, POD};
use crate::flags::{number, past};
use source::Source;

/// The flags of `logs`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  dormouse logs app/web                 the newest pod of the app; of a sleeping app, the last one that ran
  dormouse logs app/web -f --all-pods   all its pods as they write, each line with its pod
  dormouse logs app/web --previous      the pod before it, such as one that crashed
  dormouse logs pod/web-1d1619e --since 10m --tail 100

Nodes keep the newest 10 MiB of each pod's output, and that of a pod that has ended for 24 hours (flags --log-* of
dormouse-agent). Pods that start while logs are followed are not added.

Into a file or a pipe, every byte is written as the pod wrote it. On a terminal, colours are shown, and other control
characters as ^X, so that a pod cannot change the screen.")]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
pub struct Arguments {
    /// app/NAME or pod/NAME.
    #[arg(required = true, num_args = 1..=2, value_name = "OBJECT")]
    object: Vec<String>,
    /// Wait for further lines until the pod ends.
    #[arg(short, long)]
    follow: bool,
    /// The pod of the app before the present one; of a pod, the run before the last one.
    #[arg(short, long)]
    previous: bool,
    /// Only lines of this time, such as 30s, 10m or 2h.
    #[arg(long, value_name = "TIME", value_parser = past, allow_hyphen_values = true)]
    since: Option<Duration>,
    /// Only the last lines.
    #[arg(long, value_name = "LINES", value_parser = number::<u64>, allow_negative_numbers = true)]
    tail: Option<u64>,
    /// All pods of the app; each line begins with its pod.
    #[arg(long, conflicts_with = "previous")]
    all_pods: bool,
    /// Begin each line with the time at which it was written.
    #[arg(long)]
    timestamps: bool,
}

pub(super) async fn run(arguments: Arguments, context: &mut Context) -> Result<Exit, CommandError> {
    let sources = sources(&arguments, context).await?;
    if arguments.follow {
        return follow(&sources, &arguments, context).await;
    }
    // Each is opened just before it is printed: a node has few logs read at once.
    for source in &sources {
        let log = open(source, &arguments, context).await?;
        print(lines(log, prefix(source, &sources)).boxed(), context).await?;
    }
    Ok(Exit::Yes)
}

/// Follows all logs that can be opened; says which ones cannot, unless that is all of them.
async fn follow(
    sources: &[Source],
    arguments: &Arguments,
    context: &mut Context,
) -> Result<Exit, CommandError> {
    let (mut logs, mut left_out) = (Vec::new(), Vec::new());
    for source in sources {
        match open(source, arguments, context).await {
            Ok(log) => logs.push(lines(log, prefix(source, sources)).boxed()),
            Err(error) => left_out.push((source, error)),
        }
    }
    if logs.is_empty()
        && let Some((_, error)) = left_out.pop()
    {
        return Err(error);
    }
    for (source, error) in left_out {
        context.note(&format!(
            "pod/{} is left out: {}",
            source.pod, error.message
        ));
    }
    print(select_all(logs), context).await
}

async fn open(
    source: &Source,
    arguments: &Arguments,
    context: &Context,
) -> Result<impl AsyncBufRead + Send + Unpin + use<>, CommandError> {
    let path = source.path(&context.namespace, &options(arguments));
    let action = format!("read the log of pod {}/{}", context.namespace, source.pod);
    let log = context.open(&path, &action).await;
    log.map_err(|error| not_started(error, source))
}

/// What each line begins with: its pod, if there are several.
fn prefix(source: &Source, all: &[Source]) -> String {
    match all {
        [_] => String::new(),
        _ => format!("[pod/{}] ", source.pod),
    }
}

async fn sources(
    arguments: &Arguments,
    context: &mut Context,
) -> Result<Vec<Source>, CommandError> {
    let usage = |message: &str| {
        let hint = "dormouse logs app/NAME";
        CommandError::new(Code::Kind, Exit::Usage, message, hint)
    };
    let (resource, names) = resource::objects(&arguments.object)?;
    let [name] = names.as_slice() else {
        return Err(usage("cannot read logs: of which app or pod?"));
    };
    if resource == APP {
        let mut app = source::App { name, context };
        return app.sources(arguments.previous, arguments.all_pods).await;
    }
    if resource != POD {
        return Err(usage("cannot read logs: only apps and pods have logs"));
    }
    Ok(vec![Source {
        pod: name.clone(),
        previous: arguments.previous,
    }])
}

/// The options of the query that are the same for all pods.
fn options(arguments: &Arguments) -> String {
    let since = arguments.since.map(|since| {
        // Parts of a second are rounded up: at least one second is required.
        let seconds = since.as_secs() + u64::from(since.subsec_nanos() > 0);
        format!("&sinceSeconds={seconds}")
    });
    let tail = arguments.tail.map(|lines| format!("&tailLines={lines}"));
    let follow = arguments.follow.then(|| "&follow=true".to_owned());
    let timestamps = arguments.timestamps.then(|| "&timestamps=true".to_owned());
    let all = [since, tail, follow, timestamps];
    all.into_iter().flatten().collect()
}

/// The lines of a log, each with its line end and the prefix. The last one may have no line end.
fn lines(
    log: impl AsyncBufRead + Send + Unpin,
    prefix: String,
) -> impl Stream<Item = std::io::Result<Vec<u8>>> + Send {
    stream::try_unfold((log, prefix), async |(mut log, prefix)| {
        let mut line = prefix.clone().into_bytes();
        let read = log.read_until(b'\n', &mut line).await?;
        Ok((read > 0).then_some((line, (log, prefix))))
    })
}

async fn print(
    mut lines: impl Stream<Item = std::io::Result<Vec<u8>>> + Unpin,
    context: &mut Context,
) -> Result<Exit, CommandError> {
    let cut = |error: std::io::Error| {
        let message = format!("the log ended early: {error}");
        let hint = "is the pod's node connected? dormouse get nodes";
        CommandError::new(Code::Unreachable, Exit::Unreachable, message, hint)
    };
    while let Some(line) = lines.try_next().await.map_err(cut)? {
        let line = if context.is_terminal {
            visible::line(&line)
        } else {
            line
        };
        context.out.write_all(&line)?;
        context.out.flush()?;
    }
    Ok(Exit::Yes)
}

/// The server refuses the log of a pod that has not started, with the reason.
fn not_started(error: CommandError, source: &Source) -> CommandError {
    if error.code != Code::Refused.id() {
        return error;
    }
    let hint = format!("dormouse get pod {}", source.pod);
    CommandError::new(Code::NoLog, Exit::No, error.message, hint)
}
