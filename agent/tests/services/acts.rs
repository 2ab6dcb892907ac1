//! The acts of a test that share one stage: all are played, and what failed is told at the end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use crate::stage::Stage;

/// What has been played so far.
#[derive(Default)]
pub(crate) struct Acts {
    failed: Vec<String>,
}

impl Acts {
    /// Plays one act; its name says what must hold.
    pub(crate) fn play(&mut self, name: &str, act: impl FnOnce()) {
        let began = Instant::now();
        let played = catch_unwind(AssertUnwindSafe(act));
        let outcome = if played.is_ok() { "ok" } else { "FAILED" };
        eprintln!("{outcome}: {name} ({} ms)", began.elapsed().as_millis());
        if played.is_err() {
            self.failed.push(name.to_owned());
        }
    }

    /// Tells what failed.
    pub(crate) fn end(self, stage: &Stage) {
        assert!(
            self.failed.is_empty(),
            "{} acts failed: {:#?}\n{}",
            self.failed.len(),
            self.failed,
            stage.logs()
        );
    }
}
