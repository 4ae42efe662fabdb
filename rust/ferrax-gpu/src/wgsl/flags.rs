//! What happens if a word in memory of the GPU says so: results are kept or dropped without the host.
//!
//! Words: the largest index, the index that is meant, and for each pair of arrays how many words are copied. Arrays:
//! the flag, whose first word as `i32`, clamped from 0 to the largest index, is compared; then the pairs, what is
//! copied and where to. Where a loop may end: whether it goes on, and whether the condition holds, in the first byte.

use std::fmt::Write;

use super::arrays::Words;
use super::{Needs, Shader, WORKGROUP, numbered};

/// What is done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Flagged {
    /// So many arrays are copied.
    Copy(u32),
    /// A loop ends for good if its condition does not hold.
    End,
}

const END: &str = "    if number == 0u && (word1(0u) & 0xffu) == 0u { set0(0u, 0u); }\n";

pub fn shader(what: Flagged) -> Shader {
    let mut text = format!(
        "@compute @workgroup_size({WORKGROUP})\n\
         fn main(@builtin(global_invocation_id) id: vec3<u32>) {{\n    {}\n",
        numbered()
    );
    let arrays = match what {
        Flagged::End => {
            text.push_str(END);
            2
        }
        Flagged::Copy(pairs) => {
            text.push_str(
                "    if clamp(bitcast<i32>(word0(0u)), 0, bitcast<i32>(n[0])) != bitcast<i32>(n[1]) { return; }\n\
                 \x20   var at = number;\n",
            );
            for pair in 0..pairs {
                let (words, from, to) = (2 + pair, 1 + 2 * pair, 2 + 2 * pair);
                let _ = writeln!(text, "    if at < n[{words}] {{ set{to}(at, word{from}(at)); return; }}");
                let _ = writeln!(text, "    at = at - n[{words}];");
            }
            1 + 2 * pairs as usize
        }
    };
    text.push_str("}\n");
    Shader { text, needs: Needs::default(), arrays: vec![Words::Whole; arrays] }
}
