//! The tests of the IR as one program, which is linked once.

mod cases;
mod common;
mod complex;
mod decompositions;
mod derivatives;
mod elementwise;
mod factorisations;
mod fft;
mod index_maps;
mod indexing;
mod math;
mod products_and_bits;
mod reductions;
mod serial;
mod sorting;
mod structure;
mod support;
mod text;
mod verify;
