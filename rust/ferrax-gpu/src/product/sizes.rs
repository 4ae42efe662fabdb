//! Products of matrices and convolutions: the sizes that their shaders read, and who computes what.
//!
//! In: an op whose operands and result have one dtype, with what it took in. Out: launches of
//! [`crate::wgsl::product`], one for a product, one for each class of a convolution.

use ferrax_compile::Argument;
use ferrax_compile::convolution::{self, Axis as Joined, Problem};
use ferrax_compile::launches::{Fusion, Origin, Taken, digits};
use ferrax_ir::ops::{ConvGeneralDilated, DotGeneral, Precision};
use ferrax_ir::scalar::{Narrow, ScalarOp, ScalarType, Value};
use ferrax_ir::tensor::row_major;
use ferrax_ir::{DType, Op, Result, internal_error, unsupported};

use crate::gpu::{Gpu, Prepared};
use crate::pipelines::Source;
use crate::wgsl::numbers::{self, Form, Means, Patience};
use crate::wgsl::product::matrices::{Cooperative, Halves, Matrices};
use crate::wgsl::product::{AXIS, HEAD, ProductForm, SINGLE, Way, finishing_groups, partial};
use crate::wgsl::taken::TakenForm;
use crate::wgsl::types;

/// Rows or columns below which most of a tile would be idle.
const THIN: usize = 4;

/// Rows and columns of an invocation in a large tile, and in others; and how many large tiles make them worth it: as
/// many as GPUs have cores.
const LARGE: usize = 8;
const SMALL: usize = 4;
const MANY: usize = 128;

/// Where tiles are fewer than this, terms are cut into segments, of at least so many terms, and of a multiple of
/// those of a block.
const ENOUGH: usize = 128;
const SEGMENT: usize = 256;
const BLOCKS: usize = 32;

/// Elements that are read at once where they can be, and halves.
const QUAD: i64 = 4;
const EIGHTS: i64 = 8;

/// Products of halves with fewer rows, columns or terms are not worth matrices: more than half of a small tile, or of
/// a block of terms, would be idle.
const LEAST_SIDE: usize = 32;
const LEAST_TERMS: usize = 16;

/// An axis: its count, strides (of a batch in left, right and result; of rows in left and result; of columns
/// in right and result; of terms in left and right), and which guard its index moves by how much.
#[derive(Clone, Copy)]
struct Axis {
    count: usize,
    strides: [i64; 3],
    guard: Option<(usize, i64)>,
}

impl Axis {
    fn plain(count: usize, strides: [usize; 3]) -> Axis {
        Axis { count, strides: strides.map(|stride| stride as i64), guard: None }
    }

    fn joined(axis: &Joined) -> Axis {
        let guard = axis.guard.map(|(guard, step)| (guard, step as i64));
        Axis { count: axis.count, strides: [axis.read as i64, axis.other as i64, 0], guard }
    }
}

#[derive(Default)]
pub struct Product {
    batch: Vec<Axis>,
    rows: Vec<Axis>,
    columns: Vec<Axis>,
    terms: Vec<Axis>,
    guards: Vec<[i64; 2]>,
    start: [i64; 3],
    /// Whether terms are to be added in the order of tiles, whatever their dtype.
    is_precise: bool,
}

fn count(axes: &[Axis]) -> usize {
    axes.iter().map(|axis| axis.count).product()
}

/// Axes of one index go, and neighbours that one stride walks are one.
fn tidy(axes: &mut Vec<Axis>) {
    let mut kept: Vec<Axis> = Vec::with_capacity(axes.len());
    for &axis in axes.iter().filter(|axis| axis.count != 1) {
        match kept.last_mut() {
            Some(last)
                if last.guard.is_none()
                    && axis.guard.is_none()
                    && last.strides == axis.strides.map(|stride| stride * axis.count as i64) =>
            {
                *last = Axis { count: last.count * axis.count, ..axis };
            }
            _ => kept.push(axis),
        }
    }
    if kept.is_empty() {
        kept.push(Axis::plain(1, [0; 3]));
    }
    *axes = kept;
}

fn dot(op: &DotGeneral, [lhs, rhs, out]: [&Argument; 3]) -> Product {
    let [left, right, result] = [lhs, rhs, out].map(|argument| row_major(&argument.sizes, 1));
    let mut product = Product { is_precise: is_precise(op.precision), ..Product::default() };
    for axis in 0..out.sizes.len() {
        match op.origin(axis, [lhs.sizes.len(), rhs.sizes.len()]) {
            [Some(l), Some(r)] => {
                product.batch.push(Axis::plain(out.sizes[axis], [left[l], right[r], result[axis]]));
            }
            [Some(l), None] => product.rows.push(Axis::plain(out.sizes[axis], [left[l], result[axis], 0])),
            [None, Some(r)] => {
                product.columns.push(Axis::plain(out.sizes[axis], [right[r], result[axis], 0]));
            }
            [None, None] => {}
        }
    }
    for (&l, &r) in op.lhs_contracting.iter().zip(&op.rhs_contracting) {
        product.terms.push(Axis::plain(lhs.sizes[l], [left[l], right[r], 0]));
    }
    // Neighbours in the left operand are neighbouring terms.
    product.terms.sort_by_key(|axis| std::cmp::Reverse(axis.strides[0]));
    product
}

fn is_precise(precision: Option<Precision>) -> bool {
    precision == Some(Precision::Highest)
}

fn class(problem: &Problem, is_precise: bool) -> Product {
    let list = |axes: &[Joined]| axes.iter().map(Axis::joined).collect();
    Product {
        batch: vec![Axis {
            count: problem.groups,
            strides: problem.group.map(|stride| stride as i64),
            guard: None,
        }],
        rows: list(&problem.rows),
        columns: list(&problem.columns),
        terms: list(&problem.terms),
        guards: problem.guards.iter().map(|guard| [guard.start as i64, guard.size as i64]).collect(),
        start: problem.start.map(|start| start as i64),
        is_precise,
    }
}

impl Product {
    fn form(&self, fusion: &Fusion, way: Way, patience: Patience) -> ProductForm {
        let guards = |axes: &[Axis]| axes.iter().map(|axis| axis.guard.map(|(guard, _)| guard)).collect();
        let origin = |origin: &Origin<Taken>| match origin {
            Origin::Operand(number) => Origin::Operand(*number),
            Origin::Kernel(taken) => Origin::Kernel(Box::new(of_taken(taken))),
        };
        let [left, right] = &fusion.from;
        let dtype = fusion.arguments[2].dtype;
        let [left_terms, right_terms] = self.by_terms();
        let is_quads = |origin: &Origin<Taken>, operand: usize, by_terms: bool| {
            let words = matches!(dtype, DType::F32 | DType::I32 | DType::U32);
            let tiles = matches!(way, Way::Tiles(_));
            words && tiles && origin.kernel().is_none() && self.is_whole(operand, by_terms, QUAD)
        };
        ProductForm {
            dtype,
            operands: fusion.operands.clone(),
            left: origin(left),
            right: origin(right),
            then: fusion.then.as_ref().map(|taken| Box::new(of_taken(taken))),
            way,
            batch: self.batch.len(),
            rows: guards(&self.rows),
            terms: guards(&self.terms),
            columns: self.columns.len(),
            guards: self.guards.len(),
            left_terms,
            right_columns: !right_terms,
            left_quads: is_quads(left, 0, left_terms),
            right_quads: is_quads(right, 1, right_terms),
            segmented: self.segments(way, patience)[1] > 1,
        }
    }

    /// Whether neighbouring terms are neighbours in the left operand, and not columns in the right one.
    fn by_terms(&self) -> [bool; 2] {
        let one = |axes: &[Axis], operand: usize| axes.last().is_some_and(|axis| axis.strides[operand] == 1);
        [one(&self.terms, 0), !one(&self.columns, 0)]
    }

    /// Where the operands' halves come from, if they are halves whose products are floats.
    fn halves(&self, fusion: &Fusion) -> Option<[Halves; 2]> {
        let of = |which: usize| {
            let array = match &fusion.from[which] {
                Origin::Kernel(taken) => halves(taken)?,
                Origin::Operand(number) => {
                    let is_half = fusion.operands.get(*number as usize)?.dtype == DType::F16;
                    Some(is_half.then_some(*number)?)
                }
            };
            let is_whole = self.is_whole(which, self.by_terms()[which], EIGHTS);
            Some(match array {
                Some(number) if is_whole => Halves::Eights(number),
                Some(number) => Halves::Ones(number),
                None => Halves::Kernel,
            })
        };
        let floats = matches!(fusion.arguments[2].dtype, DType::F16 | DType::F32);
        Some([of(0)?, of(1)?]).filter(|_| floats)
    }

    /// By these matrices, if they are worth it; they are asked for where they might be.
    fn by(&self, matrices: &dyn Fn() -> Option<Matrices>, fusion: &Fusion) -> Option<Way> {
        let (rows, columns) = (count(&self.rows), count(&self.columns));
        if self.is_precise || rows.min(columns) < LEAST_SIDE || count(&self.terms) < LEAST_TERMS {
            return None;
        }
        let halves = self.halves(fusion)?;
        let matrices = matrices()?;
        let large = Way::Cooperative(Cooperative { matrices, large: true, halves });
        let is_large = rows.min(columns) >= large.side() && self.groups(large) >= MANY;
        Some(Way::Cooperative(Cooperative { matrices, large: is_large, halves }))
    }

    /// Who computes what.
    fn way(&self, dtype: DType, patience: Patience) -> Way {
        let (rows, columns) = (count(&self.rows), count(&self.columns));
        let large = Way::Tiles(LARGE);
        let long = count(&self.terms) / SINGLE > patience.terms();
        if rows.min(columns) <= THIN && !long {
            Way::Single
        } else if dtype.size() <= 4 && rows.min(columns) >= large.side() && self.groups(large) >= MANY {
            large
        } else {
            Way::Tiles(SMALL)
        }
    }

    /// Workgroups for a segment of terms.
    fn groups(&self, way: Way) -> usize {
        let tiles = |axes: &[Axis]| count(axes).div_ceil(way.side());
        tiles(&self.rows).saturating_mul(tiles(&self.columns)).saturating_mul(count(&self.batch))
    }

    /// Terms of a segment, and how many there are.
    fn segments(&self, way: Way, patience: Patience) -> [usize; 2] {
        let (terms, groups) = (count(&self.terms), self.groups(way));
        let wanted = (ENOUGH / groups.max(1)).min(terms / SEGMENT).max(terms.div_ceil(patience.terms()));
        if wanted <= 1 || way == Way::Single {
            return [terms.max(1), 1];
        }
        let each = terms.div_ceil(wanted).next_multiple_of(BLOCKS);
        [each, terms.div_ceil(each)]
    }

    /// Whether so many neighbours of an operand, terms or others, are read at once: lines are whole multiples of them.
    fn is_whole(&self, operand: usize, by_terms: bool, together: i64) -> bool {
        let others = if operand == 0 { &self.rows } else { &self.columns };
        let of_others = |axis: &Axis| axis.strides[0];
        let of_terms = |axis: &Axis| axis.strides[operand];
        let whole = |axes: &[Axis], stride: &dyn Fn(&Axis) -> i64, along: bool| match axes.split_last() {
            Some((last, rest)) if along => {
                let last = stride(last) == 1 && last.count as i64 % together == 0 && last.guard.is_none();
                last && rest.iter().all(|axis| stride(axis) % together == 0)
            }
            _ => !along && axes.iter().all(|axis| stride(axis) % together == 0),
        };
        whole(others, &of_others, !by_terms)
            && whole(&self.terms, &of_terms, by_terms)
            && self.batch.iter().all(|axis| axis.strides[operand] % together == 0)
            && self.start[operand] % together == 0
    }

    /// How many elements of the left and of the right operand are read.
    fn reads(&self, dtype: DType) -> [usize; 2] {
        let tile = self.way(dtype, Patience::EVER).side();
        let (rows, columns) = (count(&self.rows), count(&self.columns));
        let each = count(&self.batch).saturating_mul(count(&self.terms));
        [[rows, columns.div_ceil(tile)], [columns, rows.div_ceil(tile)]]
            .map(|[of, times]| each.saturating_mul(of).saturating_mul(times))
    }

    fn words(&self, way: Way, patience: Patience) -> Result<Vec<u32>> {
        let word = |number: i64| {
            let small = i32::try_from(number);
            small.map(|small| small as u32).map_err(|_| {
                unsupported!(
                    "a product of arrays of more than 2^31 elements on a GPU: {number} is not a word"
                )
            })
        };
        let mut words = vec![0];
        for axes in [&self.batch, &self.rows, &self.columns, &self.terms] {
            words.push(word(count(axes) as i64)?);
        }
        for start in self.start {
            words.push(word(start)?);
        }
        for number in self.segments(way, patience) {
            words.push(word(number as i64)?);
        }
        debug_assert_eq!(words.len(), HEAD);
        for (axes, strides) in [(&self.batch, 3), (&self.rows, 2), (&self.columns, 2), (&self.terms, 2)] {
            for axis in axes {
                let at = words.len();
                words.push(word(axis.count as i64)?);
                for &stride in &axis.strides[..strides] {
                    words.push(word(stride)?);
                }
                if strides == 2 {
                    words.push(word(axis.guard.map_or(0, |(_, step)| step))?);
                }
                debug_assert_eq!(words.len(), at + AXIS);
            }
        }
        for guard in self.guards.iter().flatten() {
            words.push(word(*guard)?);
        }
        Ok(words)
    }

    fn tidy(&mut self) {
        for axes in [&mut self.batch, &mut self.rows, &mut self.columns, &mut self.terms] {
            tidy(axes);
        }
    }

    /// Made ready; `matrices` says which the GPU multiplies.
    pub fn prepare(
        mut self,
        gpu: &Gpu,
        fusion: &Fusion,
        matrices: &dyn Fn() -> Option<Matrices>,
    ) -> Result<Prepared> {
        self.tidy();
        let ordinary = || self.way(fusion.arguments[2].dtype, gpu.patience());
        let way = self.by(matrices, fusion).unwrap_or_else(ordinary);
        self.prepare_as(gpu, fusion, way)
    }

    /// The axes are tidy.
    fn prepare_as(self, gpu: &Gpu, fusion: &Fusion, way: Way) -> Result<Prepared> {
        let patience = gpu.patience();
        let form = self.form(fusion, way, patience);
        let mut words = self.words(way, patience)?;
        for taken in fusion.taken() {
            words.extend(numbers::words(&taken.launch, &Form::part(&taken.launch), &Means::EVER)?);
        }
        let small = |groups: usize| {
            u32::try_from(groups).map_err(|_| unsupported!("a product of more than 2^32 tiles on a GPU"))
        };
        let [_, segments] = self.segments(way, patience);
        let groups = small(self.groups(way).saturating_mul(segments))?;
        let results = count(&self.rows) * count(&self.columns) * count(&self.batch);
        let finish = ProductForm { way: Way::Finish, ..form.clone() };
        let prepared = gpu.prepared(Source::Product(form), &words, groups)?;
        if segments == 1 {
            return Ok(prepared);
        }
        let then = gpu.prepared(Source::Product(finish), &words, small(finishing_groups(results))?)?;
        Ok(prepared.then(segments * results * partial(fusion.arguments[2].dtype).size(), then))
    }
}

/// Where halves that a kernel makes are: the operand whose elements they are, if it makes nothing else of them. None
/// if it does not make halves.
fn halves(taken: &Taken) -> Option<Option<u32>> {
    let Value::Real(reg) = taken.value else { return None };
    let kernel = &taken.launch.kernel;
    match kernel.body.instructions().get(reg.0 as usize)?.op {
        ScalarOp::RoundTo(Narrow::F16) => Some(None),
        ScalarOp::Input { operand, .. } => {
            let load = kernel.loads.get(operand as usize)?;
            (kernel.operands.get(load.operand as usize)?.dtype == DType::F16).then_some(())?;
            let view = taken.launch.loads.get(operand as usize)?;
            let same = digits(view, &taken.launch.extents);
            Some(same.filter(|order| *order == taken.order).map(|_| load.operand))
        }
        _ => None,
    }
}

fn of_taken(taken: &Taken) -> TakenForm {
    TakenForm { form: Form::part(&taken.launch), order: taken.order.clone(), value: taken.value }
}

/// Whether shaders compute an op as products.
pub fn is_computed(op: &Op, inputs: &[Argument], outputs: &[Argument]) -> bool {
    let ([lhs, rhs], [out]) = (inputs, outputs) else { return false };
    matches!(op, Op::DotGeneral(_) | Op::ConvGeneralDilated(_))
        && lhs.dtype == out.dtype
        && rhs.dtype == out.dtype
        && types::storage(out.dtype).is_ok()
}

/// Whether it may take kernels in: its elements are as wide as registers.
pub fn takes_kernels(op: &Op, inputs: &[Argument], outputs: &[Argument]) -> bool {
    let is_word = |dtype: DType| ScalarType::of(dtype.real()).is_ok_and(|ty| ty.dtype() == dtype.real());
    let empty = inputs.iter().chain(outputs).any(|argument| argument.sizes.contains(&0));
    is_computed(op, inputs, outputs) && outputs.iter().all(|out| is_word(out.dtype)) && !empty
}

/// Whether its launches write each element of the result once, as a kernel that takes them has to see them.
pub fn takes_result_kernel(op: &Op, arguments: [&Argument; 3]) -> bool {
    launches(op, arguments).is_ok_and(|(products, gaps)| products.len() == 1 && !gaps)
}

/// How often an element of the left operand, or of the right one, is read.
pub fn reads(op: &Op, arguments: [&Argument; 3], which: usize) -> usize {
    let Ok((products, _)) = launches(op, arguments) else { return usize::MAX };
    let elements = arguments[which].bytes() / arguments[which].dtype.size();
    let total: usize = products.iter().map(|product| product.reads(arguments[2].dtype)[which]).sum();
    total.div_ceil(elements.max(1))
}

pub fn launches(op: &Op, arguments: [&Argument; 3]) -> Result<(Vec<Product>, bool)> {
    match op {
        _ if arguments.iter().any(|argument| argument.sizes.contains(&0)) => Ok((Vec::new(), true)),
        Op::DotGeneral(op) => Ok((vec![dot(op, arguments)], false)),
        Op::ConvGeneralDilated(op) => classes(op, arguments),
        _ => Err(internal_error!("{} is no product", op.name())),
    }
}

/// A product of two operands of halves whose sums are floats, by matrices, in tiles of this size.
pub fn by_matrices(
    gpu: &Gpu,
    op: &DotGeneral,
    fusion: &Fusion,
    matrices: Matrices,
    large: bool,
) -> Result<Prepared> {
    let mut product = dot(op, fusion.arguments.each_ref());
    product.tidy();
    let halves = product.halves(fusion);
    let halves = halves.ok_or_else(|| internal_error!("operands of other numbers than halves"))?;
    product.prepare_as(gpu, fusion, Way::Cooperative(Cooperative { matrices, large, halves }))
}

fn classes(op: &ConvGeneralDilated, [lhs, rhs, out]: [&Argument; 3]) -> Result<(Vec<Product>, bool)> {
    let classes = convolution::problems(op, &lhs.sizes, &rhs.sizes, &out.sizes, false)?;
    Ok((
        classes.problems.iter().map(|problem| class(problem, is_precise(op.precision))).collect(),
        classes.gaps,
    ))
}

/// A product of matrices for a part of the rows of its result (see [`super::bind_part`]).
pub fn part(
    op: &DotGeneral,
    arguments: [&Argument; 3],
    (part, own): (&[(usize, usize)], [bool; 3]),
) -> Product {
    let mut product = dot(op, arguments);
    let Product { batch, rows, start, .. } = &mut product;
    let batch = batch.iter_mut().map(|axis| (axis, &[0, 1, 2][..]));
    let rows = rows.iter_mut().map(|axis| (axis, &[0, 2][..]));
    let loops = batch.chain(rows).filter(|(axis, _)| axis.count != 1);
    for ((axis, operands), &(first, length)) in loops.zip(part) {
        axis.count = length;
        for (stride, &operand) in axis.strides.iter().zip(operands) {
            if !own[operand] {
                start[operand] += stride * first as i64;
            }
        }
    }
    product
}
