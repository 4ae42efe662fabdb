//! What machine code there is, for those who ask: the functions of a program ([`listed`]), and for `perf` a line for each
//! function that is published, where `FERRAX_PERF_MAP` is 1.

use std::cell::RefCell;
use std::io::Write;
use std::sync::OnceLock;

use super::arena::Block;

/// A function's machine code.
#[derive(Clone, Debug)]
pub struct Listing {
    /// What it is, and its first operations.
    pub name: String,
    pub address: usize,
    pub code: Vec<u8>,
}

thread_local! {
    /// The functions that this thread has met since it began to list them.
    static LIST: RefCell<Option<Vec<Listing>>> = const { RefCell::new(None) };
}

/// What `make` gives, and the functions that it made or found made on this thread, in that order, each once.
pub fn listed<T>(make: impl FnOnce() -> T) -> (T, Vec<Listing>) {
    let before = LIST.replace(Some(Vec::new()));
    let made = make();
    (made, LIST.replace(before).unwrap_or_default())
}

/// A program has this function, of this name.
pub(super) fn met(block: &Block, name: impl FnOnce() -> String) {
    LIST.with_borrow_mut(|list| {
        let Some(list) = list else { return };
        if list.iter().all(|known| known.address != block.address()) {
            list.push(Listing { name: name(), address: block.address(), code: block.code().to_vec() });
        }
    });
}

/// Tells `perf` of a function that was published.
///
/// Lines are those of the Linux kernel's `tools/perf/Documentation/jit-interface.txt`. A file that cannot be written is
/// left: it says nothing that a result depends on.
pub(super) fn published(block: &Block, name: impl FnOnce() -> String) {
    static WANTED: OnceLock<bool> = OnceLock::new();
    if !*WANTED.get_or_init(|| std::env::var_os("FERRAX_PERF_MAP").is_some_and(|text| text == "1")) {
        return;
    }
    let path = std::env::temp_dir().join(format!("perf-{}.map", std::process::id()));
    if let Ok(mut file) = std::fs::OpenOptions::new().create(true).append(true).open(path) {
        let line = format!("{:x} {:x} ferrax: {}\n", block.address(), block.bytes(), name());
        let _ = file.write_all(line.as_bytes());
    }
}
