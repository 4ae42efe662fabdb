//! Rows of arrays: what a loop takes out of an array at each step, and puts into one.
//!
//! The number of the row is in memory of the GPU, so that each step is the same commands. Rows need not begin at words.
//! Words: how many words may be written, the bytes of a row, and what is added to the number. Arrays: the number,
//! then the array and the row.

use super::arrays::Words;
use super::{Needs, Shader, WORKGROUP, numbered};

/// Which way a row goes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Way {
    OutOfArray,
    IntoArray,
    /// None goes: the number becomes that of the next row.
    Next,
}

const OUT: &str = "\
    let at = begin + 4u * number;
    let shift = (at & 3u) * 8u;
    var word = word1(at >> 2u) >> shift;
    if shift != 0u && ((at >> 2u) + 1u) * 4u < begin + n[1] {
        word = word | (word1((at >> 2u) + 1u) << (32u - shift));
    }
    set2(number, word);
";

const IN: &str = "\
    let at = (begin >> 2u) + number;
    let low = max(begin, 4u * at);
    let high = min(begin + n[1], 4u * at + 4u);
    if low >= high { return; }
    if (begin & 3u) == 0u && high - low == 4u {
        set1(at, word2(number));
        return;
    }
    var word = word1(at);
    for (var byte = low; byte < high; byte = byte + 1u) {
        let source = byte - begin;
        let value = (word2(source >> 2u) >> ((source & 3u) * 8u)) & 0xffu;
        let shift = (byte & 3u) * 8u;
        word = (word & ~(0xffu << shift)) | (value << shift);
    }
    set1(at, word);
";

pub fn shader(way: Way) -> Shader {
    let (arrays, body) = match way {
        Way::OutOfArray => (3, OUT),
        Way::IntoArray => (3, IN),
        Way::Next => (1, "    set0(0u, word0(0u) + n[2]);\n"),
    };
    let begin = if arrays == 3 { "    let begin = word0(0u) * n[1];\n" } else { "" };
    let text = format!(
        "@compute @workgroup_size({WORKGROUP})\n\
         fn main(@builtin(global_invocation_id) id: vec3<u32>) {{\n    {}\n    if number >= n[0] {{ return; }}\n{begin}{body}}}\n",
        numbered()
    );
    Shader { text, needs: Needs::default(), arrays: vec![Words::Whole; arrays] }
}
