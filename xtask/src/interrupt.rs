//! Ctrl-C as an ordinary error, so that everything a run has created is removed by `Drop`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

/// Interval at which a wait checks its condition and the interrupt.
const POLL_EVERY: Duration = Duration::from_millis(5);

/// The process's interrupt, once installed.
static INSTALLED: OnceLock<Interrupt> = OnceLock::new();

/// Whether this process received a signal to end.
pub(crate) fn requested() -> bool {
    INSTALLED.get().is_some_and(Interrupt::requested)
}

/// Whether the run must end. Clones share one flag.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt {
    requested: Arc<AtomicBool>,
}

impl Interrupt {
    /// Handles SIGINT, SIGTERM and SIGHUP from now on. Unlike a signal mask, a handler is not inherited, so child processes
    /// still end by these signals.
    pub(crate) fn install() -> anyhow::Result<Self> {
        let interrupt = Self::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            flag::register(signal, Arc::clone(&interrupt.requested))
                .context("failed to install the signal handlers")?;
        }
        Ok(INSTALLED.get_or_init(|| interrupt).clone())
    }

    /// Whether the run must end.
    pub(crate) fn requested(&self) -> bool {
        self.requested.load(Ordering::Acquire)
    }

    /// Fails once the run must end.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        if self.requested() {
            bail!("interrupted");
        }
        Ok(())
    }

    /// Polls until `condition` returns a value; fails when `limit` is over or the run must end. `what` completes the sentence
    /// "waited 5 s for …".
    pub(crate) fn wait_for<T>(
        &self,
        what: &str,
        limit: Duration,
        mut condition: impl FnMut() -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<T> {
        let began = Instant::now();
        loop {
            self.check()?;
            if let Some(found) = condition()? {
                return Ok(found);
            }
            if began.elapsed() > limit {
                bail!("waited {:.1} s for {what}", limit.as_secs_f64());
            }
            thread::sleep(POLL_EVERY);
        }
    }

    /// Waits for `time`; fails early if the run must end.
    pub(crate) fn sleep(&self, time: Duration) -> anyhow::Result<()> {
        let began = Instant::now();
        while let Some(left) = time.checked_sub(began.elapsed()) {
            self.check()?;
            thread::sleep(left.min(POLL_EVERY));
        }
        self.check()
    }

    /// Waits until the run must end.
    pub(crate) fn wait(&self) {
        while !self.requested() {
            thread::sleep(POLL_EVERY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_returns_the_value_of_its_condition() {
        let mut polls = 0;
        let found = Interrupt::default().wait_for("the third poll", Duration::from_secs(5), || {
            polls += 1;
            Ok((polls == 3).then_some(polls))
        });
        assert_eq!(found.unwrap(), 3);
    }

    #[test]
    fn a_wait_that_exceeds_its_limit_names_what_it_waited_for() {
        let waited = Interrupt::default().wait_for::<()>("rain", Duration::ZERO, || Ok(None));
        assert_eq!(waited.unwrap_err().to_string(), "waited 0.0 s for rain");
    }

    #[test]
    fn an_interrupt_ends_every_kind_of_wait() {
        let interrupt = Interrupt::default();
        interrupt.requested.store(true, Ordering::Release);
        interrupt.wait();
        assert!(interrupt.check().is_err());
        assert!(interrupt.sleep(Duration::from_hours(1)).is_err());
        let waited = interrupt.wait_for::<()>("rain", Duration::from_hours(1), || Ok(None));
        assert_eq!(waited.unwrap_err().to_string(), "interrupted");
    }
}
