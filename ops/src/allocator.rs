//! The allocator: mimalloc for small blocks, the system's allocator for large ones.
//!
//! An increment is allocated by the thread that reads its request and freed by the thread that commits it; mimalloc is
//! made for that. The vectors of a bulk load grow all the time. The system grows them in place by moving pages, and
//! mimalloc copies them, which takes a fifth of the time of a load and 200 MiB more at its peak.
//!
//! By default glibc gives a large block pages of its own only until such a block is freed, which suits a server, whose
//! blocks come again and again. A load frees all its blocks when it writes its memory out, so it asks for pages of
//! their own ([`return_large_blocks`]), and so does a server of little memory ([`return_all_soon`]).
//!
//! Invariant: the size in a block's layout says which allocator the block belongs to.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::{c_int, c_long};

use libmimalloc_sys::{mi_malloc, mi_realloc, mi_zalloc};
use mimalloc::MiMalloc;

/// The allocator of the program.
pub(crate) struct BySize;

/// The smallest block that goes to the system's allocator, bytes; from there on glibc can give a block pages of its
/// own.
const LARGE_BYTES: usize = 128 << 10;

/// Gives every large block pages of its own from now on, which return to the machine as soon as the block is freed.
/// Memory that a load has written out is then not held beside the memory it fills next (100 MiB), and growing blocks
/// are not copied among smaller ones (80 MiB).
pub(crate) fn return_large_blocks() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call sets one number, which allocations on other threads read whole.
    unsafe {
        // A refusal leaves the default, with which the program works and takes more memory.
        let _ = libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES as libc::c_int);
    }
}

/// As [`return_large_blocks`], and returns the pages of small blocks after 10 ms instead of a second. Without this a
/// server of 128 MiB holds a third of its memory in blocks that a flush has freed.
pub(crate) fn return_all_soon() {
    return_large_blocks();
    // SAFETY: the call sets one number, which other threads read whole.
    unsafe { mi_option_set(PURGE_DELAY, 10) }
}

/// `mi_option_purge_delay` in `mimalloc.h`, milliseconds.
const PURGE_DELAY: c_int = 15;

unsafe extern "C" {
    fn mi_option_set(option: c_int, value: c_long);
}

fn is_large(bytes: usize) -> bool {
    bytes >= LARGE_BYTES
}

// SAFETY: every call goes to the one allocator that the block's size names. A block keeps its size until it is
// reallocated, and a reallocation across the limit moves the block to the other allocator.
unsafe impl GlobalAlloc for BySize {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the promises of this function.
        unsafe {
            if is_large(layout.size()) {
                System.alloc(layout)
            } else {
                Small.alloc(layout)
            }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe {
            if is_large(layout.size()) {
                System.alloc_zeroed(layout)
            } else {
                Small.alloc_zeroed(layout)
            }
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above; the block came from the same allocator.
        unsafe {
            if is_large(layout.size()) {
                System.dealloc(block, layout);
            } else {
                Small.dealloc(block, layout);
            }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above. A block that crosses the limit is copied up to the smaller size; the new layout is valid
        // because the caller promises that `size` fits the alignment of the old one.
        unsafe {
            match (is_large(layout.size()), is_large(size)) {
                (true, true) => System.realloc(block, layout, size),
                (false, false) => Small.realloc(block, layout, size),
                _ => {
                    let moved = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
                    if !moved.is_null() {
                        block.copy_to_nonoverlapping(moved, layout.size().min(size));
                        self.dealloc(block, layout);
                    }
                    moved
                }
            }
        }
    }
}

/// mimalloc, asked for an alignment only where it does not give that alignment to every block. A request with an
/// alignment takes a slow path for many sizes: it asks for a little more memory, which falls into another size class,
/// whose list of free blocks stays empty (`alloc-aligned.c`).
struct Small;

/// The alignment of every block of at least that size (`MI_MAX_ALIGN_SIZE`), bytes.
const GIVEN_ALIGNMENT: usize = 16;

fn is_aligned_anyway(layout: Layout, size: usize) -> bool {
    layout.align() <= GIVEN_ALIGNMENT.min(size)
}

// SAFETY: all blocks are mimalloc's, and a block that is requested without an alignment has the alignment of its
// layout.
unsafe impl GlobalAlloc for Small {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the promises of this function.
        unsafe {
            if is_aligned_anyway(layout, layout.size()) {
                mi_malloc(layout.size()).cast()
            } else {
                MiMalloc.alloc(layout)
            }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe {
            if is_aligned_anyway(layout, layout.size()) {
                mi_zalloc(layout.size()).cast()
            } else {
                MiMalloc.alloc_zeroed(layout)
            }
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above; mimalloc frees a block in the same way whether an alignment was requested or not.
        unsafe { MiMalloc.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above; mimalloc reallocates a block in the same way whether an alignment was requested or not.
        unsafe {
            if is_aligned_anyway(layout, size) {
                mi_realloc(block.cast(), size).cast()
            } else {
                MiMalloc.realloc(block, layout, size)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::{Layout, alloc_zeroed, dealloc, realloc};

    /// The tests run with the program's allocator.
    #[test]
    fn what_grows_and_shrinks_over_the_limit_keeps_its_bytes() {
        let mut bytes: Vec<u8> = Vec::new();
        for number in 0..600_000_u32 {
            bytes.push(number as u8);
        }
        bytes.truncate(1_000);
        bytes.shrink_to_fit();
        bytes.resize(500_000, 7);
        let kept = bytes[..1_000].iter().zip(0_u32..);
        assert!(kept.into_iter().all(|(&byte, number)| byte == number as u8));
        assert!(bytes[1_000..].iter().all(|&byte| byte == 7));
        assert!(vec![0_u8; 300_000].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn every_block_has_the_alignment_that_was_asked_for() {
        for align in [1, 2, 4, 8, 16, 32, 64, 4_096] {
            for size in (1..600).chain([1_024, 8_192, 65_536, 131_071, 131_072]) {
                let layout = Layout::from_size_align(size, align).unwrap();
                let grown = Layout::from_size_align(size + 24, align).unwrap();
                // SAFETY: the layouts have a size, and blocks are freed with the layout they have.
                unsafe {
                    let block = alloc_zeroed(layout);
                    assert_eq!(block.align_offset(align), 0, "{size} bytes");
                    let block = realloc(block, layout, grown.size());
                    assert_eq!(block.align_offset(align), 0, "{size} bytes, grown");
                    dealloc(block, grown);
                }
            }
        }
    }
}
