//! The accuracy of the math functions: `ulp [stride [function [table]]]`.
//!
//! In 32 bits over all floats, `stride` bit patterns apart (pairs of them for functions
//! of two), against `f64` functions; in 64 bits against a table that
//! `tools/math_table.py` wrote. Prints the largest errors in units in the last place
//! and where they are; results that are subnormal are left out, and of lgamma and digamma
//! those of negative arguments but for absolute errors.

use ferrax_ir::math::{Binary, Native, Unary};
use ferrax_ir::scalar::MathFn;
use ferrax_ir::with_math_fn;

/// Units in the last place from `exact` to `got`.
fn ulp32(got: f32, exact: f64) -> f64 {
    let rounded = exact as f32;
    if got.is_nan() && exact.is_nan() || got == rounded {
        return if exact.is_finite() && got.is_finite() {
            (f64::from(got) - exact).abs() / spacing(exact)
        } else {
            0.0
        };
    }
    if !got.is_finite() || !rounded.is_finite() {
        return f64::INFINITY;
    }
    (f64::from(got) - exact).abs() / spacing(exact)
}

/// The distance of 32-bit floats around a number.
fn spacing(exact: f64) -> f64 {
    let exponent = (exact.abs().to_bits() >> 52) as i32 - 1023;
    2f64.powi(exponent.max(-126) - 23)
}

/// Where results come from differences that may cancel: only their absolute error
/// is meant to be small.
fn reflected(function: MathFn, x: f64) -> bool {
    matches!(function, MathFn::Lgamma | MathFn::Digamma) && x < 0.0
}

#[derive(Clone, Copy, Default)]
struct Worst {
    error: f64,
    x: f64,
    y: f64,
}

impl Worst {
    fn see(&mut self, error: f64, x: f64, y: f64) {
        if error > self.error {
            *self = Worst { error, x, y };
        }
    }
}

trait Run {
    fn unary<K: Unary>(&self, xs: &[f32], out: &mut [f32]);
    fn binary<K: Binary>(&self, xs: &[f32], ys: &[f32], out: &mut [f32]);
}

struct Loop<const FUSED: bool>;

impl<const FUSED: bool> Run for Loop<FUSED> {
    #[inline(always)]
    fn unary<K: Unary>(&self, xs: &[f32], out: &mut [f32]) {
        for (x, out) in xs.iter().zip(out) {
            *out = K::call(&mut Native::<f32, FUSED>::new(), *x);
        }
    }
    #[inline(always)]
    fn binary<K: Binary>(&self, xs: &[f32], ys: &[f32], out: &mut [f32]) {
        for ((x, y), out) in xs.iter().zip(ys).zip(out) {
            *out = K::call(&mut Native::<f32, FUSED>::new(), *x, *y);
        }
    }
}

#[inline(always)]
fn dispatch<R: Run>(run: &R, function: MathFn, xs: &[f32], ys: &[f32], out: &mut [f32]) {
    with_math_fn!(function, unary K => run.unary::<K>(xs, out), binary K => run.binary::<K>(xs, ys, out))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn fused(function: MathFn, xs: &[f32], ys: &[f32], out: &mut [f32]) {
    dispatch(&Loop::<true>, function, xs, ys, out)
}

fn block(function: MathFn, with_fma: bool, xs: &[f32], ys: &[f32], out: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if with_fma && is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        // SAFETY: the processor has the features.
        return unsafe { fused(function, xs, ys, out) };
    }
    if with_fma {
        dispatch(&Loop::<true>, function, xs, ys, out)
    } else {
        dispatch(&Loop::<false>, function, xs, ys, out)
    }
}

fn narrow(function: MathFn, stride: u32, with_fma: bool) -> (Worst, Worst) {
    let (mut relative, mut absolute) = (Worst::default(), Worst::default());
    let (mut xs, mut ys) = (vec![0f32; 1024], vec![0f32; 1024]);
    let mut out = vec![0f32; 1024];
    let two = matches!(function, MathFn::Pow | MathFn::Atan2);
    let total = (u32::MAX / stride) as usize;
    let mut state = 1u64;
    for start in (0..total).step_by(1024) {
        for k in 0..1024 {
            xs[k] = f32::from_bits(((start + k) as u32).wrapping_mul(stride));
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ys[k] = f32::from_bits((state >> 32) as u32);
            if function == MathFn::Pow {
                // Exponents for which the result is finite.
                let bound = 104.0 / (f64::from(xs[k]).abs().ln().abs());
                let part = (state >> 33) as f64 / 2f64.powi(30) - 1.0;
                ys[k] = (bound.min(1e30) * part) as f32;
                if k % 4 == 0 {
                    ys[k] = ys[k].round();
                }
            }
        }
        block(function, with_fma, &xs, &ys, &mut out);
        for ((x, y), got) in xs.iter().zip(&ys).zip(&out) {
            let (x, y) = (f64::from(*x), if two { f64::from(*y) } else { 0.0 });
            let exact = function.reference(x, y);
            if (exact as f32).is_subnormal() || (exact != 0.0 && exact.abs() < f64::from(f32::MIN_POSITIVE)) {
                if got.is_nan() || got.abs() > 2.0 * f32::MIN_POSITIVE {
                    relative.see(f64::INFINITY, x, y);
                }
                continue;
            }
            if !reflected(function, x) {
                relative.see(ulp32(*got, exact), x, y);
            }
            let scale = exact.abs().max(1.0);
            let error = (f64::from(*got) - exact).abs() / scale / f64::from(f32::EPSILON);
            if error.is_finite() {
                absolute.see(error, x, y);
            }
        }
    }
    (relative, absolute)
}

fn wide(function: MathFn, table: &str) -> (Worst, Worst) {
    let (mut relative, mut absolute) = (Worst::default(), Worst::default());
    for line in table.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let [name, x, y, high, low] = fields[..] else { continue };
        if name != function.name() {
            continue;
        }
        let number = |text| f64::from_bits(u64::from_str_radix(text, 16).unwrap_or_default());
        let (x, y, exact) = (number(x), number(y), number(high));
        let low: f64 = low.parse().unwrap_or_default();
        let got = ferrax_ir::math::apply_f64(function, x, y);
        if exact.is_subnormal() {
            continue;
        }
        let unit = 2f64.powi(((exact.abs().to_bits() >> 52) as i32 - 1023).max(-970) - 52);
        let error = if got == exact || got.is_nan() && exact.is_nan() {
            if exact.is_finite() { low.abs() } else { 0.0 }
        } else if got.is_finite() && exact.is_finite() {
            ((got - exact) / unit - low).abs()
        } else {
            f64::INFINITY
        };
        if !reflected(function, x) {
            relative.see(error, x, y);
        }
        let scaled = error * unit / exact.abs().max(1.0) / f64::EPSILON;
        if scaled.is_finite() {
            absolute.see(scaled, x, y);
        }
    }
    (relative, absolute)
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let stride: u32 = args.get(1).and_then(|a| a.parse().ok()).unwrap_or(1009);
    let table = match args.get(3) {
        Some(path) => std::fs::read_to_string(path).unwrap_or_default(),
        None => include_str!("../tests/data/math64.txt").to_string(),
    };
    println!("ulp: f32, every {stride}th | f32 without fma | f64; abs: in epsilons of max(1, |result|)");
    for &function in MathFn::ALL {
        if args.get(2).is_some_and(|name| name != "all" && name != function.name()) {
            continue;
        }
        let (f32s, f32s_absolute) = narrow(function, stride, true);
        let (split, _) = narrow(function, stride.saturating_mul(17), false);
        let (f64s, f64s_absolute) = wide(function, &table);
        println!(
            "{:9} {:6.2} (abs {:5.2}) at {:e} {:e} | {:6.2} at {:e} {:e} | {:6.2} (abs {:5.2}) at {:e} {:e}",
            function.name(),
            f32s.error,
            f32s_absolute.error,
            f32s.x,
            f32s.y,
            split.error,
            split.x,
            split.y,
            f64s.error,
            f64s_absolute.error,
            f64s.x,
            f64s.y,
        );
    }
}
