//! Bytes as choices that make a random program; the backend has to agree with the interpreter.

#![no_main]

use arbitrary::Unstructured;
use common::Choices;
use common::generate::Case;
use libfuzzer_sys::fuzz_target;

#[path = "../../rust/ferrax-cpu/tests/common/mod.rs"]
mod common;

/// Choices that bytes make. Where they end, each is the first.
struct Bytes<'a>(Unstructured<'a>);

impl Choices for Bytes<'_> {
    fn below(&mut self, bound: usize) -> usize {
        self.0.int_in_range(0..=bound.max(1) - 1).unwrap_or(0)
    }
}

fuzz_target!(|bytes: &[u8]| Case::new("fuzzed", &mut Bytes(Unstructured::new(bytes))).check());
