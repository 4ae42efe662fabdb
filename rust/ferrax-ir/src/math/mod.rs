//! Functions of floats as algorithms that every backend shares.
//!
//! Each function of [`MathFn`] is a row of the table below: its name, its algorithm, and
//! the function of `f64` that it is measured against. The algorithm is written once over
//! [`lang::FloatLang`] and runs as
//! - machine code: [`Unary`] and [`Binary`] kernels on [`Native`], to be called from
//!   loops inside `#[target_feature]` functions ([`crate::with_math_fn`]);
//! - instructions of a scalar body: [`expand`], for emitters of machine code and WGSL.
//!
//! Both give the same bits. Results do not depend on the processor where it has a
//! fused multiply-add; without one (`FUSED = false`) last bits differ.
//!
//! Errors are at most 2 units in the last place in 32 bits (lgamma, digamma: 2.2; erf,
//! tanh, logistic: 2.5; erfc: 3.25; measured over every 13th float) and in 64 bits (measured over samples), over all
//! finite arguments; where lgamma and digamma cancel on the negative axis it is the
//! absolute error that is small. Without fused operations: 3.25 units. Subnormal results may be rounded twice
//! or flushed. `cargo run -p ferrax-ir --example ulp` measures, `tests/all/math.rs` tests.

mod coefficients;
mod emit;
pub mod erf;
pub mod exp;
pub mod gamma;
pub mod hyperbolic;
pub mod inverse;
pub mod lang;
pub mod log;
mod native;
pub mod pow;
pub mod trig;

pub use emit::Emit;
pub use lang::FloatLang;
pub use native::Native;

use crate::scalar::{Body, Reg, ScalarType, reference};
use crate::{Result, internal_error};

/// A function of one float.
pub trait Unary {
    const FUNCTION: MathFn;
    /// `quick` equals `call` for arguments whose magnitude is at most this (in 32 and
    /// 64 bits); infinite where the two are one.
    const QUICK_LIMIT: (f64, f64) = (f64::INFINITY, f64::INFINITY);

    fn call<L: FloatLang>(l: &mut L, x: L::F) -> L::F;

    /// A cheaper form for arguments within the limit. A loop over a block may test
    /// the block once and use this.
    #[inline(always)]
    fn quick<L: FloatLang>(l: &mut L, x: L::F) -> L::F {
        Self::call(l, x)
    }
}

/// A function of two floats.
pub trait Binary {
    const FUNCTION: MathFn;

    fn call<L: FloatLang>(l: &mut L, x: L::F, y: L::F) -> L::F;
}

macro_rules! kernels {
    (($d:tt)
     unary { $($unary:ident $name:literal => $call:path, $reference:expr $(, quick: $quick:path, $limit:expr)?;)* }
     binary { $($binary:ident $name_two:literal => $call_two:path, $reference_two:expr;)* }) => {
        crate::string_enum! {
            /// Functions of floats that are computed by polynomials. All take and give
            /// `F32` or `F64`; of two, [`MathFn::Pow`] takes `x, y` and [`MathFn::Atan2`] `y, x`.
            MathFn { $($unary = $name,)* $($binary = $name_two),* }
        }

        impl MathFn {
            /// The function in `f64` from other sources than these algorithms; the second
            /// argument counts for functions of two alone.
            pub fn reference(self, x: f64, y: f64) -> f64 {
                match self {
                    $(MathFn::$unary => $reference(x),)*
                    $(MathFn::$binary => $reference_two(x, y),)*
                }
            }
        }

        /// A type for each function, which implements [`Unary`] or [`Binary`].
        pub mod kernels {
            use super::*;
            $(
                #[derive(Clone, Copy, Debug)]
                pub struct $unary;

                impl Unary for $unary {
                    const FUNCTION: MathFn = MathFn::$unary;
                    $(const QUICK_LIMIT: (f64, f64) = $limit;)?

                    #[inline(always)]
                    fn call<L: FloatLang>(l: &mut L, x: L::F) -> L::F {
                        $call(l, x)
                    }

                    $(
                        #[inline(always)]
                        fn quick<L: FloatLang>(l: &mut L, x: L::F) -> L::F {
                            $quick(l, x)
                        }
                    )?
                }
            )*
            $(
                #[derive(Clone, Copy, Debug)]
                pub struct $binary;

                impl Binary for $binary {
                    const FUNCTION: MathFn = MathFn::$binary;

                    #[inline(always)]
                    fn call<L: FloatLang>(l: &mut L, x: L::F, y: L::F) -> L::F {
                        $call_two(l, x, y)
                    }
                }
            )*
        }

        /// `with_math_fn!(function, unary K => a, binary K2 => b)`: `a` with the type
        /// `K` of the function's kernel, or `b` with `K2` if it takes two arguments.
        #[macro_export]
        macro_rules! with_math_fn {
            ($d function:expr, unary $d one:ident => $d a:expr, binary $d two:ident => $d b:expr $d(,)?) => {
                match $d function {
                    $($crate::math::MathFn::$unary => {
                        type $d one = $crate::math::kernels::$unary;
                        $d a
                    })*
                    $($crate::math::MathFn::$binary => {
                        type $d two = $crate::math::kernels::$binary;
                        $d b
                    })*
                }
            };
        }
    };
}

kernels! {
    ($)
    unary {
        Exp "exp" => exp::exp, f64::exp;
        Exp2 "exp2" => exp::exp2, f64::exp2;
        Expm1 "expm1" => exp::expm1, f64::exp_m1;
        Log "log" => log::log, f64::ln;
        Log1p "log1p" => log::log1p, f64::ln_1p;
        Tanh "tanh" => exp::tanh, f64::tanh;
        Logistic "logistic" => exp::logistic, reference::logistic;
        Sin "sin" => trig::sin, f64::sin, quick: trig::sin_moderate, trig::MODERATE;
        Cos "cos" => trig::cos, f64::cos, quick: trig::cos_moderate, trig::MODERATE;
        Tan "tan" => trig::tan, f64::tan, quick: trig::tan_moderate, trig::MODERATE;
        Asin "asin" => inverse::asin, f64::asin;
        Acos "acos" => inverse::acos, f64::acos;
        Atan "atan" => inverse::atan, f64::atan;
        Sinh "sinh" => hyperbolic::sinh, f64::sinh;
        Cosh "cosh" => hyperbolic::cosh, f64::cosh;
        Asinh "asinh" => hyperbolic::asinh, libm::asinh;
        Acosh "acosh" => hyperbolic::acosh, reference::acosh;
        Atanh "atanh" => hyperbolic::atanh, libm::atanh;
        Cbrt "cbrt" => inverse::cbrt, f64::cbrt;
        Rsqrt "rsqrt" => inverse::rsqrt, reference::rsqrt;
        Erf "erf" => erf::erf, libm::erf;
        Erfc "erfc" => erf::erfc, libm::erfc;
        ErfInv "erf_inv" => erf::erf_inv, reference::erf_inv;
        Lgamma "lgamma" => gamma::lgamma, libm::lgamma;
        Digamma "digamma" => gamma::digamma, reference::digamma;
    }
    binary {
        Pow "pow" => pow::pow, f64::powf;
        Atan2 "atan2" => inverse::atan2, f64::atan2;
    }
}

/// Appends the instructions that compute `function` of `args` (`F32` or `F64`); the
/// same bits as [`Native`] with fused operations, [`ScalarOp::Fma`](crate::scalar::ScalarOp)
/// among them.
pub fn expand(body: &mut Body, function: MathFn, args: &[Reg]) -> Result<Reg> {
    expand_for(body, function, args, true)
}

/// [`expand`], or where `fused` is false without `Fma`.
pub fn expand_for(body: &mut Body, function: MathFn, args: &[Reg], fused: bool) -> Result<Reg> {
    expand_form(body, function, args, fused, false)
}

/// The form for arguments whose magnitude is at most the returned limit (infinite for
/// most functions), where it gives the bits of [`expand`] with fewer instructions: for
/// emitters that can branch.
pub fn expand_quick(body: &mut Body, function: MathFn, args: &[Reg]) -> Result<(Reg, f64)> {
    let limits = with_math_fn!(function, unary K => K::QUICK_LIMIT, binary K => { let _ = K::FUNCTION; (f64::INFINITY, f64::INFINITY) });
    let reg = expand_form(body, function, args, true, true)?;
    Ok((reg, if body.type_of(reg) == ScalarType::F64 { limits.1 } else { limits.0 }))
}

fn expand_form(body: &mut Body, function: MathFn, args: &[Reg], fused: bool, quick: bool) -> Result<Reg> {
    let float = match args.first().map(|reg| body.type_of(*reg)) {
        Some(float @ (ScalarType::F32 | ScalarType::F64)) => float,
        ty => return Err(internal_error!("{} is of F32 or F64, got {ty:?}", function.name())),
    };
    let mut l = Emit::for_target(body, float, fused);
    with_math_fn!(
        function,
        unary K => match args {
            [x] if quick => Ok(K::quick(&mut l, *x)),
            [x] => Ok(K::call(&mut l, *x)),
            _ => Err(internal_error!("{} takes one argument, got {}", function.name(), args.len())),
        },
        binary K => match args {
            [x, y] => Ok(K::call(&mut l, *x, *y)),
            _ => Err(internal_error!("{} takes two arguments, got {}", function.name(), args.len())),
        },
    )
}

/// `function` of one number (`y` counts for functions of two), with fused operations:
/// for constant folding and tests, since a call is made for each of them where the
/// target has none.
pub fn apply_f32(function: MathFn, x: f32, y: f32) -> f32 {
    let mut l = Native::<f32, true>::new();
    with_math_fn!(function, unary K => K::call(&mut l, x), binary K => K::call(&mut l, x, y))
}

/// [`apply_f32`] in 64 bits.
pub fn apply_f64(function: MathFn, x: f64, y: f64) -> f64 {
    let mut l = Native::<f64, true>::new();
    with_math_fn!(function, unary K => K::call(&mut l, x), binary K => K::call(&mut l, x, y))
}
