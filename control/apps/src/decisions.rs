//! The last decisions about the pods and the mode of an awake app: when, from what, the outcome and its reason. A sleeping app
//! has none.

use std::collections::VecDeque;

use dormouse_cluster::Mode;
use dormouse_fleet::Boottime;

use crate::record::AppRecord;

/// Decisions kept of an awake app: with 48 bytes each, 480 bytes.
pub(crate) const KEPT: usize = 10;

/// Why so many pods are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// The first packet or request.
    Wake,
    /// No load is measured yet.
    Start,
    /// Load in the stable window.
    Load,
    /// Panic mode.
    Panic,
    /// The app's minimum.
    Min,
    /// Its share of an app's traffic.
    Share,
    /// The app's maximum.
    Max,
    /// The scale-down delay.
    Delay,
    /// The rates at which the scale may change, or the activation scale.
    Rates,
    /// No load, but the app cannot sleep yet.
    Idle,
    /// No load: the app falls asleep.
    Sleep,
}

impl Why {
    /// The reason for the number of pods that the app wants now.
    pub(crate) fn of(record: &AppRecord) -> Self {
        let (want, settings) = (record.want, &record.settings);
        if record.was_just_woken() {
            return Self::Wake;
        }
        let Some(decision) = record.decision.as_ref().filter(|_| want > 0) else {
            return if want > 0 { Self::Start } else { Self::Sleep };
        };
        if want == decision.desired && decision.panic_since_ms.is_some() {
            Self::Panic
        } else if want == decision.stable_pods {
            Self::Load
        } else if want == settings.pods_idle() && want > decision.desired {
            Self::Min
        } else if want == record.pods_min() && want > decision.desired {
            Self::Share
        } else if settings.max_scale > 0 && want == settings.max_scale && decision.desired > want {
            Self::Max
        } else if decision.desired == 0 {
            Self::Idle
        } else if decision.desired != decision.desired_before_delay {
            Self::Delay
        } else {
            Self::Rates
        }
    }

    /// The name in metrics and in explanations.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Wake => "wake",
            Self::Start => "start",
            Self::Load => "load",
            Self::Panic => "panic",
            Self::Min => "min",
            Self::Share => "share",
            Self::Max => "max",
            Self::Delay => "delay",
            Self::Rates => "rates",
            Self::Idle => "idle",
            Self::Sleep => "sleep",
        }
    }
}

/// Decisions in a row with the same outcome for the same reason. The values are those of the first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Entry {
    pub(crate) first: Boottime,
    pub(crate) last: Boottime,
    pub(crate) ready: i32,
    /// Average of the metric over the stable window.
    pub(crate) stable: f64,
    /// Average of the metric over the panic window.
    pub(crate) panic: f64,
    pub(crate) excess_burst_capacity: i32,
    pub(crate) wanted: i32,
    pub(crate) mode: Mode,
    pub(crate) why: Why,
}

impl Entry {
    fn has_outcome_of(&self, other: &Self) -> bool {
        (self.wanted, self.mode, self.why) == (other.wanted, other.mode, other.why)
    }
}

/// The newest [`KEPT`] decisions with different outcomes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Decisions {
    entries: VecDeque<Entry>,
}

impl Decisions {
    /// Adds a decision.
    pub(crate) fn add(&mut self, entry: Entry) {
        if let Some(newest) = self.entries.back_mut()
            && newest.has_outcome_of(&entry)
        {
            newest.last = entry.last;
            return;
        }
        if self.entries.len() == KEPT {
            self.entries.pop_front();
        }
        self.entries.reserve_exact(KEPT - self.entries.len());
        self.entries.push_back(entry);
    }

    /// The decisions, the newest first.
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().rev()
    }
}

impl AppRecord {
    /// Keeps the outcome of a reconciliation for explanations.
    pub(crate) fn note_decision(&mut self, now: Boottime) {
        if self.want < 0 {
            return;
        }
        let decision = self.decision.as_ref();
        self.decisions.add(Entry {
            first: now,
            last: now,
            ready: self.ready(),
            stable: decision.map_or(0.0, |decision| decision.stable),
            panic: decision.map_or(0.0, |decision| decision.panic),
            excess_burst_capacity: self
                .decider
                .as_ref()
                .map_or(0, |decider| decider.status().excess_burst_capacity),
            wanted: self.want,
            mode: self.mode(),
            why: Why::of(self),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(second: u64, wanted: i32) -> Entry {
        let at = Boottime(second * 1_000_000_000);
        Entry {
            first: at,
            last: at,
            ready: 1,
            stable: second as f64,
            panic: 0.0,
            excess_burst_capacity: -1,
            wanted,
            mode: Mode::Proxy,
            why: Why::Load,
        }
    }

    #[test]
    fn decisions_in_a_row_with_one_outcome_are_one_entry_with_the_first_values() {
        let mut decisions = Decisions::default();
        for second in 0..5 {
            decisions.add(entry(second, 1));
        }
        decisions.add(entry(5, 2));
        let kept: Vec<Entry> = decisions.newest_first().copied().collect();
        let first = Entry {
            last: entry(4, 1).last,
            ..entry(0, 1)
        };
        assert_eq!(kept, [entry(5, 2), first]);
    }

    #[test]
    fn the_newest_ten_outcomes_are_kept_in_480_bytes() {
        let mut decisions = Decisions::default();
        for second in 0..35 {
            decisions.add(entry(second, i32::try_from(second).unwrap()));
        }
        let wanted: Vec<i32> = decisions.newest_first().map(|kept| kept.wanted).collect();
        let newest: Vec<i32> = (25..35).rev().collect();
        assert_eq!(wanted, newest);
        let bytes = decisions.entries.capacity() * size_of::<Entry>();
        assert_eq!(bytes, 480);
    }
}
