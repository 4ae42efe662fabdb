//! `dot_general`: products of matrices, over any axes, with batches.
//!
//! The axes of each operand are gathered into batch, free and contracted groups.
//! A group that one stride walks is used where it lies; otherwise the operand is
//! copied into that order first. Floats and integers go to register blocks
//! (`blocked`), those of few rows or terms to `thin`, a matrix and a vector to
//! `vectors`; complex numbers, and floats on x86-64 without fused operations, to
//! the `gemm` crate, cut into pieces that depend on the sizes alone; what is tiny
//! to loops here. Long sums are cut into panels whose products are added in pairs
//! (`panels`).

use std::ops::Range;

use ferrax_compile::{Argument, Path};
use ferrax_ir::ops::DotGeneral;
use ferrax_ir::tensor::element_count;
use ferrax_ir::{DType, Result, Sizes, internal_error, unsupported};
use gemm::Parallelism;
use smallvec::SmallVec;

use super::blocked;
use super::copy::{CopyLoop, StridedCopy, byte_strides};
use super::matrices::{Matrices, Multiply, SHORT};
use super::micro::Number;
use super::panels::{self, Panels};
use super::thin::{self, TINY};
use super::vectors;
use crate::alloc::Buffer;
use crate::call::{Call, Kernel};
use crate::pool;
use crate::tuning::{Products, Tuning};

/// One operand as a batch of matrices, in elements.
#[derive(Debug, Clone)]
struct Side {
    /// Rows (of the left) or columns (of the right), and the contracted index.
    free_stride: isize,
    contracted_stride: isize,
    /// Brings the operand into batch, free, contracted order first.
    copy: Option<(StridedCopy, usize)>,
    batch_strides: SmallVec<[isize; 4]>,
}

impl Side {
    fn strides(&self) -> [isize; 2] {
        [self.free_stride, self.contracted_stride]
    }
}

/// How register blocks compute a product: by all threads together, and with its right operand packed before.
#[derive(Debug, Clone, Copy)]
struct Blocks {
    shared: Multiply,
    packed_bytes: fn(usize, usize) -> usize,
    pack: unsafe fn(&Matrices, *mut u8, &Products) -> Result<()>,
}

impl Blocks {
    fn of<T: Number>() -> Blocks {
        Blocks {
            shared: by_blocks::<T, true>,
            packed_bytes: blocked::packed_bytes::<T>,
            pack: blocked::pack::<T>,
        }
    }
}

#[derive(Debug)]
struct Product {
    dtype: DType,
    m: usize,
    n: usize,
    k: usize,
    batch: SmallVec<[usize; 4]>,
    left: Side,
    right: Side,
    run: Multiply,
    /// Where register blocks compute it.
    blocks: Option<Blocks>,
    /// How sums longer than a panel are cut.
    panels: Option<Panels>,
    tuning: &'static Products,
}

/// The kernel of `op`; operands and result share a dtype.
pub fn bind(
    op: &DotGeneral,
    inputs: &[Argument],
    outputs: &[Argument],
    tuning: &'static Tuning,
) -> Result<Box<dyn Kernel>> {
    let tuning = &tuning.products;
    let (left, right, out) = (&inputs[0], &inputs[1], &outputs[0]);
    let dtype = out.dtype;
    if left.dtype != dtype || right.dtype != dtype {
        return Err(unsupported!("a product of {} and {} to {dtype} on the CPU", left.dtype, right.dtype));
    }
    let (run, blocks): (Multiply, Option<Blocks>) = match dtype {
        DType::F32 => (float::<f32, 16, 8>, Some(Blocks::of::<f32>())),
        DType::F64 => (float::<f64, 8, 4>, Some(Blocks::of::<f64>())),
        DType::C64 => (blas::<gemm::c32>, None),
        DType::C128 => (blas::<gemm::c64>, None),
        DType::I8 | DType::U8 => (integer::<u8>, Some(Blocks::of::<u8>())),
        DType::I16 | DType::U16 => (integer::<u16>, Some(Blocks::of::<u16>())),
        DType::I32 | DType::U32 => (integer::<u32>, Some(Blocks::of::<u32>())),
        DType::I64 | DType::U64 => (integer::<u64>, Some(Blocks::of::<u64>())),
        other => return Err(unsupported!("products of {other} on the CPU")),
    };
    // Pairs of contracted axes in the order of the left operand.
    let mut pairs: SmallVec<[(usize, usize); 4]> =
        op.lhs_contracting.iter().copied().zip(op.rhs_contracting.iter().copied()).collect();
    pairs.sort_unstable();
    let lhs_contracted: SmallVec<[usize; 4]> = pairs.iter().map(|pair| pair.0).collect();
    let rhs_contracted: SmallVec<[usize; 4]> = pairs.iter().map(|pair| pair.1).collect();
    let (left_side, m, k) = side(left, &op.lhs_batch, &lhs_contracted);
    let (right_side, n, _) = side(right, &op.rhs_batch, &rhs_contracted);
    let batch = op.lhs_batch.iter().map(|&axis| left.sizes[axis]).collect();
    // Terms are added to the result one by one where a row vector meets rows, or columns a column vector.
    let in_order = (m == 1 && right_side.free_stride == 1) || (n == 1 && left_side.free_stride == 1);
    let length = if in_order { SHORT } else { panels::LONG };
    let panels = Panels::new(dtype, run, length, tuning).filter(|_| k > length);
    Path::ProductPanels.take_if(panels.is_some());
    Path::ProductCopied.take_if(left_side.copy.is_some() || right_side.copy.is_some());
    let numbers = if dtype == DType::F32 { [16, 8] } else { [8, 4] };
    let way = thin::way(m, n, k, numbers).filter(|_| dtype.is_float() && right_side.free_stride == 1);
    let is_tiny = m * n * k <= TINY;
    let path = match way {
        _ if dtype.is_integer() => Path::ProductIntegers,
        Some((_, path)) => path,
        None if dtype.is_float()
            && !is_tiny
            && vectors::are([m, n], [left_side.strides(), right_side.strides()]) =>
        {
            Path::ProductVector
        }
        None if dtype.is_float() && !is_tiny && thin::floats_in_blocks() => Path::ProductBlocks,
        None => Path::ProductLarge,
    };
    path.take();
    let in_blocks = path == Path::ProductBlocks || (path == Path::ProductIntegers && !is_tiny);
    let blocks = blocks.filter(|_| in_blocks && panels.is_none());
    Ok(Box::new(Product {
        dtype,
        m,
        n,
        k,
        batch,
        left: left_side,
        right: right_side,
        run,
        blocks,
        panels,
        tuning,
    }))
}

/// An operand's groups of axes; gives the sizes of the free and contracted ones.
fn side(operand: &Argument, batch: &[usize], contracted: &[usize]) -> (Side, usize, usize) {
    let sizes = &operand.sizes;
    let strides = byte_strides(sizes, 1);
    let free: SmallVec<[usize; 4]> =
        (0..sizes.len()).filter(|axis| !batch.contains(axis) && !contracted.contains(axis)).collect();
    let count = |axes: &[usize]| element_count(&axes.iter().map(|&axis| sizes[axis]).collect::<Sizes>());
    let (free_count, contracted_count) = (count(&free), count(contracted));
    // The stride of a group that can be walked as one axis.
    let joined = |axes: &[usize]| -> Option<isize> {
        let moving: SmallVec<[usize; 4]> = axes.iter().copied().filter(|&axis| sizes[axis] != 1).collect();
        let chained = moving
            .windows(2)
            .all(|pair| strides[pair[0]] == strides[pair[1]].saturating_mul(sizes[pair[1]] as isize));
        chained.then(|| moving.last().map_or(1, |&axis| strides[axis]))
    };
    let side = match (joined(&free), joined(contracted)) {
        (Some(free_stride), Some(contracted_stride)) => Side {
            free_stride,
            contracted_stride,
            copy: None,
            batch_strides: batch.iter().map(|&axis| strides[axis]).collect(),
        },
        _ => {
            let order: SmallVec<[usize; 6]> = batch.iter().chain(&free).chain(contracted).copied().collect();
            let ordered: SmallVec<[usize; 6]> = order.iter().map(|&axis| sizes[axis]).collect();
            let to = byte_strides(&ordered, 1);
            let element = operand.dtype.size();
            let loops = order.iter().zip(&to).map(|(&axis, &to)| CopyLoop {
                count: sizes[axis],
                from: strides[axis] * element as isize,
                to: to * element as isize,
            });
            Side {
                free_stride: contracted_count as isize,
                contracted_stride: 1,
                copy: Some((StridedCopy::new(loops, element), operand.bytes())),
                batch_strides: to[..batch.len()].iter().copied().collect(),
            }
        }
    };
    (side, free_count, contracted_count)
}

impl Product {
    /// The matrices of one element of the batch.
    fn matrices(&self, operands: &Pointers, batch: usize) -> Matrices {
        let (mut left_at, mut right_at, mut rest) = (0isize, 0isize, batch);
        for (axis, &count) in self.batch.iter().enumerate().rev() {
            let index = (rest % count) as isize;
            rest /= count;
            left_at += index * self.left.batch_strides[axis];
            right_at += index * self.right.batch_strides[axis];
        }
        let element = self.dtype.size() as isize;
        Matrices {
            m: self.m,
            n: self.n,
            k: self.k,
            left: operands.left.wrapping_offset(left_at * element),
            left_row: self.left.free_stride,
            left_col: self.left.contracted_stride,
            right: operands.right.wrapping_offset(right_at * element),
            right_row: self.right.contracted_stride,
            right_col: self.right.free_stride,
            out: operands.out.wrapping_offset((batch * self.m * self.n) as isize * element),
            out_row: self.n as isize,
            packed: None,
        }
    }
}

struct Pointers {
    left: *const u8,
    right: *const u8,
    out: *mut u8,
}

// SAFETY: pieces write disjoint parts of the result and only read the operands.
unsafe impl Sync for Pointers {}

impl Kernel for Product {
    unsafe fn run(&self, call: &Call<'_>) -> Result<()> {
        let element = self.dtype.size();
        let batches: usize = self.batch.iter().product();
        let total = batches * self.m * self.n;
        if total == 0 {
            return Ok(());
        }
        if self.k == 0 {
            // SAFETY: the output holds `total` elements; all zeros is zero.
            unsafe { call.outputs[0].write_bytes(0, total * element) };
            return Ok(());
        }
        let ordered = |side: &Side, pointer: *const u8| -> Result<(Option<Buffer>, *const u8)> {
            let Some((copy, bytes)) = &side.copy else { return Ok((None, pointer)) };
            let buffer = Buffer::new(*bytes)?;
            // SAFETY: the copy visits the operand's elements and fills a buffer of its size.
            unsafe { copy.run(pointer, buffer.pointer()) };
            let start = buffer.pointer().cast_const();
            Ok((Some(buffer), start))
        };
        let (_left, left) = ordered(&self.left, call.inputs[0])?;
        let (_right, right) = ordered(&self.right, call.inputs[1])?;
        let pointers = Pointers { left, right, out: call.outputs[0] };
        let matrices = |batch: usize| {
            let pointers = &pointers;
            self.matrices(pointers, batch)
        };
        if let Some(panels) = &self.panels {
            return panels.run(batches, &matrices);
        }
        let work = self.m.saturating_mul(self.n).saturating_mul(self.k);
        if let Some(Blocks { shared, .. }) = self.blocks
            && work >= self.tuning.serial
            && batches < 2 * pool::threads()
        {
            Path::ProductShared.take();
            return (0..batches).try_for_each(|batch| shared(&matrices(batch), self.tuning));
        }
        // Pieces along the longer side of each matrix.
        let by_rows = self.m >= self.n;
        let long = self.m.max(self.n);
        let &Products { serial, pieces, least_piece, multiple, .. } = self.tuning;
        let fit = long.div_ceil(least_piece).max(2).min(long.div_ceil((least_piece / 2).max(1)));
        let wanted = (work / serial).min(pieces).min(fit);
        let is_alike = |length: usize| {
            let part = if by_rows { [length, self.n] } else { [self.m, length] };
            thin::alike(self.dtype, [self.m, self.n, self.k], part)
        };
        // Register blocks of a product are one thread's, or all threads' together.
        let most = if self.blocks.is_some() { 1 } else { wanted };
        let (pieces, length) = thin::pieces(long, most, multiple, is_alike);
        let piece = |number: usize| -> Result<()> {
            let (batch, piece) = (number / pieces, number % pieces);
            let range = piece * length..((piece + 1) * length).min(long);
            let whole = matrices(batch);
            let part = if by_rows {
                whole.part(range, 0..self.n, 0..self.k, element)
            } else {
                whole.part(0..self.m, range, 0..self.k, element)
            };
            (self.run)(&part, self.tuning)
        };
        let units = batches * pieces;
        Path::ProductPieces.take_if(pieces > 1);
        if work.saturating_mul(batches) < serial {
            (0..units).try_for_each(piece)?;
        } else {
            // Small products in groups, so that a chunk is worth its claim.
            let group = (serial / 4 / (work / pieces).max(1)).clamp(1, units);
            Path::ProductGroups.take_if(group > 1);
            pool::run_fallibly(units.div_ceil(group), &|chunk| {
                (chunk * group..((chunk + 1) * group).min(units)).try_for_each(piece)
            })?;
        }
        Ok(())
    }

    fn rows_alike(&self, rows: Range<usize>) -> bool {
        let terms = self.panels.as_ref().map_or_else(|| [self.k].into_iter().collect(), |p| p.terms(self.k));
        let is_alike = |rows: usize| {
            let alike = |&terms: &usize| thin::alike(self.dtype, [self.m, self.n, terms], [rows, self.n]);
            rows == self.m || terms.iter().all(alike)
        };
        if self.m == 0 {
            return true;
        }
        // Those of the first matrix, of the last, and whole ones between.
        let (first, last) = (rows.start / self.m, rows.end / self.m);
        match first == last {
            true => is_alike(rows.len()),
            false => {
                let rest = rows.end % self.m;
                is_alike(self.m - rows.start % self.m) && (rest == 0 || is_alike(rest))
            }
        }
    }

    fn prepared(&self, blocks: usize) -> usize {
        let batches = self.batch.iter().product::<usize>();
        // A block for each matrix has the whole of its operands.
        match self.blocks {
            Some(Blocks { packed_bytes, .. }) if blocks > batches && self.m > 1 => {
                packed_bytes(self.n, self.k).saturating_mul(batches)
            }
            _ => 0,
        }
    }

    unsafe fn prepare(&self, call: &Call<'_>) -> Result<()> {
        let Some(Blocks { packed_bytes, pack, .. }) = self.blocks else { return Ok(()) };
        Path::ProductPacked.take();
        let pointers = Pointers { left: call.inputs[0], right: call.inputs[1], out: std::ptr::null_mut() };
        (0..self.batch.iter().product()).try_for_each(|batch| {
            let to = call.scratch.wrapping_add(batch * packed_bytes(self.n, self.k));
            // SAFETY: the right operand is the caller's; the scratch memory has the bytes of all batches.
            unsafe { pack(&self.matrices(&pointers, batch), to, self.tuning) }
        })
    }

    unsafe fn run_rows(&self, call: &Call<'_>, rows: Range<usize>) -> Result<()> {
        if self.left.copy.is_some() || self.right.copy.is_some() {
            return Err(internal_error!("operands of a product by rows are not in order"));
        }
        let pointers = Pointers { left: call.inputs[0], right: call.inputs[1], out: call.outputs[0] };
        let element = self.dtype.size();
        let mut from = rows.start;
        while from < rows.end {
            let (batch, first) = (from / self.m, from % self.m);
            let end = self.m.min(first + rows.end - from);
            let part = || {
                let pointers = &pointers;
                self.matrices(pointers, batch).part(first..end, 0..self.n, 0..self.k, element)
            };
            match &self.panels {
                _ if self.k == 0 => {
                    // SAFETY: these rows of the output; all zeros is zero.
                    unsafe { part().out.write_bytes(0, (end - first) * self.n * element) };
                }
                Some(panels) => panels.run(1, &|_| part())?,
                None => {
                    let packed = self.blocks.filter(|_| !call.scratch.is_null()).map(|blocks| {
                        call.scratch.wrapping_add(batch * (blocks.packed_bytes)(self.n, self.k))
                    });
                    (self.run)(&Matrices { packed, ..part() }, self.tuning)?;
                }
            }
            from += end - first;
        }
        Ok(())
    }
}

/// Sums of products by plain loops.
fn plain<T: Copy>(of: &Matrices, zero: T, fused: impl Fn(T, T, T) -> T) {
    let (left, right, out) = (of.left.cast::<T>(), of.right.cast::<T>(), of.out.cast::<T>());
    for i in 0..of.m as isize {
        for j in 0..of.n as isize {
            let mut sum = zero;
            for p in 0..of.k as isize {
                // SAFETY: indices stay inside the operands' matrices.
                sum = unsafe {
                    fused(
                        *left.offset(i * of.left_row + p * of.left_col),
                        *right.offset(p * of.right_row + j * of.right_col),
                        sum,
                    )
                };
            }
            // SAFETY: the result has `m` rows of `n` elements, `out_row` apart.
            unsafe { *out.offset(i * of.out_row + j) = sum };
        }
    }
}

/// [`plain`] of sizes that are known: all is in registers.
fn sized<T: Blas, const M: usize, const N: usize, const K: usize>(of: &Matrices) {
    let (left, right, out) = (of.left.cast::<T>(), of.right.cast::<T>(), of.out.cast::<T>());
    // SAFETY: the product has these sizes.
    unsafe {
        let at = |p: usize, j: usize| *right.offset(p as isize * of.right_row + j as isize * of.right_col);
        let right: [[T; N]; K] = std::array::from_fn(|p| std::array::from_fn(|j| at(p, j)));
        for i in 0..M {
            let at = |p: usize| *left.offset(i as isize * of.left_row + p as isize * of.left_col);
            let left: [T; K] = std::array::from_fn(at);
            let sum = |j: usize| (0..K).fold(T::ZERO, |sum, p| T::fused(left[p], right[p][j], sum));
            let sums: [T; N] = std::array::from_fn(sum);
            *out.offset(i as isize * of.out_row).cast() = sums;
        }
    }
}

/// Has the `gemm` crate look at the machine's caches, which it does once.
pub(crate) fn settle() {
    let (one, mut out) = ([1f32], [0f32]);
    // SAFETY: matrices of one element, with strides that are not used.
    unsafe {
        gemm::gemm(
            1,
            1,
            1,
            out.as_mut_ptr(),
            1,
            1,
            false,
            one.as_ptr(),
            1,
            1,
            one.as_ptr(),
            1,
            1,
            0.0,
            1.0,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

/// Numbers that the `gemm` crate multiplies.
trait Blas: Copy + 'static {
    const ZERO: Self;
    const ONE: Self;
    fn fused(a: Self, b: Self, c: Self) -> Self;
}

impl Blas for f32 {
    const ZERO: f32 = 0.0;
    const ONE: f32 = 1.0;
    fn fused(a: f32, b: f32, c: f32) -> f32 {
        a * b + c
    }
}

impl Blas for f64 {
    const ZERO: f64 = 0.0;
    const ONE: f64 = 1.0;
    fn fused(a: f64, b: f64, c: f64) -> f64 {
        a * b + c
    }
}

impl Blas for gemm::c32 {
    const ZERO: gemm::c32 = gemm::c32 { re: 0.0, im: 0.0 };
    const ONE: gemm::c32 = gemm::c32 { re: 1.0, im: 0.0 };
    fn fused(a: gemm::c32, b: gemm::c32, c: gemm::c32) -> gemm::c32 {
        a * b + c
    }
}

impl Blas for gemm::c64 {
    const ZERO: gemm::c64 = gemm::c64 { re: 0.0, im: 0.0 };
    const ONE: gemm::c64 = gemm::c64 { re: 1.0, im: 0.0 };
    fn fused(a: gemm::c64, b: gemm::c64, c: gemm::c64) -> gemm::c64 {
        a * b + c
    }
}

fn blas<T: Blas>(of: &Matrices, _: &Products) -> Result<()> {
    if of.m * of.n * of.k <= TINY {
        match [of.m, of.n, of.k] {
            [2, 2, 2] => sized::<T, 2, 2, 2>(of),
            [3, 3, 3] => sized::<T, 3, 3, 3>(of),
            [4, 4, 4] => sized::<T, 4, 4, 4>(of),
            [2, 1, 2] => sized::<T, 2, 1, 2>(of),
            [3, 1, 3] => sized::<T, 3, 1, 3>(of),
            [4, 1, 4] => sized::<T, 4, 1, 4>(of),
            _ => plain(of, T::ZERO, T::fused),
        }
        return Ok(());
    }
    // SAFETY: the strides walk the operands' matrices, whose sizes were checked at bind.
    unsafe {
        gemm::gemm(
            of.m,
            of.n,
            of.k,
            of.out.cast::<T>(),
            1,
            of.out_row,
            false,
            of.left.cast::<T>(),
            of.left_col,
            of.left_row,
            of.right.cast::<T>(),
            of.right_col,
            of.right_row,
            T::ZERO,
            T::ONE,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
    Ok(())
}

fn float<T: Blas + vectors::Lanes + Number, const W: usize, const HALF: usize>(
    of: &Matrices,
    tuning: &Products,
) -> Result<()> {
    let is_tiny = of.m * of.n * of.k <= TINY;
    if thin::multiply::<T, W, HALF>(of) || (!is_tiny && vectors::multiply::<T>(of)) {
        return Ok(());
    }
    if is_tiny || !thin::floats_in_blocks() {
        blas::<T>(of, tuning)
    } else {
        by_blocks::<T, false>(of, tuning)
    }
}

fn by_blocks<T: Number, const SHARED: bool>(of: &Matrices, tuning: &Products) -> Result<()> {
    // SAFETY: the strides walk the operands' matrices, whose sizes were checked at bind.
    unsafe { blocked::multiply::<T>(of, SHARED, tuning) }
}

/// Integers that wrap.
fn integer<T: Number>(of: &Matrices, tuning: &Products) -> Result<()> {
    if of.m * of.n * of.k > TINY {
        return by_blocks::<T, false>(of, tuning);
    }
    plain(of, T::zeroed(), T::mul_add);
    Ok(())
}
