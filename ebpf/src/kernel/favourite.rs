//! The backend of a whole set that a flow is nearest to.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_loop;
use dormouse_ebpf::decide::Tables;
use dormouse_ebpf::maps::join;
use dormouse_ebpf::pick::distance;
use dormouse_ebpf::service::Set;

use super::tables::Kernel;

/// A search under way.
#[repr(C)]
struct Search {
    hash: u64,
    best: u64,
    nearest: u64,
    offset: u32,
    found: u32,
}

/// The id that the hash likes best. Costs a look at each backend, which is why only the first packet of a flow asks.
#[inline(always)]
pub(crate) fn favourite(set: Set, hash: u64) -> Option<u32> {
    let mut search = Search {
        hash,
        best: 0,
        nearest: u64::MAX,
        offset: set.offset,
        found: 0,
    };
    // SAFETY: the callback gets `search`, which lives until the helper returns.
    unsafe {
        bpf_loop(
            u32::from(set.count),
            look as *mut c_void,
            (&raw mut search).cast(),
            0,
        );
    }
    (search.found != 0).then_some(search.best as u32)
}

/// Looks at one backend of the set; 0 goes on.
unsafe extern "C" fn look(place: u32, search: *mut c_void) -> i64 {
    // SAFETY: the helper passes what it was given.
    let search = unsafe { &mut *search.cast::<Search>() };
    let _ = consider(place, search);
    0
}

#[inline(always)]
fn consider(place: u32, search: &mut Search) -> Option<()> {
    let id = Kernel.id(search.offset.wrapping_add(place))?;
    let backend = Kernel.backend(id)?;
    let address = join(&Kernel.prefix(backend.prefix)?, backend.host);
    let distance = distance(search.hash, &address, backend.port, backend.weight);
    if distance < search.nearest {
        search.nearest = distance;
        search.best = u64::from(id);
        search.found = 1;
    }
    Some(())
}
