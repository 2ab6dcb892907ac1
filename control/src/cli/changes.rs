//! The changes of a list of objects, as rows of its table: a watch that is resumed when the server ends it.

use std::time::Duration;

use dormouse_command::{CommandError, Exit};
use futures::TryStreamExt;
use serde_json::Value;
use tokio::time::sleep;

use super::Context;
use super::codes::Code;
use super::table::Table;

/// Pause before a watch that has ended is resumed.
const PAUSE: Duration = Duration::from_secs(1);
/// The status of a watch whose next revision is compacted.
const GONE: u64 = 410;

/// The objects that are watched.
pub(super) struct Changes {
    /// The path of the list, with a query.
    pub(super) path: String,
    /// The revision after which changes are printed.
    pub(super) revision: u64,
    /// Prints objects that are deleted, too.
    pub(super) deleted: bool,
}

/// The revision of a list, of an object or of a table with one.
pub(super) fn revision_of(reply: &Value) -> u64 {
    let revision = reply["metadata"]["resourceVersion"].as_str();
    revision.and_then(|text| text.parse().ok()).unwrap_or(0)
}

impl Changes {
    /// Prints every change until the process is interrupted.
    pub(super) async fn follow(
        mut self,
        table: &mut Table,
        context: &mut Context,
    ) -> Result<(), CommandError> {
        table.headings = false;
        loop {
            let is_gone = self.watch(table, context).await?;
            sleep(PAUSE).await;
            if is_gone {
                self.list(table, context).await?;
            }
        }
    }

    /// Prints changes until the server ends the watch; returns whether it no longer has the changes after the last one. Bookmarks keep
    /// the revision new while nothing changes.
    async fn watch(
        &mut self,
        table: &mut Table,
        context: &mut Context,
    ) -> Result<bool, CommandError> {
        let (path, revision) = (&self.path, self.revision);
        let path = format!("{path}&watch=1&allowWatchBookmarks=true&resourceVersion={revision}");
        let changes = context.watch(&path, "watch the server").await?;
        let mut changes = std::pin::pin!(changes);
        while let Some(change) = changes.try_next().await? {
            let object = &change["object"];
            if change["type"] == "ERROR" {
                if object["code"] == GONE {
                    return Ok(true);
                }
                return Err(failed(object));
            }
            self.revision = self.revision.max(revision_of(object));
            if object["kind"] == "Table" && (self.deleted || change["type"] != "DELETED") {
                table.print(&mut context.out, object)?;
            }
        }
        Ok(false)
    }

    /// Prints what has changed since the last change that was printed; all, if the store has gone back.
    async fn list(&mut self, table: &mut Table, context: &mut Context) -> Result<(), CommandError> {
        let mut reply = context.get_table(&self.path, "list the objects").await?;
        let newest = revision_of(&reply);
        let known = if newest < self.revision {
            0
        } else {
            self.revision
        };
        if let Some(rows) = reply["rows"].as_array_mut() {
            rows.retain(|row| revision_of(&row["object"]) > known);
        }
        self.revision = newest;
        table.print(&mut context.out, &reply)
    }
}

fn failed(status: &Value) -> CommandError {
    let message = status["message"].as_str().unwrap_or("no message");
    let message = format!("the server ended the watch: {message}");
    let hint = "look at the server's log";
    CommandError::new(Code::Server, Exit::No, message, hint)
}

/// Changes are printed as rows only.
pub(super) fn refuse_format(command: &str) -> CommandError {
    let message = "changes are printed as a table: -w and this -o exclude each other";
    CommandError::new(
        Code::Kind,
        Exit::Usage,
        message,
        format!("dormouse {command} -w"),
    )
}
