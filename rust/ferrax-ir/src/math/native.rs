//! The language as machine arithmetic.
//!
//! Everything is inlined, so a loop over a slice inside a function with
//! `#[target_feature(enable = "fma,…")]` becomes vector code. There `FUSED` must be
//! true; elsewhere it must be false, or `mul_add` is a call. The two differ in the
//! last bits of results, never in the special cases.

use super::lang::FloatLang;

/// `Native<f32, FUSED>` and `Native<f64, FUSED>`.
#[derive(Clone, Copy, Default)]
pub struct Native<T, const FUSED: bool>(std::marker::PhantomData<T>);

impl<T, const FUSED: bool> Native<T, FUSED> {
    #[inline(always)]
    pub const fn new() -> Self {
        Native(std::marker::PhantomData)
    }
}

macro_rules! native {
    ($float:ident, $int:ident, $unsigned:ident, $wide:literal) => {
        impl<const FUSED: bool> FloatLang for Native<$float, FUSED> {
            type F = $float;
            type I = $int;
            type B = bool;

            #[inline(always)]
            fn wide(&self) -> bool {
                $wide
            }
            #[inline(always)]
            fn fused(&self) -> bool {
                FUSED
            }
            #[inline(always)]
            fn float(&mut self, value: f64) -> $float {
                value as $float
            }
            #[inline(always)]
            fn int(&mut self, value: i64) -> $int {
                value as $int
            }
            #[inline(always)]
            fn add(&mut self, a: $float, b: $float) -> $float {
                a + b
            }
            #[inline(always)]
            fn sub(&mut self, a: $float, b: $float) -> $float {
                a - b
            }
            #[inline(always)]
            fn mul(&mut self, a: $float, b: $float) -> $float {
                a * b
            }
            #[inline(always)]
            fn div(&mut self, a: $float, b: $float) -> $float {
                a / b
            }
            #[inline(always)]
            fn fma(&mut self, a: $float, b: $float, c: $float) -> $float {
                if FUSED { a.mul_add(b, c) } else { a * b + c }
            }
            #[inline(always)]
            fn neg(&mut self, a: $float) -> $float {
                -a
            }
            #[inline(always)]
            fn abs(&mut self, a: $float) -> $float {
                a.abs()
            }
            #[inline(always)]
            fn sqrt(&mut self, a: $float) -> $float {
                a.sqrt()
            }
            #[inline(always)]
            fn floor(&mut self, a: $float) -> $float {
                a.floor()
            }
            #[inline(always)]
            fn round_even(&mut self, a: $float) -> $float {
                a.round_ties_even()
            }
            #[inline(always)]
            fn lt(&mut self, a: $float, b: $float) -> bool {
                a < b
            }
            #[inline(always)]
            fn le(&mut self, a: $float, b: $float) -> bool {
                a <= b
            }
            #[inline(always)]
            fn eq(&mut self, a: $float, b: $float) -> bool {
                a == b
            }
            #[inline(always)]
            fn both(&mut self, a: bool, b: bool) -> bool {
                a & b
            }
            #[inline(always)]
            fn either(&mut self, a: bool, b: bool) -> bool {
                a | b
            }
            #[inline(always)]
            fn not(&mut self, a: bool) -> bool {
                !a
            }
            #[inline(always)]
            fn select(&mut self, condition: bool, then: $float, otherwise: $float) -> $float {
                if condition { then } else { otherwise }
            }
            #[inline(always)]
            fn select_int(&mut self, condition: bool, then: $int, otherwise: $int) -> $int {
                if condition { then } else { otherwise }
            }
            #[inline(always)]
            fn add_int(&mut self, a: $int, b: $int) -> $int {
                a.wrapping_add(b)
            }
            #[inline(always)]
            fn sub_int(&mut self, a: $int, b: $int) -> $int {
                a.wrapping_sub(b)
            }
            #[inline(always)]
            fn and_int(&mut self, a: $int, b: $int) -> $int {
                a & b
            }
            #[inline(always)]
            fn or_int(&mut self, a: $int, b: $int) -> $int {
                a | b
            }
            #[inline(always)]
            fn xor_int(&mut self, a: $int, b: $int) -> $int {
                a ^ b
            }
            #[inline(always)]
            fn eq_int(&mut self, a: $int, b: $int) -> bool {
                a == b
            }
            #[inline(always)]
            fn shl(&mut self, a: $int, count: u32) -> $int {
                a.wrapping_shl(count)
            }
            #[inline(always)]
            fn shr(&mut self, a: $int, count: u32) -> $int {
                (a as $unsigned).wrapping_shr(count) as $int
            }
            #[inline(always)]
            fn bits(&mut self, a: $float) -> $int {
                a.to_bits() as $int
            }
            #[inline(always)]
            fn from_bits(&mut self, a: $int) -> $float {
                $float::from_bits(a as $unsigned)
            }
        }
    };
}

native!(f32, i32, u32, false);
native!(f64, i64, u64, true);
