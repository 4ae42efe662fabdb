//! Memory for arrays: blocks of a few sizes that are kept and reused, so that a
//! warm program touches no fresh page.
//!
//! Sizes are rounded up to four classes per power of two. Small blocks come from
//! the global allocator; a freed one waits in its class's list, and when
//! [`SMALL_WAITING`] bytes wait they all go back. Large ones (from [`LARGE`] on)
//! are pages of their own. As many bytes of them may wait as are in use, or
//! [`LARGE_WAITING`] where that is more; beyond that those that have waited
//! longest are given back to the system. So a loop over large arrays finds its
//! pages again, and a process that drops its arrays becomes small.
//!
//! Blocks are aligned to 64 bytes, from [`HUGE`] on to huge pages, which the system is asked for: it has one to
//! clear and map where it had 512, and fresh memory is there seven to seventeen times faster. Arrays of at
//! most 64 bytes live beside their reference count. Nothing here aborts: what waits goes back before fresh pages
//! would exceed [`limit`], and where the system refuses; a second refusal is [`ferrax_ir::Error::Memory`].
//!
//! What is counted ([`stats`]) costs no atomic operation besides those that bound what waits.
//!
//! Built for a sanitizer ([`EXACT`]), each array is an allocation of its own instead.

use std::alloc::{Layout, alloc, dealloc};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ferrax_compile::profile::{Level, Span, What};
use ferrax_ir::{Result, Storage, memory_error};

/// Under a sanitizer an array is an allocation of exactly its bytes that no other array is given
/// afterwards, so that it sees what is read or written behind an array, or after it was dropped.
#[allow(unexpected_cfgs, reason = "`make sanitize` and `make fuzz` set `fuzzing`, as cargo-fuzz does")]
const EXACT: bool = cfg!(any(fuzzing, miri));

/// Arrays up to this size have no block of their own.
const INLINE: usize = 64;
/// From this size on blocks are pages of their own.
const LARGE: usize = 1 << 20;
/// From this size on blocks start at huge pages.
const HUGE: usize = HUGE_PAGE;
const HUGE_PAGE: usize = 2 << 20;
/// Four classes for each power of two up to `LARGE`.
const CLASSES: usize = 4 * 21;
/// Bytes of small blocks that may wait for reuse.
const SMALL_WAITING: usize = 64 << 20;
/// Bytes of large blocks that may wait for reuse however few are in use.
const LARGE_WAITING: usize = 256 << 20;

struct Block(NonNull<u8>);

// SAFETY: a waiting block is owned by its list: its last user gave the only pointer to it away.
unsafe impl Send for Block {}

/// Blocks of one size that come from the global allocator.
struct Class {
    waiting: Vec<Block>,
    /// How often one was given out.
    given: usize,
}

static LISTS: [Mutex<Class>; CLASSES] =
    [const { Mutex::new(Class { waiting: Vec::new(), given: 0 }) }; CLASSES];
/// Bytes of all blocks in use, and the most there ever were.
static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
/// Bytes of small blocks, those that wait too, and of large ones in use: what it exceeds `IN_USE` by are small blocks
/// that wait. It grows after `IN_USE` and shrinks before it, so that in between it is not too large.
static OWNED: AtomicUsize = AtomicUsize::new(0);

/// Bytes of small blocks that wait.
fn small_waiting() -> usize {
    OWNED.load(Ordering::Relaxed).saturating_sub(IN_USE.load(Ordering::Relaxed))
}

/// Counts a block that is given out.
fn given(size: usize) {
    let now = IN_USE.fetch_add(size, Ordering::Relaxed) + size;
    if now > PEAK.load(Ordering::Relaxed) {
        PEAK.fetch_max(now, Ordering::Relaxed);
    }
}

/// Blocks that are pages of their own.
struct Large {
    /// With their sizes, those that wait longest first.
    waiting: VecDeque<(usize, Block)>,
    waiting_bytes: usize,
    used_bytes: usize,
    /// How often one was given out, and the largest.
    given: usize,
    largest: usize,
}

static LARGE_BLOCKS: Mutex<Large> =
    Mutex::new(Large { waiting: VecDeque::new(), waiting_bytes: 0, used_bytes: 0, given: 0, largest: 0 });

fn list(class: usize) -> MutexGuard<'static, Class> {
    LISTS[class].lock().unwrap_or_else(PoisonError::into_inner)
}

fn large_blocks() -> MutexGuard<'static, Large> {
    LARGE_BLOCKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All locks of this module, held by this thread.
pub(crate) struct Held {
    _lists: Vec<MutexGuard<'static, Class>>,
    _large: MutexGuard<'static, Large>,
}

pub(crate) fn hold() -> Held {
    Held { _lists: (0..CLASSES).map(list).collect(), _large: large_blocks() }
}

impl Large {
    /// A waiting block of this size, the one that was used last.
    fn take(&mut self, size: usize) -> Option<Block> {
        let place = self.waiting.iter().rposition(|&(other, _)| other == size)?;
        let (_, block) = self.waiting.remove(place)?;
        self.waiting_bytes -= size;
        self.count(size);
        Some(block)
    }

    /// Counts a block that is given out.
    fn count(&mut self, size: usize) {
        self.used_bytes += size;
        self.given += 1;
        self.largest = self.largest.max(size);
        given(size);
        OWNED.fetch_add(size, Ordering::Relaxed);
    }

    /// Lets a block wait; the blocks that have to go for it.
    fn put(&mut self, size: usize, block: Block) -> Vec<(usize, Block)> {
        self.used_bytes -= size;
        OWNED.fetch_sub(size, Ordering::Relaxed);
        IN_USE.fetch_sub(size, Ordering::Relaxed);
        self.waiting.push_back((size, block));
        self.waiting_bytes += size;
        let most = LARGE_WAITING.max(self.used_bytes);
        let mut gone = Vec::new();
        while self.waiting_bytes > most
            && let Some((size, block)) = self.waiting.pop_front()
        {
            self.waiting_bytes -= size;
            gone.push((size, block));
        }
        gone
    }
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

/// The size of a class's blocks.
fn size_of_class(class: usize) -> usize {
    let half = 1usize << ((class / 4).max(1) - 1);
    half + (class % 4 + 1) * (half / 4).max(1)
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

// SAFETY: a buffer is the only owner of its block, and what it gives out of itself is governed by `&` and
// `&mut` (`bytes`, `bytes_mut`) or by the caller's own promise (`pointer`).
unsafe impl Send for Buffer {}
// SAFETY: with `&Buffer` the block can only be read, save through `pointer`, whose users promise more.
unsafe impl Sync for Buffer {}

impl Buffer {
    pub fn new(len: usize) -> Result<Buffer> {
        let refused = || memory_error!("could not allocate {len} bytes for an array");
        if EXACT {
            let size = len.max(1);
            let start = fresh(size).ok_or_else(refused)?.0;
            given(size);
            OWNED.fetch_add(size, Ordering::Relaxed);
            return Ok(Buffer { start, len, size, class: 0 });
        }
        let (class, size) = class_of(len.max(INLINE + 1)).ok_or_else(refused)?;
        let start = if size < LARGE { small(class, size) } else { large(size) };
        Ok(Buffer { start: start.ok_or_else(refused)?.0, len, size, class })
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
        let block = Block(self.start);
        if EXACT {
            OWNED.fetch_sub(self.size, Ordering::Relaxed);
            IN_USE.fetch_sub(self.size, Ordering::Relaxed);
            give_back(block, self.size);
            return;
        }
        if self.size >= LARGE {
            let gone = large_blocks().put(self.size, block);
            gone.into_iter().for_each(|(size, block)| unmap(block, size));
            return;
        }
        // First, so that who takes the block counts it after it was given back.
        let in_use = IN_USE.fetch_sub(self.size, Ordering::Relaxed) - self.size;
        list(self.class).waiting.push(block);
        if OWNED.load(Ordering::Relaxed).saturating_sub(in_use) > SMALL_WAITING {
            release_small();
        }
    }
}

fn small(class: usize, size: usize) -> Option<Block> {
    let waiting = {
        let mut list = list(class);
        list.given += 1;
        list.waiting.pop()
    };
    if waiting.is_some() {
        given(size);
        return waiting;
    }
    let block = fresh(size).or_else(|| {
        release_cached();
        fresh(size)
    })?;
    given(size);
    OWNED.fetch_add(size, Ordering::Relaxed);
    Some(block)
}

/// A block of the global allocator, of one byte at least.
fn fresh(size: usize) -> Option<Block> {
    let layout = Layout::from_size_align(size, 64).ok().filter(|layout| layout.size() > 0)?;
    // SAFETY: the layout's size is not zero.
    NonNull::new(unsafe { alloc(layout) }).map(Block)
}

/// Gives a block that [`fresh`] made back.
fn give_back(block: Block, size: usize) {
    if let Ok(layout) = Layout::from_size_align(size, 64) {
        // SAFETY: `fresh` allocated the block with this layout, and its only owner gives it up here.
        unsafe { dealloc(block.0.as_ptr(), layout) };
    }
}

fn release_small() {
    for class in 0..CLASSES {
        let blocks = std::mem::take(&mut list(class).waiting);
        let size = size_of_class(class);
        OWNED.fetch_sub(blocks.len() * size, Ordering::Relaxed);
        blocks.into_iter().for_each(|block| give_back(block, size));
    }
}

fn large(size: usize) -> Option<Block> {
    let held = {
        let mut large = large_blocks();
        if let Some(block) = large.take(size) {
            return Some(block);
        }
        large.waiting_bytes
    };
    let waiting = held.saturating_add(small_waiting());
    if waiting > 0 && IN_USE.load(Ordering::Relaxed).saturating_add(waiting).saturating_add(size) > limit() {
        release_cached();
    }
    let block = map(size).or_else(|| {
        release_cached();
        map(size)
    })?;
    large_blocks().count(size);
    Some(block)
}

/// Bytes of memory that this process may take: the machine's, or less where its control group has less.
pub fn limit() -> usize {
    static LIMIT: OnceLock<usize> = OnceLock::new();
    *LIMIT.get_or_init(|| machine_memory().unwrap_or(usize::MAX).min(group_memory().unwrap_or(usize::MAX)))
}

#[cfg(unix)]
fn machine_memory() -> Option<usize> {
    // SAFETY: `sysconf` only reads its argument, a name that the system has.
    let (pages, size) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    usize::try_from(pages).ok()?.checked_mul(usize::try_from(size).ok()?).filter(|&bytes| bytes > 0)
}

#[cfg(not(unix))]
fn machine_memory() -> Option<usize> {
    None
}

/// What Linux lets the process's control group have, as containers see theirs.
fn group_memory() -> Option<usize> {
    let files = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let read = |path| std::fs::read_to_string(path).ok()?.trim().parse().ok();
    files.into_iter().filter_map(read).min()
}

/// Fresh pages.
#[cfg(unix)]
fn map(size: usize) -> Option<Block> {
    let spare = if size >= HUGE { HUGE_PAGE } else { 0 };
    let total = size.checked_add(spare)?;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANON;
    // SAFETY: a new mapping at a place of the system's choice touches nothing that exists.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), total, protection, kind, -1, 0) };
    if start == libc::MAP_FAILED {
        return None;
    }
    let start = start.cast::<u8>();
    // Pages before and after the aligned block go back.
    let before = if spare > 0 { start.align_offset(HUGE_PAGE) } else { 0 };
    let block = start.wrapping_add(before);
    for (from, bytes) in [(start, before), (block.wrapping_add(size), spare - before)] {
        if bytes > 0 {
            // SAFETY: the range is the beginning or the end of the mapping made above, outside the block.
            // Its ends are at pages: the mapping's, a huge page's, or a multiple of 256 KiB behind one.
            unsafe { libc::munmap(from.cast(), bytes) };
        }
    }
    #[cfg(target_os = "linux")]
    if size >= HUGE {
        // SAFETY: the range is the block; the advice changes how it is backed and not what it holds.
        unsafe { libc::madvise(block.cast(), size, libc::MADV_HUGEPAGE) };
    }
    NonNull::new(block).map(Block)
}

/// Gives a block's pages back.
#[cfg(unix)]
fn unmap(block: Block, size: usize) {
    // SAFETY: `map` mapped these pages for this block, whose only owner gives it up here.
    unsafe { libc::munmap(block.0.as_ptr().cast(), size) };
}

#[cfg(not(unix))]
fn large_layout(size: usize) -> Option<Layout> {
    Layout::from_size_align(size, if size >= HUGE { HUGE_PAGE } else { 64 }).ok()
}

/// A fresh block.
#[cfg(not(unix))]
fn map(size: usize) -> Option<Block> {
    // SAFETY: the layout's size is not zero: it is at least `LARGE`.
    NonNull::new(unsafe { alloc(large_layout(size)?) }).map(Block)
}

#[cfg(not(unix))]
fn unmap(block: Block, size: usize) {
    if let Some(layout) = large_layout(size) {
        // SAFETY: `map` allocated the block with this layout, and its only owner gives it up here.
        unsafe { dealloc(block.0.as_ptr(), layout) };
    }
}

/// Returns all memory that waits for reuse to the system.
pub fn release_cached() {
    release_small();
    let waiting = {
        let mut large = large_blocks();
        large.waiting_bytes = 0;
        std::mem::take(&mut large.waiting)
    };
    waiting.into_iter().for_each(|(size, block)| unmap(block, size));
}

/// Bytes of blocks that wait for reuse.
pub fn waiting() -> usize {
    small_waiting() + large_blocks().waiting_bytes
}

/// What was given to arrays and to runs of programs, in bytes of blocks; arrays of at most 64 bytes have none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stats {
    pub in_use: usize,
    /// The most that was in use at once.
    pub peak: usize,
    /// Blocks that wait for reuse.
    pub waiting: usize,
    /// How often a block was given out, and the largest.
    pub given: usize,
    pub largest: usize,
    /// What the process may take.
    pub limit: usize,
}

/// The counts of this process.
pub fn stats() -> Stats {
    let (mut given, mut largest) = (0, 0);
    for class in 0..CLASSES {
        let count = list(class).given;
        given += count;
        largest = if count > 0 { size_of_class(class) } else { largest };
    }
    let large = large_blocks();
    Stats {
        in_use: IN_USE.load(Ordering::Relaxed),
        peak: PEAK.load(Ordering::Relaxed),
        waiting: small_waiting() + large.waiting_bytes,
        given: given + large.given,
        largest: largest.max(large.largest),
        limit: limit(),
    }
}

impl Storage for Buffer {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the block holds `len` bytes at least. They are initialised: a buffer becomes a tensor's
        // storage only where a run has written all of them, and nobody writes to the storage of a tensor
        // that is shared.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        // SAFETY: as in `bytes`, and `&mut self` says that nobody else has a reference to the storage.
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

/// Bytes of arrays above which profiles show that memory is taken for them.
const NOTED: usize = 1 << 20;

/// Storage for `len` bytes, and where they are. The pointer may be written
/// through until the storage is next looked at, cloned or given away.
pub fn storage(len: usize) -> Result<(Arc<dyn Storage>, *mut u8)> {
    if len <= INLINE && !EXACT {
        let mut small = Arc::new(Inline { bytes: [0; INLINE], len });
        let pointer = match Arc::get_mut(&mut small) {
            Some(small) => small.bytes.as_mut_ptr(),
            None => return Err(memory_error!("fresh storage is shared")),
        };
        return Ok((small, pointer));
    }
    let large = len > NOTED;
    let _span = large.then(|| Span::begin(Level::Runs, || What::bytes("allocate", len)));
    let buffer = Buffer::new(len)?;
    let pointer = buffer.pointer();
    Ok((Arc::new(buffer), pointer))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many bytes may wait as are in use: tests of what waits take turns with those that use hundreds of megabytes.
    static TURN: Mutex<()> = Mutex::new(());

    fn turn() -> MutexGuard<'static, ()> {
        TURN.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[test]
    fn classes_hold_what_they_promise() {
        for bytes in (65..5000).chain([1 << 20, (1 << 20) + 1, 40_000_000, 3 << 30]) {
            let (class, size) = class_of(bytes).unwrap();
            assert!(size >= bytes && size <= bytes + bytes / 3 + 16, "{bytes} -> {size}");
            assert_eq!(size, size_of_class(class), "{bytes}");
            assert!(size >= LARGE || class < CLASSES, "{bytes}");
        }
    }

    #[test]
    fn blocks_are_reused_and_refusals_are_errors() {
        // Other tests of this process may take a block in between, or give back all that waits.
        let reused = |_| {
            let first = Buffer::new(100_001).unwrap().pointer();
            Buffer::new(100_001).unwrap().pointer() == first
        };
        assert!(EXACT || (0..1000).any(reused));
        assert!(matches!(Buffer::new(isize::MAX as usize), Err(ferrax_ir::Error::Memory(_))));
    }

    #[test]
    fn what_waits_is_bounded_and_can_be_given_back() {
        // Other tests of this process have blocks too: the bounds leave room for theirs.
        let _turn = turn();
        let room = 64 << 20;
        let many: Vec<Buffer> = (0..12).map(|_| Buffer::new(64 << 20).unwrap()).collect();
        let first = many[11].pointer();
        drop(many);
        assert!(waiting() <= LARGE_WAITING + SMALL_WAITING + room);
        // The block that was used last is still there.
        assert!(EXACT || Buffer::new(64 << 20).unwrap().pointer() == first);
        let few: Vec<Buffer> = (0..4096).map(|_| Buffer::new(40_000).unwrap()).collect();
        drop(few);
        assert!(waiting() <= LARGE_WAITING + SMALL_WAITING + room);
        release_cached();
        assert!(waiting() <= room);
    }

    #[test]
    fn what_is_given_out_is_counted() {
        // Other tests of this process have blocks too: counts are at least those of these blocks.
        let before = stats();
        let blocks = [Buffer::new(100_000).unwrap(), Buffer::new(3 << 20).unwrap()];
        let bytes: usize = blocks.iter().map(Buffer::capacity).sum();
        let during = stats();
        assert!(during.in_use >= bytes && during.peak >= during.in_use.max(before.peak));
        assert!(EXACT || during.given >= before.given + 2);
        assert!(EXACT || during.largest >= 3 << 20);
        assert!(during.limit > 1 << 20);
        drop(blocks);
        assert!(stats().peak >= bytes);
    }

    #[test]
    fn a_loop_over_arrays_larger_than_the_bound_finds_its_pages_again() {
        // Two alive at a time, as in `x = f(x)`.
        let _turn = turn();
        let size = 2 * LARGE_WAITING + (5 << 20);
        let mut pointers = std::collections::HashSet::new();
        let mut x = Buffer::new(size).unwrap();
        for _ in 0..6 {
            let y = Buffer::new(size).unwrap();
            pointers.insert(y.pointer());
            x = y;
        }
        drop(x);
        assert!(EXACT || pointers.len() <= 2, "{pointers:?}");
    }
}
