//! Running reductions along an axis.
//!
//! Floats narrower than `f64` accumulate in `f64`, and sums of `f64` with what
//! each addition loses, so running sums lose nothing to their length. Lines (or, where the axis is not the last, groups of
//! adjacent lines) are independent units of work.

use ferrax_compile::{Argument, Path};
use ferrax_ir::ops::{Cumulative, CumulativeKind};
use ferrax_ir::{DType, Result};
use half::{bf16, f16};

use crate::call::{Call, Kernel};
use crate::pool;
use crate::tuning::{Lines, Tuning};
use crate::vm::ops::Number;

/// Adjacent lines that run together, at most.
const GROUP: usize = Lines::MOST_GROUP;

struct Scan {
    outer: usize,
    length: usize,
    inner: usize,
    reverse: bool,
    run: Run,
}

/// `f(length, lines, stride, reverse, from, to)`: `lines` adjacent lines.
type Run = unsafe fn(usize, usize, usize, bool, *const u8, *mut u8);

impl std::fmt::Debug for Scan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scan({}, {}, {})", self.outer, self.length, self.inner)
    }
}

/// The kernel, if there is one for this dtype.
pub fn bind(
    op: &Cumulative,
    inputs: &[Argument],
    tuning: &'static Tuning,
) -> Result<Option<Box<dyn Kernel>>> {
    let operand = &inputs[0];
    let sizes = &operand.sizes;
    let Some(run) = function(op.kind, operand.dtype) else { return Ok(None) };
    let kernel = Scan {
        outer: sizes[..op.axis].iter().product(),
        length: sizes[op.axis],
        inner: sizes[op.axis + 1..].iter().product::<usize>(),
        reverse: op.reverse,
        run: run.0,
    };
    if kernel.inner > 1 { Path::CumulativeGroups } else { Path::CumulativeLines }.take();
    Ok(Some(Box::new(Sized { scan: kernel, element: run.1, tuning })))
}

#[derive(Debug)]
struct Sized {
    scan: Scan,
    element: usize,
    tuning: &'static Tuning,
}

struct Pointers(*const u8, *mut u8);

// SAFETY: units read and write disjoint lines.
unsafe impl Sync for Pointers {}

impl Kernel for Sized {
    unsafe fn run(&self, call: &Call<'_>) -> Result<()> {
        let scan = &self.scan;
        let (most, serial) = (self.tuning.lines.cumulative.min(GROUP), self.tuning.threads.cumulative);
        let groups = scan.inner.div_ceil(most);
        let units = scan.outer * groups;
        if units == 0 || scan.length == 0 {
            return Ok(());
        }
        let pointers = Pointers(call.inputs[0], call.outputs[0]);
        let unit = |unit: usize| {
            let pointers = &pointers;
            let (outer, group) = (unit / groups, unit % groups);
            let lines = most.min(scan.inner - group * most);
            let at = (outer * scan.length * scan.inner + group * most) * self.element;
            // SAFETY: the lines of this unit lie inside both arrays.
            unsafe {
                (scan.run)(
                    scan.length,
                    lines,
                    scan.inner,
                    scan.reverse,
                    pointers.0.add(at),
                    pointers.1.add(at),
                );
            }
        };
        let total = scan.outer * scan.length * scan.inner;
        if total < serial {
            (0..units).for_each(unit);
        } else {
            let chunks = (total / serial).clamp(1, 64).min(units);
            pool::run_interruptibly(chunks, &|chunk| {
                (chunk * units / chunks..(chunk + 1) * units / chunks).for_each(&unit);
            })?;
        }
        Ok(())
    }
}

/// An element and what its running value is kept in.
trait Element: Copy {
    type Total: Copy;
    fn wide(self) -> Self::Total;
    fn narrow(total: Self::Total) -> Self;
}

macro_rules! elements {
    ($($t:ty => $total:ty, $wide:expr, $narrow:expr;)*) => {$(
        impl Element for $t {
            type Total = $total;
            #[inline(always)]
            fn wide(self) -> $total { let wide: fn($t) -> $total = $wide; wide(self) }
            #[inline(always)]
            fn narrow(total: $total) -> $t { let narrow: fn($total) -> $t = $narrow; narrow(total) }
        }
    )*};
}

elements! {
    i8 => i8, |x| x, |x| x; i16 => i16, |x| x, |x| x; i32 => i32, |x| x, |x| x; i64 => i64, |x| x, |x| x;
    u8 => u8, |x| x, |x| x; u16 => u16, |x| x, |x| x; u32 => u32, |x| x, |x| x; u64 => u64, |x| x, |x| x;
    f64 => f64, |x| x, |x| x;
    f32 => f64, f64::from, |x| x as f32;
    bf16 => f64, |x| x.to_f64(), bf16::from_f64;
    f16 => f64, |x| x.to_f64(), f16::from_f64;
    [f32; 2] => [f64; 2], |x| [x[0].into(), x[1].into()], |x| [x[0] as f32, x[1] as f32];
    [f64; 2] => [f64; 2], |x| x, |x| x;
    Term<1> => [Compensated; 1], |x| x.0.map(Compensated::new), |x| Term(x.map(Compensated::value));
    Term<2> => [Compensated; 2], |x| x.0.map(Compensated::new), |x| Term(x.map(Compensated::value));
}

/// A number of `N` parts whose running sums are compensated.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Term<const N: usize>([f64; N]);

/// A running sum and the sum of the rounding errors of its additions, by Knuth's exact transformation of a sum
/// (N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., §4.3). Additions wait only for the
/// sum before.
#[derive(Clone, Copy)]
struct Compensated {
    sum: f64,
    lost: f64,
}

impl Compensated {
    fn new(term: f64) -> Compensated {
        // The zero that changes no number, not even another zero.
        Compensated { sum: term, lost: -0.0 }
    }

    fn value(self) -> f64 {
        if self.sum.is_finite() { self.sum + self.lost } else { self.sum }
    }

    #[inline(always)]
    fn add(self, term: Compensated) -> Compensated {
        let sum = self.sum + term.sum;
        let added = sum - self.sum;
        let lost = (self.sum - (sum - added)) + (term.sum - added);
        Compensated { sum, lost: if lost == 0.0 { self.lost } else { self.lost + lost } }
    }
}

fn compensated<const N: usize>(mut a: [Compensated; N], b: [Compensated; N]) -> [Compensated; N] {
    for (a, b) in a.iter_mut().zip(b) {
        *a = a.add(b);
    }
    a
}

/// # Safety
/// `lines` adjacent lines of `length` elements, `stride` apart, are valid in both arrays.
#[inline(always)]
unsafe fn scan<T: Element>(
    length: usize,
    lines: usize,
    stride: usize,
    reverse: bool,
    from: *const u8,
    to: *mut u8,
    combine: impl Fn(T::Total, T::Total) -> T::Total,
) {
    let (from, to) = (from.cast::<T>(), to.cast::<T>());
    // SAFETY: indices stay inside the lines.
    unsafe {
        if lines == 1 {
            let place = |step: usize| if reverse { length - 1 - step } else { step } * stride;
            let mut total = (*from.add(place(0))).wide();
            *to.add(place(0)) = T::narrow(total);
            for step in 1..length {
                total = combine(total, (*from.add(place(step))).wide());
                *to.add(place(step)) = T::narrow(total);
            }
            return;
        }
        let first = if reverse { (length - 1) * stride } else { 0 };
        let mut totals: [T::Total; GROUP] = [(*from.add(first)).wide(); GROUP];
        for step in 0..length {
            let row = if reverse { length - 1 - step } else { step } * stride;
            for (line, total) in totals.iter_mut().enumerate().take(lines) {
                let value = (*from.add(row + line)).wide();
                *total = if step == 0 { value } else { combine(*total, value) };
                *to.add(row + line) = T::narrow(*total);
            }
        }
    }
}

fn log_add_exp(a: f64, b: f64) -> f64 {
    let distance = (a - b).abs();
    // Equal infinities have no difference; their sum is the answer.
    if distance.is_nan() { a + b } else { a.max(b) + (-distance).exp().ln_1p() }
}

fn function(kind: CumulativeKind, dtype: DType) -> Option<(Run, usize)> {
    macro_rules! make {
        ($t:ty, $combine:expr) => {{
            /// # Safety
            /// As `scan`.
            unsafe fn run(
                length: usize,
                lines: usize,
                stride: usize,
                reverse: bool,
                from: *const u8,
                to: *mut u8,
            ) {
                // SAFETY: `run` has the contract of `scan`, and `bind` chose it by the arrays' dtype.
                unsafe { scan::<$t>(length, lines, stride, reverse, from, to, $combine) }
            }
            Some((run as Run, size_of::<$t>()))
        }};
    }
    macro_rules! number {
        ($t:ty) => {
            match kind {
                CumulativeKind::Sum => make!($t, Number::add),
                CumulativeKind::Prod => make!($t, Number::mul),
                CumulativeKind::Max => make!($t, Number::max),
                CumulativeKind::Min => make!($t, Number::min),
                CumulativeKind::LogSumExp => None,
            }
        };
    }
    macro_rules! float {
        ($t:ty) => {
            if kind == CumulativeKind::LogSumExp { make!($t, log_add_exp) } else { number!($t) }
        };
    }
    macro_rules! complex {
        ($t:ty) => {
            match kind {
                CumulativeKind::Sum => make!($t, |a: [f64; 2], b: [f64; 2]| [a[0] + b[0], a[1] + b[1]]),
                CumulativeKind::Prod => {
                    make!($t, |a: [f64; 2], b: [f64; 2]| {
                        [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]]
                    })
                }
                _ => None,
            }
        };
    }
    match dtype {
        DType::I8 => number!(i8),
        DType::I16 => number!(i16),
        DType::I32 => number!(i32),
        DType::I64 => number!(i64),
        DType::U8 => number!(u8),
        DType::U16 => number!(u16),
        DType::U32 => number!(u32),
        DType::U64 => number!(u64),
        DType::BF16 => float!(bf16),
        DType::F16 => float!(f16),
        DType::F32 => float!(f32),
        DType::F64 if kind == CumulativeKind::Sum => make!(Term<1>, compensated::<1>),
        DType::C128 if kind == CumulativeKind::Sum => make!(Term<2>, compensated::<2>),
        DType::F64 => float!(f64),
        DType::C64 => complex!([f32; 2]),
        DType::C128 => complex!([f64; 2]),
        _ => None,
    }
}
