//! `dormouse logs app/NAME -f`: the lines of an app's pods as they write, also of pods that start meanwhile.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::time::Duration;

use dormouse_command::CommandError;
use futures::stream::{BoxStream, SelectAll};
use futures::{Stream, StreamExt, TryStreamExt};
use serde_json::Value;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::source::Source;
use super::{Arguments, lines, open, print_line};
use crate::cli::Context;
use crate::cli::changes::revision_of;
use crate::cli::codes::Code;
use crate::cli::resource::{POD, encoded};

/// Pause before the log of a pod that has not started is asked for again, and before a watch that has ended is resumed.
const PAUSE: Duration = Duration::from_millis(500);

/// A pod whose log is not open yet.
struct Pending {
    source: Source,
    /// It ran when the command began: its further lines only.
    is_old: bool,
}

/// The logs of one app that are followed.
pub(super) struct Following<'a> {
    /// The list of the app's pods.
    path: String,
    arguments: &'a Arguments,
    known: HashSet<String>,
    pending: VecDeque<Pending>,
    logs: SelectAll<BoxStream<'static, io::Result<Vec<u8>>>>,
}

impl<'a> Following<'a> {
    /// Follows these pods of an app first.
    pub(super) fn new(
        app: &str,
        first: Vec<Source>,
        arguments: &'a Arguments,
        context: &Context,
    ) -> Self {
        let selector = encoded(&format!("dormouse.dev/app={app}"));
        let pods = POD.path(Some(&context.namespace));
        let pending = first.into_iter().map(|source| Pending {
            source,
            is_old: false,
        });
        let pending: VecDeque<_> = pending.collect();
        Self {
            path: format!("{pods}?labelSelector={selector}"),
            arguments,
            known: pending.iter().map(|one| one.source.pod.clone()).collect(),
            pending,
            logs: SelectAll::new(),
        }
    }

    /// Prints the lines until the process is interrupted.
    pub(super) async fn run(mut self, context: &mut Context) -> Result<(), CommandError> {
        self.open_all(context).await?;
        let mut pods = self.pods(true, context).await?;
        // Its times do not depend on how much the pods write.
        let mut again = interval(PAUSE);
        again.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                line = self.logs.next(), if !self.logs.is_empty() => match line {
                    Some(Ok(line)) => print_line(&line, context)?,
                    Some(Err(error)) => context.note(&format!("a log ended early: {error}")),
                    // The next pod's turn.
                    None => self.open_all(context).await?,
                },
                change = pods.try_next() => {
                    if let Some(change) = change? {
                        self.note(&change["object"], false);
                    } else {
                        sleep(PAUSE).await;
                        pods = self.pods(false, context).await?;
                    }
                    self.open_all(context).await?;
                }
                _ = again.tick(), if !self.pending.is_empty() => self.open_all(context).await?,
            }
        }
    }

    /// The changes of the app's pods, after those that are there now.
    async fn pods(
        &mut self,
        is_first: bool,
        context: &Context,
    ) -> Result<impl Stream<Item = Result<Value, CommandError>> + Unpin + use<>, CommandError> {
        let list = context.get_table(&self.path, "list pods").await?;
        self.note(&list, is_first);
        let revision = revision_of(&list);
        let path = format!("{}&watch=1&resourceVersion={revision}", self.path);
        Ok(Box::pin(
            context.watch(&path, "watch the app's pods").await?,
        ))
    }

    /// Notes the pods of a table.
    fn note(&mut self, table: &Value, is_old: bool) {
        let rows = table["rows"].as_array().map_or(&[][..], Vec::as_slice);
        for row in rows {
            let name = row["object"]["metadata"]["name"].as_str();
            let name = name.unwrap_or_default().to_owned();
            if self.known.insert(name.clone()) {
                let source = Source {
                    pod: name,
                    previous: false,
                };
                self.pending.push_back(Pending { source, is_old });
            }
        }
    }

    /// Opens the logs of pods that have started: of all, or of the oldest one when the log before it has ended.
    async fn open_all(&mut self, context: &mut Context) -> Result<(), CommandError> {
        for _ in 0..self.pending.len() {
            if !self.arguments.all_pods && !self.logs.is_empty() {
                return Ok(());
            }
            let Some(one) = self.pending.pop_front() else {
                return Ok(());
            };
            self.open_one(one, context).await?;
        }
        Ok(())
    }

    async fn open_one(&mut self, one: Pending, context: &mut Context) -> Result<(), CommandError> {
        let prefix = if self.arguments.all_pods {
            format!("[pod/{}] ", one.source.pod)
        } else {
            String::new()
        };
        match open(&one.source, self.arguments, one.is_old, context).await {
            Ok(log) => self.logs.push(lines(log, prefix).boxed()),
            // It has not started, or it has gone before that.
            Err(error) if error.code == Code::NoLog.id() => self.pending.push_back(one),
            Err(error) if error.code == Code::NotFound.id() => {}
            Err(error) if error.code == Code::Unreachable.id() => return Err(error),
            Err(error) => {
                let (pod, message) = (&one.source.pod, &error.message);
                context.note(&format!("pod/{pod} is left out: {message}"));
            }
        }
        Ok(())
    }
}
