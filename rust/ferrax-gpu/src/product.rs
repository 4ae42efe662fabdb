//! Products of matrices and convolutions: the sizes that their shaders read.
//!
//! In: an op whose operands and result have one dtype. Out: launches of [`crate::wgsl::product`], one for a product, one
//! for each class of a convolution. Cost of a run: the multiplications, rounded up to tiles.

use ferrax_compile::Argument;
use ferrax_compile::convolution::{self, Axis as Joined, Problem};
use ferrax_ir::ops::{ConvGeneralDilated, DotGeneral};
use ferrax_ir::tensor::row_major;
use ferrax_ir::{Op, Result, unsupported};

use crate::backend::Library;
use crate::gpu::{Gpu, Prepared};
use crate::memory::Memory;
use crate::pipelines::Source;
use crate::wgsl::product::{AXIS, HEAD, ProductForm, TILE, Way};
use crate::wgsl::types;

/// Rows or columns below which most of a tile would be idle, and, where results are few, the terms from which on
/// each is worth a workgroup.
const THIN: usize = 4;
const FEW: usize = 4096;
const LONG: usize = 512;

/// Launches whose results together are the result, which has so many bytes.
#[derive(Debug)]
struct Products {
    launches: Vec<Prepared>,
    bytes: usize,
    /// Whether some of the result is no launch's, and zero.
    gaps: bool,
}

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
struct Product {
    batch: Vec<Axis>,
    rows: Vec<Axis>,
    columns: Vec<Axis>,
    terms: Vec<Axis>,
    guards: Vec<[i64; 2]>,
    start: [i64; 3],
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
    let mut product = Product::default();
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

fn class(problem: &Problem) -> Product {
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
    }
}

impl Product {
    fn form(&self, argument: &Argument) -> ProductForm {
        let guards = |axes: &[Axis]| axes.iter().map(|axis| axis.guard.map(|(guard, _)| guard)).collect();
        let (rows, columns) = (count(&self.rows), count(&self.columns));
        let few = rows * columns * count(&self.batch) <= FEW && count(&self.terms) >= LONG;
        let one = |axes: &[Axis], operand: usize| axes.last().is_some_and(|axis| axis.strides[operand] == 1);
        ProductForm {
            dtype: argument.dtype,
            way: if few || rows.min(columns) <= THIN { Way::Single } else { Way::Tiles },
            batch: self.batch.len(),
            rows: guards(&self.rows),
            terms: guards(&self.terms),
            columns: self.columns.len(),
            guards: self.guards.len(),
            left_terms: one(&self.terms, 0),
            right_columns: one(&self.columns, 0),
        }
    }

    fn words(&self) -> Result<Vec<u32>> {
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

    fn prepare(mut self, gpu: &Gpu, out: &Argument) -> Result<Prepared> {
        for axes in [&mut self.batch, &mut self.rows, &mut self.columns, &mut self.terms] {
            tidy(axes);
        }
        let form = self.form(out);
        let (rows, columns) = (count(&self.rows), count(&self.columns));
        let parts = match form.way {
            Way::Tiles => rows.div_ceil(TILE) * columns.div_ceil(TILE),
            Way::Single => rows * columns,
        };
        let groups = u32::try_from(parts * count(&self.batch));
        let groups = groups.map_err(|_| unsupported!("a product of more than 2^32 tiles on a GPU"))?;
        gpu.prepared(Source::Product(form), &self.words()?, groups)
    }
}

/// What computes an op, if it is a product or a convolution that shaders compute.
pub fn bind(
    gpu: &Gpu,
    op: &Op,
    inputs: &[Argument],
    outputs: &[Argument],
) -> Result<Option<Box<dyn Library>>> {
    let ([lhs, rhs], [out]) = (inputs, outputs) else { return Ok(None) };
    if lhs.dtype != out.dtype || rhs.dtype != out.dtype || types::storage(out.dtype).is_err() {
        return Ok(None);
    }
    let empty = [lhs, rhs, out].iter().any(|argument| argument.sizes.contains(&0));
    let (products, gaps): (Vec<Product>, bool) = match op {
        _ if empty && matches!(op, Op::DotGeneral(_) | Op::ConvGeneralDilated(_)) => (Vec::new(), true),
        Op::DotGeneral(op) => (vec![dot(op, [lhs, rhs, out])], false),
        Op::ConvGeneralDilated(op) => classes(op, [lhs, rhs, out])?,
        _ => return Ok(None),
    };
    let launches = products.into_iter().map(|product| product.prepare(gpu, out)).collect::<Result<_>>()?;
    Ok(Some(Box::new(Products { launches, bytes: out.bytes(), gaps })))
}

/// A product of matrices for a part of the rows of its result: a range of each of its first loops, of those with several
/// indices. Of left, right and result it is said whether they begin with the part.
pub(crate) fn bind_part(
    gpu: &Gpu,
    op: &DotGeneral,
    (inputs, outputs): (&[Argument], &[Argument]),
    (part, own): (&[(usize, usize)], [bool; 3]),
) -> Result<Option<Prepared>> {
    let ([lhs, rhs], [out]) = (inputs, outputs) else { return Ok(None) };
    let empty = [lhs, rhs, out].iter().any(|argument| argument.sizes.contains(&0));
    if empty || lhs.dtype != out.dtype || rhs.dtype != out.dtype || types::storage(out.dtype).is_err() {
        return Ok(None);
    }
    let mut product = dot(op, [lhs, rhs, out]);
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
    Ok(Some(product.prepare(gpu, out)?))
}

impl Library for Products {
    fn run(&self, gpu: &Gpu, inputs: &[Memory]) -> Result<Vec<Memory>> {
        let result = if self.gaps { gpu.zeros(self.bytes)? } else { gpu.allocate(self.bytes)? };
        for launch in &self.launches {
            gpu.launch(launch, inputs.iter().chain([&result]))?;
        }
        Ok(vec![result])
    }
}

fn classes(op: &ConvGeneralDilated, [lhs, rhs, out]: [&Argument; 3]) -> Result<(Vec<Product>, bool)> {
    let classes = convolution::problems(op, &lhs.sizes, &rhs.sizes, &out.sizes, false)?;
    Ok((classes.problems.iter().map(class).collect(), classes.gaps))
}
