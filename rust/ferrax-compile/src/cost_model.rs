//! What the compiler takes an element to cost, and the numbers that bound the cost of compiling. Thresholds are in
//! [`tuning`](crate::tuning).
//!
//! The work of an element is counted in additions (`Rules::cost`). None of these numbers changes what a program computes,
//! bit for bit.

use ferrax_ir::{DType, Equation, View};

/// Equations under a movement op above which its operand is stored: two views
/// of one value double the code below them.
pub const VIEW_WEIGHT: u32 = 48;
/// Equations above which a value becomes a root, which bounds recursion.
pub const CHAIN_WEIGHT: u32 = 256;

/// Roots beyond which a kernel takes no more that only share an operand.
pub const ROOTS: usize = 24;
/// Splits of loops in one kernel: each makes its tiles smaller, so there comes a point where a copy of an
/// operand costs less than to walk it.
pub const SPLITS: usize = 12;

/// Steps of a run: what is found again for each that joins stays linear.
pub const RUN_STEPS: usize = 64;

/// The work of an element of an equation's output, in additions.
pub fn of_element(equation: &Equation, output: DType) -> u32 {
    match equation.op.view() {
        View::Leaf(rules) => rules.cost(output),
        _ => 1,
    }
}

/// Steps of a loop that is written out, and instructions of a body where it is, at most.
pub const UNROLLED_STEPS: usize = 4;
pub const UNROLLED_CODE: usize = 256;
/// Instructions of which it is asked what they make of zeros, at most.
pub const OUTSIDE_CODE: usize = 32;
/// Results side by side whose few terms are written out, at least.
pub const UNROLLED_LINE: usize = 16;
