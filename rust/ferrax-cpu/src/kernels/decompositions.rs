//! Decompositions of matrices, by faer. Matrices of a batch are independent units of work.
//!
//! A matrix with an element that is not finite, and one for which the iteration does not end, gives
//! NaN, as LAPACK's callers have it.

use faer::traits::ComplexField;
use faer::{Mat, MatRef, Side, c32, c64};
use ferrax_compile::Argument;
use ferrax_ir::ops::{Eigh, Svd};
use ferrax_ir::{DType, Result};

use super::{Call, Kernel};
use crate::pool;

/// Elements of matrices below which work stays on one thread.
const SERIAL: usize = 1 << 10;

/// The elements of matrices that faer and this crate have in common.
trait Element: ComplexField<Real = Self::Part> + Copy + Send + Sync {
    type Part: Copy;

    fn is_number(self) -> bool;
    /// The element that stands in the other triangle.
    fn mirrored(self) -> Self;
    /// The element of a Hermitian diagonal.
    fn on_diagonal(self) -> Self;
    /// NaN in all parts.
    const UNKNOWN: Self;
    const UNKNOWN_PART: Self::Part;
    /// The part of an element that is real.
    fn part(self) -> Self::Part;
}

macro_rules! real_elements {
    ($($t:ident)*) => {$(
        impl Element for $t {
            type Part = $t;
            const UNKNOWN: $t = $t::NAN;
            const UNKNOWN_PART: $t = $t::NAN;

            fn is_number(self) -> bool {
                self.is_finite()
            }

            fn mirrored(self) -> $t {
                self
            }

            fn on_diagonal(self) -> $t {
                self
            }

            fn part(self) -> $t {
                self
            }
        }
    )*};
}

macro_rules! complex_elements {
    ($($t:ident of $part:ident)*) => {$(
        impl Element for $t {
            type Part = $part;
            const UNKNOWN: $t = $t { re: $part::NAN, im: $part::NAN };
            const UNKNOWN_PART: $part = $part::NAN;

            fn is_number(self) -> bool {
                self.re.is_finite() && self.im.is_finite()
            }

            fn mirrored(self) -> $t {
                $t { re: self.re, im: -self.im }
            }

            fn on_diagonal(self) -> $t {
                $t { re: self.re, im: 0.0 }
            }

            fn part(self) -> $part {
                self.re
            }
        }
    )*};
}

real_elements! { f32 f64 }
complex_elements! { c32 of f32 c64 of f64 }

/// The matrices of an operand and what is computed of them.
struct Decomposition {
    count: usize,
    rows: usize,
    columns: usize,
    width: usize,
    /// Bytes of the matrices of each output.
    outputs: Vec<usize>,
    what: What,
    run: unsafe fn(&What, usize, usize, *const u8, &[*mut u8]),
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

pub fn eigh(op: &Eigh, inputs: &[Argument], outputs: &[Argument]) -> Option<Box<dyn Kernel>> {
    bind(What::Eigh(op.clone()), inputs, outputs)
}

pub fn svd(op: &Svd, inputs: &[Argument], outputs: &[Argument]) -> Option<Box<dyn Kernel>> {
    bind(What::Svd(op.clone()), inputs, outputs)
}

/// The kernel, if the matrices have elements.
fn bind(what: What, inputs: &[Argument], outputs: &[Argument]) -> Option<Box<dyn Kernel>> {
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
    let bytes =
        |output: &Argument| output.sizes.iter().product::<usize>() / count.max(1) * output.dtype.size();
    Some(Box::new(Decomposition {
        count,
        rows,
        columns,
        width: inputs[0].dtype.size(),
        outputs: outputs.iter().map(bytes).collect(),
        what,
        run,
    }))
}

struct Pointers<'a>(&'a Call<'a>);

// SAFETY: chunks read and write the matrices of their own.
unsafe impl Sync for Pointers<'_> {}

impl Kernel for Decomposition {
    unsafe fn run(&self, call: &Call<'_>) -> Result<()> {
        let size = self.rows * self.columns;
        let most = (4 * pool::threads()).min(self.count.max(1));
        let chunks = (self.count * size / SERIAL).clamp(1, most);
        let pointers = Pointers(call);
        pool::run(chunks, &|chunk| {
            let pointers = &pointers;
            let call = pointers.0;
            for number in chunk * self.count / chunks..(chunk + 1) * self.count / chunks {
                // SAFETY: the matrix lies inside the operand, its results inside the outputs.
                unsafe {
                    let from = call.inputs[0].add(number * size * self.width);
                    let outputs = call.outputs.iter().zip(&self.outputs);
                    let outputs: Vec<*mut u8> = outputs.map(|(to, bytes)| to.add(number * bytes)).collect();
                    (self.run)(&self.what, self.rows, self.columns, from, &outputs);
                }
            }
        });
        Ok(())
    }
}

/// # Safety
/// `from` is a matrix of these sizes, the outputs are those that the op gives for it.
unsafe fn decompose<T: Element>(
    what: &What,
    rows: usize,
    columns: usize,
    from: *const u8,
    outputs: &[*mut u8],
) {
    // SAFETY: the caller's promise.
    let a = unsafe { std::slice::from_raw_parts(from.cast::<T>(), rows * columns) };
    match what {
        What::Eigh(op) => {
            // SAFETY: passed on.
            let (vectors, values) =
                unsafe { (out::<T>(outputs[0], rows * rows), out::<T::Part>(outputs[1], rows)) };
            if !eigenvectors(op, a, rows, vectors, values) {
                vectors.fill(T::UNKNOWN);
                values.fill(T::UNKNOWN_PART);
            }
        }
        What::Svd(op) => {
            let least = rows.min(columns);
            let (left, right) = if op.full_matrices { (rows, columns) } else { (least, least) };
            let (left, right) = if op.compute_uv { (rows * left, right * columns) } else { (0, 0) };
            let at = |index: usize| outputs.get(index).copied().unwrap_or(outputs[0]);
            // SAFETY: passed on; without vectors their slices are empty.
            let (values, u, vt) =
                unsafe { (out::<T::Part>(outputs[0], least), out::<T>(at(1), left), out::<T>(at(2), right)) };
            let finite = a.iter().all(|x| x.is_number());
            let a = MatRef::from_row_major_slice(a, rows, columns);
            if !(finite && singular(op, a, values, u, vt)) {
                values.fill(T::UNKNOWN_PART);
                u.fill(T::UNKNOWN);
                vt.fill(T::UNKNOWN);
            }
        }
    }
}

/// # Safety
/// There are so many elements of this type, and nobody else uses them.
unsafe fn out<'a, T>(to: *mut u8, length: usize) -> &'a mut [T] {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts_mut(to.cast::<T>(), length) }
}

/// Whether the eigenvalues were found.
fn eigenvectors<T: Element>(
    op: &Eigh,
    a: &[T],
    size: usize,
    vectors: &mut [T],
    values: &mut [T::Part],
) -> bool {
    let given = |row: usize, column: usize| if op.lower { row >= column } else { row <= column };
    let whole = Mat::from_fn(size, size, |row, column| {
        if row == column {
            a[row * size + row].on_diagonal()
        } else if given(row, column) {
            a[row * size + column]
        } else {
            a[column * size + row].mirrored()
        }
    });
    let finite = (0..size).all(|column| whole.col_as_slice(column).iter().all(|x| x.is_number()));
    let found = if finite { whole.self_adjoint_eigen(Side::Lower).ok() } else { None };
    let Some(found) = found else { return false };
    write(found.U(), vectors);
    for (value, &found) in values.iter_mut().zip(found.S().column_vector().iter()) {
        *value = found.part();
    }
    true
}

/// Whether the singular values were found.
fn singular<T: Element>(
    op: &Svd,
    a: MatRef<'_, T>,
    values: &mut [T::Part],
    u: &mut [T],
    vt: &mut [T],
) -> bool {
    let found = match op.compute_uv && op.full_matrices {
        true => a.svd(),
        false => a.thin_svd(),
    };
    let Ok(found) = found else { return false };
    for (value, &found) in values.iter_mut().zip(found.S().column_vector().iter()) {
        *value = found.part();
    }
    if op.compute_uv {
        write(found.U(), u);
        let v = found.V();
        let size = v.nrows();
        for (index, to) in vt.iter_mut().enumerate() {
            *to = v[(index % size, index / size)].mirrored();
        }
    }
    true
}

/// A matrix row by row.
fn write<T: Element>(from: MatRef<'_, T>, to: &mut [T]) {
    let columns = from.ncols();
    for (index, to) in to.iter_mut().enumerate() {
        *to = from[(index / columns, index % columns)];
    }
}
