//! Products of halves by cooperative matrices, as WGSL: small matrices that the invocations of a subgroup hold
//! together, and that the GPU multiplies and adds by one instruction (SPV_KHR_cooperative_matrix).
//!
//! A workgroup has a tile of rows and columns, and goes through blocks of terms as `tiles` does: it brings
//! the elements of both operands to its memory while the block before is multiplied. They stay the halves that they
//! are, eight to a move. What lies next to each other in an operand lies so in the workgroup's memory: matrices are
//! read from it by rows or by columns. Lines there are longer by one move, so that the lines of a matrix are in
//! different banks. Terms beyond the last are zero; rows and columns beyond the last are the last again, and are not
//! written.
//!
//! A subgroup has a part of the tile, whose sums are matrices of floats that it keeps through all terms. A workgroup
//! has as many invocations as the parts need in the smallest subgroups that the GPU has; where subgroups are larger,
//! there are fewer of them, and they go through the terms once more for the other parts. A workgroup beyond the last
//! has no terms and writes nothing: it does not leave before, as matrices are for invocations that are all there. The
//! GPU adds the terms of a matrix in an order of its own.
//!
//! In: a form, whose functions are defined (`product`). Out: the text of the entry point. Cost: for each block of K
//! terms of a tile of T rows and columns, 2 K T halves are brought for K T² multiplications; a subgroup whose part
//! has P rows and Q columns reads (P + Q) K of them for P Q K.

use std::fmt::Write;

use super::form::{ProductForm, SEGMENT_TERMS, entry_with};
use super::matrices::{Cooperative, Halves, Maker, Matrices};

/// Terms of a block.
const TERMS: usize = 32;

/// Halves that are moved together, as four words.
const TOGETHER: usize = 8;

/// How an operand lies in the workgroup's memory.
struct Side {
    name: &'static str,
    /// The function of a row, or of a column, and the word that says how many there are.
    line: &'static str,
    number: usize,
    begin: &'static str,
    /// Whether neighbours are terms.
    by_terms: bool,
    halves: Halves,
    /// Where it begins, its lines, and moves from one to the next.
    from: usize,
    lines: usize,
    stride: usize,
}

impl Side {
    fn both(form: &ProductForm, cooperative: &Cooperative) -> [Side; 2] {
        let tile = cooperative.side();
        let side = |which: usize, from: usize| {
            let by_terms = if which == 0 { form.left_terms } else { !form.right_columns };
            let (lines, long) = if by_terms { (tile, TERMS) } else { (TERMS, tile) };
            let (name, line, number, begin) =
                [("left", "left_row", 2, "row"), ("right", "right_column", 3, "column")][which];
            let halves = cooperative.halves[which];
            Side { name, line, number, begin, by_terms, halves, from, lines, stride: long / TOGETHER + 1 }
        };
        let left = side(0, 0);
        let right = side(1, left.lines * left.stride);
        [left, right]
    }

    /// Where the matrix begins that has these rows, or columns, of the tile, and of the block the terms from `k` on.
    fn at(&self, index: &str) -> String {
        let Side { from, stride, .. } = self;
        match self.by_terms {
            true => format!("{from}u + ({index}) * {stride}u + k / {TOGETHER}u"),
            false => format!("{from}u + ({index}) / {TOGETHER}u + k * {stride}u"),
        }
    }

    /// Whether the left matrix lies by rows, and the right one.
    fn is_by_rows(&self) -> bool {
        self.by_terms == (self.name == "left")
    }

    /// The function that reads one move: of neighbouring terms, or of neighbouring rows or columns from `index` on.
    fn function(&self, text: &mut String) {
        let Side { name, line, number, .. } = self;
        let _ = writeln!(
            text,
            "fn {name}_move(p: Spot, base: i32, index: u32, term: u32, end: u32) -> vec4<u32> {{\n\
             \x20   if term >= end {{ return vec4<u32>(); }}"
        );
        if let Halves::Eights(_) = self.halves {
            let _ = writeln!(text, "    return {name}_eight(p, {name}_term(term));\n}}");
            return;
        }
        let half = match self.by_terms {
            true => format!("    if term + j < end {{ half = {name}_half(p, {name}_term(term + j)); }}"),
            false => format!(
                "    var q = {line}(min(index + j, n[{number}] - 1u)); q.at = q.at + base; half = {name}_half(q, {name}_term(term));"
            ),
        };
        let _ = writeln!(
            text,
            "    var words = vec4<u32>();\n    for (var j = 0u; j < {TOGETHER}u; j = j + 1u) {{\n    var half = 0u;\n{half}\n\
             \x20   words[j / 2u] = words[j / 2u] | (half << (16u * (j % 2u)));\n    }}\n    return words;\n}}"
        );
    }

    /// How many moves an invocation makes for a block.
    fn moves(&self, cooperative: &Cooperative) -> usize {
        cooperative.side() * TERMS / TOGETHER / cooperative.invocations()
    }

    /// What does not change from block to block: the row or column, the term and the place of each move.
    fn begin(&self, cooperative: &Cooperative, text: &mut String) {
        let Side { name, line, number, begin, from, stride, .. } = self;
        let last = if matches!(self.halves, Halves::Eights(_)) && !self.by_terms { TOGETHER } else { 1 };
        let _ = writeln!(text, "    let {name}_base = {name}_batch(batch);");
        for c in 0..self.moves(cooperative) {
            let own = format!("(lane + {}u)", c * cooperative.invocations());
            let each = stride - 1;
            let (index, term) = match self.by_terms {
                true => (format!("{own} / {each}u"), format!("{TOGETHER}u * ({own} % {each}u)")),
                false => (format!("{TOGETHER}u * ({own} % {each}u)"), format!("{own} / {each}u")),
            };
            let _ = writeln!(
                text,
                "    let {name}_index{c} = {begin} + {index};\n    let {name}_own{c} = {term};\n\
                 \x20   let {name}_place{c} = {from}u + {own} / {each}u * {stride}u + {own} % {each}u;\n\
                 \x20   var {name}_spot{c} = {line}(min({name}_index{c}, n[{number}] - {last}u)); \
                 {name}_spot{c}.at = {name}_spot{c}.at + {name}_base;"
            );
        }
    }

    /// Reads the moves of the block that begins at this term.
    fn bring(&self, cooperative: &Cooperative, at: &str, text: &mut String) {
        let name = self.name;
        for c in 0..self.moves(cooperative) {
            let _ = writeln!(
                text,
                "    {name}{c} = {name}_move({name}_spot{c}, {name}_base, {name}_index{c}, {at} + {name}_own{c}, end);"
            );
        }
    }
}

/// The types and instructions of matrices.
impl Matrices {
    fn ty(&self, name: &str) -> String {
        let side = self.side;
        match (self.maker, name) {
            (Maker::Driver, "left") => format!("coop_mat{side}x{side}<f16, A>"),
            (Maker::Driver, "right") => format!("coop_mat{side}x{side}<f16, B>"),
            (Maker::Driver, _) => format!("coop_mat{side}x{side}<f32, C>"),
            #[cfg(test)]
            (Maker::Played { .. }, _) => format!("Played_{name}"),
        }
    }

    fn load(&self, side: &Side, at: &str) -> String {
        let Side { name, stride, .. } = side;
        match self.maker {
            // What ends in T reads and writes rows, the other one columns.
            Maker::Driver => format!(
                "coopLoad{}<{}>(&blocks[{at}], {stride}u)",
                if side.is_by_rows() { "T" } else { "" },
                self.ty(name)
            ),
            #[cfg(test)]
            Maker::Played { .. } => format!("played_{name}({at}, lane)"),
        }
    }

    fn multiply_add(&self, a: &str, b: &str, sum: &str) -> String {
        match self.maker {
            Maker::Driver => format!("coopMultiplyAdd({a}, {b}, {sum})"),
            #[cfg(test)]
            Maker::Played { .. } => format!("played_multiply_add({a}, {b}, {sum})"),
        }
    }

    fn store(&self, sum: &str, at: &str) -> String {
        match self.maker {
            Maker::Driver => format!("coopStoreT({sum}, &sums[{at}], {}u);", self.side),
            #[cfg(test)]
            Maker::Played { .. } => format!("played_store({sum}, {at}, lane);"),
        }
    }
}

/// The beginning of the entry point: `lane`, `subgroup` and `subgroups`.
fn begin(cooperative: &Cooperative, sides: &[Side; 2], text: &mut String) {
    match cooperative.matrices.maker {
        Maker::Driver => entry_with(
            text,
            cooperative.invocations(),
            ", @builtin(subgroup_id) subgroup: u32, @builtin(num_subgroups) subgroups: u32",
        ),
        #[cfg(test)]
        Maker::Played { lanes, .. } => {
            super::played::functions(
                &cooperative.matrices,
                sides.each_ref().map(|side| (side.stride, side.is_by_rows())),
                text,
            );
            entry_with(text, cooperative.invocations(), "");
            let _ = writeln!(
                text,
                "    let subgroup = lane / {lanes}u;\n    let subgroups = {}u;",
                cooperative.invocations() / lanes
            );
        }
    }
    let tile = cooperative.side();
    let _ = write!(
        text,
        "    let across = (n[3] + {0}u) / {tile}u;\n    let down = (n[2] + {0}u) / {tile}u;\n\
         \x20   let column = (number % across) * {tile}u;\n    number = number / across;\n\
         \x20   let row = (number % down) * {tile}u;\n    number = number / down;\n\
         \x20   let batch = number % n[1];\n    let segment = number / n[1];\n\
         \x20   let first = segment * n[{SEGMENT_TERMS}];\n\
         \x20   let end = min(first + n[{SEGMENT_TERMS}], n[4]);\n",
        tile - 1
    );
    for side in sides {
        side.begin(cooperative, text);
        for c in 0..side.moves(cooperative) {
            let _ = writeln!(text, "    var {}{c} = vec4<u32>();", side.name);
        }
    }
}

/// The entry point; partial results if terms are in segments.
pub fn shader(form: &ProductForm, cooperative: &Cooperative, text: &mut String) {
    let matrices = &cooperative.matrices;
    let (tile, [down, across]) = cooperative.of_tile();
    let (rows, columns) = (tile / down, tile / across);
    let [i_end, j_end] = [rows, columns].map(|length| length / matrices.side);
    let sides = Side::both(form, cooperative);
    let [left, right] = &sides;
    let _ = writeln!(
        text,
        "var<workgroup> blocks: array<vec4<u32>, {}>;\nvar<workgroup> sums: array<f32, {}>;",
        right.from + right.lines * right.stride,
        cooperative.parts() * matrices.side * matrices.side
    );
    sides.iter().for_each(|side| side.function(text));
    begin(cooperative, &sides, text);
    let _ = writeln!(
        text,
        "    for (var turn = 0u; turn < {}u; turn = turn + subgroups) {{\n\
         \x20   let part = turn + subgroup;\n    let part_row = part / {across}u * {rows}u;\n\
         \x20   let part_column = part % {across}u * {columns}u;",
        cooperative.parts()
    );
    for sum in 0..i_end * j_end {
        let _ = writeln!(text, "    var s{sum}: {};", matrices.ty("sum"));
    }
    sides.iter().for_each(|side| side.bring(cooperative, "first", text));
    let _ = writeln!(
        text,
        "    for (var begin = first; begin < end; begin = begin + {TERMS}u) {{\n    workgroupBarrier();"
    );
    for side in &sides {
        for c in 0..side.moves(cooperative) {
            let _ = writeln!(text, "    blocks[{0}_place{c}] = {0}{c};", side.name);
        }
    }
    let _ = writeln!(text, "    workgroupBarrier();\n    let next = begin + {TERMS}u;");
    sides.iter().for_each(|side| side.bring(cooperative, "next", text));
    let _ = writeln!(text, "    for (var k = 0u; k < {TERMS}u; k = k + {}u) {{", matrices.side);
    for i in 0..i_end {
        let at = left.at(&format!("part_row + {}u", i * matrices.side));
        let _ = writeln!(text, "    let a{i} = {};", matrices.load(left, &at));
    }
    for j in 0..j_end {
        let at = right.at(&format!("part_column + {}u", j * matrices.side));
        let _ = writeln!(text, "    let b{j} = {};", matrices.load(right, &at));
        for i in 0..i_end {
            let sum = format!("s{}", i * j_end + j);
            let added = matrices.multiply_add(&format!("a{i}"), &format!("b{j}"), &sum);
            let _ = writeln!(text, "    {sum} = {added};");
        }
    }
    text.push_str("    }\n    }\n");
    results(form, cooperative, text);
}

/// Sums go through the workgroup's memory, one matrix of each subgroup after the other, as the code that writes is
/// there once.
fn results(form: &ProductForm, cooperative: &Cooperative, text: &mut String) {
    let matrices = &cooperative.matrices;
    let (tile, [down, across]) = cooperative.of_tile();
    let (rows, columns) = (tile / down, tile / across);
    let (side, wide) = (matrices.side, columns / matrices.side);
    let (each, number) = (side * side, rows / side * wide);
    let _ = writeln!(
        text,
        "    for (var sum = 0u; sum < {number}u; sum = sum + 1u) {{\n    workgroupBarrier();\n    switch sum {{"
    );
    for sum in 0..number {
        let case = if sum + 1 == number { "default".to_string() } else { format!("case {sum}u") };
        let store = matrices.store(&format!("s{sum}"), &format!("subgroup * {each}u"));
        let _ = writeln!(text, "    {case}: {{ {store} }}");
    }
    let write = form.write("sums[i]");
    let _ = write!(
        text,
        "    }}\n    workgroupBarrier();\n    let base = result_batch(batch);\n\
         \x20   for (var i = lane; i < subgroups * {each}u; i = i + {}u) {{\n\
         \x20   let of_part = turn + i / {each}u;\n\
         \x20   let down_at = row + of_part / {across}u * {rows}u + sum / {wide}u * {side}u + i % {each}u / {side}u;\n\
         \x20   let across_at = column + of_part % {across}u * {columns}u + sum % {wide}u * {side}u + i % {side}u;\n\
         \x20   if first < end && down_at < n[2] && across_at < n[3] {{\n    {write}\n    }}\n    }}\n    }}\n    }}\n}}\n",
        cooperative.invocations()
    );
}
