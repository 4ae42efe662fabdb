//! Arrays as shaders have them: words of 32 bits, which functions read and write.
//!
//! For array k of a shader there are `word{k}(i)` and, as [`Words`] says, `set{k}(i, word)` or, where invocations may
//! write parts of one word at the same time, `insert{k}(i, mask, bits)`. How an array is bound is known here alone:
//! one with more bytes than a binding may have is bound in pieces of `2^log` words, of which all but the last are
//! full.

use std::fmt::Write;

/// Who writes the words of an array.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Words {
    /// Nobody, or an invocation each whole ones.
    Whole,
    /// Several invocations parts of one.
    Parts,
    /// An invocation two, or four, at a time: then there are `vector{k}(i)` and `set_vector{k}(i, words)`, and only
    /// `word{k}(i)`.
    Vectors(u32),
}

impl Words {
    /// `Parts` if that is so.
    pub fn parts_if(parts: bool) -> Words {
        if parts { Words::Parts } else { Words::Whole }
    }
}

/// How arrays are bound: the pieces of each, and the logarithm of the words of a piece.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Pieces {
    pub counts: Vec<u32>,
    pub log: u32,
}

impl Pieces {
    /// The number of bindings.
    pub fn bindings(&self) -> u32 {
        self.counts.iter().sum()
    }
}

/// Declares the words of a launch, `n`, and arrays.
pub fn declarations(arrays: &[Words], pieces: &Pieces) -> String {
    let mut text = "@group(0) @binding(0) var<storage, read> n: array<u32>;\n".to_string();
    let mut binding = 1;
    for ((k, words), &count) in arrays.iter().enumerate().zip(&pieces.counts) {
        let (ty, together) = match words {
            Words::Whole => ("u32".to_string(), 1),
            Words::Parts => ("atomic<u32>".to_string(), 1),
            Words::Vectors(length) => (format!("vec{length}<u32>"), *length),
        };
        for piece in 0..count {
            let _ = writeln!(
                text,
                "@group(0) @binding({binding}) var<storage, read_write> b{k}_{piece}: array<{ty}>;"
            );
            binding += 1;
        }
        // What is done in the piece that word i is in.
        let each = |done: &dyn Fn(String) -> String| -> String {
            let log = pieces.log - if count == 1 { 0 } else { together.ilog2() };
            let at = |piece: u32| match count {
                1 => format!("b{k}_{piece}[i]"),
                _ => format!("b{k}_{piece}[i & {}u]", (1u64 << log) - 1),
            };
            let before = (0..count - 1)
                .map(|piece| format!("if (i >> {log}u) == {piece}u {{ {} }} ", done(at(piece))));
            before.collect::<String>() + &done(at(count - 1))
        };
        let read = each(&|at| format!("return {at};"));
        let write = each(&|at| format!("{at} = given; return;"));
        let _ = match words {
            Words::Whole => writeln!(
                text,
                "fn word{k}(i: u32) -> u32 {{ {read} }}\nfn set{k}(i: u32, given: u32) {{ {write} }}"
            ),
            Words::Vectors(_) => writeln!(
                text,
                "fn vector{k}(i: u32) -> {ty} {{ {read} }}\nfn set_vector{k}(i: u32, given: {ty}) {{ {write} }}\n\
                 fn word{k}(i: u32) -> u32 {{ return vector{k}(i / {together}u)[i % {together}u]; }}"
            ),
            Words::Parts => writeln!(
                text,
                "fn word{k}(i: u32) -> u32 {{ {} }}\nfn insert{k}(i: u32, mask: u32, bits: u32) {{ {} }}",
                each(&|at| format!("return atomicLoad(&{at});")),
                each(&|at| format!("atomicAnd(&{at}, ~mask); atomicOr(&{at}, bits); return;"))
            ),
        };
    }
    text
}
