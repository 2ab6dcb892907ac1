//! What an app's requests wait for: control's answer, or a ready pod. A need is raised once, and repeated while it lasts. Pure.

use crate::park::{LimitReached, QueueLimits};

/// What an app's requests wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Control's answer: the last of them dialled this port.
    Route {
        /// The port.
        port: u16,
    },
    /// A ready pod.
    Pod,
}

/// A need to raise, and whether the app's needs are already being repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// The need.
    pub need: Need,
    /// It is repeated already.
    pub repeats: bool,
}

/// The demand of one app.
#[derive(Clone, Copy, Debug, Default)]
pub struct Demand {
    /// Requests that wait for the route, and their memory in bytes.
    asking: usize,
    bytes: usize,
    /// The port that the last of them dialled.
    port: u16,
    /// The need that was raised last, while it is being repeated.
    raised: Option<Need>,
    awaiting_first_byte: bool,
}

impl Demand {
    /// A request that uses `bytes` waits for the route.
    pub fn ask(
        &mut self,
        port: u16,
        bytes: usize,
        limits: QueueLimits,
    ) -> Result<(), LimitReached> {
        if self.asking >= limits.count_max {
            return Err(LimitReached::Count);
        }
        if self.bytes.saturating_add(bytes) > limits.bytes_max {
            return Err(LimitReached::Bytes);
        }
        (self.asking, self.bytes) = (self.asking + 1, self.bytes + bytes);
        self.port = port;
        Ok(())
    }

    /// A request that used `bytes` waits for the route no longer.
    pub fn asked(&mut self, bytes: usize) {
        self.asking -= 1;
        self.bytes -= bytes;
    }

    /// The need. `routed`: control has answered; `stranded`: requests are parked, and there is no backend.
    pub fn need(&self, routed: bool, stranded: bool) -> Option<Need> {
        if self.asking > 0 && !routed {
            Some(Need::Route { port: self.port })
        } else {
            stranded.then_some(Need::Pod)
        }
    }

    /// The need that begins now, if it was not raised yet.
    pub fn begin(&mut self, need: Option<Need>) -> Option<Begun> {
        let need = need?;
        self.awaiting_first_byte = true;
        let before = self.raised;
        if before.is_some_and(|before| before == need || need != Need::Pod) {
            return None;
        }
        self.raised = Some(need);
        Some(Begun {
            need,
            repeats: before.is_some(),
        })
    }

    /// The need to repeat; none: it is over.
    pub fn repeat(&mut self, need: Option<Need>) -> Option<Need> {
        self.raised = need;
        need
    }

    /// The last request has ended; returns whether no response has begun after a need was raised.
    pub fn unanswered(&mut self) -> bool {
        std::mem::take(&mut self.awaiting_first_byte)
    }

    /// A response has begun; returns whether it is the first after a need was raised.
    pub fn responded(&mut self) -> bool {
        std::mem::take(&mut self.awaiting_first_byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: QueueLimits = QueueLimits {
        count_max: 2,
        bytes_max: 100,
    };

    #[test]
    fn a_need_is_raised_once_and_a_pod_is_needed_after_the_route() {
        let mut demand = Demand::default();
        demand.ask(80, 10, LIMITS).unwrap();
        let route = demand.need(false, false);
        assert_eq!(route, Some(Need::Route { port: 80 }));
        assert!(demand.begin(route).is_some_and(|begun| !begun.repeats));
        assert_eq!(demand.begin(route), None);
        demand.asked(10);
        let pod = demand.need(true, true);
        assert!(demand.begin(pod).is_some_and(|begun| begun.repeats));
        assert_eq!(demand.begin(pod), None);
        assert_eq!(demand.repeat(pod), Some(Need::Pod));
        assert_eq!(demand.repeat(demand.need(true, false)), None);
        assert!(demand.begin(pod).is_some_and(|begun| !begun.repeats));
    }

    #[test]
    fn only_the_first_response_after_a_need_is_reported() {
        let mut demand = Demand::default();
        assert!(!demand.responded());
        demand.begin(Some(Need::Pod));
        assert!(demand.responded());
        assert!(!demand.responded());
        assert!(!demand.unanswered());
        demand.begin(Some(Need::Pod));
        assert!(
            demand.unanswered(),
            "the need lasts, and another request has come"
        );
        assert!(!demand.responded());
    }

    #[test]
    fn requests_that_wait_for_the_route_are_limited() {
        let mut demand = Demand::default();
        demand.ask(80, 60, LIMITS).unwrap();
        assert_eq!(demand.ask(80, 60, LIMITS), Err(LimitReached::Bytes));
        demand.ask(80, 40, LIMITS).unwrap();
        assert_eq!(demand.ask(80, 0, LIMITS), Err(LimitReached::Count));
        demand.asked(60);
        demand.ask(80, 60, LIMITS).unwrap();
    }
}
