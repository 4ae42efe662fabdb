//! Cooperative matrices that any shader has, for tests of what is around them: an invocation has a row of
//! the left matrix and of sums, and all of the right one; where there are more than rows they have the same again.
//!
//! In: the matrices, and how operands lie in the workgroup's memory. Out: types and functions, as text. Cost: for each
//! invocation, that of its row.

use std::fmt::Write;

use super::matrices::{Maker, Matrices};

/// The functions; of left and of right, moves from a line to the next and whether lines are rows.
pub fn functions(matrices: &Matrices, sides: [(usize, bool); 2], text: &mut String) {
    let Matrices { side, maker, .. } = matrices;
    let parts = side / 4;
    // The quad of a row from a column on.
    let quad = |(stride, by_rows): (usize, bool), row: &str, column: usize| {
        let half = |k: usize| match by_rows {
            true => format!("played_half(8u * (at + {row} * {stride}u) + {}u)", column + k),
            false => format!("played_half(8u * (at + {}u) + {row})", (column + k) * stride),
        };
        format!("vec4<f32>({}, {}, {}, {})", half(0), half(1), half(2), half(3))
    };
    let each = |statement: &dyn Fn(usize) -> String| (0..parts).map(statement).collect::<String>();
    let left =
        each(&|part| format!("a[{part}] = {}; ", quad(sides[0], &format!("(lane % {side}u)"), 4 * part)));
    let right = each(&|part| format!("b[row * {parts}u + {part}u] = {}; ", quad(sides[1], "row", 4 * part)));
    let multiply =
        each(&|part| format!("c[{part}] = c[{part}] + a[k / 4u][k % 4u] * b[k * {parts}u + {part}u]; "));
    let store = each(&|part| {
        let one =
            |k: usize| format!("sums[at + lane % {side}u * {side}u + {}u] = c[{part}][{k}]; ", 4 * part + k);
        (0..4).map(one).collect()
    });
    let begin = match maker {
        Maker::Played { right: false, .. } => "",
        _ => "c = sum; ",
    };
    let _ = write!(
        text,
        "alias Played_left = array<vec4<f32>, {parts}>;\nalias Played_sum = Played_left;\n\
         alias Played_right = array<vec4<f32>, {}>;\n\
         fn played_half(at: u32) -> f32 {{\n\
         \x20   return unpack2x16float(blocks[at / 8u][at % 8u / 2u] >> (16u * (at % 2u))).x;\n}}\n\
         fn played_left(at: u32, lane: u32) -> Played_left {{ var a: Played_left; {left}return a; }}\n\
         fn played_right(at: u32, lane: u32) -> Played_right {{\n    var b: Played_right;\n\
         \x20   for (var row = 0u; row < {side}u; row = row + 1u) {{ {right}}}\n    return b;\n}}\n\
         fn played_multiply_add(a_of: Played_left, b_of: Played_right, sum: Played_sum) -> Played_sum {{\n\
         \x20   var a = a_of; var b = b_of; var c: Played_sum; {begin}\n\
         \x20   for (var k = 0u; k < {side}u; k = k + 1u) {{ {multiply}}}\n    return c;\n}}\n\
         fn played_store(c: Played_sum, at: u32, lane: u32) {{ {store}}}\n",
        parts * side
    );
}
