//! The allocator: mimalloc for what is small, the system's for what is large.
//!
//! An increment is allocated where its request is read and freed where it is committed, on another thread, which
//! mimalloc is made for. Large vectors grow all the while in a bulk load, and the system grows them in place by
//! moving pages, where mimalloc copies them: a fifth of the time and 200 MiB at the peak.
//!
//! Invariant: the size in a block's layout says whose it is.

use std::alloc::{GlobalAlloc, Layout, System};

use mimalloc::MiMalloc;

/// The allocator of the program.
pub struct BySize;

/// Where the system begins to give pages of their own to a block.
const LARGE_BYTES: usize = 128 << 10;

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
                MiMalloc.alloc(layout)
            }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe {
            if is_large(layout.size()) {
                System.alloc_zeroed(layout)
            } else {
                MiMalloc.alloc_zeroed(layout)
            }
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above; the block came from the same allocator.
        unsafe {
            if is_large(layout.size()) {
                System.dealloc(block, layout);
            } else {
                MiMalloc.dealloc(block, layout);
            }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above. A block that changes hands is copied as far as both reach; the new layout is valid because
        // the caller promises that `size` is for the old one's alignment.
        unsafe {
            match (is_large(layout.size()), is_large(size)) {
                (true, true) => System.realloc(block, layout, size),
                (false, false) => MiMalloc.realloc(block, layout, size),
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

#[cfg(test)]
mod tests {
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
}
