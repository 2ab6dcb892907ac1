//! Rendezvous hashing over a whole backend set, with bpf_loop.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_loop;
use dormouse_ebpf::service::Set;
use dormouse_ebpf::tables::Search;

use super::tables::Kernel;

/// The id of the backend that is nearest to the hash. Costs a comparison with each backend, so only a flow's first packet
/// calls it.
#[inline(always)]
pub(crate) fn pick(set: Set, hash: u64) -> Option<u32> {
    let mut search = Search::of(set, hash);
    // SAFETY: the callback gets `search`, which lives until the helper returns.
    unsafe {
        bpf_loop(
            u32::from(set.count),
            look as *mut c_void,
            (&raw mut search).cast(),
            0,
        );
    }
    search.found()
}

/// Compares one backend of the set; 0 continues the loop.
unsafe extern "C" fn look(place: u32, search: *mut c_void) -> i64 {
    // SAFETY: the helper passes what it was given.
    let search = unsafe { &mut *search.cast::<Search>() };
    search.look(&Kernel, place);
    0
}
