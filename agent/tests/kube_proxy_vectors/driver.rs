//! The way of a packet from outside by the uplink's XDP program, beside its way by the classifier alone.

use std::collections::BTreeMap;

use dormouse_agent_datapath::{Datapath, Hook, Run, Verdict};
use dormouse_ebpf::packet::ETHERTYPE;
use dormouse_rig::tcx;
use dormouse_rig::xdp::{DROP, PASS, TX};

/// The counter of packets that the program forwards.
const FORWARDED: &str = Verdict::XdpForwarded.name();

/// The counters, by name.
type Counts = BTreeMap<&'static str, u64>;

/// What the XDP program did with a packet.
pub(crate) struct Received {
    run: Run,
    before: Counts,
    after: Counts,
}

impl Received {
    /// Runs the program over a frame.
    pub(crate) fn by(datapath: &Datapath, sent: &[u8]) -> Self {
        let before = counts(datapath);
        let run = datapath.programs.run(Hook::UplinkXdp, sent).unwrap();
        Self {
            run,
            before,
            after: counts(datapath),
        }
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.run.verdict == DROP
    }

    /// Compares it with what the classifier has done with the same frame since then: the verdicts, the frames and the counters.
    pub(crate) fn compare(
        &self,
        datapath: &Datapath,
        sent: &[u8],
        classified: &Run,
    ) -> Result<(), String> {
        let by_driver = counted(&self.before, &self.after);
        let by_classifier = counted(&self.after, &counts(datapath));
        let range = Verdict::DroppedRange.name();
        let is_right = match self.run.verdict {
            PASS => {
                let is_missed = by_classifier.contains_key(range);
                self.run.frame == sent && by_driver.is_empty() && !is_missed
            }
            DROP => classified.verdict == tcx::DROP && by_driver == by_classifier,
            TX => {
                let is_redirected = classified.verdict == tcx::REDIRECT;
                // What the classifier forwards gets its link-layer addresses from the kernel.
                let is_forwarded = by_driver == Counts::from([(FORWARDED, 1)])
                    && by_classifier.is_empty()
                    && classified.frame[ETHERTYPE..] == self.run.frame[ETHERTYPE..];
                let is_answered = classified.frame == self.run.frame && by_driver == by_classifier;
                is_redirected && (is_forwarded || is_answered)
            }
            _ => false,
        };
        is_right.then_some(()).ok_or_else(|| {
            format!(
                "XDP: verdict {}, counted {by_driver:?}; the classifier: verdict {}, counted {by_classifier:?}",
                self.run.verdict, classified.verdict
            )
        })
    }
}

fn counts(datapath: &Datapath) -> Counts {
    let stats = datapath.stats().into_iter();
    stats
        .map(|(verdict, count)| (verdict.name(), count))
        .collect()
}

/// How far each counter has gone on.
fn counted(before: &Counts, after: &Counts) -> Counts {
    let gone = after
        .iter()
        .map(|(name, count)| (*name, count - before[name]));
    gone.filter(|(_, count)| *count != 0).collect()
}
