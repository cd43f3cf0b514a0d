//! The allocator: mimalloc for what is small, the system's for what is large.
//!
//! An increment is allocated where its request is read and freed where it is committed, on another thread, which
//! mimalloc is made for. Large vectors grow all the while in a bulk load, and the system grows them in place by
//! moving pages, where mimalloc copies them: a fifth of the time and 200 MiB at the peak.
//!
//! Left alone, the system stops giving large blocks pages of their own once one was freed. That suits a server, whose
//! blocks come again and again; a load, whose blocks grow and are all freed when memory is written out, asks for the
//! pages back ([`return_large_blocks`]), and so does a server of little memory ([`return_all_soon`]).
//!
//! Invariant: the size in a block's layout says whose it is.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::{c_int, c_long};

use libmimalloc_sys::{mi_malloc, mi_realloc, mi_zalloc};
use mimalloc::MiMalloc;

/// The allocator of the program.
pub struct BySize;

/// Where the system begins to give pages of their own to a block.
const LARGE_BYTES: usize = 128 << 10;

/// From now on every large block has pages of its own, which are the machine's again as soon as it is freed: what a load
/// held before it wrote its memory out does not stay beside what it fills next (100 MiB), and what grows is not copied
/// among smaller blocks (80 MiB more).
pub fn return_large_blocks() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it sets one number, which allocations on other threads read whole.
    unsafe {
        // A refusal leaves everything as it was, which is right, only larger.
        let _ = libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES as libc::c_int);
    }
}

/// As [`return_large_blocks`], and pages of small blocks go back after 10 ms, not a second: where memory is little, what a
/// flush frees must not stay beside what comes next (a third of all that a server of 128 MiB takes).
pub fn return_all_soon() {
    return_large_blocks();
    // SAFETY: it sets one number, which other threads read whole.
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

// SAFETY: every call goes to the one allocator that the block's size names, and a block keeps its size until it is
// reallocated, which moves it when its size then names the other.
unsafe impl GlobalAlloc for BySize {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are passed on.
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
        // SAFETY: as above. A block that changes hands is copied as far as both reach; the new layout is valid because
        // the caller promises that `size` is for the old one's alignment.
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

/// mimalloc, asked for an alignment only where it does not give it anyway. Asked for one, it takes the long way for
/// many sizes, every time: it asks for a little more, which is another class of sizes, so that its list of free
/// blocks of the right class stays empty (`alloc-aligned.c`).
struct Small;

/// What mimalloc aligns every block to that is as large (`MI_MAX_ALIGN_SIZE`).
const GIVEN_ALIGNMENT: usize = 16;

fn is_aligned_anyway(layout: Layout, size: usize) -> bool {
    layout.align() <= GIVEN_ALIGNMENT.min(size)
}

// SAFETY: all blocks are mimalloc's, and those that are asked for without an alignment have it anyway.
unsafe impl GlobalAlloc for Small {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are passed on.
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
        // SAFETY: as above; it frees a block however it was asked for.
        unsafe { MiMalloc.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above; it takes a block however it was asked for.
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

    /// The program's allocator is the tests' too.
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
