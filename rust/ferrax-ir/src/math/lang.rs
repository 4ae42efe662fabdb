//! The language the math functions are written in.
//!
//! A function of floats is written once, generic over [`FloatLang`]; an
//! implementation says what an operation is: machine arithmetic ([`super::Native`])
//! or an instruction of a scalar body ([`super::Emit`]). Nothing branches: both
//! sides of a choice are computed and one is selected.
//!
//! Invariants that the functions rely on: round to nearest even; comparisons with
//! NaN are false; `fma` rounds once where [`FloatLang::fused`] and twice elsewhere;
//! no reassociation.

/// Arithmetic on one width of float (`F`), the integers of that width (`I`) and
/// truth values (`B`).
#[allow(clippy::wrong_self_convention)]
pub trait FloatLang {
    type F: Copy;
    type I: Copy;
    type B: Copy;

    /// 64 bits rather than 32.
    fn wide(&self) -> bool;
    /// Whether [`FloatLang::fma`] rounds once.
    fn fused(&self) -> bool;

    fn float(&mut self, value: f64) -> Self::F;
    fn int(&mut self, value: i64) -> Self::I;

    fn add(&mut self, a: Self::F, b: Self::F) -> Self::F;
    fn sub(&mut self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(&mut self, a: Self::F, b: Self::F) -> Self::F;
    fn div(&mut self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`.
    fn fma(&mut self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    fn neg(&mut self, a: Self::F) -> Self::F;
    fn abs(&mut self, a: Self::F) -> Self::F;
    fn sqrt(&mut self, a: Self::F) -> Self::F;
    fn floor(&mut self, a: Self::F) -> Self::F;
    fn round_even(&mut self, a: Self::F) -> Self::F;

    fn lt(&mut self, a: Self::F, b: Self::F) -> Self::B;
    fn le(&mut self, a: Self::F, b: Self::F) -> Self::B;
    fn eq(&mut self, a: Self::F, b: Self::F) -> Self::B;
    fn both(&mut self, a: Self::B, b: Self::B) -> Self::B;
    fn either(&mut self, a: Self::B, b: Self::B) -> Self::B;
    fn not(&mut self, a: Self::B) -> Self::B;
    fn select(&mut self, condition: Self::B, then: Self::F, otherwise: Self::F) -> Self::F;
    fn select_int(&mut self, condition: Self::B, then: Self::I, otherwise: Self::I) -> Self::I;

    /// Integers wrap.
    fn add_int(&mut self, a: Self::I, b: Self::I) -> Self::I;
    fn sub_int(&mut self, a: Self::I, b: Self::I) -> Self::I;
    fn and_int(&mut self, a: Self::I, b: Self::I) -> Self::I;
    fn or_int(&mut self, a: Self::I, b: Self::I) -> Self::I;
    fn xor_int(&mut self, a: Self::I, b: Self::I) -> Self::I;
    fn eq_int(&mut self, a: Self::I, b: Self::I) -> Self::B;
    /// Shifts by less than the width; to the right fills with zeros.
    fn shl(&mut self, a: Self::I, count: u32) -> Self::I;
    fn shr(&mut self, a: Self::I, count: u32) -> Self::I;

    /// The bits of a float and back.
    fn bits(&mut self, a: Self::F) -> Self::I;
    #[expect(clippy::wrong_self_convention, reason = "the name of the float method; self is the emitter")]
    fn from_bits(&mut self, a: Self::I) -> Self::F;
}

/// The numbers of a float format.
#[derive(Clone, Copy)]
pub struct Format {
    /// Bits of the significand that are stored.
    pub fraction: u32,
    pub exponent_bias: i64,
    pub sign_bit: i64,
    /// `1.5 * 2^fraction`: adding it rounds to an integer, which then are the low bits.
    pub magic: f64,
    pub magic_bits: i64,
    pub min_normal: f64,
    pub epsilon: f64,
}

pub const NARROW: Format = Format {
    fraction: 23,
    exponent_bias: 127,
    sign_bit: i32::MIN as i64,
    magic: 12_582_912.0,
    magic_bits: 0x4b40_0000,
    min_normal: f32::MIN_POSITIVE as f64,
    epsilon: f32::EPSILON as f64,
};

pub const WIDE: Format = Format {
    fraction: 52,
    exponent_bias: 1023,
    sign_bit: i64::MIN,
    magic: 6_755_399_441_055_744.0,
    magic_bits: 0x4338_0000_0000_0000,
    min_normal: f64::MIN_POSITIVE,
    epsilon: f64::EPSILON,
};

/// What is composed of the operations.
pub trait FloatLangExt: FloatLang {
    #[inline(always)]
    fn format(&self) -> Format {
        if self.wide() { WIDE } else { NARROW }
    }

    /// A constant that depends on the width.
    #[inline(always)]
    fn by_width(&mut self, narrow: f64, wide: f64) -> Self::F {
        let value = if self.wide() { wide } else { narrow };
        self.float(value)
    }

    /// The polynomial with these coefficients, lowest power first, by Estrin's rule: few of its operations wait for
    /// one another.
    #[inline(always)]
    fn poly<const N: usize, const W: usize>(
        &mut self,
        x: Self::F,
        narrow: &[f64; N],
        wide: &[f64; W],
    ) -> Self::F {
        if self.wide() { estrin(self, x, wide) } else { estrin(self, x, narrow) }
    }

    /// The first coefficient, and the polynomial of the others.
    #[inline(always)]
    fn first_and_rest<const N: usize, const W: usize>(
        &mut self,
        x: Self::F,
        narrow: &[f64; N],
        wide: &[f64; W],
    ) -> [Self::F; 2] {
        let first = self.by_width(narrow[0], wide[0]);
        [first, if self.wide() { estrin(self, x, &wide[1..]) } else { estrin(self, x, &narrow[1..]) }]
    }

    /// The same by Horner's rule, which rounds less where terms cancel.
    #[inline(always)]
    fn poly_in_turn<const N: usize, const W: usize>(
        &mut self,
        x: Self::F,
        narrow: &[f64; N],
        wide: &[f64; W],
    ) -> Self::F {
        if self.wide() { horner(self, x, wide) } else { horner(self, x, narrow) }
    }

    /// `c - a * b`.
    #[inline(always)]
    fn fnma(&mut self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        let a = self.neg(a);
        self.fma(a, b, c)
    }

    /// `x` not below `low` and not above `high`; NaN stays.
    #[inline(always)]
    fn clamp(&mut self, x: Self::F, low: Self::F, high: Self::F) -> Self::F {
        let x = self.at_least(x, low);
        self.at_most(x, high)
    }

    #[inline(always)]
    fn at_least(&mut self, x: Self::F, low: Self::F) -> Self::F {
        let below = self.lt(x, low);
        self.select(below, low, x)
    }

    #[inline(always)]
    fn at_most(&mut self, x: Self::F, high: Self::F) -> Self::F {
        let above = self.lt(high, x);
        self.select(above, high, x)
    }

    /// `x * factor` rounded to an integer `k`, as a float, and the bits of a float whose low ones are `k + bias` (above
    /// them those of the magic number). `|k + bias| < 2^(fraction - 1)`.
    #[inline(always)]
    fn round_product(&mut self, x: Self::F, factor: Self::F, bias: i64) -> (Self::F, Self::I) {
        let magic = self.float(self.format().magic + bias as f64);
        let shifted = self.fma(x, factor, magic);
        let k = self.sub(shifted, magic);
        (k, self.bits(shifted))
    }

    /// A small integer as a float.
    #[inline(always)]
    fn to_float(&mut self, k: Self::I) -> Self::F {
        let bits = self.int(self.format().magic_bits);
        let shifted = self.add_int(k, bits);
        let shifted = self.from_bits(shifted);
        let magic = self.float(self.format().magic);
        self.sub(shifted, magic)
    }

    /// `2^k` where `k`, with the exponents' bias added, is in the low bits of `k_bits`, and the power is normal.
    #[inline(always)]
    fn power_of_two(&mut self, k_bits: Self::I) -> Self::F {
        let bits = self.shl(k_bits, self.format().fraction);
        self.from_bits(bits)
    }

    /// `a` with the sign of `b`; `a` must not be negative.
    #[inline(always)]
    fn with_sign(&mut self, a: Self::F, b: Self::F) -> Self::F {
        let mask = self.int(self.format().sign_bit);
        let b = self.bits(b);
        let sign = self.and_int(b, mask);
        self.flip(a, sign)
    }

    /// `a`, negated where the sign bit of `sign` is set; its other bits are zero.
    #[inline(always)]
    fn flip(&mut self, a: Self::F, sign: Self::I) -> Self::F {
        let a = self.bits(a);
        let a = self.xor_int(a, sign);
        self.from_bits(a)
    }

    /// The bits of `a` in `mask` are not all zero.
    #[inline(always)]
    fn test(&mut self, a: Self::I, mask: i64) -> Self::B {
        let mask = self.int(mask);
        let zero = self.int(0);
        let a = self.and_int(a, mask);
        let none = self.eq_int(a, zero);
        self.not(none)
    }

    /// `y`, but `x` itself where that is zero (keeps the zero's sign).
    #[inline(always)]
    fn keep_zero(&mut self, x: Self::F, y: Self::F) -> Self::F {
        let zero = self.float(0.0);
        let is_zero = self.eq(x, zero);
        self.select(is_zero, x, y)
    }

    /// The rounded sum and its error (Knuth).
    #[inline(always)]
    fn two_sum(&mut self, a: Self::F, b: Self::F) -> (Self::F, Self::F) {
        let sum = self.add(a, b);
        let b_part = self.sub(sum, a);
        let a_part = self.sub(sum, b_part);
        let b_error = self.sub(b, b_part);
        let a_error = self.sub(a, a_part);
        (sum, self.add(a_error, b_error))
    }

    /// The rounded sum and its error where `|a| >= |b|` or `a = 0` (Dekker).
    #[inline(always)]
    fn fast_two_sum(&mut self, a: Self::F, b: Self::F) -> (Self::F, Self::F) {
        let sum = self.add(a, b);
        let b_part = self.sub(sum, a);
        (sum, self.sub(b, b_part))
    }

    /// The rounded product and its error; without a fused operation by splitting
    /// (Dekker, Veltkamp), which overflows for factors within 2^27 of the largest.
    #[inline(always)]
    fn two_product(&mut self, a: Self::F, b: Self::F) -> (Self::F, Self::F) {
        let product = self.mul(a, b);
        if self.fused() {
            let negated = self.neg(product);
            return (product, self.fma(a, b, negated));
        }
        let (a_high, a_low) = self.split(a);
        let (b_high, b_low) = self.split(b);
        let high = self.mul(a_high, b_high);
        let error = self.sub(high, product);
        let cross = self.mul(a_high, b_low);
        let error = self.add(error, cross);
        let cross = self.mul(a_low, b_high);
        let error = self.add(error, cross);
        let low = self.mul(a_low, b_low);
        (product, self.add(error, low))
    }

    /// Halves of a significand.
    #[inline(always)]
    fn split(&mut self, a: Self::F) -> (Self::F, Self::F) {
        let factor = self.by_width(4097.0, 134_217_729.0);
        let large = self.mul(a, factor);
        let difference = self.sub(large, a);
        let high = self.sub(large, difference);
        (high, self.sub(a, high))
    }
}

impl<L: FloatLang> FloatLangExt for L {}

#[inline(always)]
fn horner<L: FloatLang + ?Sized>(l: &mut L, x: L::F, coefficients: &[f64]) -> L::F {
    let mut k = coefficients.len() - 1;
    let mut sum = l.float(coefficients[k]);
    while k > 0 {
        k -= 1;
        let c = l.float(coefficients[k]);
        sum = l.fma(sum, x, c);
    }
    sum
}

/// Pairs of neighbours, pairs of pairs, and so on (G. Estrin, "Organization of computer systems: the fixed plus
/// variable structure computer", 1960). Of up to 48 coefficients.
#[inline(always)]
fn estrin<L: FloatLang + ?Sized>(l: &mut L, x: L::F, coefficients: &[f64]) -> L::F {
    let mut terms = [x; 24];
    let mut count = coefficients.len().div_ceil(2);
    // Loops over ranges that the number of coefficients fixes are unrolled, and the terms are registers.
    for k in 0..count {
        terms[k] = l.float(coefficients[2 * k]);
        if 2 * k + 1 < coefficients.len() {
            let high = l.float(coefficients[2 * k + 1]);
            terms[k] = l.fma(high, x, terms[k]);
        }
    }
    let mut power = x;
    while count > 1 {
        power = l.mul(power, power);
        if count == 3 {
            // One power less, and as many wait.
            let upper = l.fma(terms[2], power, terms[1]);
            return l.fma(upper, power, terms[0]);
        }
        let next = count.div_ceil(2);
        for k in 0..next {
            terms[k] =
                if 2 * k + 1 < count { l.fma(terms[2 * k + 1], power, terms[2 * k]) } else { terms[2 * k] };
        }
        count = next;
    }
    terms[0]
}

/// Nested operations: `calc!(l, fma(x, add(y, 1.0), neg(z)))`. Leaves are variables,
/// float literals and, in parentheses, other `f64` expressions.
macro_rules! calc {
    ($l:ident, $v:ident) => { $v };
    ($l:ident, $v:literal) => { $l.float($v) };
    ($l:ident, ( $v:expr )) => { $l.float($v) };
    ($l:ident, $op:ident ( $h:tt $(( $($i:tt)* ))? )) => {{
        let a = $crate::math::lang::calc!($l, $h $(( $($i)* ))?);
        $l.$op(a)
    }};
    ($l:ident, $op:ident ( $h:tt $(( $($i:tt)* ))?, $h1:tt $(( $($i1:tt)* ))? )) => {{
        let a = $crate::math::lang::calc!($l, $h $(( $($i)* ))?);
        let b = $crate::math::lang::calc!($l, $h1 $(( $($i1)* ))?);
        $l.$op(a, b)
    }};
    ($l:ident, $op:ident ( $h:tt $(( $($i:tt)* ))?, $h1:tt $(( $($i1:tt)* ))?, $h2:tt $(( $($i2:tt)* ))? )) => {{
        let a = $crate::math::lang::calc!($l, $h $(( $($i)* ))?);
        let b = $crate::math::lang::calc!($l, $h1 $(( $($i1)* ))?);
        let c = $crate::math::lang::calc!($l, $h2 $(( $($i2)* ))?);
        $l.$op(a, b, c)
    }};
}
pub(crate) use calc;
