//! Turns Ctrl-C into an ordinary error, so that whatever a run built is taken down by its `Drop`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

/// How often a waiting run looks for an interrupt or for what it waits for.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The one that takes this process's signals, once there is one.
static INSTALLED: OnceLock<Interrupt> = OnceLock::new();

/// Whether this process was asked to end.
pub(crate) fn asked() -> bool {
    INSTALLED.get().is_some_and(Interrupt::asked)
}

/// Says whether the run was asked to end. Clones share one answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt {
    asked: Arc<AtomicBool>,
}

impl Interrupt {
    /// Takes SIGINT, SIGTERM and SIGHUP from now on. A handler, unlike a mask, is not inherited: what we start
    /// still ends by these signals.
    pub(crate) fn install() -> anyhow::Result<Self> {
        let interrupt = Self::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            flag::register(signal, Arc::clone(&interrupt.asked))
                .context("failed to take the signals that end a run")?;
        }
        Ok(INSTALLED.get_or_init(|| interrupt).clone())
    }

    /// Whether the run was asked to end.
    pub(crate) fn asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    /// Fails once the run was asked to end.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        if self.asked() {
            bail!("interrupted");
        }
        Ok(())
    }

    /// Looks until `condition` gives something; fails when `limit` is over or the run was asked to end.
    /// `what` completes the sentence "waited 5 s for …".
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
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Passes `time`, or fails early when the run is asked to end.
    pub(crate) fn sleep(&self, time: Duration) -> anyhow::Result<()> {
        let began = Instant::now();
        while let Some(left) = time.checked_sub(began.elapsed()) {
            self.check()?;
            thread::sleep(left.min(LOOK_EVERY));
        }
        self.check()
    }

    /// Passes the time until the run is asked to end.
    pub(crate) fn wait(&self) {
        while !self.asked() {
            thread::sleep(LOOK_EVERY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_with_what_was_found() {
        let mut looks = 0;
        let found = Interrupt::default().wait_for("the third look", Duration::from_secs(5), || {
            looks += 1;
            Ok((looks == 3).then_some(looks))
        });
        assert_eq!(found.unwrap(), 3);
    }

    #[test]
    fn waiting_ends_when_its_limit_is_over_and_says_for_what_it_waited() {
        let waited = Interrupt::default().wait_for::<()>("rain", Duration::ZERO, || Ok(None));
        assert_eq!(waited.unwrap_err().to_string(), "waited 0.0 s for rain");
    }

    #[test]
    fn an_interrupt_ends_every_kind_of_waiting() {
        let interrupt = Interrupt::default();
        interrupt.asked.store(true, Ordering::Release);
        interrupt.wait();
        assert!(interrupt.check().is_err());
        assert!(interrupt.sleep(Duration::from_hours(1)).is_err());
        let waited = interrupt.wait_for::<()>("rain", Duration::from_hours(1), || Ok(None));
        assert_eq!(waited.unwrap_err().to_string(), "interrupted");
    }
}
