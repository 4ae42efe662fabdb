//! The tests of the backend as one program, which is linked once. Those that change what a process has one of, and
//! those of times, are programs of their own.

#[path = "../../../ferrax-compile/tests/kernels/case.rs"]
mod case;
#[path = "../common/mod.rs"]
mod common;
#[path = "../../../ferrax-compile/tests/support/programs.rs"]
mod programs;

mod checkpoint;
mod conformance;
mod control;
mod convolutions;
mod extension;
mod ffi;
mod fft;
mod fusion;
mod kernels;
mod products;
mod provenance;
mod random_programs;
mod rows;
mod sums;
mod unknown_ops;
mod windows;
