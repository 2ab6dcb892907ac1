//! `dormouse logs`: what the pods of an app wrote to standard output and standard error.

mod follow;
mod source;
mod visible;

use std::time::Duration;

use clap::Args;
use dormouse_command::{CommandError, Exit};
use futures::stream::{self, Stream};
use futures::{AsyncBufRead, AsyncBufReadExt, StreamExt, TryStreamExt};

use super::Context;
use super::codes::Code;
use super::resource::{self, APP, POD, Resource};
use crate::flags::{number, past};
use follow::Following;
use source::Source;

/// The flags of `logs`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  dormouse logs app/web                 the newest pod of the app; of a sleeping app, the last one that ran
  dormouse logs app/web -f --all-pods   all its pods as they write, each line with its pod
  dormouse logs app/web -f              one pod after another: when one ends, the next one
  dormouse logs app/web --previous      the pod before it, such as one that crashed
  dormouse logs pod/web-1d1619e --since 10m --tail 100

Nodes keep the newest 10 MiB of each pod's output, and that of a pod that has ended for 24 hours (flags --log-* of
dormouse-agent). With -f, pods of an app that start later are followed, too, until the command is interrupted.

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
    /// Wait for further lines: of a pod until it ends, of an app until the command is interrupted.
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
    let (app, sources) = sources(&arguments, context).await;
    if let Some(app) = app.filter(|_| arguments.follow && !arguments.previous) {
        // An app that has never run may run soon.
        let sources = match sources {
            Err(error) if error.code == Code::NoLog.id() => {
                context.note(&error.message);
                Vec::new()
            }
            sources => sources?,
        };
        let following = Following::new(&app, sources, &arguments, context);
        following.run(context).await?;
        return Ok(Exit::Yes);
    }
    let sources = sources?;
    // Each is opened just before it is printed: a node has few logs read at once.
    for source in &sources {
        let log = open(source, &arguments, false, context).await?;
        print(lines(log, prefix(source, &sources)).boxed(), context).await?;
    }
    Ok(Exit::Yes)
}

/// `is_old`: only lines that are written from now on.
async fn open(
    source: &Source,
    arguments: &Arguments,
    is_old: bool,
    context: &Context,
) -> Result<impl AsyncBufRead + Send + Unpin + use<>, CommandError> {
    let path = source.path(&context.namespace, &options(arguments, is_old));
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

/// The app, if logs of one are asked for, and the logs.
async fn sources(
    arguments: &Arguments,
    context: &mut Context,
) -> (Option<String>, Result<Vec<Source>, CommandError>) {
    let (resource, name) = match object(arguments) {
        Ok(object) => object,
        Err(error) => return (None, Err(error)),
    };
    if resource == APP {
        let mut app = source::App {
            name: &name,
            context,
        };
        let sources = app.sources(arguments.previous, arguments.all_pods).await;
        return (Some(name), sources);
    }
    let source = Source {
        pod: name,
        previous: arguments.previous,
    };
    (None, Ok(vec![source]))
}

fn object(arguments: &Arguments) -> Result<(Resource, String), CommandError> {
    let usage = |message: &str| {
        let hint = "dormouse logs app/NAME";
        CommandError::new(Code::Kind, Exit::Usage, message, hint)
    };
    let (resource, names) = resource::objects_of("logs", &arguments.object)?;
    let [name] = names.as_slice() else {
        return Err(usage("cannot read logs: of which app or pod?"));
    };
    if resource != APP && resource != POD {
        return Err(usage("cannot read logs: only apps and pods have logs"));
    }
    Ok((resource, name.clone()))
}

/// The options of the query that are the same for all pods.
fn options(arguments: &Arguments, is_old: bool) -> String {
    let since = arguments.since.map(|since| {
        // Parts of a second are rounded up: at least one second is required.
        let seconds = since.as_secs() + u64::from(since.subsec_nanos() > 0);
        format!("&sinceSeconds={seconds}")
    });
    let tail = if is_old { Some(0) } else { arguments.tail };
    let tail = tail.map(|lines| format!("&tailLines={lines}"));
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
        print_line(&line, context)?;
    }
    Ok(Exit::Yes)
}

fn print_line(line: &[u8], context: &mut Context) -> Result<(), CommandError> {
    if context.is_terminal {
        context.out.write_all(&visible::line(line))?;
    } else {
        context.out.write_all(line)?;
    }
    Ok(context.out.flush()?)
}

/// The server refuses the log of a pod that has not started, with the reason.
fn not_started(error: CommandError, source: &Source) -> CommandError {
    if error.code != Code::Refused.id() {
        return error;
    }
    let hint = format!("dormouse get pod {}", source.pod);
    CommandError::new(Code::NoLog, Exit::No, error.message, hint)
}
