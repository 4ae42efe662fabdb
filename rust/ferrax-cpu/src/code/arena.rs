//! Memory for code: written at one address, executed at another.
//!
//! A chunk is a file in memory that is mapped twice, so that no page is ever writable and executable, and nothing has to
//! be changed to and fro; many functions share one. It is given back when all of them are gone. A mapping is shared with
//! children of a fork: these begin a chunk of their own, and never write into their parent's.
//!
//! Where the system refuses, there is no code: hardened kernels and containers do.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of a chunk, unless a function is longer.
const CHUNK: usize = 64 << 10;
/// Functions begin at cache lines.
const ALIGNMENT: usize = 64;

/// Two mappings of the same memory.
#[derive(Debug)]
struct Chunk {
    writable: *mut u8,
    executable: *const u8,
    bytes: usize,
}

// SAFETY: the executable mapping is only read. The writable one is written by who holds the lock of `OPEN`, where no
// function is yet.
unsafe impl Send for Chunk {}
// SAFETY: as for `Send`.
unsafe impl Sync for Chunk {}

/// A function's code.
#[derive(Debug)]
pub struct Block {
    chunk: Arc<Chunk>,
    offset: usize,
    bytes: usize,
}

/// The chunk that is being filled, and where its free part begins.
static OPEN: Mutex<Option<(Arc<Chunk>, usize)>> = Mutex::new(None);

/// Holds the lock of this module.
pub fn hold() -> Open {
    Open(OPEN.lock().unwrap_or_else(PoisonError::into_inner))
}

/// What is being filled, held.
pub struct Open(MutexGuard<'static, Option<(Arc<Chunk>, usize)>>);

impl Open {
    /// In a child of a fork: what its parent fills is the parent's.
    pub fn forget(&mut self) {
        *self.0 = None;
    }
}

/// Puts a function's code into memory; none if the system gives none.
pub fn publish(code: &[u8]) -> Option<Block> {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let fits = |(chunk, used): &&mut (Arc<Chunk>, usize)| code.len() <= chunk.bytes - *used;
    if open.as_mut().filter(fits).is_none() {
        *open = Some((Arc::new(Chunk::new(CHUNK.max(code.len()))?), 0));
    }
    let (chunk, used) = open.as_mut()?;
    let offset = *used;
    // SAFETY: the writable mapping has so many bytes from here on, which belong to no function, and nobody else writes,
    // for the lock is held.
    unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), chunk.writable.add(offset), code.len()) };
    *used = (offset + code.len()).next_multiple_of(ALIGNMENT).min(chunk.bytes);
    Some(Block { chunk: chunk.clone(), offset, bytes: code.len() })
}

impl Block {
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where it is executed.
    pub fn address(&self) -> usize {
        self.chunk.executable.addr() + self.offset
    }

    /// Its instructions.
    pub fn code(&self) -> &[u8] {
        // SAFETY: the mapping can be read as long as the chunk lives, and what was put there stays.
        unsafe { std::slice::from_raw_parts(self.chunk.executable.add(self.offset), self.bytes) }
    }

    /// Calls the function.
    ///
    /// # Safety
    /// The block's code is a function of this type, for which the table is valid.
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    pub unsafe fn call(&self, table: *const *mut u8) -> u32 {
        let at = self.chunk.executable.wrapping_add(self.offset);
        // SAFETY: the memory is mapped to be executed as long as the chunk lives, and the caller says of which type the
        // function is.
        unsafe {
            let function: unsafe extern "sysv64" fn(*const *mut u8) -> u32 = std::mem::transmute(at);
            function(table)
        }
    }

    /// Calls the function of a chain.
    ///
    /// # Safety
    /// The block's code is a function of this type, for which the pointers and the lanes are valid.
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    pub unsafe fn call_chain(&self, pointers: *const *mut u8, lanes: usize) {
        let at = self.chunk.executable.wrapping_add(self.offset);
        // SAFETY: as for `call`.
        unsafe {
            let function: unsafe extern "sysv64" fn(*const *mut u8, usize) = std::mem::transmute(at);
            function(pointers, lanes);
        }
    }

    /// There are no blocks on other machines.
    ///
    /// # Safety
    /// None.
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
    pub unsafe fn call_chain(&self, _pointers: *const *mut u8, _lanes: usize) {}

    /// There are no blocks on other machines.
    ///
    /// # Safety
    /// None.
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
    pub unsafe fn call(&self, _table: *const *mut u8) -> u32 {
        1
    }
}

#[cfg(target_os = "linux")]
impl Chunk {
    fn new(bytes: usize) -> Option<Chunk> {
        let bytes = bytes.next_multiple_of(CHUNK);
        // SAFETY: the name ends with a zero.
        let file = unsafe { libc::memfd_create(c"ferrax-code".as_ptr(), libc::MFD_CLOEXEC) };
        if file < 0 {
            return None;
        }
        let map = |protection: libc::c_int| {
            // SAFETY: a new mapping of an open file, at no given address.
            let at =
                unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, file, 0) };
            (at != libc::MAP_FAILED).then_some(at.cast::<u8>())
        };
        // SAFETY: the file is open, and its size is not negative.
        let sized = unsafe { libc::ftruncate(file, bytes as libc::off_t) } == 0;
        let writable = if sized { map(libc::PROT_READ | libc::PROT_WRITE) } else { None };
        let executable = writable.and_then(|_| map(libc::PROT_READ | libc::PROT_EXEC));
        // SAFETY: the file is open; mappings stay.
        unsafe { libc::close(file) };
        match (writable, executable) {
            (Some(writable), Some(executable)) => Some(Chunk { writable, executable, bytes }),
            (Some(writable), None) => {
                // SAFETY: the mapping was made here, and nothing refers to it.
                unsafe { libc::munmap(writable.cast(), bytes) };
                None
            }
            _ => None,
        }
    }
}

#[cfg(target_os = "linux")]
impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: both mappings were made by `new`, and no function of theirs is left.
        unsafe {
            libc::munmap(self.writable.cast(), self.bytes);
            libc::munmap(self.executable.cast_mut().cast(), self.bytes);
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl Chunk {
    fn new(_bytes: usize) -> Option<Chunk> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `mov eax, number; ret`
    fn function(number: u8) -> [u8; 6] {
        [0xb8, number, 0, 0, 0, 0xc3]
    }

    #[test]
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    fn functions_run_where_they_were_put() {
        let blocks: Vec<Option<Block>> = (0..200).map(|number| publish(&function(number))).collect();
        for (number, block) in (0..200).zip(&blocks) {
            let block = block.as_ref().unwrap();
            // SAFETY: the code is a function that reads nothing.
            assert_eq!(unsafe { block.call(std::ptr::null()) }, number);
        }
        let long = vec![0x90; 3 * CHUNK];
        assert_eq!(publish(&long).map(|block| block.bytes()), Some(3 * CHUNK));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn no_page_is_writable_and_executable() {
        let _block = publish(&function(1));
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let ours: Vec<&str> = maps.lines().filter(|line| line.contains("ferrax-code")).collect();
        assert!(ours.len() >= 2, "{maps}");
        assert!(ours.iter().all(|line| !line.contains("wx")), "{ours:?}");
        assert!(ours.iter().any(|line| line.contains("x")) && ours.iter().any(|line| line.contains("rw")));
    }
}
