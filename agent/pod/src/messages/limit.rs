//! Rate limits of a pod: a TBF qdisc on the sending side of each direction delays packets. What the pod sends beyond its limit
//! anyway (it can remove its qdisc) is dropped on the host side. Pure.

use std::os::fd::BorrowedFd;

use dormouse_agent_netlink::Request;
use dormouse_agent_netlink::classifier::{Position, Side, add_clsact, filter};
use dormouse_cni::message::Rate;
use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcOption};

/// Queue length as a fraction of the bytes per second: 1/20 s.
const QUEUES_PER_SECOND: u64 = 20;
/// Minimum burst in packets: TBF only passes a packet that fits as a whole.
const BURST_PACKETS_MIN: u64 = 4;
/// Minimum burst in bytes: a jumbo frame, because the MTU may grow while the pod runs.
const BURST_MIN: u64 = 9_216;

/// Lower than the priority of the data path's programs, so it runs first.
const PRIORITY: u16 = 8;
/// Tolerance of the host side's limit above the pod's own: one GSO packet that is not segmented yet, in bytes, and packets
/// that are delayed in the pod, as a fraction of the bytes per second (1/50 s).
const UNCUT_LEN_MAX: u64 = 1 << 16;
const LATE_PER_SECOND: u64 = 50;
/// The fraction (1/100) by which TBF may exceed the rate: it truncates a packet's time to whole nanoseconds.
const INEXACT: u64 = 100;

const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_TBF_BURST: u16 = 6;
const LINK_LAYER_ETHERNET: u8 = 1;
/// The kernel's time unit of bursts (PSCHED tick), in nanoseconds.
const TICK_NS: u128 = 64;

/// Adds a TBF qdisc to a link; `mtu` in bytes.
pub(super) fn limit(what: &'static str, ifindex: u32, mtu: u32, rate: Rate) -> Request {
    let rate = Bytes::of(rate, mtu);
    let queue = rate.per_second / QUEUES_PER_SECOND + u64::from(rate.burst);
    let queue = u32::try_from(queue).unwrap_or(u32::MAX);
    // `struct tc_tbf_qopt`: rate, peak rate, bytes in the queue, burst in ticks, MTU.
    let parameters = [
        &rate.spec()[..],
        &[0; 12],
        &queue.to_ne_bytes(),
        &rate.ticks().to_ne_bytes(),
        &[0; 4],
    ];
    let option = |kind, value| TcOption::Other(DefaultNla::new(kind, value));
    let mut message = TcMessage::with_index(ifindex.cast_signed());
    message.header.parent = TcHandle::ROOT;
    message.attributes = vec![
        TcAttribute::Kind("tbf".to_owned()),
        TcAttribute::Options(vec![
            option(TCA_TBF_PARMS, parameters.concat()),
            option(TCA_TBF_RATE64, rate.per_second.to_ne_bytes().to_vec()),
            option(TCA_TBF_BURST, rate.burst.to_ne_bytes().to_vec()),
        ]),
    ];
    let message = RouteNetlinkMessage::NewQueueDiscipline(message);
    Request::new(what, message, NLM_F_CREATE | NLM_F_REPLACE)
}

/// The host side's limit of the pod's egress: bytes per second, and burst in bytes.
pub(crate) fn allowed(rate: Rate, mtu: u32) -> (u64, u64) {
    let rate = Bytes::of(rate, mtu);
    let late = rate.per_second / LATE_PER_SECOND;
    (
        rate.per_second + rate.per_second / INEXACT,
        u64::from(rate.burst) + UNCUT_LEN_MAX + late,
    )
}

/// Attaches the classifier that drops the pod's egress beyond its limit.
pub(crate) fn enforce(ifindex: u32, limiter: BorrowedFd<'_>) -> [Request; 2] {
    let what = "attach the limiter of the pod's egress";
    let position = Position {
        ifindex,
        side: Side::Ingress,
        priority: PRIORITY,
    };
    [
        add_clsact(ifindex),
        filter(what, position, "limit", limiter),
    ]
}

/// Rate and burst in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bytes {
    per_second: u64,
    burst: u32,
}

impl Bytes {
    fn of(rate: Rate, mtu: u32) -> Self {
        let burst_min = (u64::from(mtu) * BURST_PACKETS_MIN).max(BURST_MIN);
        let burst = (rate.burst_bits / 8).max(burst_min);
        Self {
            per_second: (rate.bits_per_second / 8).max(1),
            burst: u32::try_from(burst).unwrap_or(u32::MAX),
        }
    }

    /// The kernel's `struct tc_ratespec`.
    fn spec(self) -> [u8; 12] {
        let rate = u32::try_from(self.per_second).unwrap_or(u32::MAX);
        let mut spec = [0; 12];
        // log2 of the rate table's cell size: any value but 0.
        spec[0] = 3;
        spec[1] = LINK_LAYER_ETHERNET;
        spec[8..].copy_from_slice(&rate.to_ne_bytes());
        spec
    }

    fn ticks(self) -> u32 {
        let ns = u128::from(self.burst) * 1_000_000_000 / u128::from(self.per_second);
        u32::try_from(ns / TICK_NS).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_in_bytes_and_its_burst_fits_whole_packets() {
        let asked = Rate {
            bits_per_second: 8_000_000,
            burst_bits: 8,
        };
        let rate = Bytes::of(asked, 2_500);
        assert_eq!((rate.per_second, rate.burst), (1_000_000, 10_000));
        // 10 ms.
        assert_eq!(rate.ticks(), 156_250);
        assert_eq!(Bytes::of(asked, 1_500).burst, 9_216);
        assert_eq!(rate.spec()[8..], 1_000_000_u32.to_ne_bytes());
    }

    #[test]
    fn the_host_side_passes_a_pod_that_observes_its_limit() {
        let asked = Rate {
            bits_per_second: 8_000_000,
            burst_bits: 80_000,
        };
        let (rate, bucket) = allowed(asked, 1_500);
        assert_eq!((rate, bucket), (1_010_000, 10_000 + 65_536 + 20_000));
    }

    #[test]
    fn numbers_beyond_the_kernels_range_are_clamped() {
        let asked = Rate {
            bits_per_second: u64::MAX,
            burst_bits: u64::MAX,
        };
        let rate = Bytes::of(asked, 0);
        assert_eq!(rate.burst, u32::MAX);
        assert_eq!(rate.spec()[8..], [0xff; 4]);
        let slow = Rate {
            bits_per_second: 1,
            burst_bits: u64::MAX,
        };
        assert_eq!(Bytes::of(slow, 0).ticks(), u32::MAX);
    }
}
