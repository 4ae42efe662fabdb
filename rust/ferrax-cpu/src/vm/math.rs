//! Mathematical functions as block functions: the algorithms of
//! [`ferrax_ir::math`], inlined into loops for each instruction set.

use ferrax_ir::math::{Binary, Native, Unary};
use ferrax_ir::scalar::{MathFn, ScalarType};
use ferrax_ir::{Result, internal_error, with_math_fn};

use super::isa::{BlockFn, Isa, Uniform, isa};

/// `f32` and `f64`.
trait Float: Copy {
    /// Whether `quick` may stand for `call` here; false for NaN.
    fn within<K: Unary>(self) -> bool;
    fn quick<K: Unary, const FUSED: bool>(self) -> Self;
    fn unary<K: Unary, const FUSED: bool>(self) -> Self;
    fn binary<K: Binary, const FUSED: bool>(self, other: Self) -> Self;
}

macro_rules! floats {
    ($($ty:ident $part:tt;)*) => {$(
        impl Float for $ty {
            #[inline(always)]
            fn within<K: Unary>(self) -> bool {
                self.abs() <= K::QUICK_LIMIT.$part as $ty
            }

            #[inline(always)]
            fn quick<K: Unary, const FUSED: bool>(self) -> Self {
                K::quick(&mut Native::<$ty, FUSED>::new(), self)
            }

            #[inline(always)]
            fn unary<K: Unary, const FUSED: bool>(self) -> Self {
                K::call(&mut Native::<$ty, FUSED>::new(), self)
            }

            #[inline(always)]
            fn binary<K: Binary, const FUSED: bool>(self, other: Self) -> Self {
                K::call(&mut Native::<$ty, FUSED>::new(), self, other)
            }
        }
    )*};
}

floats! {
    f32 0;
    f64 1;
}

/// # Safety
/// As [`BlockFn`]: `r` and `a` are valid for `n` elements and do not overlap.
#[inline(always)]
unsafe fn unary_block<K: Unary, T: Float, const FUSED: bool>(n: usize, r: *mut u8, a: *const u8) {
    // SAFETY: `r` and `a` are blocks of `n` elements of this type, aligned as all blocks are, and apart.
    let (r, a) = unsafe {
        (std::slice::from_raw_parts_mut(r.cast::<T>(), n), std::slice::from_raw_parts(a.cast::<T>(), n))
    };
    let has_quick = K::QUICK_LIMIT.0.is_finite();
    if has_quick && a.iter().fold(true, |all, x| all & x.within::<K>()) {
        for (r, &a) in r.iter_mut().zip(a) {
            *r = a.quick::<K, FUSED>();
        }
    } else {
        for (r, &a) in r.iter_mut().zip(a) {
            *r = a.unary::<K, FUSED>();
        }
    }
}

/// # Safety
/// As [`BlockFn`]; `b` is one element where `UNIFORM`.
#[inline(always)]
unsafe fn binary_block<K: Binary, T: Float, const FUSED: bool, const UNIFORM: bool>(
    n: usize,
    r: *mut u8,
    a: *const u8,
    b: *const u8,
) {
    // SAFETY: `r` and `a` are blocks of `n` elements of this type, `b` one or as many, aligned as all
    // blocks are; `r` is apart from both.
    let (r, a, b) = unsafe {
        (
            std::slice::from_raw_parts_mut(r.cast::<T>(), n),
            std::slice::from_raw_parts(a.cast::<T>(), n),
            std::slice::from_raw_parts(b.cast::<T>(), if UNIFORM { 1 } else { n }),
        )
    };
    if UNIFORM {
        let b = b[0];
        for (r, &a) in r.iter_mut().zip(a) {
            *r = a.binary::<K, FUSED>(b);
        }
    } else {
        for ((r, &a), &b) in r.iter_mut().zip(a).zip(b) {
            *r = a.binary::<K, FUSED>(b);
        }
    }
}

macro_rules! versions {
    ($($unary:ident $binary:ident $fused:literal $($features:literal)?;)*) => {$(
        $(#[cfg(target_arch = "x86_64")] #[target_feature(enable = $features)])?
        unsafe fn $unary<K: Unary, T: Float>(n: usize, r: *mut u8, a: *const u8, _: *const u8, _: *const u8) {
            // SAFETY: as `unary_block` asks.
            unsafe { unary_block::<K, T, $fused>(n, r, a) }
        }

        $(#[cfg(target_arch = "x86_64")] #[target_feature(enable = $features)])?
        unsafe fn $binary<K: Binary, T: Float, const UNIFORM: bool>(
            n: usize, r: *mut u8, a: *const u8, b: *const u8, _: *const u8,
        ) {
            // SAFETY: as `binary_block` asks.
            unsafe { binary_block::<K, T, $fused, UNIFORM>(n, r, a, b) }
        }
    )*};
}

versions! {
    unary_baseline binary_baseline false;
    unary_avx2 binary_avx2 true "avx2,fma,bmi1,bmi2,lzcnt,popcnt,f16c";
    unary_avx512 binary_avx512 true
        "avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx2,fma,bmi1,bmi2,lzcnt,popcnt,f16c";
}

fn unary<K: Unary, T: Float>() -> BlockFn {
    match isa() {
        Isa::Baseline => unary_baseline::<K, T>,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unary_avx2::<K, T>,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unary_avx512::<K, T>,
    }
}

fn binary<K: Binary, T: Float, const UNIFORM: bool>() -> BlockFn {
    match isa() {
        Isa::Baseline => binary_baseline::<K, T, UNIFORM>,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => binary_avx2::<K, T, UNIFORM>,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => binary_avx512::<K, T, UNIFORM>,
    }
}

/// The block function of a mathematical function; `None` where there is none for
/// sources that are uniform in this way.
pub fn block_fn(function: MathFn, ty: ScalarType, uniform: Uniform) -> Result<Option<BlockFn>> {
    Ok(with_math_fn!(
        function,
        unary K => match ty {
            ScalarType::F32 => Some(unary::<K, f32>()),
            ScalarType::F64 => Some(unary::<K, f64>()),
            _ => return Err(internal_error!("{} of {ty:?}", function.name())),
        },
        binary K => match (ty, uniform) {
            (ScalarType::F32, [false, false, _]) => Some(binary::<K, f32, false>()),
            (ScalarType::F32, [false, true, _]) => Some(binary::<K, f32, true>()),
            (ScalarType::F64, [false, false, _]) => Some(binary::<K, f64, false>()),
            (ScalarType::F64, [false, true, _]) => Some(binary::<K, f64, true>()),
            (ScalarType::F32 | ScalarType::F64, _) => None,
            _ => return Err(internal_error!("{} of {ty:?}", function.name())),
        },
    ))
}
