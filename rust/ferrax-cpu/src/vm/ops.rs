//! The operations of the scalar language as block functions.

use std::marker::PhantomData;

use ferrax_ir::scalar::{Narrow, ScalarOp, ScalarType};
use ferrax_ir::{Result, internal_error};

use super::halves::{f16_from_f32, f32_from_f16};
use super::isa::{BlockFn, Lane, Uniform, select};
#[cfg(target_arch = "x86_64")]
use super::isa::{Isa, isa};
use super::math;

/// Ignored sources.
type Nil = u8;

macro_rules! lanes {
    ($($name:ident<$t:ident: $bound:ident> ($($arg:ident: $ty:ty),*) -> $ret:ty = $body:expr;)*) => {$(
        struct $name<T>(PhantomData<T>);
        lanes!(@imp $name $t $bound ($($arg: $ty),*) $ret, $body);
    )*};
    (@imp $name:ident $t:ident $bound:ident ($a:ident: $ta:ty) $ret:ty, $body:expr) => {
        impl<$t: $bound> Lane for $name<$t> {
            type A = $ta; type B = Nil; type C = Nil; type R = $ret;
            #[inline(always)]
            fn lane($a: $ta, _: Nil, _: Nil) -> $ret { $body }
        }
    };
    (@imp $name:ident $t:ident $bound:ident ($a:ident: $ta:ty, $b:ident: $tb:ty) $ret:ty, $body:expr) => {
        impl<$t: $bound> Lane for $name<$t> {
            type A = $ta; type B = $tb; type C = Nil; type R = $ret;
            #[inline(always)]
            fn lane($a: $ta, $b: $tb, _: Nil) -> $ret { $body }
        }
    };
    (@imp $name:ident $t:ident $bound:ident ($a:ident: $ta:ty, $b:ident: $tb:ty, $c:ident: $tc:ty) $ret:ty, $body:expr) => {
        impl<$t: $bound> Lane for $name<$t> {
            type A = $ta; type B = $tb; type C = $tc; type R = $ret;
            #[inline(always)]
            fn lane($a: $ta, $b: $tb, $c: $tc) -> $ret { $body }
        }
    };
}

/// Arithmetic of a register type, as the scalar language defines it.
pub trait Number: Copy + PartialOrd + 'static {
    fn add(self, b: Self) -> Self;
    fn sub(self, b: Self) -> Self;
    fn mul(self, b: Self) -> Self;
    fn div(self, b: Self) -> Self;
    fn rem(self, b: Self) -> Self;
    fn neg(self) -> Self;
    fn abs(self) -> Self;
    fn min(self, b: Self) -> Self;
    fn max(self, b: Self) -> Self;
}

macro_rules! integers {
    ($($t:ident $abs:expr;)*) => {$(
        impl Number for $t {
            #[inline(always)] fn add(self, b: $t) -> $t { self.wrapping_add(b) }
            #[inline(always)] fn sub(self, b: $t) -> $t { self.wrapping_sub(b) }
            #[inline(always)] fn mul(self, b: $t) -> $t { self.wrapping_mul(b) }
            #[inline(always)] fn div(self, b: $t) -> $t { if b == 0 { !0 } else { self.wrapping_div(b) } }
            #[inline(always)] fn rem(self, b: $t) -> $t { if b == 0 { self } else { self.wrapping_rem(b) } }
            #[inline(always)] fn neg(self) -> $t { self.wrapping_neg() }
            #[inline(always)] fn abs(self) -> $t { $abs(self) }
            #[inline(always)] fn min(self, b: $t) -> $t { if b < self { b } else { self } }
            #[inline(always)] fn max(self, b: $t) -> $t { if b > self { b } else { self } }
        }
    )*};
}

integers! {
    i8 i8::wrapping_abs; i16 i16::wrapping_abs; i32 i32::wrapping_abs; i64 i64::wrapping_abs;
    u8 |x| x; u16 |x| x; u32 |x| x; u64 |x| x;
}

macro_rules! floats {
    ($($t:ident)*) => {$(
        impl Number for $t {
            #[inline(always)] fn add(self, b: $t) -> $t { self + b }
            #[inline(always)] fn sub(self, b: $t) -> $t { self - b }
            #[inline(always)] fn mul(self, b: $t) -> $t { self * b }
            #[inline(always)] fn div(self, b: $t) -> $t { self / b }
            #[inline(always)] fn rem(self, b: $t) -> $t { self % b }
            #[inline(always)] fn neg(self) -> $t { -self }
            #[inline(always)] fn abs(self) -> $t { <$t>::abs(self) }
            // NaN wins. Between zeros the sign decides: equal numbers differ in no other bit.
            #[inline(always)] fn min(self, b: $t) -> $t {
                let least = if self < b { self } else { b };
                let least = if self == b { <$t>::from_bits(self.to_bits() | b.to_bits()) } else { least };
                if self.is_nan() { self } else { least }
            }
            #[inline(always)] fn max(self, b: $t) -> $t {
                let most = if self > b { self } else { b };
                let most = if self == b { <$t>::from_bits(self.to_bits() & b.to_bits()) } else { most };
                if self.is_nan() { self } else { most }
            }
        }
    )*};
}

floats!(f32 f64);

/// Operations on bits, by width.
pub trait Bits: Copy + PartialEq + 'static {
    fn and(self, b: Self) -> Self;
    fn or(self, b: Self) -> Self;
    fn xor(self, b: Self) -> Self;
    fn not(self) -> Self;
    fn shl(self, b: Self) -> Self;
    fn shr_logical(self, b: Self) -> Self;
    fn shr_arithmetic(self, b: Self) -> Self;
    /// By at most the width less one, filling with zeros.
    fn shr_clamped(self, b: Self) -> Self;
    fn pop_count(self) -> Self;
    fn clz(self) -> Self;
}

macro_rules! bits {
    ($($t:ident $signed:ident;)*) => {$(
        impl Bits for $t {
            #[inline(always)] fn and(self, b: $t) -> $t { self & b }
            #[inline(always)] fn or(self, b: $t) -> $t { self | b }
            #[inline(always)] fn xor(self, b: $t) -> $t { self ^ b }
            #[inline(always)] fn not(self) -> $t { !self }
            #[inline(always)] fn shl(self, b: $t) -> $t {
                if b < $t::BITS as $t { self.wrapping_shl(b as u32) } else { 0 }
            }
            #[inline(always)] fn shr_logical(self, b: $t) -> $t {
                if b < $t::BITS as $t { self.wrapping_shr(b as u32) } else { 0 }
            }
            #[inline(always)] fn shr_arithmetic(self, b: $t) -> $t {
                let by = if b < $t::BITS as $t { b } else { $t::BITS as $t - 1 };
                self.cast_signed().wrapping_shr(by as u32).cast_unsigned()
            }
            #[inline(always)] fn shr_clamped(self, b: $t) -> $t {
                self.wrapping_shr(if b < $t::BITS as $t { b as u32 } else { $t::BITS - 1 })
            }
            #[inline(always)] fn pop_count(self) -> $t { self.count_ones() as $t }
            #[inline(always)] fn clz(self) -> $t { self.leading_zeros() as $t }
        }
    )*};
}

bits! { u8 i8; u16 i16; u32 i32; u64 i64; }

/// What floats have besides.
pub trait Float: Number {
    fn fma(self, b: Self, c: Self) -> Self;
    fn sqrt(self) -> Self;
    fn floor(self) -> Self;
    fn ceil(self) -> Self;
    fn trunc(self) -> Self;
    fn round_even(self) -> Self;
}

macro_rules! float_ops {
    ($($t:ident)*) => {$(
        impl Float for $t {
            #[inline(always)] fn fma(self, b: $t, c: $t) -> $t { self.mul_add(b, c) }
            #[inline(always)] fn sqrt(self) -> $t { <$t>::sqrt(self) }
            #[inline(always)] fn floor(self) -> $t { <$t>::floor(self) }
            #[inline(always)] fn ceil(self) -> $t { <$t>::ceil(self) }
            #[inline(always)] fn trunc(self) -> $t { <$t>::trunc(self) }
            #[inline(always)] fn round_even(self) -> $t { self.round_ties_even() }
        }
    )*};
}

float_ops!(f32 f64);

lanes! {
    Add<T: Number>(a: T, b: T) -> T = a.add(b);
    Sub<T: Number>(a: T, b: T) -> T = a.sub(b);
    Mul<T: Number>(a: T, b: T) -> T = a.mul(b);
    Div<T: Number>(a: T, b: T) -> T = a.div(b);
    Rem<T: Number>(a: T, b: T) -> T = a.rem(b);
    Neg<T: Number>(a: T) -> T = a.neg();
    Abs<T: Number>(a: T) -> T = a.abs();
    Min<T: Number>(a: T, b: T) -> T = a.min(b);
    Max<T: Number>(a: T, b: T) -> T = a.max(b);
    Lt<T: Number>(a: T, b: T) -> u8 = u8::from(a < b);
    Le<T: Number>(a: T, b: T) -> u8 = u8::from(a <= b);
    Gt<T: Number>(a: T, b: T) -> u8 = u8::from(a > b);
    Ge<T: Number>(a: T, b: T) -> u8 = u8::from(a >= b);
    Eq<T: Number>(a: T, b: T) -> u8 = u8::from(a == b);
    Ne<T: Number>(a: T, b: T) -> u8 = u8::from(a != b);
    Fma<T: Float>(a: T, b: T, c: T) -> T = a.fma(b, c);
    Sqrt<T: Float>(a: T) -> T = a.sqrt();
    Floor<T: Float>(a: T) -> T = a.floor();
    Ceil<T: Float>(a: T) -> T = a.ceil();
    Trunc<T: Float>(a: T) -> T = a.trunc();
    RoundEven<T: Float>(a: T) -> T = a.round_even();
    And<T: Bits>(a: T, b: T) -> T = a.and(b);
    Or<T: Bits>(a: T, b: T) -> T = a.or(b);
    Xor<T: Bits>(a: T, b: T) -> T = a.xor(b);
    Not<T: Bits>(a: T) -> T = a.not();
    Shl<T: Bits>(a: T, b: T) -> T = a.shl(b);
    ShrLogical<T: Bits>(a: T, b: T) -> T = a.shr_logical(b);
    ShrArithmetic<T: Bits>(a: T, b: T) -> T = a.shr_arithmetic(b);
    ShrClamped<T: Bits>(a: T, b: T) -> T = a.shr_clamped(b);
    PopCount<T: Bits>(a: T) -> T = a.pop_count();
    Clz<T: Bits>(a: T) -> T = a.clz();
    Select<T: Bits>(a: u8, b: T, c: T) -> T = if a != 0 { b } else { c };
    Identity<T: Bits>(a: T) -> T = a;
    NotBool<T: Bits>(a: T) -> u8 = { let _ = PhantomData::<T>; 0u8.wrapping_add(1) ^ bool_byte(a) };
    RoundBf16<T: IsF32>(a: f32) -> f32 = { let _ = PhantomData::<T>; round_bf16(a) };
    RoundF16<T: IsF32>(a: f32) -> f32 = { let _ = PhantomData::<T>; f32_from_f16(f16_from_f32(a)) };
}

/// Marks lanes that exist for `f32` only.
trait IsF32 {}
impl IsF32 for f32 {}

#[inline(always)]
fn bool_byte<T: Bits>(a: T) -> u8 {
    // A bool is one byte; the generic parameter is `u8` wherever this is used.
    // SAFETY: reads the first byte of a value of at least one byte.
    unsafe { *(&raw const a).cast::<u8>() }
}

/// Bits of the nearest bf16, ties to even; NaN stays NaN.
#[inline(always)]
pub fn bf16_bits(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    let nan = (bits >> 16) | 0x40;
    (if x.is_nan() { nan } else { rounded }) as u16
}

#[inline(always)]
fn round_bf16(x: f32) -> f32 {
    f32::from_bits(u32::from(bf16_bits(x)) << 16)
}

/// `From` into `To` as the scalar language converts.
struct Convert<A, R>(PhantomData<(A, R)>);

macro_rules! conversions {
    ($($a:ident => $($r:ident)*;)*) => {$($(
        impl Lane for Convert<$a, $r> {
            type A = $a; type B = Nil; type C = Nil; type R = $r;
            #[inline(always)]
            fn lane(a: $a, _: Nil, _: Nil) -> $r { a as $r }
        }
    )*)*};
}

conversions! {
    u8 => u16 u32 u64 f32 f64;
    i8 => u16 u32 u64 f32 f64;
    u16 => u8 u32 u64 f32 f64;
    i16 => u32 u64 f32 f64;
    u32 => u8 u16 u64 f32 f64;
    i32 => u64 f32 f64;
    u64 => u8 u16 u32 f32 f64;
    i64 => f32 f64;
    f32 => i8 i16 i32 i64 u8 u16 u32 u64 f64;
    f64 => i8 i16 i32 i64 u8 u16 u32 u64 f32;
}

/// `a != 0`.
struct NonZero<T>(PhantomData<T>);

macro_rules! non_zero {
    ($($t:ident $zero:literal;)*) => {$(
        impl Lane for NonZero<$t> {
            type A = $t; type B = Nil; type C = Nil; type R = u8;
            #[inline(always)]
            fn lane(a: $t, _: Nil, _: Nil) -> u8 { u8::from(a != $zero) }
        }
    )*};
}

non_zero! { u8 0; u16 0; u32 0; u64 0; f32 0.0; f64 0.0; }

fn unary<L: Lane>(uniform: Uniform) -> BlockFn {
    // A uniform argument of a vector instruction is splat before; this is the scalar or the vector case.
    let _ = uniform;
    select::<L, false, true, true>()
}

fn binary<L: Lane>(uniform: Uniform) -> Option<BlockFn> {
    match uniform {
        [false, false, _] => Some(select::<L, false, false, true>()),
        [false, true, _] => Some(select::<L, false, true, true>()),
        _ => None,
    }
}

/// Operations that are as common with the uniform argument on the left.
fn binary_both<L: Lane>(uniform: Uniform) -> Option<BlockFn> {
    match uniform {
        [true, false, _] => Some(select::<L, true, false, true>()),
        other => binary::<L>(other),
    }
}

fn ternary<L: Lane>(uniform: Uniform) -> Option<BlockFn> {
    match uniform {
        [false, false, false] => Some(select::<L, false, false, false>()),
        [false, false, true] => Some(select::<L, false, false, true>()),
        [false, true, false] => Some(select::<L, false, true, false>()),
        [false, true, true] => Some(select::<L, false, true, true>()),
        _ => None,
    }
}

macro_rules! by_type {
    ($ty:expr, $f:ident::<$l:ident>($($arg:expr),*)) => {
        match $ty {
            ScalarType::Bool | ScalarType::U8 => $f::<$l<u8>>($($arg),*),
            ScalarType::I8 => $f::<$l<i8>>($($arg),*),
            ScalarType::U16 => $f::<$l<u16>>($($arg),*),
            ScalarType::I16 => $f::<$l<i16>>($($arg),*),
            ScalarType::U32 => $f::<$l<u32>>($($arg),*),
            ScalarType::I32 => $f::<$l<i32>>($($arg),*),
            ScalarType::U64 => $f::<$l<u64>>($($arg),*),
            ScalarType::I64 => $f::<$l<i64>>($($arg),*),
            ScalarType::F32 => $f::<$l<f32>>($($arg),*),
            ScalarType::F64 => $f::<$l<f64>>($($arg),*),
        }
    };
}

/// Integers of equal width share code where the sign does not matter.
macro_rules! by_width_or_float {
    ($ty:expr, $f:ident::<$l:ident>($($arg:expr),*)) => {
        match $ty {
            ScalarType::F32 => $f::<$l<f32>>($($arg),*),
            ScalarType::F64 => $f::<$l<f64>>($($arg),*),
            other => by_width!(other, $f::<$l>($($arg),*)),
        }
    };
}

macro_rules! by_width {
    ($ty:expr, $f:ident::<$l:ident>($($arg:expr),*)) => {
        match $ty.size() {
            1 => $f::<$l<u8>>($($arg),*),
            2 => $f::<$l<u16>>($($arg),*),
            4 => $f::<$l<u32>>($($arg),*),
            _ => $f::<$l<u64>>($($arg),*),
        }
    };
}

macro_rules! by_float {
    ($ty:expr, $f:ident::<$l:ident>($($arg:expr),*)) => {
        match $ty {
            ScalarType::F32 => $f::<$l<f32>>($($arg),*),
            ScalarType::F64 => $f::<$l<f64>>($($arg),*),
            other => return Err(internal_error!("a float operation on {other:?}")),
        }
    };
}

/// The block function of `op`, `None` if there is none for these uniform
/// arguments (then they are to be splat). `result` is the type of the result,
/// `arg` that of the first argument (for `Select`: of the second).
pub fn block_fn(
    op: ScalarOp,
    result: ScalarType,
    arg: ScalarType,
    uniform: Uniform,
) -> Result<Option<BlockFn>> {
    Ok(match op {
        ScalarOp::Add => by_width_or_float!(result, binary::<Add>(uniform)),
        ScalarOp::Mul => by_width_or_float!(result, binary::<Mul>(uniform)),
        ScalarOp::Sub => by_width_or_float!(result, binary_both::<Sub>(uniform)),
        ScalarOp::Div => by_type!(result, binary_both::<Div>(uniform)),
        ScalarOp::Rem => by_type!(result, binary::<Rem>(uniform)),
        ScalarOp::Min => by_type!(result, binary::<Min>(uniform)),
        ScalarOp::Max => by_type!(result, binary::<Max>(uniform)),
        ScalarOp::Neg => Some(by_width_or_float!(result, unary::<Neg>(uniform))),
        ScalarOp::Abs => Some(by_type!(result, unary::<Abs>(uniform))),
        ScalarOp::Fma => by_float!(result, ternary::<Fma>(uniform)),
        ScalarOp::Sqrt => Some(by_float!(result, unary::<Sqrt>(uniform))),
        // Rounding an integer leaves it.
        ScalarOp::Floor | ScalarOp::Ceil | ScalarOp::Trunc | ScalarOp::RoundEven if !result.is_float() => {
            Some(by_width!(result, unary::<Identity>(uniform)))
        }
        ScalarOp::Floor => Some(by_float!(result, unary::<Floor>(uniform))),
        ScalarOp::Ceil => Some(by_float!(result, unary::<Ceil>(uniform))),
        ScalarOp::Trunc => Some(by_float!(result, unary::<Trunc>(uniform))),
        ScalarOp::RoundEven => Some(by_float!(result, unary::<RoundEven>(uniform))),
        ScalarOp::And => by_width!(result, binary::<And>(uniform)),
        ScalarOp::Or => by_width!(result, binary::<Or>(uniform)),
        ScalarOp::Xor => by_width!(result, binary::<Xor>(uniform)),
        ScalarOp::Not if result == ScalarType::Bool => Some(unary::<NotBool<u8>>(uniform)),
        ScalarOp::Not => Some(by_width!(result, unary::<Not>(uniform))),
        ScalarOp::Shl => by_width!(result, binary::<Shl>(uniform)),
        ScalarOp::ShrLogical => by_width!(result, binary::<ShrLogical>(uniform)),
        ScalarOp::ShrArithmetic if result.is_signed() => by_width!(result, binary::<ShrArithmetic>(uniform)),
        ScalarOp::ShrArithmetic => by_width!(result, binary::<ShrClamped>(uniform)),
        ScalarOp::PopCount => Some(by_width!(result, unary::<PopCount>(uniform))),
        ScalarOp::Clz => Some(by_width!(result, unary::<Clz>(uniform))),
        ScalarOp::Eq => by_width_or_float!(arg, binary::<Eq>(uniform)),
        ScalarOp::Ne => by_width_or_float!(arg, binary::<Ne>(uniform)),
        ScalarOp::Lt if uniform[0] && !uniform[1] => return Ok(None),
        ScalarOp::Lt => by_type!(arg, binary::<Lt>(uniform)),
        ScalarOp::Le => by_type!(arg, binary::<Le>(uniform)),
        ScalarOp::Select => by_width!(result, ternary::<Select>(uniform)),
        ScalarOp::Convert => Some(convert(arg, result)?),
        ScalarOp::Bitcast => Some(by_width!(result, unary::<Identity>(uniform))),
        ScalarOp::RoundTo(Narrow::BF16) => Some(unary::<RoundBf16<f32>>(uniform)),
        #[cfg(target_arch = "x86_64")]
        ScalarOp::RoundTo(Narrow::F16) if !uniform[0] && isa() != Isa::Baseline => {
            Some(super::halves::machine::round)
        }
        ScalarOp::RoundTo(Narrow::F16) => Some(unary::<RoundF16<f32>>(uniform)),
        ScalarOp::Math(function) => math::block_fn(function, result, uniform)?,
        ScalarOp::Input { .. } | ScalarOp::Index { .. } | ScalarOp::Const { .. } | ScalarOp::Param { .. } => {
            return Err(internal_error!("{op:?} is not computed by a block function"));
        }
    })
}

/// The same operation with its two arguments exchanged.
pub fn swapped(op: ScalarOp, arg: ScalarType) -> Result<Option<BlockFn>> {
    let uniform = [false, true, true];
    Ok(match op {
        ScalarOp::Lt => by_type!(arg, binary::<Gt>(uniform)),
        ScalarOp::Le => by_type!(arg, binary::<Ge>(uniform)),
        ScalarOp::Add
        | ScalarOp::Mul
        | ScalarOp::Min
        | ScalarOp::Max
        | ScalarOp::And
        | ScalarOp::Or
        | ScalarOp::Xor
        | ScalarOp::Eq
        | ScalarOp::Ne => block_fn(op, arg, arg, uniform)?,
        _ => None,
    })
}

/// Copies a block, or fills it with one element, by width.
pub fn copy(size: usize, from_one: bool) -> BlockFn {
    match (size, from_one) {
        (1, false) => select::<Identity<u8>, false, true, true>(),
        (2, false) => select::<Identity<u16>, false, true, true>(),
        (4, false) => select::<Identity<u32>, false, true, true>(),
        (_, false) => select::<Identity<u64>, false, true, true>(),
        (1, true) => select::<Identity<u8>, true, true, true>(),
        (2, true) => select::<Identity<u16>, true, true, true>(),
        (4, true) => select::<Identity<u32>, true, true, true>(),
        (_, true) => select::<Identity<u64>, true, true, true>(),
    }
}

fn convert(from: ScalarType, to: ScalarType) -> Result<BlockFn> {
    use ScalarType::{Bool, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
    fn make<L: Lane>() -> BlockFn {
        select::<L, false, true, true>()
    }
    if to == Bool && from != Bool {
        return Ok(match from {
            F32 => make::<NonZero<f32>>(),
            F64 => make::<NonZero<f64>>(),
            other => match other.size() {
                1 => make::<NonZero<u8>>(),
                2 => make::<NonZero<u16>>(),
                4 => make::<NonZero<u32>>(),
                _ => make::<NonZero<u64>>(),
            },
        });
    }
    if !from.is_float() && !to.is_float() && from.size() == to.size() {
        return Ok(copy(to.size(), false));
    }
    macro_rules! targets {
        ($a:ident: $($ty:ident => $r:ident),*) => {
            match to {
                $($ty => make::<Convert<$a, $r>>(),)*
                _ => return Err(internal_error!("no conversion from {from:?} to {to:?}")),
            }
        };
    }
    // Integers narrow alike whatever their signs; widening follows the source's.
    let narrow = to.size() < from.size();
    Ok(match (from, to) {
        (U8 | Bool, _) => {
            targets!(u8: U16 => u16, I16 => u16, U32 => u32, I32 => u32, U64 => u64, I64 => u64, F32 => f32, F64 => f64)
        }
        (I8, _) => {
            targets!(i8: U16 => u16, I16 => u16, U32 => u32, I32 => u32, U64 => u64, I64 => u64, F32 => f32, F64 => f64)
        }
        (F32, _) => {
            targets!(f32: I8 => i8, I16 => i16, I32 => i32, I64 => i64, U8 => u8, U16 => u16, U32 => u32, U64 => u64, F64 => f64)
        }
        (F64, _) => {
            targets!(f64: I8 => i8, I16 => i16, I32 => i32, I64 => i64, U8 => u8, U16 => u16, U32 => u32, U64 => u64, F32 => f32)
        }
        (U16 | I16, U8 | I8) if narrow => make::<Convert<u16, u8>>(),
        (U32 | I32, U8 | I8) => make::<Convert<u32, u8>>(),
        (U32 | I32, U16 | I16) => make::<Convert<u32, u16>>(),
        (U64 | I64, U8 | I8) => make::<Convert<u64, u8>>(),
        (U64 | I64, U16 | I16) => make::<Convert<u64, u16>>(),
        (U64 | I64, U32 | I32) => make::<Convert<u64, u32>>(),
        (U16, _) => targets!(u16: U32 => u32, I32 => u32, U64 => u64, I64 => u64, F32 => f32, F64 => f64),
        (I16, _) => targets!(i16: U32 => u32, I32 => u32, U64 => u64, I64 => u64, F32 => f32, F64 => f64),
        (U32, _) => targets!(u32: U64 => u64, I64 => u64, F32 => f32, F64 => f64),
        (I32, _) => targets!(i32: U64 => u64, I64 => u64, F32 => f32, F64 => f64),
        (U64, _) => targets!(u64: F32 => f32, F64 => f64),
        (I64, _) => targets!(i64: F32 => f32, F64 => f64),
    })
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;

    #[test]
    fn conversions_to_bf16_agree_with_the_half_crate() {
        for step in 0..(1u32 << 20) {
            let x = f32::from_bits(step.wrapping_mul(4099));
            let (ours, theirs) = (bf16_bits(x), bf16::from_f32(x).to_bits());
            assert!(ours == theirs || x.is_nan(), "{x} {ours:#x} {theirs:#x}");
        }
    }
}
