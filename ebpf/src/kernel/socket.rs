//! The socket hooks' access to their call: the target that the process passed, and its translation.

use core::mem::MaybeUninit;

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::bpf_sock_addr;
use aya_ebpf::helpers::generated::{bpf_get_netns_cookie, bpf_get_socket_cookie, bpf_set_retval};
use aya_ebpf::programs::SockAddrContext;
use dormouse_ebpf::decide::{Choice, Request};
use dormouse_ebpf::packet::{is_v4, mapped, v4_of};
use dormouse_ebpf::pick::mix;
use dormouse_ebpf::service::{Route, Target};
use dormouse_ebpf::socket::{Call, Caller, Effect, decide_call};
use dormouse_ebpf::verdict::Verdict;
use dormouse_ebpf::wake_limit::WakeSource;

use super::tables::{self, Kernel};
use super::words::zero;
use super::{rewrite, verdicts, wake};

/// The address family of a hook.
#[derive(Clone, Copy)]
pub(crate) enum Family {
    /// `*4`.
    V4,
    /// `*6`, with IPv4-mapped addresses.
    V6,
}

/// The source of the random bits for the backend selection.
#[derive(Clone, Copy)]
pub(crate) enum Seed {
    /// New ones for each call.
    Random,
    /// The socket's cookie: the same ones for all calls of a socket.
    Cookie,
}

/// An address and port; IPv4 is mapped.
#[derive(Clone, Copy)]
pub(crate) struct Endpoint {
    pub(crate) address: [u8; 16],
    pub(crate) port: u16,
}

const ECONNREFUSED: i32 = 111;

/// The result of a call's decision.
pub(crate) enum Outcome {
    /// The target stays.
    Unchanged,
    /// The target was replaced.
    Translated,
    /// The call is to fail.
    Refused,
}

struct Process<'a> {
    ctx: &'a SockAddrContext,
    seed: Seed,
}

impl Caller for Process<'_> {
    #[inline(always)]
    fn protocol(&self) -> u8 {
        // SAFETY: a field of the context.
        (unsafe { core::ptr::read_volatile(&raw const (*self.ctx.sock_addr).protocol) }) as u8
    }

    #[inline(always)]
    fn is_node(&self, netns: u64) -> bool {
        // SAFETY: the helper takes the hook's context.
        unsafe { bpf_get_netns_cookie(self.ctx.as_ptr()) == netns }
    }

    #[inline(always)]
    fn hash(&self) -> u64 {
        mix(match self.seed {
            Seed::Random => u64::from(tables::random()),
            Seed::Cookie => cookie(self.ctx),
        })
    }
}

/// Replaces the call's target by a backend or activator, as [`decide_call`] decides, and passes both to `record`.
#[inline(always)]
pub(crate) fn dnat(
    ctx: &SockAddrContext,
    family: Family,
    seed: Seed,
    record: impl FnOnce(&Request, &Choice),
) -> Outcome {
    let target = target(ctx, family);
    let (mut request, mut choice) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: all zero is a valid value of these plain structs.
    let (request, choice): (&mut Request, &mut Choice) =
        unsafe { (zero(&mut request), zero(&mut choice)) };
    request.target = target.address;
    request.port = target.port;
    let call = decide_call(&Kernel, &Process { ctx, seed }, request, choice);
    let (effect, verdict) = match call {
        Call::Unchanged(_) => return Outcome::Unchanged,
        Call::Refused(verdict) => {
            verdicts::note_drop(verdict, choice.slot);
            return Outcome::Refused;
        }
        Call::Translated(effect, verdict) => (effect, verdict),
    };
    match effect {
        Effect::None => {}
        Effect::Wake if !wake_app(ctx, request, choice) => {
            let slot = wake::counted_slot(choice.slot, Route::unpack(choice.route));
            verdicts::note_drop(Verdict::DroppedWakeLimit, slot);
            return Outcome::Refused;
        }
        Effect::Wake => {}
        Effect::RecordAffinity => tables::store_affinity(&request.source, choice),
    }
    if let Some(verdict) = verdict {
        verdicts::note(verdict);
    }
    let backend = Endpoint {
        address: choice.address,
        port: choice.port,
    };
    set_target(ctx, family, &backend);
    record(request, choice);
    Outcome::Translated
}

/// Wakes the app that is called. False if the processes of the socket's network namespace have used up their wakes.
#[inline(always)]
fn wake_app(ctx: &SockAddrContext, request: &Request, choice: &Choice) -> bool {
    let target = Target {
        port: request.port,
        protocol: request.protocol,
    };
    // SAFETY: the helper takes the hook's context.
    let source = || WakeSource::processes(unsafe { bpf_get_netns_cookie(ctx.as_ptr()) });
    let route = Route::unpack(choice.route);
    wake::wake((choice.slot, route), target, &request.source, source)
}

/// Makes the call fail with ECONNREFUSED. Returns the program's verdict.
#[inline(always)]
pub(crate) fn refuse() -> i32 {
    // SAFETY: the helper takes an error number.
    unsafe { bpf_set_retval(-ECONNREFUSED) };
    0
}

/// The endpoint in the context: the target that the process passed, or the peer that it is about to read.
#[inline(always)]
pub(crate) fn target(ctx: &SockAddrContext, family: Family) -> Endpoint {
    let raw = ctx.sock_addr;
    // SAFETY: fields of the context; the verifier allows reads of four bytes each.
    unsafe {
        let port = u16::from_be(core::ptr::read_volatile(&raw const (*raw).user_port) as u16);
        let address = if matches!(family, Family::V4) {
            let word = core::ptr::read_volatile(&raw const (*raw).user_ip4);
            mapped(word.to_ne_bytes())
        } else {
            let at = (&raw const (*raw).user_ip6).cast::<u32>();
            let word = |n: usize| core::ptr::read_volatile(at.add(n));
            rewrite::address([word(0), word(1), word(2), word(3)])
        };
        Endpoint { address, port }
    }
}

/// Replaces the endpoint in the context, by one of the same family.
#[inline(always)]
fn set_target(ctx: &SockAddrContext, family: Family, endpoint: &Endpoint) {
    let raw: *mut bpf_sock_addr = ctx.sock_addr;
    // SAFETY: fields of the context; the verifier allows writes of four bytes each.
    unsafe {
        if matches!(family, Family::V4) {
            let word = u32::from_ne_bytes(v4_of(&endpoint.address));
            core::ptr::write_volatile(&raw mut (*raw).user_ip4, word);
        } else {
            let words = rewrite::words(&endpoint.address);
            let at = (&raw mut (*raw).user_ip6).cast::<u32>();
            core::ptr::write_volatile(at, words[0]);
            core::ptr::write_volatile(at.add(1), words[1]);
            core::ptr::write_volatile(at.add(2), words[2]);
            core::ptr::write_volatile(at.add(3), words[3]);
        }
        let port = u32::from(endpoint.port.to_be());
        core::ptr::write_volatile(&raw mut (*raw).user_port, port);
    }
}

/// The socket's cookie, unique since boot.
#[inline(always)]
pub(crate) fn cookie(ctx: &impl EbpfContext) -> u64 {
    // SAFETY: the helper takes the hook's context.
    unsafe { bpf_get_socket_cookie(ctx.as_ptr()) }
}

/// Reverse NAT: replaces the backend that the process is about to read by the VIP, unless that is of another family.
#[inline(always)]
pub(crate) fn reverse_nat(
    ctx: &SockAddrContext,
    family: Family,
    backend: &Endpoint,
    vip: &Endpoint,
) {
    if is_v4(&vip.address) == is_v4(&backend.address) {
        set_target(ctx, family, vip);
    }
}
