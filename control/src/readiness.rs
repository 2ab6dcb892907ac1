//! Checks of the roles in a process, by name: which of them does not work, and why.

use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, join_all};
use tokio::time::timeout;

/// Longest time that a check may take.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// The reason for which a role does not work.
pub type Outcome = Result<(), String>;

/// The checks of a process, in their order.
#[derive(Default)]
pub struct Checks {
    checks: Vec<Check>,
}

struct Check {
    name: &'static str,
    run: Box<dyn Fn() -> BoxFuture<'static, Outcome> + Send + Sync>,
}

impl Checks {
    /// Adds a check. One that does not end in 2 s has failed.
    pub fn add<F>(&mut self, name: &'static str, run: impl Fn() -> F + Send + Sync + 'static)
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let run = Box::new(move || run().boxed());
        self.checks.push(Check { name, run });
    }

    /// Runs the checks with these names at the same time; returns the outcome of each.
    pub async fn run(&self, included: impl Fn(&str) -> bool) -> Vec<(&'static str, Outcome)> {
        let included = self.checks.iter().filter(|check| included(check.name));
        join_all(included.map(async |check| (check.name, check.outcome().await))).await
    }
}

impl Check {
    async fn outcome(&self) -> Outcome {
        let ended = timeout(CHECK_TIMEOUT, (self.run)()).await;
        ended.unwrap_or_else(|_elapsed| {
            Err(format!("no answer within {} s", CHECK_TIMEOUT.as_secs()))
        })
    }
}
