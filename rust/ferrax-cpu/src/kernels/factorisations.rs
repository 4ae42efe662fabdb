//! Factorisations of matrices and triangular systems (crate ferrax-linalg).
//!
//! A batch is cut into runs of matrices, which threads share; each run is handed over as a whole, for
//! small matrices are computed side by side.

use std::ops::Range;

use ferrax_compile::{Argument, Path};
use ferrax_ir::{DType, Op, Result};
use ferrax_linalg::{Diagonals, Factored, Scalar, Side, Triangle, Tridiagonal, c32, c64, side_by_side};

use crate::call::{Call, Kernel};
use crate::pool;
use crate::tuning::{Threads, Tuning};

/// Matrices that stay together, as many as are computed side by side.
const TOGETHER: usize = 16;

#[derive(Clone, Copy, Debug)]
enum What {
    Cholesky,
    Lu,
    Solve(Triangle),
    Geqrf,
    Geqp3,
    Product,
    Ormqr(Side),
    Hessenberg,
    /// Of the lower triangle, or of the upper one.
    Tridiagonal(bool),
    /// Whether pivots that are as good as zero are changed.
    SolveTridiagonal(bool),
    Schur,
    /// Whether there are left eigenvectors.
    Eig(bool),
}

/// What is computed of the matrices of a batch. Sizes are elements a matrix, or vector, of each operand.
struct Factorisation {
    what: What,
    count: usize,
    /// Of the matrices of the first operand.
    rows: usize,
    columns: usize,
    /// Whether matrices are computed side by side.
    beside: bool,
    inputs: Vec<usize>,
    outputs: Vec<usize>,
    run: unsafe fn(&Factorisation, Range<usize>, &Call<'_>),
    tuning: &'static Threads,
}

impl std::fmt::Debug for Factorisation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Factorisation({:?}, {} of {} x {})", self.what, self.count, self.rows, self.columns)
    }
}

/// The kernel, if there are elements.
pub fn bind(
    op: &Op,
    inputs: &[Argument],
    outputs: &[Argument],
    tuning: &'static Tuning,
) -> Option<Box<dyn Kernel>> {
    let what = match op {
        Op::Cholesky(_) => What::Cholesky,
        Op::Lu(_) => What::Lu,
        Op::TriangularSolve(op) => What::Solve(Triangle {
            from_left: op.left_side,
            lower: op.lower,
            transposed: op.transpose_a,
            conjugated: op.conjugate_a,
            unit: op.unit_diagonal,
        }),
        Op::Geqrf(_) => What::Geqrf,
        Op::Geqp3(_) => What::Geqp3,
        Op::HouseholderProduct(_) => What::Product,
        Op::Ormqr(op) => What::Ormqr(Side { left: op.left, adjoint: op.transpose }),
        Op::Hessenberg(_) => What::Hessenberg,
        Op::Tridiagonal(op) => What::Tridiagonal(op.lower),
        Op::TridiagonalSolve(op) => What::SolveTridiagonal(op.perturb_singular),
        Op::Schur(_) => What::Schur,
        Op::Eig(op) => What::Eig(op.compute_left_eigenvectors),
        _ => return None,
    };
    let (rows, columns, batch) = match (what, inputs[0].sizes.as_slice()) {
        (What::SolveTridiagonal(_), [batch @ .., size]) => (*size, 1, batch),
        (_, [batch @ .., rows, columns]) => (*rows, *columns, batch),
        _ => return None,
    };
    let count: usize = batch.iter().product();
    let nothing = |argument: &Argument| argument.sizes.contains(&0);
    // Without factors the product of reflections is the identity.
    if nothing(&inputs[0]) || nothing(&outputs[0]) {
        return None;
    }
    let run = match inputs[0].dtype {
        DType::F32 => run::<f32>,
        DType::F64 => run::<f64>,
        DType::C64 => run::<c32>,
        DType::C128 => run::<c64>,
        _ => return None,
    };
    let each = |argument: &Argument| argument.sizes.iter().product::<usize>() / count;
    let beside = match what {
        What::Cholesky | What::Lu => side_by_side(rows.max(columns), rows.max(columns), count),
        What::Solve(_) => side_by_side(rows, rows.max(each(&inputs[1]) / rows), count),
        _ => false,
    };
    if count > 1 && beside { Path::SmallMatrices } else { Path::LargeMatrices }.take();
    Some(Box::new(Factorisation {
        what,
        count,
        rows,
        columns,
        beside,
        inputs: inputs.iter().map(each).collect(),
        outputs: outputs.iter().map(each).collect(),
        run,
        tuning: &tuning.threads,
    }))
}

struct Pointers<'a>(&'a Call<'a>);

// SAFETY: runs read and write the matrices of their own.
unsafe impl Sync for Pointers<'_> {}

impl Kernel for Factorisation {
    unsafe fn run(&self, call: &Call<'_>) -> Result<()> {
        let work = self.count * self.outputs[0].max(self.inputs[0]) * self.rows.min(self.columns);
        let units = self.count.div_ceil(TOGETHER);
        let alone = self.rows > TOGETHER && !self.beside;
        let most = (4 * pool::threads()).min(if alone { self.count } else { units });
        let chunks = (work / self.tuning.factorisations).clamp(1, most.max(1));
        let pointers = Pointers(call);
        let bound = |chunk: usize| match chunks {
            _ if chunk == chunks => self.count,
            _ if alone => chunk * self.count / chunks,
            _ => chunk * units / chunks * TOGETHER,
        };
        pool::run_interruptibly(chunks, &|chunk| {
            let pointers = &pointers;
            // SAFETY: the operands are those that the kernel was bound for, and chunks are apart.
            unsafe { (self.run)(self, bound(chunk)..bound(chunk + 1), pointers.0) };
        })
    }
}

/// The part of an operand that belongs to these matrices.
///
/// # Safety
/// The operand holds so many elements of this type for each matrix, and nobody writes them meanwhile.
unsafe fn read<'a, T>(from: *const u8, each: usize, matrices: &Range<usize>) -> &'a [T] {
    // SAFETY: the caller promises the elements; operands are aligned as arrays are.
    unsafe { std::slice::from_raw_parts(from.cast::<T>().add(matrices.start * each), matrices.len() * each) }
}

/// The same, to be overwritten.
///
/// # Safety
/// The operand holds so many elements of this type for each matrix, and nobody else uses them meanwhile.
unsafe fn write<'a, T>(to: *mut u8, each: usize, matrices: &Range<usize>) -> &'a mut [T] {
    // SAFETY: the caller promises the elements; operands are aligned as arrays are.
    unsafe {
        std::slice::from_raw_parts_mut(to.cast::<T>().add(matrices.start * each), matrices.len() * each)
    }
}

/// # Safety
/// The operands are those of the op that the kernel was bound for, of elements of this type where they are
/// no integers of 32 bits, and nobody else uses the results of these matrices.
unsafe fn run<T: Scalar>(of: &Factorisation, matrices: Range<usize>, call: &Call<'_>) {
    if matrices.is_empty() {
        return;
    }
    let (rows, columns) = (of.rows, of.columns);
    // SAFETY: `of.inputs` and `of.outputs` are the operands' elements a matrix, by their shapes; the elements of
    // `matrices` are this call's, and no output is the memory of an input, for these ops do not work in place.
    let input = |at: usize| unsafe { read::<T>(call.inputs[at], of.inputs[at], &matrices) };
    // SAFETY: the same.
    let output = |at: usize| unsafe { write::<T>(call.outputs[at], of.outputs[at], &matrices) };
    // SAFETY: the same, for outputs that the op gives as `int32`.
    let places = |at: usize| unsafe { write::<i32>(call.outputs[at], of.outputs[at], &matrices) };
    match of.what {
        What::Cholesky => T::cholesky(of.beside, input(0), rows, output(0)),
        What::Lu => {
            let out = Factored { factors: output(0), pivots: places(1), order: places(2) };
            T::lu(of.beside, input(0), rows, columns, out);
        }
        What::Solve(how) => {
            let x = output(0);
            x.copy_from_slice(input(1));
            let other = of.inputs[1] / rows;
            let (rows, columns) = if how.from_left { (rows, other) } else { (other, columns) };
            T::solve_triangular(of.beside, &how, input(0), x, rows, columns);
        }
        What::Geqrf => {
            let taus = output(1).chunks_exact_mut(of.outputs[1]);
            let packed = output(0).chunks_exact_mut(of.outputs[0]);
            for ((a, packed), taus) in input(0).chunks_exact(of.inputs[0]).zip(packed).zip(taus) {
                T::geqrf(a, rows, columns, packed, taus);
            }
        }
        What::Geqp3 => {
            let order = places(1);
            // SAFETY: the op's second input is as many integers of 32 bits as its second output.
            order.copy_from_slice(unsafe { read::<i32>(call.inputs[1], of.inputs[1], &matrices) });
            let taus = output(2).chunks_exact_mut(of.outputs[2]);
            let packed = output(0).chunks_exact_mut(of.outputs[0]).zip(order.chunks_exact_mut(columns));
            for ((a, (packed, order)), taus) in input(0).chunks_exact(of.inputs[0]).zip(packed).zip(taus) {
                T::geqp3(a, rows, columns, packed, order, taus);
            }
        }
        What::Product => {
            let (all, taus) = (output(0).chunks_exact_mut(of.outputs[0]), input(1));
            for (number, (a, q)) in input(0).chunks_exact(of.inputs[0]).zip(all).enumerate() {
                T::householder_product(a, &taus[number * of.inputs[1]..][..of.inputs[1]], rows, columns, q);
            }
        }
        What::Hessenberg => {
            let taus = &mut output(1)[..];
            let packed = output(0).chunks_exact_mut(of.outputs[0]);
            for (number, (a, packed)) in input(0).chunks_exact(of.inputs[0]).zip(packed).enumerate() {
                T::hessenberg(a, rows, packed, &mut taus[number * of.outputs[1]..][..of.outputs[1]]);
            }
        }
        What::Tridiagonal(lower) => {
            // SAFETY: as above; the op gives the second and the third output in the type of real parts.
            let reals = |at: usize| unsafe { write::<T::Real>(call.outputs[at], of.outputs[at], &matrices) };
            let (diagonal, beside, taus) = (reals(1), reals(2), output(3));
            let packed = output(0).chunks_exact_mut(of.outputs[0]);
            for (number, (a, packed)) in input(0).chunks_exact(of.inputs[0]).zip(packed).enumerate() {
                let less = number * (rows - 1)..(number + 1) * (rows - 1);
                let out = Tridiagonal {
                    packed,
                    diagonal: &mut diagonal[number * rows..(number + 1) * rows],
                    beside: &mut beside[less.clone()],
                    taus: &mut taus[less],
                };
                T::tridiagonal(a, rows, lower, out);
            }
        }
        What::SolveTridiagonal(perturb) => {
            let x = output(0);
            x.copy_from_slice(input(3));
            let (lower, middle, upper) = (input(0), input(1), input(2));
            for (number, x) in x.chunks_exact_mut(of.outputs[0]).enumerate() {
                let own = number * rows..(number + 1) * rows;
                let of = Diagonals {
                    lower: &lower[own.clone()],
                    middle: &middle[own.clone()],
                    upper: &upper[own],
                };
                T::solve_tridiagonal(&of, perturb, x);
            }
        }
        What::Schur => {
            let each = of.outputs[0];
            let mut vectors = (of.outputs.len() > 1).then(|| output(1).chunks_exact_mut(each));
            for (a, form) in input(0).chunks_exact(each).zip(output(0).chunks_exact_mut(each)) {
                T::schur(a, rows, form, vectors.as_mut().and_then(Iterator::next));
            }
        }
        What::Eig(has_left) => {
            let each = of.inputs[0];
            // SAFETY: as above; the op gives all outputs in the complex type of its operand.
            let complex =
                |at: usize| unsafe { write::<T::Complex>(call.outputs[at], of.outputs[at], &matrices) };
            let values = complex(0).chunks_exact_mut(rows);
            let mut left = has_left.then(|| complex(1).chunks_exact_mut(each));
            let place = 1 + usize::from(has_left);
            let mut right = (of.outputs.len() > place).then(|| complex(place).chunks_exact_mut(each));
            for (a, values) in input(0).chunks_exact(each).zip(values) {
                let left = left.as_mut().and_then(Iterator::next);
                T::eig(a, rows, values, left, right.as_mut().and_then(Iterator::next));
            }
        }
        What::Ormqr(side) => {
            let (c, taus) = (output(0), input(1));
            c.copy_from_slice(input(2));
            let others = of.inputs[2] / rows;
            for (number, (a, c)) in
                input(0).chunks_exact(of.inputs[0]).zip(c.chunks_exact_mut(of.outputs[0])).enumerate()
            {
                let taus = &taus[number * of.inputs[1]..][..of.inputs[1]];
                T::ormqr(side, a, taus, columns, others, c);
            }
        }
    }
}
