//! The drop reasons of verdicts, and their codes.

use dormouse_agent_datapath::Verdict;
pub use dormouse_command::Reason;

/// The code of verdict 0; codes are stable.
const FIRST_CODE: u32 = 6_000;

/// The code of a verdict, as `DM6020`.
pub fn code(verdict: Verdict) -> String {
    format!("DM{}", FIRST_CODE + verdict as u32)
}

/// The verdict with this code, this name, or the name of its reason, which `get drops` shows.
pub fn verdict(text: &str) -> Option<Verdict> {
    let mut all = Verdict::ALL.iter().copied();
    all.find(|one| {
        let is_reason = || reason(*one).is_some_and(|reason| reason.name == text);
        code(*one).eq_ignore_ascii_case(text) || one.name() == text || is_reason()
    })
}

/// The reason, for a verdict that drops, refuses or resets.
pub fn reason(verdict: Verdict) -> Option<Reason> {
    Reason::of_code(&code(verdict)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verdict_that_stops_a_packet_has_a_meaning_and_a_next_step() {
        for verdict in Verdict::ALL.iter().copied() {
            let stops = verdict.is_drop() || verdict.is_refusal();
            let reason = reason(verdict);
            assert!(!stops || reason.is_some(), "{} has no text", verdict.name());
            let is_named = |reason: Reason| verdict.name().ends_with(reason.name);
            assert!(reason.is_none_or(is_named), "{}", verdict.name());
            assert_eq!(super::verdict(&code(verdict)), Some(verdict));
            assert_eq!(super::verdict(verdict.name()), Some(verdict));
            let by_reason = reason.and_then(|reason| super::verdict(reason.name));
            assert_eq!(by_reason, reason.map(|_| verdict), "{}", verdict.name());
        }
    }

    #[test]
    fn codes_are_stable() {
        assert_eq!(code(Verdict::DroppedRange), "DM6020");
        assert_eq!(reason(Verdict::DroppedRange).unwrap().name, "range");
        assert_eq!(reason(Verdict::Proxied), None);
    }

    #[test]
    fn the_next_step_is_a_complete_command() {
        let source = "10.0.0.9".parse().unwrap();
        let next = reason(Verdict::Rejected)
            .unwrap()
            .next_for(Some("shop/web:http"), source);
        let wanted = "kubectl -n shop get endpointslices -l kubernetes.io/service-name=web: make a pod ready";
        assert_eq!(next, wanted);
        let spoofed = reason(Verdict::DroppedSpoofed).unwrap();
        assert!(spoofed.next_for(None, source).contains("address 10.0.0.9"));
    }
}
