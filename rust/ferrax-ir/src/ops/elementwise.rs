//! Elementwise ops.

use crate::{DType, op_family, op_struct, pending_rules};

op_family! {
    /// Ops of one operand without parameters.
    Unary {
        Neg "neg" "`-x`; integers wrap.",
        Sign "sign" "-1, 0 or 1 (NaN for NaN; `x / |x|` for complex).",
        Floor "floor" "Rounds towards negative infinity.",
        Ceil "ceil" "Rounds towards positive infinity.",
        IsFinite "is_finite" "Whether a float is neither infinite nor NaN.",
        Exp "exp" "`e^x`.",
        Exp2 "exp2" "`2^x`.",
        Log "log" "Natural logarithm.",
        Expm1 "expm1" "`e^x - 1`, accurate near 0.",
        Log1p "log1p" "`log(1 + x)`, accurate near 0.",
        Tanh "tanh" "Hyperbolic tangent.",
        Logistic "logistic" "`1 / (1 + e^-x)`.",
        Sin "sin" "Sine.",
        Cos "cos" "Cosine.",
        Tan "tan" "Tangent.",
        Asin "asin" "Inverse sine.",
        Acos "acos" "Inverse cosine.",
        Atan "atan" "Inverse tangent.",
        Sinh "sinh" "Hyperbolic sine.",
        Cosh "cosh" "Hyperbolic cosine.",
        Asinh "asinh" "Inverse hyperbolic sine.",
        Acosh "acosh" "Inverse hyperbolic cosine.",
        Atanh "atanh" "Inverse hyperbolic tangent.",
        Sqrt "sqrt" "Square root.",
        Rsqrt "rsqrt" "`1 / sqrt(x)`.",
        Cbrt "cbrt" "Cube root.",
        Abs "abs" "Absolute value; real for complex.",
        Not "not" "Bitwise complement; logical for bool.",
        PopulationCount "population_count" "The number of set bits.",
        Clz "clz" "The number of leading zero bits.",
        Real "real" "Real part of a complex number.",
        Imag "imag" "Imaginary part of a complex number.",
        Conj "conj" "Complex conjugate.",
        Erf "erf" "Error function.",
        Erfc "erfc" "`1 - erf(x)`, accurate for large x.",
        ErfInv "erf_inv" "Inverse of the error function.",
        Lgamma "lgamma" "Logarithm of the absolute value of the gamma function.",
        Digamma "digamma" "Derivative of `lgamma`.",
        Square "square" "`x * x`.",
    }
}

op_family! {
    /// Ops of two operands of one dtype without parameters.
    Binary {
        Add "add" "`x + y`; integers wrap.",
        Sub "sub" "`x - y`; integers wrap.",
        Mul "mul" "`x * y`; integers wrap.",
        Div "div" "`x / y`; integers truncate, `x / 0 = -1`.",
        Rem "rem" "Remainder with the sign of the dividend.",
        Pow "pow" "`x^y`; the exponent may be an integer where the base is not.",
        Max "max" "The larger; NaN if either is; lexicographic for complex.",
        Min "min" "The smaller; NaN if either is; lexicographic for complex.",
        And "and" "Bitwise (bool: logical) and.",
        Or "or" "Bitwise (bool: logical) or.",
        Xor "xor" "Bitwise (bool: logical) exclusive or.",
        ShiftLeft "shift_left" "`x << y`; 0 where y is not below the width.",
        ShiftRightArithmetic "shift_right_arithmetic" "`x >> y` keeping the sign.",
        ShiftRightLogical "shift_right_logical" "`x >> y` filling with zeros.",
        Atan2 "atan2" "Angle of the point (y, x).",
        Nextafter "nextafter" "The next float after x towards y.",
        Complex "complex" "A complex number from its parts.",
    }
}

op_family! {
    /// Comparisons; the result is bool.
    Compare {
        Eq "eq" "`x == y`.",
        Ne "ne" "`x != y`.",
        Lt "lt" "`x < y`.",
        Le "le" "`x <= y`.",
        Gt "gt" "`x > y`.",
        Ge "ge" "`x >= y`.",
    }
}

op_struct! {
    /// Rounds to integers; ties away from zero (0) or to even (1).
    Round "round" { rounding_method: u8 }
}
op_struct! {
    /// `x^y` for a constant integer y.
    IntegerPow "integer_pow" { y: i32 }
}
op_struct! {
    /// Rounds floats to a format of fewer bits, keeping their dtype.
    ReducePrecision "reduce_precision" { exponent_bits: u32, mantissa_bits: u32 }
}
op_struct! {
    /// Converts to another dtype.
    ConvertElementType "convert_element_type" { new_dtype: DType, weak_type: bool }
}
op_struct! {
    /// The same bits read as another dtype.
    BitcastConvertType "bitcast_convert_type" { new_dtype: DType }
}
op_struct! {
    /// Picks among the operands after the first by it: a bool, or an int32 index.
    SelectN "select_n" {}
}
op_struct! {
    /// `min(max(x, lo), hi)` of operands lo, x, hi; the bounds may be 0-d.
    Clamp "clamp" {}
}
op_struct! {
    /// The identity with derivative zero.
    StopGradient "stop_gradient" {}
}
op_struct! {
    /// The identity as a fresh array.
    Copy "copy" {}
}

pending_rules!(
    Unary,
    Binary,
    Compare,
    Round,
    IntegerPow,
    ReducePrecision,
    ConvertElementType,
    BitcastConvertType,
    SelectN,
    Clamp,
    StopGradient,
    Copy
);
