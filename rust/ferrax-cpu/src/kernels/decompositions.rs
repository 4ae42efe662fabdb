//! Decompositions of matrices (crate ferrax-linalg). Matrices of a batch are independent units of work.

use ferrax_compile::{Argument, Path};
use ferrax_ir::ops::{Eigh, Svd};
use ferrax_ir::{DType, Result};
use ferrax_linalg::{Scalar, SingularVectors, c32, c64};
use smallvec::SmallVec;

use crate::call::{Call, Kernel};
use crate::pool;
use crate::tuning::{Threads, Tuning};

/// Matrices that stay together, as many as are computed side by side where they are small.
const TOGETHER: usize = 16;

/// The matrices of an operand and what is computed of them.
struct Decomposition {
    count: usize,
    rows: usize,
    columns: usize,
    width: usize,
    /// Bytes of the matrices of each output.
    outputs: Vec<usize>,
    what: What,
    run: unsafe fn(&What, usize, (usize, usize), *const u8, &[*mut u8]),
    tuning: &'static Threads,
}

#[derive(Clone, Debug)]
enum What {
    Eigh(Eigh),
    Svd(Svd),
}

impl std::fmt::Debug for Decomposition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Decomposition({:?}, {} of {} x {})", self.what, self.count, self.rows, self.columns)
    }
}

pub fn eigh(
    op: &Eigh,
    inputs: &[Argument],
    outputs: &[Argument],
    tuning: &'static Tuning,
) -> Option<Box<dyn Kernel>> {
    bind(What::Eigh(op.clone()), inputs, outputs, &tuning.threads)
}

pub fn svd(
    op: &Svd,
    inputs: &[Argument],
    outputs: &[Argument],
    tuning: &'static Tuning,
) -> Option<Box<dyn Kernel>> {
    bind(What::Svd(op.clone()), inputs, outputs, &tuning.threads)
}

/// The kernel, if the matrices have elements.
fn bind(
    what: What,
    inputs: &[Argument],
    outputs: &[Argument],
    tuning: &'static Threads,
) -> Option<Box<dyn Kernel>> {
    let [.., rows, columns] = *inputs[0].sizes.as_slice() else { return None };
    if rows == 0 || columns == 0 {
        return None;
    }
    let run = match inputs[0].dtype {
        DType::F32 => decompose::<f32>,
        DType::F64 => decompose::<f64>,
        DType::C64 => decompose::<c32>,
        DType::C128 => decompose::<c64>,
        _ => return None,
    };
    let count: usize = inputs[0].sizes.iter().rev().skip(2).product();
    if rows <= TOGETHER { Path::SmallDecompositions } else { Path::LargeDecompositions }.take();
    let bytes = |output: &Argument| output.bytes() / count.max(1);
    Some(Box::new(Decomposition {
        count,
        rows,
        columns,
        width: inputs[0].dtype.size(),
        outputs: outputs.iter().map(bytes).collect(),
        what,
        run,
        tuning,
    }))
}

struct Pointers<'a>(&'a Call<'a>);

// SAFETY: chunks read and write the matrices of their own.
unsafe impl Sync for Pointers<'_> {}

impl Kernel for Decomposition {
    unsafe fn run(&self, call: &Call<'_>) -> Result<()> {
        let size = self.rows * self.columns;
        let units = if self.rows > TOGETHER { self.count } else { self.count.div_ceil(TOGETHER) };
        let most = (4 * pool::threads()).min(units.max(1));
        let chunks = (self.count * size / self.tuning.decompositions).clamp(1, most);
        let unit = if units == self.count { 1 } else { TOGETHER };
        let bound = |chunk: usize| (chunk * units / chunks * unit).min(self.count);
        let pointers = Pointers(call);
        pool::run_interruptibly(chunks, &|chunk| {
            let pointers = &pointers;
            let call = pointers.0;
            let (first, end) = (bound(chunk), bound(chunk + 1));
            if first == end {
                return;
            }
            // SAFETY: the matrices lie inside the operand, their results inside the outputs.
            unsafe {
                let from = call.inputs[0].add(first * size * self.width);
                let outputs = call.outputs.iter().zip(&self.outputs);
                let outputs: SmallVec<[*mut u8; 3]> =
                    outputs.map(|(to, bytes)| to.add(first * bytes)).collect();
                (self.run)(&self.what, end - first, (self.rows, self.columns), from, &outputs);
            }
        })
    }
}

/// # Safety
/// `from` are so many matrices of these sizes, the outputs are those that the op gives for them.
unsafe fn decompose<T: Scalar>(
    what: &What,
    count: usize,
    (rows, columns): (usize, usize),
    from: *const u8,
    outputs: &[*mut u8],
) {
    // SAFETY: `from` are matrices of so many elements, which are only read.
    let a = unsafe { std::slice::from_raw_parts(from.cast::<T>(), count * rows * columns) };
    match what {
        What::Eigh(op) => {
            // SAFETY: the op gives the vectors, as many as rows in both directions, and then the values.
            let (vectors, values) = unsafe {
                (out::<T>(outputs[0], count * rows * rows), out::<T::Real>(outputs[1], count * rows))
            };
            T::eigh(a, rows, op.lower, vectors, values);
        }
        What::Svd(op) => {
            let least = rows.min(columns);
            let (left, right) = if op.full_matrices { (rows, columns) } else { (least, least) };
            // SAFETY: the op gives the singular values first, as many as the shorter side.
            let values = unsafe { out::<T::Real>(outputs[0], count * least) };
            let mut vectors = op.compute_uv.then(|| {
                // SAFETY: with vectors the op's second output is `rows` times as many as it keeps on the
                // left.
                let all_left = unsafe { out::<T>(outputs[1], count * rows * left) };
                // SAFETY: its third output is as many as it keeps on the right times `columns`.
                let all_right = unsafe { out::<T>(outputs[2], count * right * columns) };
                all_left.chunks_exact_mut(rows * left).zip(all_right.chunks_exact_mut(right * columns))
            });
            for (a, values) in a.chunks_exact(rows * columns).zip(values.chunks_exact_mut(least)) {
                let own = vectors.as_mut().and_then(Iterator::next);
                let vectors =
                    own.map(|(left, right)| SingularVectors { left, right, full: op.full_matrices });
                T::svd(a, rows, columns, values, vectors);
            }
        }
    }
}

/// # Safety
/// There are so many elements of this type, and nobody else uses them.
unsafe fn out<'a, T>(to: *mut u8, length: usize) -> &'a mut [T] {
    // SAFETY: the outputs of one matrix hold so many elements of the type that the op gives them, are
    // aligned to it as whole arrays are, overlap nothing, and belong to the chunk that works on the matrix.
    unsafe { std::slice::from_raw_parts_mut(to.cast::<T>(), length) }
}
