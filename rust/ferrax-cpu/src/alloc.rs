//! Memory for arrays: blocks of a few sizes that are kept and reused, so that a
//! warm program touches no fresh page.
//!
//! Sizes are rounded up to four classes per power of two; a freed block waits
//! in its class's list until the bytes that wait exceed a bound. Blocks are
//! aligned to 64 bytes, large ones to huge pages. Arrays of at most 64 bytes
//! live beside their reference count. Nothing here aborts: a refused
//! allocation is [`ferrax_ir::Error::Memory`].

use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ferrax_ir::{Result, Storage, memory_error};

/// Arrays up to this size have no block of their own.
const INLINE: usize = 64;
/// From this size on blocks start at huge pages.
const HUGE: usize = 4 << 20;
const HUGE_PAGE: usize = 2 << 20;
const CLASSES: usize = 4 * 64;
/// Bytes that may wait for reuse.
const CACHE_BYTES: usize = 2 << 30;

struct Block(NonNull<u8>);

// SAFETY: a waiting block is memory that nobody else refers to.
unsafe impl Send for Block {}

static LISTS: [Mutex<Vec<Block>>; CLASSES] = [const { Mutex::new(Vec::new()) }; CLASSES];
static CACHED: AtomicUsize = AtomicUsize::new(0);

fn list(class: usize) -> MutexGuard<'static, Vec<Block>> {
    LISTS[class].lock().unwrap_or_else(PoisonError::into_inner)
}

/// The class of a size above [`INLINE`], and the size of its blocks.
fn class_of(bytes: usize) -> Option<(usize, usize)> {
    let power = bytes.checked_next_power_of_two()?.trailing_zeros() as usize;
    // Quarters between the power below and this one.
    let half = 1usize << (power - 1);
    let quarter = (half / 4).max(1);
    let step = (bytes - half).div_ceil(quarter);
    let size = half.checked_add(step * quarter)?;
    (size <= isize::MAX as usize).then_some((power * 4 + step - 1, size))
}

fn layout(size: usize) -> Option<Layout> {
    Layout::from_size_align(size, if size >= HUGE { HUGE_PAGE } else { 64 }).ok()
}

/// A block that goes back to its list when dropped. Its contents are
/// unspecified until written.
#[derive(Debug)]
pub struct Buffer {
    start: NonNull<u8>,
    len: usize,
    size: usize,
    class: usize,
}

// SAFETY: a buffer owns its memory; shared access is read-only.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    pub fn new(len: usize) -> Result<Buffer> {
        let refused = || memory_error!("could not allocate {len} bytes for an array");
        let (class, size) = class_of(len.max(INLINE + 1)).ok_or_else(refused)?;
        let cached = list(class).pop();
        if let Some(Block(start)) = cached {
            CACHED.fetch_sub(size, Ordering::Relaxed);
            return Ok(Buffer { start, len, size, class });
        }
        let layout = layout(size).ok_or_else(refused)?;
        // SAFETY: the size is not zero.
        let mut start = NonNull::new(unsafe { alloc(layout) });
        if start.is_none() {
            release_cached();
            // SAFETY: as above.
            start = NonNull::new(unsafe { alloc(layout) });
        }
        let start = start.ok_or_else(refused)?;
        #[cfg(target_os = "linux")]
        if size >= HUGE {
            // SAFETY: the range is a fresh block of ours; the advice does not change its contents.
            unsafe { libc::madvise(start.as_ptr().cast(), size, libc::MADV_HUGEPAGE) };
        }
        Ok(Buffer { start, len, size, class })
    }

    /// Bytes that the block holds.
    pub fn capacity(&self) -> usize {
        self.size
    }

    pub fn pointer(&self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if CACHED.load(Ordering::Relaxed) + self.size <= CACHE_BYTES {
            CACHED.fetch_add(self.size, Ordering::Relaxed);
            list(self.class).push(Block(self.start));
        } else {
            free(Block(self.start), self.size);
        }
    }
}

fn free(block: Block, size: usize) {
    if let Some(layout) = layout(size) {
        // SAFETY: the block was allocated with this layout and nobody refers to it.
        unsafe { dealloc(block.0.as_ptr(), layout) };
    }
}

/// Returns all memory that waits for reuse to the system.
pub fn release_cached() {
    for class in 0..CLASSES {
        let blocks = std::mem::take(&mut *list(class));
        let half = 1usize << ((class / 4).max(1) - 1);
        let size = half + (class % 4 + 1) * (half / 4).max(1);
        for block in blocks {
            CACHED.fetch_sub(size, Ordering::Relaxed);
            free(block, size);
        }
    }
}

impl Storage for Buffer {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the block holds `len` bytes; executables write all of them before a tensor sees the buffer.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        // SAFETY: as above, and `self` is borrowed exclusively.
        Some(unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) })
    }
}

/// A small array, beside its reference count.
#[derive(Debug)]
#[repr(C, align(16))]
struct Inline {
    bytes: [u8; INLINE],
    len: usize,
}

impl Storage for Inline {
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        Some(&mut self.bytes[..self.len])
    }
}

/// Storage for `len` bytes, and where they are. The pointer may be written
/// through while nobody else holds the storage.
pub fn storage(len: usize) -> Result<(Arc<dyn Storage>, *mut u8)> {
    if len <= INLINE {
        let mut small = Arc::new(Inline { bytes: [0; INLINE], len });
        let pointer = match Arc::get_mut(&mut small) {
            Some(small) => small.bytes.as_mut_ptr(),
            None => return Err(memory_error!("fresh storage is shared")),
        };
        return Ok((small, pointer));
    }
    let buffer = Buffer::new(len)?;
    let pointer = buffer.pointer();
    Ok((Arc::new(buffer), pointer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_what_they_promise() {
        for bytes in (65..5000).chain([1 << 20, (1 << 20) + 1, 40_000_000, 3 << 30]) {
            let (class, size) = class_of(bytes).unwrap();
            assert!(size >= bytes && size <= bytes + bytes / 3 + 16, "{bytes} -> {size}");
            let half = 1usize << ((class / 4) - 1);
            assert_eq!(size, half + (class % 4 + 1) * (half / 4), "{bytes}");
        }
    }

    #[test]
    fn blocks_are_reused_and_refusals_are_errors() {
        let first = Buffer::new(100_001).unwrap().pointer();
        assert_eq!(Buffer::new(100_001).unwrap().pointer(), first);
        assert!(matches!(Buffer::new(isize::MAX as usize), Err(ferrax_ir::Error::Memory(_))));
    }
}
