//! Block functions: one scalar operation over a block of elements, compiled
//! once for each instruction set and vectorised by the compiler.
//!
//! A [`BlockFn`] takes a count, a destination and up to three sources. Sources
//! may be one another but never overlap the destination. Which sources are one
//! element for the whole block is part of the function.

use std::sync::OnceLock;

/// Which sources are one element for the whole block.
pub type Uniform = [bool; 3];

/// `f(n, destination, a, b, c)`.
pub type BlockFn = unsafe fn(usize, *mut u8, *const u8, *const u8, *const u8);

/// Instruction sets that block functions are compiled for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Isa {
    Baseline,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// The best instruction set of this machine.
pub fn isa() -> Isa {
    static ISA: OnceLock<Isa> = OnceLock::new();
    *ISA.get_or_init(detect)
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Isa {
    let avx2 = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("popcnt")
        && is_x86_feature_detected!("f16c");
    let avx512 = avx2
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512cd");
    match (avx512, avx2) {
        (true, _) => Isa::Avx512,
        (false, true) => Isa::Avx2,
        _ => Isa::Baseline,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Isa {
    Isa::Baseline
}

/// One scalar operation. Operations of fewer arguments ignore the rest.
pub trait Lane {
    type A: Copy;
    type B: Copy;
    type C: Copy;
    type R: Copy;
    fn lane(a: Self::A, b: Self::B, c: Self::C) -> Self::R;
}

/// The loop. `SA` and so on mark sources that are one element.
///
/// # Safety
/// `r` is valid for writing `n` elements and overlaps no source; each source is
/// valid for reading `n` elements, or one where marked.
#[inline(always)]
unsafe fn block<L: Lane, const SA: bool, const SB: bool, const SC: bool>(
    n: usize,
    r: *mut u8,
    a: *const u8,
    b: *const u8,
    c: *const u8,
) {
    // SAFETY: the caller promises these blocks, aligned to their element sizes as all blocks are, and that
    // `r` overlaps no source.
    let (r, a, b, c) = unsafe {
        (
            std::slice::from_raw_parts_mut(r.cast::<L::R>(), n),
            std::slice::from_raw_parts(a.cast::<L::A>(), if SA { 1 } else { n }),
            std::slice::from_raw_parts(b.cast::<L::B>(), if SB { 1 } else { n }),
            std::slice::from_raw_parts(c.cast::<L::C>(), if SC { 1 } else { n }),
        )
    };
    match (SA, SB, SC) {
        (false, false, false) => {
            for (((r, &a), &b), &c) in r.iter_mut().zip(a).zip(b).zip(c) {
                *r = L::lane(a, b, c);
            }
        }
        (false, false, true) => {
            let c = c[0];
            for ((r, &a), &b) in r.iter_mut().zip(a).zip(b) {
                *r = L::lane(a, b, c);
            }
        }
        (false, true, false) => {
            let b = b[0];
            for ((r, &a), &c) in r.iter_mut().zip(a).zip(c) {
                *r = L::lane(a, b, c);
            }
        }
        (false, true, true) => {
            let (b, c) = (b[0], c[0]);
            for (r, &a) in r.iter_mut().zip(a) {
                *r = L::lane(a, b, c);
            }
        }
        (true, false, true) => {
            let (a, c) = (a[0], c[0]);
            for (r, &b) in r.iter_mut().zip(b) {
                *r = L::lane(a, b, c);
            }
        }
        (true, ..) => {
            let (a, b) = (a[0], b[0]);
            for (i, r) in r.iter_mut().enumerate() {
                *r = L::lane(a, b, c[if SC { 0 } else { i }]);
            }
        }
    }
}

macro_rules! versions {
    ($($name:ident $($features:literal)?;)*) => {$(
        $(#[cfg(target_arch = "x86_64")] #[target_feature(enable = $features)])?
        unsafe fn $name<L: Lane, const SA: bool, const SB: bool, const SC: bool>(
            n: usize, r: *mut u8, a: *const u8, b: *const u8, c: *const u8,
        ) {
            // SAFETY: as `block` asks.
            unsafe { block::<L, SA, SB, SC>(n, r, a, b, c) }
        }
    )*};
}

versions! {
    baseline;
    avx2 "avx2,fma,bmi1,bmi2,lzcnt,popcnt,f16c";
    avx512 "avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx2,fma,bmi1,bmi2,lzcnt,popcnt,f16c";
}

/// The block function of an operation for this machine.
pub fn select<L: Lane, const SA: bool, const SB: bool, const SC: bool>() -> BlockFn {
    match isa() {
        Isa::Baseline => baseline::<L, SA, SB, SC>,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2::<L, SA, SB, SC>,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => avx512::<L, SA, SB, SC>,
    }
}
