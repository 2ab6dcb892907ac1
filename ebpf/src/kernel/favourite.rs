//! The backend of a whole set that a flow is nearest to.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_loop;
use dormouse_ebpf::service::Set;
use dormouse_ebpf::tables::Search;

use super::tables::Kernel;

/// The id that is nearest to the hash. Costs a look at each backend, which is why only the first packet of a flow asks.
#[inline(always)]
pub(crate) fn favourite(set: Set, hash: u64) -> Option<u32> {
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

/// Looks at one backend of the set; 0 goes on.
unsafe extern "C" fn look(place: u32, search: *mut c_void) -> i64 {
    // SAFETY: the helper passes what it was given.
    let search = unsafe { &mut *search.cast::<Search>() };
    search.look(&Kernel, place);
    0
}
