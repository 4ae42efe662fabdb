"""Deliberate faults, for `tools/faults.py`: what an off-by-one or a wrong term in one optimisation would be.

Each gives a wrong result, or reads or writes where it must not, at some input that a user could have; `why` says at
which. `text` occurs once in its file; what stands between « and » is an expression, or statements that declare nothing,
and the fault puts `new` in its place. Places where a constant is expected cannot be marked. `by` is a test that
is known to catch it.
"""

from typing import NamedTuple


class Fault(NamedTuple):
    name: str
    # The way of computing that it is in: a name of `ferrax-ir/src/paths.rs` where there is one.
    path: str
    file: str
    text: str
    new: str
    why: str
    by: str = ""


TRANSFORM = "rust/ferrax-transform/src/"
COMPILE = "rust/ferrax-compile/src/"
X86 = "rust/ferrax-x86/src/"
LINALG = "rust/ferrax-linalg/src/"
CPU = "rust/ferrax-cpu/src/"
KERNELS = CPU + "kernels/"
VM = CPU + "vm/"
CODE = CPU + "code/"
CONTROL = CPU + "control/"
PYTHON = "python/ferrax/_src/"
TESTS = "tests/python/"

# fmt: off
FAULTS = [
    # Programs.
    Fault(
        "conditional-update-order", "conditional update", TRANSFORM + "conditional_updates.rs",
        "false => «b.select(predicate, nowhere, operands[1])»?,",
        "b.select(predicate, operands[1], nowhere)",
        "an update that is taken where the condition is false is made where it is true",
        TESTS + "test_conditional_updates.py::test_one_choice",
    ),
    Fault(
        "fission-sum-start", "fission: sums", TRANSFORM + "fission/sums.rs",
        "outputs[sum.carry] = Some(«b.add(inputs[op.num_consts + sum.carry], total)?»);",
        "total",
        "a sum that does not begin at zero",
        TESTS + "test_scan_products.py::test_sums_that_begin_elsewhere_than_at_zero",
    ),
    Fault(
        "fission-before-constants", "fission: before the loop", TRANSFORM + "fission/before.rs",
        "let num_consts = «constant_vars.len() + op.num_consts»;",
        "constant_vars.len()",
        "a loop with constants beside the product that leaves it",
    ),
    Fault(
        "fission-after-arrays", "fission: after the loop", TRANSFORM + "fission/after.rs",
        "Place::Element(position) => «arrays[position]»,",
        "arrays[0]",
        "a product of the second of two arrays that a loop goes through",
        TESTS + "test_scan_products.py::test_products_of_each_of_several_arrays",
    ),
    Fault(
        "row-blocks-rest", "blocks of rows for derivatives", TRANSFORM + "row_blocks/mod.rs",
        "arguments.push(b.int_scalar(DType::I32, «(count * block) as i64»));",
        "((count - 1) * block) as i64",
        "a mask by row number where blocks do not divide the rows",
    ),
    Fault(
        "row-blocks-counted-axis", "blocks of rows for derivatives", TRANSFORM + "row_blocks/rows.rs",
        "matches!(op, Op::Iota(op) if «op.dimension == axis»)",
        "op.dimension == 0",
        "a mask by row number where rows are not the first axis",
    ),
    # Plans.
    Fault(
        "run-reach", "run by rows", COMPILE + "rows.rs",
        "0 <= low && «high < row as i128»",
        "high <= row as i128",
        "a step that reads one element of the next row, which another block computes",
        TESTS + "test_runs_at_size.py::test_rows_beside_elements_of_others",
    ),
    Fault(
        "make-way-of-calls", "run by rows with products", COMPILE + "rows.rs",
        "Step::Library { outputs, .. } => «outputs.iter().any(|output| output.buffer == *id)»,",
        "false",
        "a kernel between two products that reads what the first one gives and is put before it",
        TESTS + "test_runs_at_size.py::test_columns_of_a_product_beside_its_rows",
    ),
    Fault(
        "lives-in-runs", "run by rows", COMPILE + "place.rs",
        "let (first, last) = «needed(runs, first, last)»;",
        "(first, last)",
        "a value whose memory a later step of the run is given, while other blocks still read it",
        TESTS + "test_runs_at_size.py::test_memory_that_all_blocks_read",
    ),
    Fault(
        "arena-same-step", "arena", COMPILE + "place.rs",
        "&& «last < first»",
        "last <= first",
        "a result in the memory of an operand that the same step reads at other indices",
    ),
    Fault(
        "donation-same-step", "donated operand", COMPILE + "in_place.rs",
        "inputs.pop_if(|(last, _)| «*last < first»)",
        "*last <= first",
        "a donated argument that the step that writes the result reads at other indices",
    ),
    Fault(
        "donation-in-runs", "donated operand", COMPILE + "in_place.rs",
        "let lives = «lives.through(runs)»;",
        "lives",
        "a donated argument that all blocks of a run read, and a result that a later step of the run writes",
        TESTS + "test_runs_at_size.py::test_memory_that_all_blocks_read",
    ),
    Fault(
        "in-place-two-views", "kernel: in place", COMPILE + "in_place.rs",
        "if «*known != how» {",
        "how.is_none()",
        "an operand that is read at two indices, such as x + x[::-1]",
    ),
    Fault(
        "in-place-indices", "dynamic update: in place", COMPILE + "in_place.rs",
        "if «once(inputs, from)»",
        "true",
        "an array that is scattered into at indices that are itself",
        TESTS + "test_at.py::test_indices_that_are_the_array_itself",
    ),
    Fault(
        "fusion-shifted-reader", "fusion", COMPILE + "emit.rs",
        "let key = (var, «id», self.stage);",
        "0",
        "a value that is read at its own index and at another one in the kernel that computes it",
        TESTS + "test_moves.py::test_moves_in_kernels",
    ),
    Fault(
        "nest-merged-guards", "kernel: guards", COMPILE + "schedule/nest.rs",
        "&& «guards[inner] == (0, extent)»",
        "guards[inner].0 == 0",
        "padding at the high end of the last axis",
        TESTS + "test_moves.py::test_moves_in_kernels",
    ),
    Fault(
        "nest-merged-index", "fusion", COMPILE + "schedule/nest.rs",
        "&& «!indexed[inner]»",
        "true",
        "a kernel that counts along its last axis",
        TESTS + "test_moves.py::test_moves_in_kernels",
    ),
    Fault(
        "pad-behind", "kernel: guards", COMPILE + "movement.rs",
        "if start < 0 || «start >= size» {",
        "start > size",
        "the first row behind an operand that is padded and sliced",
        TESTS + "test_moves.py::test_moves_in_kernels",
    ),
    Fault(
        "crossed-ordered-terms", "kernel: crossed tiles", COMPILE + "schedule/tile.rs",
        "is_row(*axis, col, «extent <= CROSSED.min(lanes)»)",
        "true",
        "a sum over two axes of a transposed array: the order of its terms depends on tiles",
        TESTS + "test_sum_order.py::test_order_of_terms",
    ),
    Fault(
        "segment-end", "sum: segments", COMPILE + "schedule/walk.rs",
        "Part { rows: None, cols: Some(«col.most.min(col.extent - inside).min(left)») }",
        "col.most.min(col.extent - inside)",
        "a long sum whose segments end within a tile: terms count twice",
        TESTS + "test_long_sums.py::test_each_term_counts_once",
    ),
    Fault(
        "walk-last-strip", "reduction: segments", COMPILE + "schedule/walk.rs",
        "let width = «col.most.min(col.extent - strip * col.most)»;",
        "col.most",
        "a reduction of integers over a transposed array whose last strip of columns is narrower",
        TESTS + "test_sum_order.py::test_each_term_counts_once_where_their_order_is_no_matter",
    ),
    Fault(
        "segment-of-a-block", "sum: segments", COMPILE + "schedule/mod.rs",
        ".max(«if shape.fold.layout() == TreeLayout::Rows { BLOCK } else { 4 * BLOCK }»)",
        "1",
        "sums of a few hundred terms side by side: segments that are no subtrees",
        TESTS + "test_sum_order.py::test_order_of_some_hundred_terms_side_by_side",
    ),
    Fault(
        "carry-handed-on", "carry: swapped", COMPILE + "carries.rs",
        "if holders(output).0 == 1 && «holders(input).1 == 0» =>",
        "true",
        "a loop whose step hands the old value of one carry on as another carry",
        TESTS + "test_carries.py::test_carries_that_are_handed_on",
    ),
    Fault(
        "carry-pool", "carry: followed", COMPILE + "carries.rs",
        "for _ in 0..«holders + group.len()» {",
        "holders",
        "carries that rotate: a new value in a place that is still held",
    ),
    Fault(
        "stacked-twice", "loop: stacked where it is computed", COMPILE + "carries.rs",
        "let direct = «stacked.insert(buffer)» && ends.fresh_of(output).is_some();",
        "stacked.insert(buffer) || true",
        "a loop that stacks one value twice",
        TESTS + "test_carries.py::test_values_that_are_stacked_twice",
    ),
    Fault(
        "convolution-gaps", "convolution: gaps", COMPILE + "convolution.rs",
        "«gaps |= classes.iter().map(|class| class.out.2).sum::<usize>() < out[o];»",
        "gaps = classes.iter().map(|class| class.out.2).sum::<usize>() < out[o];",
        "a dilated operand with gaps along an axis that is not the last",
    ),
    Fault(
        "convolution-class", "convolution: gaps", COMPILE + "convolution.rs",
        "window: (q, skip, «(window - q).div_ceil(skip)»),",
        "window / skip",
        "a dilated operand and a window that the dilation does not divide",
    ),
    # Runs of rows.
    Fault(
        "run-block-memory", "run by rows", CPU + "rows.rs",
        "let most = «self.extent.div_ceil(self.blocks)»;",
        "self.extent / self.blocks",
        "values of a block overlap where blocks do not divide the rows",
        TESTS + "test_runs_at_size.py::test_rows_that_blocks_do_not_divide",
    ),
    Fault(
        "run-share", "run by rows with products", CPU + "rows.rs",
        "call.run_rows(&operands, «row * rows..(row + end - first) * rows»)?;",
        "row * rows..row * rows + (end - first)",
        "a product that has several rows in each row of its run",
    ),
    Fault(
        "run-outer-loops", "run by rows with products", CPU + "rows.rs",
        "let row = «outside * self.extent + first»;",
        "first",
        "a product with a batch: all of it reads the first one's rows",
    ),
    # Kernels.
    Fault(
        "picks-rows", "kernel: index of a row", CPU + "vm/pick.rs",
        "by.iter().map(|by| by.offset(«row * by.row»)).sum();",
        "row",
        "an index for each row of a tile that was computed beside others for its elements",
    ),
    Fault(
        "picks-second-chunk", "kernel: index of an element", CPU + "vm/pick.rs",
        "let at = |by: &Indices| «row * by.row + first»;",
        "row * by.row",
        "more than 64 elements that are picked from one row",
    ),
    Fault(
        "picks-behind-guards", "kernel: index of an element", CPU + "vm/bound.rs",
        "&self.indices(step, «first»), from, to);",
        "0",
        "picked elements that are padded in front",
    ),
    Fault(
        "guards-later-tiles", "kernel: guards", CPU + "vm/bound.rs",
        "col_range = (col_range.0.max(low - at), «col_range.1.min(high - at)»);",
        "col_range.1.min(high)",
        "padding behind an operand that is longer than a tile",
        TESTS + "test_moves.py::test_moves_in_kernels",
    ),
    Fault(
        "segments-plain", "reduction: segments", CPU + "vm/accumulate.rs",
        "Apply::Plain(op) => (op.merge)(1, «kept», partial, values),",
        "1",
        "a long maximum of several columns",
    ),
    Fault(
        "segments-saved", "sum: segments", CPU + "vm/accumulate.rs",
        "std::ptr::copy_nonoverlapping(partial, values, «kept * fold.size»);",
        "fold.size",
        "a long sum of several columns",
    ),
    Fault(
        "tree-cut-strided", "sum: rows where they lie", CPU + "vm/accumulate.rs",
        "let step = if by_lines { fold.size as isize } else { «stride» };",
        "(kept * fold.size) as isize",
        "a sum over the first axes of an array of more columns than a tile, where a block ends within a tile",
    ),
    Fault(
        "tree-levels", "sum: lines", CPU + "vm/accumulate.rs",
        "if blocks == 0 { most } else { «most.min(blocks.trailing_zeros())» };",
        "most",
        "long lines: the order of terms depends on tiles",
    ),
    Fault(
        "tree-rows-stale", "sum: rows", CPU + "vm/tree.rs",
        "into_lanes::<M>(«at < LANES», to, from);",
        "at == 0",
        "a tile of fewer than 16 rows: the second one adds to what the block before left",
    ),
    Fault(
        "tree-lines-restart", "sum: lines", CPU + "vm/tree.rs",
        "if «position == 0» {",
        "position < LANES",
        "lines that are cut within the first 16 terms of a block: terms are lost",
    ),
    Fault(
        "products-less", "sum: products where they lie", CPU + "vm/tree.rs",
        "less: «self.less.wrapping_offset(line * self.less_stride)»,",
        "self.less",
        "variances of several lines at once: each is about the first one's mean",
    ),
    Fault(
        "extremum-tail", "fusion", CPU + "vm/fold.rs",
        "state = more(state, chunk);\n                    }\n                    «join(more(state, last))»",
        "join(state)",
        "a maximum in the last elements of a line whose length is no multiple of 32",
        TESTS + "test_row_runs.py::test_extrema_of_rows",
    ),
    Fault(
        "crossed-strips", "kernel: crossed tiles", CPU + "vm/transfer.rs",
        "while «row < rows» {",
        "row + 8 <= rows",
        "a transposition of 16 or 64 bits whose rows are no multiple of 8",
    ),
    Fault(
        "crossed-squares", "kernel: crossed tiles", CPU + "vm/transfer.rs",
        "rest(0, right, down, «cols - right»);",
        "0",
        "a transposition of 32 bits whose columns are no multiple of 8",
    ),
    Fault(
        "section-cut", "run by rows", CPU + "vm/section.rs",
        "let whole = col.length == extent && «!self.context.is_cut[col.axis]»;",
        "true",
        "a run whose blocks cut the columns of a tile: rows are taken to follow one another",
        TESTS + "test_runs_at_size.py::test_transposed_operands",
    ),
    Fault(
        "section-shared-store", "kernel: in place", CPU + "vm/stores.rs",
        "&& «!self.context.shares[store.operand as usize]»",
        "true",
        "two results of an operand, the first of which is computed in its memory",
        TESTS + "test_moves.py::test_several_results_in_the_memory_of_one_operand",
    ),
    Fault(
        "section-shared-last", "kernel: several results", CPU + "vm/stores.rs",
        "«ordered.sort_by_key(|&index| self.context.shares[self.context.kernel.stores[index].operand as usize]);»",
        "",
        "an operand that is joined to another one and updated in place by the same kernel",
        TESTS + "test_moves.py::test_several_results_in_the_memory_of_one_operand",
    ),
    Fault(
        "section-renamed-bool", "fusion", CPU + "vm/section.rs",
        "from.size() == to.size() && «to != ScalarType::Bool»",
        "true",
        "a number of eight bits above 1 that becomes a bool",
    ),
    Fault(
        "transfer-four-bits", "transfers", CPU + "vm/transfer.rs",
        "LowU4(x: u8) -> u8 = x & «15»;",
        "7",
        "numbers of four bits above 7",
        TESTS + "test_narrow_integers.py::test_elementwise[uint4-True]",
    ),
    Fault(
        "units-rest", "threads", CPU + "vm/bound.rs",
        "let (from, to) = «(chunk * units / chunks, (chunk + 1) * units / chunks)»;",
        "(chunk * (units / chunks), (chunk + 1) * (units / chunks))",
        "tiles that threads cannot share evenly: the last ones are not computed",
    ),
    Fault(
        "flat-picks", "kernel: flat", CPU + "vm/flat.rs",
        "line.jumps.iter_mut().for_each(|jump| «jump.place += first»);",
        "()",
        "a loop whose step picks elements in a kernel that is not its first",
        TESTS + "test_picks.py::test_picks_of_a_row_that_a_loop_picks",
    ),
    # Copies and products.
    Fault(
        "copy-shared-tail", "copy: shared", KERNELS + "copy.rs",
        "pool::run(«bytes.div_ceil(most)», &|chunk| {",
        "bytes / most",
        "a copy of some MiB and a rest",
    ),
    Fault(
        "copy-joined-loops", "gather: windows", KERNELS + "copy.rs",
        "if «last.from == next.from * next.count as isize»",
        "true",
        "windows of rows that do not follow one another in the operand",
    ),
    Fault(
        "product-narrow", "product: tiny", KERNELS + "thin.rs",
        "(«n >= one»).then_some((Way::Tiny, Path::ProductTiny))",
        "n > 1",
        "a tiny product with fewer columns than a vector",
    ),
    Fault(
        "thin-last-block", "product: thin", KERNELS + "thin.rs",
        "for term in «begin.max(whole)..next» {",
        "whole..next",
        "some rows by a narrow matrix of a few more than 512 rows: terms count twice",
    ),
    Fault(
        "row-last-term", "product: a row", KERNELS + "thin.rs",
        "if «term + PASS <= of.k» {",
        "term + PASS <= of.k + 1",
        "a row by a matrix of 8 n + 7 rows: one more is read",
    ),
    Fault(
        "pieces-alike", "product: pieces", KERNELS + "thin.rs",
        "!in_blocks && m * n <= 256, «!in_blocks && m <= 64 && n <= 64»)",
        "true",
        "bits of a product of complex numbers that threads share differ from those of the whole",
        TESTS + "test_tuning.py::test_no_bit_depends_on_tuning",
    ),
    Fault(
        "pieces-transposed", "product: pieces", KERNELS + "matrices.rs",
        "cols.start, «self.right_col»)),",
        "1",
        "a wide product by a transposed matrix that threads share",
    ),
    Fault(
        "product-joined-axes", "product: operand brought into order", KERNELS + "gemm.rs",
        "«strides[pair[0]] == strides[pair[1]].saturating_mul(sizes[pair[1]] as isize)»",
        "strides[pair[0]] >= strides[pair[1]].saturating_mul(sizes[pair[1]] as isize)",
        "a product over two axes of an operand with a free axis between them",
        TESTS + "test_products.py::test_axes_of_a_sum_lie_anywhere",
    ),
    Fault(
        "groups-rest", "product: groups of small ones", KERNELS + "gemm.rs",
        "pool::run_fallibly(«units.div_ceil(group)», &|chunk| {",
        "units / group",
        "a batch of small products that groups do not divide: the last ones are not computed",
        TESTS + "test_paths.py::test_large_arrays_take_it",
    ),
    Fault(
        "blocks-last-terms", "product: register blocks", KERNELS + "blocked.rs",
        "if self.of.packed.is_some() { «terms.start * self.of.n.next_multiple_of(width)» } else { 0 };",
        "terms.start * self.of.n",
        "packed weights of more than 256 terms, whose columns are no multiple of two vectors",
    ),
    Fault(
        "blocks-shared-rows", "product: register blocks of all threads", KERNELS + "blocked.rs",
        "self.pack_rows(first..end, terms, «first - rows.start»);",
        "first",
        "a product of more than 768 rows that threads share: rows are packed to places behind the last",
    ),
    Fault(
        "blocks-packed-batch", "product: right operand packed for all rows", KERNELS + "gemm.rs",
        "call.scratch.wrapping_add(«batch * (blocks.packed_bytes)(self.n, self.k)»)",
        "0",
        "a batch of products that go by rows: all have the first one's right operand",
    ),
    Fault(
        "integers-edge", "product: integers", KERNELS + "blocked.rs",
        "*to = if «new» { sum } else { (*to).add(sum) };",
        "true",
        "a product of integers of more than 256 terms at its last columns: earlier terms are lost",
        TESTS + "test_products.py::test_integers_of_many_columns",
    ),
    Fault(
        "panels-scratch", "product: panels", KERNELS + "panels.rs",
        "self.tree(&other, split..panels.end, «rest»)?;",
        "scratch",
        "a contracted axis of more than three panels: the second half overwrites itself",
        TESTS + "test_long_sums.py::test_products_of_few_rows_and_columns",
    ),
    Fault(
        "panel-pieces", "product: pieces of panels", KERNELS + "panels.rs",
        "(rest / col_pieces * rows, «rest % col_pieces * cols»);",
        "rest % col_pieces * rows",
        "a result with several pieces whose rows and columns differ",
    ),
    Fault(
        "subtrees-combined", "product: subtrees of panels", KERNELS + "panels.rs",
        "place(«first + split», of);",
        "first + subtrees.start + 1",
        "a long contracted axis and a small result: of four subtrees the wrong two are added",
    ),
    # Convolutions.
    Fault(
        "direct-weights", "convolution: along groups", KERNELS + "conv/direct.rs",
        "let by = «by.wrapping_offset((terms.start as isize).wrapping_mul(by_weight))»;",
        "by",
        "a depthwise convolution at padding in front: the weights of the first terms are taken",
    ),
    Fault(
        "direct-places-tail", "convolution: along places", KERNELS + "conv/direct.rs",
        "while «i + FEW <= rows» {",
        "i + FEW <= rows + 1",
        "a depthwise convolution, features first, of 8 n + 7 places",
    ),
    Fault(
        "direct-lanes", "convolution: along terms", KERNELS + "conv/direct.rs",
        "while «half > 0» {",
        "half > 1",
        "a derivative for the window of 32 places or more: half of the lanes are lost",
    ),
    Fault(
        "direct-strided-weights", "convolution: along nothing", KERNELS + "conv/direct.rs",
        "x.mul_add(*by.offset(«j * by_weight»), sum);",
        "j",
        "weights that are not adjacent",
    ),
    Fault(
        "product-strided-padding", "convolution: product", KERNELS + "conv/pack.rs",
        "left => «((left - 1) / step + 1) as usize»,",
        "(left / step + 1) as usize",
        "a strided convolution with padding: one place outside of the operand is read",
    ),
    Fault(
        "product-later-panels", "convolution: product", KERNELS + "conv/product.rs",
        "«block == range.start / TERMS»,",
        "block == 0",
        "more than 3072 terms: later panels add to what is in their memory",
    ),
    Fault(
        "shared-weights-groups", "convolution: weights packed once", KERNELS + "conv/product.rs",
        "let number = («group * weights.tiles() + tile») * blocks + block;",
        "tile",
        "a convolution in groups with many places: all have one group's weights",
    ),
    Fault(
        "split-rest", "convolution: terms in parts", KERNELS + "conv/tree.rs",
        "&& («level == other || leaf + 1 == leaves»)",
        "level == other",
        "three panels: the last one is lost",
    ),
    Fault(
        "complex-matrix", "convolution: complex", KERNELS + "conv/mod.rs",
        "*to.add(i) = «[re, im, im.negate(), re]»;",
        "[re, im.negate(), im, re]",
        "complex weights: their conjugates are taken",
    ),
    # Gathers, scatters and slices.
    Fault(
        "gather-begin", "gather: elements", KERNELS + "singles.rs",
        "let mut base = «first as isize * step»;",
        "0",
        "keys of a batch that threads share, one of each: a share that begins within a line",
        TESTS + "test_moves.py::test_a_key_of_each_of_many_rows",
    ),
    Fault(
        "gather-three-axes", "gather: windows", KERNELS + "windows.rs",
        "let (outside, i) = if «axis == 0» { (0, rest) }",
        "axis <= 1",
        "windows at indices of three axes or more",
    ),
    Fault(
        "scatter-columns", "scatter: stripes of lines", KERNELS + "singles.rs",
        "updates.add(«number * width + first»), count);",
        "number * width",
        "lines that threads share by columns: all add the first columns of the updates",
    ),
    Fault(
        "scatter-window-stripes", "scatter: stripes of windows", KERNELS + "windows.rs",
        "first as isize * «each.to»);",
        "each.from",
        "windows that threads share, in an operand of other strides than the updates",
    ),
    Fault(
        "slice-last", "dynamic slice", KERNELS + "windows.rs",
        "«operand.sizes[axis] as i64 - window[axis] as i64»))",
        "operand.sizes[axis] as i64 - 1",
        "a dynamic slice that begins near the end of its operand",
    ),
    # Sorting, running reductions, Fourier transforms, matrices.
    Fault(
        "sort-bytes-stride", "sort: bytes", KERNELS + "sort/mod.rs",
        "*to.add(«*place * line.stride») =",
        "*place",
        "bytes that are sorted along an axis that is not the last",
    ),
    Fault(
        "sort-skipped-digit", "sort: digits", KERNELS + "sort/words.rs",
        "as usize == «from.len()» {",
        "from.len() - 1",
        "all words but one have the same digit",
    ),
    Fault(
        "sort-second-key", "sort: comparisons", KERNELS + "sort/words.rs",
        "if «digits.low == 0» {",
        "digits.low <= 32",
        "short lines that are sorted by two keys: the order of the second is lost",
        TESTS + "test_sorting.py::test_several_keys",
    ),
    Fault(
        "sort-places-kept", "sort: places", KERNELS + "sort/mod.rs",
        "(column.sort)(column, line, places, «number == 0»);",
        "true",
        "lines that are sorted by two keys, or by complex numbers",
        TESTS + "test_sorting.py::test_several_keys",
    ),
    Fault(
        "sort-merge-equal", "sort: a line on all threads", KERNELS + "sort/words.rs",
        "let second = «b.above(low) < a.above(low)»;",
        "b.above(low) <= a.above(low)",
        "a long line with equal keys: their order is lost",
    ),
    Fault(
        "top-k-selected", "top k", KERNELS + "sort/top_k.rs",
        "if «found > k» {",
        "found > k + 1",
        "all elements but one of a line",
    ),
    Fault(
        "top-k-room", "top k: pieces of a line", KERNELS + "sort/top_k.rs",
        ".min(«from.length / pieces + 1»);",
        "from.length / pieces",
        "more elements than a piece has, of a line that pieces do not divide",
    ),
    Fault(
        "cumulative-infinite", "cumulative: lines", KERNELS + "cumulative.rs",
        "if «self.sum.is_finite()» {",
        "true",
        "a running sum of 64 bits that becomes infinite: it is no number",
        TESTS + "test_x64.py::test_running_sums_that_become_infinite",
    ),
    Fault(
        "cumulative-last-group", "cumulative: groups of lines", KERNELS + "cumulative.rs",
        "let lines = «most.min(scan.inner - group * most)»;",
        "most.min(scan.inner)",
        "more lines than a group has, which groups do not divide",
    ),
    Fault(
        "fourier-odd", "fft: lines", KERNELS + "fft.rs",
        "Line::ToComplex(_) => «self.from.div_ceil(2)»,",
        "self.from / 2",
        "real lines of odd length: the last number shares its memory",
    ),
    Fault(
        "fourier-last-columns", "fft: columns", KERNELS + "fft.rs",
        "let width = «most.min(axis.stride - column)»;",
        "most.min(axis.stride)",
        "more columns than a group has, which groups do not divide",
    ),
    Fault(
        "fourier-copied", "fft: of a copy", KERNELS + "fft.rs",
        "numbers = «copy»;",
        "numbers.cast_mut()",
        "an inverse real transform over several axes: all but the last axis are left out",
        TESTS + "test_paths.py::test_large_arrays_take_it",
    ),
    Fault(
        "decompositions-rest", "decompositions: small ones", KERNELS + "decompositions.rs",
        "{ self.count } else { «self.count.div_ceil(TOGETHER)» };",
        "self.count / TOGETHER",
        "a batch of small matrices that is no multiple of 16: the last ones are not computed",
        TESTS + "test_decompositions.py::test_eigenvectors_diagonalise",
    ),
    Fault(
        "small-matrices-last", "matrices: small ones side by side", LINALG + "small.rs",
        "(self.start + lane).min(«self.count - 1»);",
        "self.count",
        "a batch that lanes do not divide: a matrix behind the last one is read",
    ),
    # Loops, memory, caches.
    Fault(
        "carry-swapped", "carry: swapped", CONTROL + "body.rs",
        "if «now == own» { spare } else { own };",
        "now != own",
        "a carry that is computed over itself from the second step on",
    ),
    Fault(
        "carry-in-place", "carry: in place", CONTROL + "body.rs",
        "«pointers[carry.input as usize] = pointers[carry.output as usize];»",
        "",
        "each step begins with the first value of a large carry",
    ),
    Fault(
        "carry-let-go", "carry: followed", CONTROL + "body.rs",
        "«self.holders[self.held[index] as usize] -= 1;»",
        "",
        "a loop of many steps: no place is free, and one that is held is taken",
        TESTS + "test_carries.py::test_carries_that_are_handed_on[to the next-5000]",
    ),
    Fault(
        "sweeps-not-made", "loop: recorded", CONTROL + "sweeps.rs",
        "part.steps -= «left»;",
        "0",
        "the way back through a loop goes through steps that were not made",
    ),
    Fault(
        "checkpoints-later-part", "loop: checkpoints", CONTROL + "sweeps/treeverse.rs",
        "«end = start;»",
        "",
        "the way back goes through the last steps again with each checkpoint",
    ),
    Fault(
        "branch-clamped", "branch: results where they belong", CONTROL + "branches.rs",
        ".min(«self.branches.len() - 1»)];",
        "self.branches.len()",
        "a branch beyond the last one",
    ),
    Fault(
        "native-sets-in-turn", "loop: machine code", COMPILE + "native/build.rs",
        "if «from != to && targets.contains(&from)» {",
        "false",
        "a loop whose carries change places",
        TESTS + "test_native_loops.py::test_a_loop_agrees_with_jax",
    ),
    Fault(
        "native-over-what-is-kept", "loop: machine code", COMPILE + "native/loops.rs",
        "Array::Memory { constant: false, .. } if «own(number)» =>",
        "true",
        "a loop in a loop that changes an array which is needed afterwards",
        TESTS + "test_native_updates.py::test_a_loop_agrees_with_jax",
    ),
    Fault(
        "native-short-lives", "loop: machine code", X86 + "allocate.rs",
        "let end = «open.iter().find(carried).map_or(number, |&begin| ends[begin])»;",
        "number",
        "a value from before a loop whose register another value of a step takes",
        TESTS + "test_native_loops.py::test_a_loop_agrees_with_jax",
    ),
    Fault(
        "lanes-over-what-is-needed", "loop: vectors in machine code", COMPILE + "native/course.rs",
        "(«!needed» && !read).then(|| memory.clone())",
        "true",
        "a vector that is written where its former value is needed afterwards",
        TESTS + "test_native_lanes.py::test_a_loop_of_vectors_agrees_with_jax",
    ),
    Fault(
        "lanes-over-what-is-read", "loop: vectors in machine code", COMPILE + "native/course.rs",
        "(!needed && «!read»).then(|| memory.clone())",
        "true",
        "a vector that is written where it is read at other places",
        TESTS + "test_native_lanes.py::test_a_loop_of_vectors_agrees_with_jax",
    ),
    Fault(
        "lanes-last-terms", "loop: vectors in machine code", COMPILE + "native/folds.rs",
        "if «left >= LANES» {",
        "true",
        "a sum of what is behind a vector",
        TESTS + "test_native_lanes.py::test_a_loop_of_vectors_agrees_with_jax",
    ),
    Fault(
        "lanes-swapped-in-turn", "loop: vectors in machine code", COMPILE + "native/loops.rs",
        "if «!taken» {",
        "true",
        "vectors that change places",
        TESTS + "test_native_lanes.py::test_a_loop_of_vectors_agrees_with_jax",
    ),
    Fault(
        "native-lost-in-calls", "loop: machine code", X86 + "select/mod.rs",
        "let lives = |lifetime: Lifetime| «lifetime.first < number && lifetime.last > number»;",
        "false",
        "a value that is needed after a function was called",
        TESTS + "test_native_loops.py::test_a_loop_agrees_with_jax",
    ),
    Fault(
        "chain-lost-register", "kernel: machine code", X86 + "vector/assign.rs",
        "matches!(source, Source::Value(_)) && «next != usize::MAX» && !self.slots",
        "false",
        "a kernel with more values than registers",
        TESTS + "test_native_kernels.py::test_a_program_agrees_with_jax",
    ),
    Fault(
        "chain-last-lanes", "kernel: machine code", CODE + "chains.rs",
        "let rest = «lanes - whole»;",
        "0",
        "a number of elements that steps do not divide: the last ones are not computed",
        TESTS + "test_native_kernels.py::test_a_program_agrees_with_jax",
    ),
    Fault(
        "chain-let-go", "kernel: machine code", VM + "collect.rs",
        "members.iter().copied().filter(|&member| «self.last_use[member as usize] >= next»).collect();",
        "self.last_use[member as usize] > next",
        "a value that the instruction needs before which a chain ends",
        TESTS + "test_native_kernels.py::test_a_program_agrees_with_jax",
    ),
    Fault(
        "vector-product-rest", "product: a matrix and a vector", KERNELS + "vectors.rs",
        "let rest = mask(«of.terms - whole»);",
        "LANES",
        "terms that vectors do not divide: those of the next row are added",
    ),
    Fault(
        "branch-beside", "branch: results beside operands whose place they have", CONTROL + "branches.rs",
        "operand.filter(|&operand| «!fits(operand)»)",
        "false",
        "a branch that makes a result anew of an operand that it takes the place of, and reads it later",
        TESTS + "test_branches_in_place.py::test_states_have_the_bits_of_numpy",
    ),
    Fault(
        "loop-over-its-start", "carry: swapped", CONTROL + "body.rs",
        "let beside = even || «carry_at[carry.number] == outputs[carry.number].cast_const()»;",
        "false",
        "a loop in a loop whose first step writes over the value that it reads",
        TESTS + "test_branches_in_place.py::test_states_have_the_bits_of_numpy",
    ),
    Fault(
        "pool-class", "pool of memory", CPU + "alloc.rs",
        "let step = «(bytes - half).div_ceil(quarter)»;",
        "((bytes - half) / quarter).max(1)",
        "arrays in blocks that are smaller than they",
    ),
    Fault(
        "huge-pages-behind", "pool of memory", CPU + "alloc.rs",
        "(block.wrapping_add(size), «spare - before»)",
        "spare",
        "a large array: memory behind it, which is another's, is given back",
    ),
    Fault(
        "digest-constants", "kept programs", CPU + "persistent/digest.rs",
        "«(var, tensor.dtype(), tensor.sizes(), tensor.bytes()).hash(&mut state);»",
        "(var, tensor.dtype(), tensor.sizes()).hash(&mut state);",
        "two programs that differ in a constant",
    ),
    # Functions in Python that are composed by size.
    Fault(
        "windows-doubled", "windows of a monoid", PYTHON + "composed/windows.py",
        "return combine(part(power, 0, starts), part(power, «(size - length) * step», starts))",
        "size - length",
        "a maximum over dilated windows of more than four places, which are no power of two",
        TESTS + "test_reduce_generic.py::test_long_windows_are_sliding_sums_and_maxima[5-3-2]",
    ),
]
