//! Rows of arrays: what a loop takes out of an array at each step, and puts into one.
//!
//! The number of the row is in memory of the GPU, so that each step is the same commands. Rows need not begin at words.
//! Binding 0 has how many words may be written, the bytes of a row, and what is added to the number; binding 1 the
//! number; then the array and the row.

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
    var word = rows[at >> 2u] >> shift;
    if shift != 0u && ((at >> 2u) + 1u) * 4u < begin + n[1] {
        word = word | (rows[(at >> 2u) + 1u] << (32u - shift));
    }
    row[number] = word;
";

const IN: &str = "\
    let at = (begin >> 2u) + number;
    let low = max(begin, 4u * at);
    let high = min(begin + n[1], 4u * at + 4u);
    if low >= high { return; }
    if (begin & 3u) == 0u && high - low == 4u {
        rows[at] = row[number];
        return;
    }
    var word = rows[at];
    for (var byte = low; byte < high; byte = byte + 1u) {
        let source = byte - begin;
        let value = (row[source >> 2u] >> ((source & 3u) * 8u)) & 0xffu;
        let shift = (byte & 3u) * 8u;
        word = (word & ~(0xffu << shift)) | (value << shift);
    }
    rows[at] = word;
";

pub fn shader(way: Way) -> Shader {
    let mut text = "\
        @group(0) @binding(0) var<storage, read> n: array<u32>;\n\
        @group(0) @binding(1) var<storage, read_write> counter: array<u32>;\n\
        @group(0) @binding(2) var<storage, read_write> rows: array<u32>;\n\
        @group(0) @binding(3) var<storage, read_write> row: array<u32>;\n"
        .to_string();
    let (operands, body) = match way {
        Way::OutOfArray => (3, OUT),
        Way::IntoArray => (3, IN),
        Way::Next => (1, "    counter[0] = counter[0] + n[2];\n"),
    };
    text = text.lines().take(1 + operands as usize).fold(String::new(), |text, line| text + line + "\n");
    let begin = if operands == 3 { "    let begin = counter[0] * n[1];\n" } else { "" };
    text.push_str(&format!(
        "@compute @workgroup_size({WORKGROUP})\n\
         fn main(@builtin(global_invocation_id) id: vec3<u32>) {{\n    {}\n    if number >= n[0] {{ return; }}\n{begin}{body}}}\n",
        numbered()
    ));
    Shader { text, needs: Needs::default(), operands }
}
