//! The tests of the backend as one program, which is linked once. Those that change what a process has one of are a
//! program of their own.

#[path = "../../../ferrax-compile/tests/kernels/case.rs"]
mod case;
#[path = "../../../ferrax-cpu/tests/common/mod.rs"]
mod common;
#[path = "../gpu/mod.rs"]
mod gpu;

mod attention;
mod code;
mod control;
mod effects;
mod elements;
mod factorise;
mod faults;
mod fft;
mod fused_products;
mod kernels;
mod long;
mod loops;
mod products;
mod profile;
mod programs;
mod reductions;
mod runs;
mod small_loops;
mod sorting;
