//! The math functions: accuracy in both widths, special values, and that emitted
//! bodies and native kernels give the same bits.

use ferrax_ir::math::{Binary as _, Native, Unary, apply_f32, apply_f64, expand, expand_for, expand_quick};
use ferrax_ir::scalar::{Body, MathFn, Reg, ScalarOp, ScalarType, Value, reference};
use ferrax_ir::{DType, Scalar, with_math_fn};

/// Bounds in units in the last place, of 32- and 64-bit results; of lgamma and digamma
/// for positive arguments.
fn bound(function: MathFn) -> (f64, f64) {
    match function {
        MathFn::Log | MathFn::Cbrt => (1.0, 1.0),
        MathFn::Exp | MathFn::Exp2 => (1.25, 1.0),
        MathFn::Sin | MathFn::Cos | MathFn::Asin | MathFn::Acos | MathFn::Pow => (1.25, 1.1),
        MathFn::Erf => (2.5, 1.1),
        MathFn::Tanh | MathFn::Logistic => (2.5, 1.5),
        MathFn::Expm1 | MathFn::Log1p | MathFn::Cosh | MathFn::Atan | MathFn::Atan2 => (1.5, 1.0),
        MathFn::Erfc => (3.25, 1.0),
        MathFn::Tan | MathFn::Acosh | MathFn::Atanh => (2.0, 1.0),
        MathFn::Lgamma | MathFn::Digamma => (2.25, 2.0),
        _ => (2.0, 1.5),
    }
}

fn is_binary(function: MathFn) -> bool {
    matches!(function, MathFn::Pow | MathFn::Atan2)
}

/// The distance between 32-bit floats around a number.
fn spacing(exact: f64) -> f64 {
    let exponent = (exact.abs().to_bits() >> 52) as i32 - 1023;
    2f64.powi(exponent.max(-126) - 23)
}

/// Arguments over all exponents, and more of them where functions are curved.
fn samples(count: u32) -> impl Iterator<Item = (f32, f32)> {
    let mut state = 11u64;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    };
    (0..count).map(move |k| {
        let unit = f64::from(next()) / 2f64.powi(31) - 1.0;
        let x = match k % 4 {
            0 => f32::from_bits(next()),
            1 => (unit * 110.0) as f32,
            2 => (unit * 4.0) as f32,
            _ => (unit * 1.2) as f32,
        };
        let y = if k % 8 < 4 { f32::from_bits(next()) } else { (next() as i32 as f32) * 2f32.powi(-28) };
        (x, if k % 16 == 15 { y.round() } else { y })
    })
}

/// Where results cancel to near zero and only absolute accuracy is to be had: to
/// [`NEAR_POLES`] units of the parts.
fn near_poles(function: MathFn, x: f64) -> bool {
    matches!(function, MathFn::Lgamma | MathFn::Digamma) && x < 0.0
}

const NEAR_POLES: f64 = 3.0;

/// The error of a 32-bit result in units in the last place; infinite for garbage.
fn error32(function: MathFn, x: f32, y: f32, got: f32) -> f64 {
    let (x, y) = (f64::from(x), f64::from(y));
    let exact = function.reference(x, y);
    let rounded = exact as f32;
    if got.is_nan() || exact.is_nan() {
        return if got.is_nan() && exact.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if got == rounded && !rounded.is_finite() {
        return 0.0;
    }
    if exact.abs() < f64::from(f32::MIN_POSITIVE) {
        // Subnormal results may be flushed or rounded twice.
        return if got.abs() <= f32::MIN_POSITIVE { 0.0 } else { f64::INFINITY };
    }
    let unit = if near_poles(function, x) {
        // Of the parts of the reflection formula.
        spacing(exact).max(spacing(x.abs().ln().abs().max(1.0) * 4.0) * x.abs().max(1.0))
    } else {
        spacing(exact)
    };
    (f64::from(got) - exact).abs() / unit
}

#[test]
fn narrow_results_are_within_bounds() {
    for &function in MathFn::ALL {
        let mut worst = (0.0, 0.0, 0.0);
        for (x, y) in samples(60_000) {
            let mut error = error32(function, x, y, apply_f32(function, x, y));
            if near_poles(function, x.into()) {
                error *= bound(function).0 / NEAR_POLES;
            }
            if error > worst.0 {
                worst = (error, x, y);
            }
        }
        assert!(
            worst.0 <= bound(function).0,
            "{} of {:e} {:e}: {} ulp",
            function.name(),
            worst.1,
            worst.2,
            worst.0
        );
    }
}

#[test]
fn results_without_fused_operations_are_within_looser_bounds() {
    for &function in MathFn::ALL {
        for (x, y) in samples(20_000) {
            let mut l = Native::<f32, false>::new();
            let got =
                with_math_fn!(function, unary K => K::call(&mut l, x), binary K => K::call(&mut l, x, y));
            let error = error32(function, x, y, got);
            assert!(error <= 3.25, "{} of {x:e} {y:e}: {error} ulp", function.name());
        }
    }
}

#[test]
fn wide_results_are_within_bounds() {
    let number = |text: &str| f64::from_bits(u64::from_str_radix(text, 16).unwrap());
    let mut seen = 0;
    for line in include_str!("../data/math64.txt").lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let [name, x, y, high, low] = fields[..] else { panic!("{line}") };
        let function = *MathFn::ALL.iter().find(|function| function.name() == name).unwrap();
        let (x, y, high, low) = (number(x), number(y), number(high), low.parse::<f64>().unwrap());
        let got = apply_f64(function, x, y);
        seen += 1;
        if high.is_subnormal() {
            assert!(got.abs() <= f64::MIN_POSITIVE, "{line}: {got:e}");
            continue;
        }
        let unit = 2f64.powi(((high.abs().to_bits() >> 52) as i32 - 1023).max(-970) - 52);
        let unit = if near_poles(function, x) { unit.max(2f64.powi(-50)) } else { unit };
        let error = ((got - high) / unit - low).abs();
        assert!(error <= bound(function).1, "{name} of {x:e} {y:e}: {error} ulp, got {got:e}");
    }
    assert_eq!(seen, MathFn::ALL.len() * 150);
}

/// `expand`ed and evaluated.
fn emitted(function: MathFn, ty: ScalarType, fused: bool) -> (Body, Reg) {
    let mut body = Body::default();
    let count = if is_binary(function) { 2 } else { 1 };
    let args: Vec<Reg> =
        (0..count).map(|operand| body.push(ScalarOp::Input { operand, part: 0 }, ty, &[])).collect();
    let reg = expand_for(&mut body, function, &args, fused).unwrap();
    (body, reg)
}

fn evaluate(body: &Body, reg: Reg, operands: &[Scalar]) -> Scalar {
    reference::evaluate(body, &reference::Inputs { operands, ..Default::default() }, &[Value::Real(reg)])
        .unwrap()[0][0]
}

#[test]
fn emitted_bodies_give_the_bits_of_native_kernels() {
    let special =
        [0.0, -0.0, 1.0, -1.0, 0.5, -2.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-40, -3e38, 1e9];
    let pairs: Vec<(f32, f32)> =
        special.iter().flat_map(|&x| special.iter().map(move |&y| (x, y))).chain(samples(60)).collect();
    for &function in MathFn::ALL {
        for fused in [true, false] {
            let (body, reg) = emitted(function, ScalarType::F32, fused);
            let (wide_body, wide_reg) = emitted(function, ScalarType::F64, fused);
            for &(x, y) in &pairs {
                let operands = [x, y].map(|v| Scalar::from_f64(DType::F32, v.into()));
                let got = f32::from_bits(evaluate(&body, reg, &operands).bits() as u32);
                let (mut l, mut plain) = (Native::<f32, true>::new(), Native::<f32, false>::new());
                let native = if fused {
                    with_math_fn!(function, unary K => K::call(&mut l, x), binary K => K::call(&mut l, x, y))
                } else {
                    with_math_fn!(function, unary K => K::call(&mut plain, x), binary K => K::call(&mut plain, x, y))
                };
                let same = got.to_bits() == native.to_bits() || got.is_nan() && native.is_nan();
                assert!(same, "{} of {x:e} {y:e}: emitted {got:e}, native {native:e}", function.name());
                // Wide arguments that 32 bits do not hold.
                let (x, y) = (f64::from(x) * 1.000_000_000_1, f64::from(y) * 1.000_000_000_1);
                let operands = [x, y].map(|v| Scalar::from_f64(DType::F64, v));
                let got = f64::from_bits(evaluate(&wide_body, wide_reg, &operands).bits() as u64);
                let (mut l, mut plain) = (Native::<f64, true>::new(), Native::<f64, false>::new());
                let native = if fused {
                    with_math_fn!(function, unary K => K::call(&mut l, x), binary K => K::call(&mut l, x, y))
                } else {
                    with_math_fn!(function, unary K => K::call(&mut plain, x), binary K => K::call(&mut plain, x, y))
                };
                let same = got.to_bits() == native.to_bits() || got.is_nan() && native.is_nan();
                assert!(same, "{} of {x:e} {y:e}: emitted {got:e}, native {native:e}", function.name());
            }
        }
    }
}

#[test]
fn bodies_hold_what_their_emitters_can() {
    for &function in MathFn::ALL {
        for (ty, fused) in [(ScalarType::F32, true), (ScalarType::F32, false), (ScalarType::F64, true)] {
            let (body, _) = emitted(function, ty, fused);
            for instruction in body.instructions() {
                assert!(!matches!(instruction.op, ScalarOp::Math(_)), "{}", function.name());
                assert!(fused || instruction.op != ScalarOp::Fma, "{}", function.name());
            }
        }
    }
}

#[test]
fn quick_forms_equal_the_full_ones_within_their_limit() {
    fn check<K: Unary>() {
        for (x, _) in samples(3_000) {
            let wide = f64::from(x) * 1.000_000_000_1;
            let (mut narrow, mut wider) = (Native::<f32, true>::new(), Native::<f64, true>::new());
            if f64::from(x).abs() <= K::QUICK_LIMIT.0 {
                let (full, quick) = (K::call(&mut narrow, x), K::quick(&mut narrow, x));
                assert_eq!(full.to_bits(), quick.to_bits(), "{} of {x:e}", K::FUNCTION.name());
            }
            if wide.abs() <= K::QUICK_LIMIT.1 {
                let (full, quick) = (K::call(&mut wider, wide), K::quick(&mut wider, wide));
                assert_eq!(full.to_bits(), quick.to_bits(), "{} of {wide:e}", K::FUNCTION.name());
            }
        }
    }
    check::<ferrax_ir::math::kernels::Sin>();
    check::<ferrax_ir::math::kernels::Cos>();
    check::<ferrax_ir::math::kernels::Tan>();
}

#[test]
fn quick_expansions_are_shorter_and_equal() {
    for (function, limit) in [(MathFn::Sin, 131_072.0), (MathFn::Exp, INF), (MathFn::Atan2, INF)] {
        let (full, _) = emitted(function, ScalarType::F32, true);
        let mut body = Body::default();
        let args =
            [0, 1].map(|operand| body.push(ScalarOp::Input { operand, part: 0 }, ScalarType::F32, &[]));
        let args = if is_binary(function) { &args[..] } else { &args[..1] };
        let (reg, got) = expand_quick(&mut body, function, args).unwrap();
        assert_eq!(got, limit);
        assert!(limit == INF || 2 * body.instructions().len() < full.instructions().len());
        let operands = [1.25, -3.5].map(|v| Scalar::from_f64(DType::F32, v));
        let value = f32::from_bits(evaluate(&body, reg, &operands).bits() as u32);
        assert_eq!(value, apply_f32(function, 1.25, -3.5));
    }
}

#[test]
fn wrong_arguments_are_errors() {
    let mut body = Body::default();
    let x = body.float(ScalarType::F32, 1.0);
    let n = body.int(ScalarType::I32, 1);
    assert!(expand(&mut body, MathFn::Pow, &[x]).is_err());
    assert!(expand(&mut body, MathFn::Exp, &[x, x]).is_err());
    assert!(expand(&mut body, MathFn::Exp, &[n]).is_err());
    assert!(expand(&mut body, MathFn::Exp, &[]).is_err());
}

/// Both widths give `expected`, with its sign.
fn gives(function: MathFn, x: f64, y: f64, expected: f64) {
    let narrow = f64::from(apply_f32(function, x as f32, y as f32));
    let wide = apply_f64(function, x, y);
    for got in [narrow, wide] {
        let same = got == expected && got.is_sign_negative() == expected.is_sign_negative();
        assert!(
            same || got.is_nan() && expected.is_nan(),
            "{} of {x} {y}: {got}, not {expected}",
            function.name()
        );
    }
}

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

#[test]
fn special_values_of_functions_of_one() {
    use MathFn::*;
    // At +0, -0, +inf, -inf; NaN gives NaN.
    let rows: &[(MathFn, [f64; 4])] = &[
        (Exp, [1.0, 1.0, INF, 0.0]),
        (Exp2, [1.0, 1.0, INF, 0.0]),
        (Expm1, [0.0, -0.0, INF, -1.0]),
        (Log, [-INF, -INF, INF, NAN]),
        (Log1p, [0.0, -0.0, INF, NAN]),
        (Tanh, [0.0, -0.0, 1.0, -1.0]),
        (Logistic, [0.5, 0.5, 1.0, 0.0]),
        (Sin, [0.0, -0.0, NAN, NAN]),
        (Cos, [1.0, 1.0, NAN, NAN]),
        (Tan, [0.0, -0.0, NAN, NAN]),
        (Asin, [0.0, -0.0, NAN, NAN]),
        (Sinh, [0.0, -0.0, INF, -INF]),
        (Cosh, [1.0, 1.0, INF, INF]),
        (Asinh, [0.0, -0.0, INF, -INF]),
        (Acosh, [NAN, NAN, INF, NAN]),
        (Atanh, [0.0, -0.0, NAN, NAN]),
        (Cbrt, [0.0, -0.0, INF, -INF]),
        (Rsqrt, [INF, -INF, 0.0, NAN]),
        (Erf, [0.0, -0.0, 1.0, -1.0]),
        (Erfc, [1.0, 1.0, 0.0, 2.0]),
        (ErfInv, [0.0, -0.0, NAN, NAN]),
        (Lgamma, [INF, INF, INF, INF]),
        (Digamma, [NAN, NAN, INF, NAN]),
    ];
    for (function, expected) in rows {
        for (x, expected) in [0.0, -0.0, INF, -INF].into_iter().zip(expected) {
            gives(*function, x, 0.0, *expected);
        }
        gives(*function, NAN, 0.0, NAN);
    }
    gives(Atan, -0.0, 0.0, -0.0);
    assert_eq!(apply_f64(Atan, -INF, 0.0), -std::f64::consts::FRAC_PI_2);
    assert_eq!(apply_f32(Acos, -1.0, 0.0), std::f32::consts::PI);
    gives(Acos, 1.0, 0.0, 0.0);
    for x in [1.5, -1.5] {
        for function in [Acos, Asin, ErfInv, Atanh] {
            gives(function, x, 0.0, NAN);
        }
    }
    for (function, x, expected) in [
        (Log1p, -1.0, -INF),
        (Log1p, -2.0, NAN),
        (Log, -1.0, NAN),
        (Log, 1.0, 0.0),
        (Acosh, 1.0, 0.0),
        (Acosh, 0.5, NAN),
        (Acosh, -3.0, NAN),
        (Atanh, 1.0, INF),
        (Atanh, -1.0, -INF),
        (ErfInv, 1.0, INF),
        (ErfInv, -1.0, -INF),
        (Lgamma, 1.0, 0.0),
        (Lgamma, 2.0, 0.0),
        (Lgamma, -3.0, INF),
        (Digamma, -3.0, NAN),
        (Rsqrt, -1.0, NAN),
        (Cbrt, -27.0, -3.0),
        (Cbrt, 2f64.powi(126), 2f64.powi(42)),
        (Cbrt, 2f64.powi(-126), 2f64.powi(-42)),
        (Exp2, 10.0, 1024.0),
        (Exp2, -3.0, 0.125),
        (Tanh, 100.0, 1.0),
        (Expm1, -200.0, -1.0),
    ] {
        gives(function, x, 0.0, expected);
    }
}

#[test]
fn extremes_do_not_overflow_early() {
    for x in [f32::MAX, -f32::MAX, f32::MIN_POSITIVE, 1e-45, -1e-40, 88.72, -87.3, 89.41, 1.5e38] {
        for &function in MathFn::ALL.iter().filter(|function| !is_binary(**function)) {
            let error = error32(function, x, 0.0, apply_f32(function, x, 0.0));
            assert!(error <= 3.0, "{} of {x:e}: {error} ulp", function.name());
        }
    }
    for x in [f64::MAX, f64::MIN_POSITIVE, 5e-324] {
        let (got, exact) = (apply_f64(MathFn::Cbrt, x, 0.0), x.cbrt());
        assert!((got / exact - 1.0).abs() <= f64::EPSILON, "cbrt of {x:e}: {got:e}, not {exact:e}");
        assert!(
            (apply_f64(MathFn::Asinh, x, 0.0) / libm::asinh(x) - 1.0).abs() <= 4.0 * f64::EPSILON,
            "{x:e}"
        );
    }
}

#[test]
fn special_values_of_pow() {
    let values =
        [0.0, -0.0, 0.5, 1.0, 2.0, 3.0, -0.5, -1.0, -2.0, -3.0, INF, -INF, NAN, 4097.0, -16_777_216.0];
    for x in values {
        for y in values {
            let exact = x.powf(y);
            let (narrow, wide) =
                (f64::from(apply_f32(MathFn::Pow, x as f32, y as f32)), apply_f64(MathFn::Pow, x, y));
            let expected = f64::from(exact as f32);
            if exact == 0.0 || !exact.is_finite() {
                gives(MathFn::Pow, x, y, exact);
            } else if expected == 0.0 || !expected.is_finite() {
                assert_eq!(narrow, expected, "{x}^{y}");
            } else {
                assert!((narrow / expected - 1.0).abs() < 2e-7, "{x}^{y}: {narrow}, not {exact}");
                assert!((wide / exact - 1.0).abs() < 3e-16, "{x}^{y}: {wide}, not {exact}");
            }
        }
    }
}

#[test]
fn special_values_of_atan2() {
    let values = [0.0, -0.0, 1.0, -1.0, 1e-30, -3e38, 3e38, INF, -INF, NAN];
    for y in values {
        for x in values {
            let exact = y.atan2(x);
            let (narrow, wide) =
                (apply_f32(MathFn::Atan2, y as f32, x as f32), apply_f64(MathFn::Atan2, y, x));
            for (got, tolerance) in [(f64::from(narrow), 2e-7), (wide, 4e-16)] {
                let close = (got - exact).abs() <= tolerance * exact.abs()
                    || exact.abs() < 1e-37 && got.abs() < 2e-38;
                let same = close && got.is_sign_negative() == exact.is_sign_negative();
                assert!(same || got.is_nan() && exact.is_nan(), "atan2({y}, {x}): {got}, not {exact}");
            }
        }
    }
}
