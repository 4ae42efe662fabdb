//! Mathematical functions as block functions.

use ferrax_ir::scalar::reference::math;
use ferrax_ir::scalar::{MathFn, ScalarType};
use ferrax_ir::{Result, internal_error};

use super::isa::{BlockFn, Lane, select};
use super::ops::Uniform;

macro_rules! functions {
    ($($name:ident: $f:expr, $g:expr;)*) => {
        $(struct $name<T>(std::marker::PhantomData<T>);
        impl Lane for $name<f32> {
            type A = f32; type B = f32; type C = u8; type R = f32;
            #[inline(always)]
            fn lane(a: f32, b: f32, _: u8) -> f32 { let f: fn(f32, f32) -> f32 = $f; f(a, b) }
        }
        impl Lane for $name<f64> {
            type A = f64; type B = f64; type C = u8; type R = f64;
            #[inline(always)]
            fn lane(a: f64, b: f64, _: u8) -> f64 { let f: fn(f64, f64) -> f64 = $g; f(a, b) }
        })*
        fn find(function: MathFn, double: bool, uniform: Uniform) -> Option<BlockFn> {
            match (function, double) {
                $((MathFn::$name, false) => pick::<$name<f32>>(function, uniform),
                (MathFn::$name, true) => pick::<$name<f64>>(function, uniform),)*
                _ => None,
            }
        }
    };
}

fn pick<L: Lane>(function: MathFn, uniform: Uniform) -> Option<BlockFn> {
    if !matches!(function, MathFn::Pow | MathFn::Atan2) {
        return Some(select::<L, false, true, true>());
    }
    match uniform {
        [false, false, _] => Some(select::<L, false, false, true>()),
        [false, true, _] => Some(select::<L, false, true, true>()),
        _ => None,
    }
}

functions! {
    Exp: |a, _| a.exp(), |a, _| a.exp();
    Exp2: |a, _| a.exp2(), |a, _| a.exp2();
    Expm1: |a, _| a.exp_m1(), |a, _| a.exp_m1();
    Log: |a, _| a.ln(), |a, _| a.ln();
    Log1p: |a, _| a.ln_1p(), |a, _| a.ln_1p();
    Tanh: |a, _| a.tanh(), |a, _| a.tanh();
    Logistic: |a, _| 1.0 / (1.0 + (-a).exp()), |a, _| 1.0 / (1.0 + (-a).exp());
    Sin: |a, _| a.sin(), |a, _| a.sin();
    Cos: |a, _| a.cos(), |a, _| a.cos();
    Tan: |a, _| a.tan(), |a, _| a.tan();
    Asin: |a, _| a.asin(), |a, _| a.asin();
    Acos: |a, _| a.acos(), |a, _| a.acos();
    Atan: |a, _| a.atan(), |a, _| a.atan();
    Sinh: |a, _| a.sinh(), |a, _| a.sinh();
    Cosh: |a, _| a.cosh(), |a, _| a.cosh();
    Asinh: |a, _| a.asinh(), |a, _| a.asinh();
    Acosh: |a, _| a.acosh(), |a, _| a.acosh();
    Atanh: |a, _| a.atanh(), |a, _| a.atanh();
    Cbrt: |a, _| a.cbrt(), |a, _| a.cbrt();
    Rsqrt: |a, _| 1.0 / a.sqrt(), |a, _| 1.0 / a.sqrt();
    Erf: |a, _| math(MathFn::Erf, a.into(), 0.0) as f32, |a, _| math(MathFn::Erf, a, 0.0);
    Erfc: |a, _| math(MathFn::Erfc, a.into(), 0.0) as f32, |a, _| math(MathFn::Erfc, a, 0.0);
    ErfInv: |a, _| math(MathFn::ErfInv, a.into(), 0.0) as f32, |a, _| math(MathFn::ErfInv, a, 0.0);
    Lgamma: |a, _| math(MathFn::Lgamma, a.into(), 0.0) as f32, |a, _| math(MathFn::Lgamma, a, 0.0);
    Digamma: |a, _| math(MathFn::Digamma, a.into(), 0.0) as f32, |a, _| math(MathFn::Digamma, a, 0.0);
    Pow: |a, b| a.powf(b), |a, b| a.powf(b);
    Atan2: |a, b| a.atan2(b), |a, b| a.atan2(b);
}

pub fn block_fn(function: MathFn, ty: ScalarType, uniform: Uniform) -> Result<Option<BlockFn>> {
    if !ty.is_float() {
        return Err(internal_error!("{} of {ty:?}", function.name()));
    }
    let double = ty == ScalarType::F64;
    // Only two-argument functions have forms that depend on what is uniform.
    match (find(function, double, [false, false, true]), find(function, double, uniform)) {
        (None, _) => Err(internal_error!("no vector code for {}", function.name())),
        (Some(_), found) => Ok(found),
    }
}
