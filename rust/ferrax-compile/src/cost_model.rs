//! What the compiler takes things to cost: every threshold of fusion and placement is here, but for those that
//! are a machine's ([`Target`](crate::backend::Target)).
//!
//! The work of an element is counted in additions (`Rules::cost`), memory in bytes. None of these numbers
//! changes what a program computes, bit for bit.

use ferrax_ir::{DType, Equation, View};

/// Work above which a value with several users is stored rather than
/// recomputed: eight additions, or anything transcendental.
pub const RECOMPUTE: u32 = 8;
/// Work above which a value is stored before it is broadcast.
pub const BROADCAST: u32 = 3;
/// Equations under a movement op above which its operand is stored: two views
/// of one value double the code below them.
pub const VIEW_WEIGHT: u32 = 48;
/// Equations above which a value becomes a root, which bounds recursion.
pub const CHAIN_WEIGHT: u32 = 256;
/// Elements of lines picked at an index each from which kernels pick them where they are used: it is then one index
/// for a block of elements. Of shorter ones it would be computed for each element.
pub const PICKED_LINE: usize = 256;
/// How many times the memory of a value its operands must take for it to be
/// stored so that they need not be kept until it is used.
pub const HELD_RATIO: usize = 4;

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
