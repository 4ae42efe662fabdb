//! Programs that tests of several crates plan or run.

#![allow(dead_code, reason = "each test takes its own part")]

use ferrax_ir::ops::DotGeneral;
use ferrax_ir::{ArrayType, Atom, Builder, DType, Program};

/// The sums of the first arrays of 8 elements, each an output.
pub fn running_sums(count: usize) -> Program {
    let mut b = Builder::new("running sums");
    let inputs: Vec<Atom> = (0..count).map(|_| b.input(ArrayType::of_sizes(&[8], DType::F32))).collect();
    let mut sum = inputs[0];
    let outputs: Vec<Atom> = inputs[1..]
        .iter()
        .map(|&x| {
            sum = b.add(sum, x).unwrap();
            sum
        })
        .collect();
    b.finish(outputs)
}

/// A product without batches, over the last axis of an array of three and the first of a matrix.
pub fn layer() -> DotGeneral {
    DotGeneral {
        lhs_contracting: [2][..].into(),
        rhs_contracting: [0][..].into(),
        lhs_batch: [][..].into(),
        rhs_batch: [][..].into(),
        precision: None,
        preferred_element_type: None,
    }
}
