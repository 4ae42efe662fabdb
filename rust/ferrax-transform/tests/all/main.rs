//! The tests of transformations as one program, which is linked once; those of times are their own.

mod batching;
mod checkpoint;
mod collectives;
mod combined_sums;
mod common;
mod cond;
mod derivatives;
mod effects;
mod fission;
mod optimising;
mod row_blocks;
mod scan;
mod scan_shape;
mod spmd;
mod text;
mod while_loop;
