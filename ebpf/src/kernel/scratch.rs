//! Memory for what does not fit on the stack of 512 bytes.

use aya_ebpf::macros::map;
use aya_ebpf::maps::PerCpuArray;
use dormouse_ebpf::decide::{Choice, Request};
use dormouse_ebpf::flow::{Flow, FlowKey, REPLY};
use dormouse_ebpf::ndp::{ADVERTISEMENT_LEN, Solicitation};
use dormouse_ebpf::packet::Packet;
use dormouse_ebpf::reject::{QUOTE_MAX, Rejections};

use super::clock;

/// On a CPU one program at a time uses it, without preemption.
#[repr(C)]
pub(crate) struct Scratch {
    pub(crate) packet: Packet,
    pub(crate) quoted: Packet,
    pub(crate) key: FlowKey,
    pub(crate) back: FlowKey,
    pub(crate) flow: Flow,
    pub(crate) reply: Flow,
    pub(crate) request: Request,
    pub(crate) choice: Choice,
    pub(crate) quote: [u8; QUOTE_MAX],
    pub(crate) rejections: Rejections,
    pub(crate) solicited: Solicitation,
    pub(crate) advertised: [u8; ADVERTISEMENT_LEN],
    /// 1: no rate limit applies at the host's end of the sender's link, so the packet may bypass the host's forwarding.
    pub(crate) direct: u64,
    /// 1 while a program uses it that another one may interrupt.
    pub(crate) busy: u64,
    /// The tick in which the clock was read, and CLOCK_BOOTTIME then.
    pub(crate) tick: u64,
    pub(crate) tick_ns: u64,
}

#[map(name = "scratch")]
static SCRATCH: PerCpuArray<Scratch> = PerCpuArray::with_max_entries(SCRATCH_USERS, 0);

/// Programs that may run on one CPU at the same time, one interrupting the other.
pub(crate) const SCRATCH_USERS: u32 = 3;
/// The user at ingress of the uplink or a pod's link, in a soft interrupt.
pub(crate) const ARRIVING: u32 = 0;
/// The user at egress, which may run for a packet that an ingress program has redirected.
pub(crate) const LEAVING: u32 = 1;
/// The user at a socket's egress.
pub(crate) const SENDING: u32 = 2;

impl Scratch {
    /// The memory of one user.
    #[inline(always)]
    pub(crate) fn of(user: u32) -> Option<&'static mut Self> {
        // SAFETY: this CPU's own value, and its users run once at a time on a CPU.
        SCRATCH
            .get_ptr_mut(user)
            .map(|scratch| unsafe { &mut *scratch })
    }

    /// Makes `reply` the other direction's entry of the packet's flow, which is `flow`.
    #[inline(always)]
    pub(crate) fn fill_reply(&mut self) {
        self.reply = self.flow;
        self.reply.source = self.packet.target;
        self.reply.source_port = self.packet.target_port;
        self.reply.target = self.packet.source;
        self.reply.target_port = self.packet.source_port;
        self.reply.kind ^= REPLY;
        self.reply.open = 0;
    }

    /// CLOCK_BOOTTIME, up to a tick late: the clock is read once in a tick.
    #[inline(always)]
    pub(crate) fn recent_ns(&mut self) -> u64 {
        let tick = clock::now_ticks();
        if self.tick != tick {
            (self.tick, self.tick_ns) = (tick, clock::now_ns());
        }
        self.tick_ns
    }
}
