//! The check that every loop of the controller runs.

use tokio::sync::{mpsc, oneshot};

/// A question to a loop whether it runs; it answers between two events.
pub(crate) type Check = oneshot::Sender<()>;

/// Answers that the loop runs.
pub(crate) fn answer(check: Check) {
    // It may have timed out.
    let _ = check.send(());
}

/// The loops that have to run.
#[derive(Default)]
pub(crate) struct Checks {
    loops: Vec<mpsc::Sender<Check>>,
}

impl Checks {
    /// Adds a loop; returns the questions to it.
    pub(crate) fn add(&mut self) -> mpsc::Receiver<Check> {
        let (sender, questions) = mpsc::channel(1);
        self.loops.push(sender);
        questions
    }

    /// Resolves when all loops have answered; false: one has ended.
    pub(crate) async fn run(&self) -> bool {
        for questions in &self.loops {
            let (answer, answered) = oneshot::channel();
            if questions.send(answer).await.is_err() || answered.await.is_err() {
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    async fn answer(mut questions: mpsc::Receiver<Check>) {
        while let Some(check) = questions.recv().await {
            check.send(()).unwrap();
        }
    }

    #[tokio::test]
    async fn all_loops_have_to_answer() {
        let mut checks = Checks::default();
        let (first, second) = (checks.add(), checks.add());
        tokio::spawn(answer(first));
        let mut pending = Box::pin(checks.run());
        while second.is_empty() {
            assert!(pending.as_mut().now_or_never().is_none());
            tokio::task::yield_now().await;
        }
        tokio::spawn(answer(second));
        assert!(pending.await);
    }

    #[tokio::test]
    async fn a_loop_that_has_ended_fails() {
        let mut checks = Checks::default();
        let (first, second) = (checks.add(), checks.add());
        tokio::spawn(answer(first));
        drop(second);
        assert!(!checks.run().await);
    }
}
