//! Plans of discrete Fourier transforms of one line of numbers, by rustfft and realfft, for the kernels of
//! the CPU backend.
//!
//! A plan holds the factors of one length. Planning is linear in the length; running a plan of `n` numbers
//! takes `O(n log n)` whatever the prime factors of `n` (Bluestein, 1970, for large ones). Nothing is divided
//! by the length. The crate is one of its own because rustfft is generic: its code for both types of floats
//! and each set of vector instructions is made here, once.

use std::sync::Arc;

pub use realfft::{ComplexToReal, RealToComplex};
pub use rustfft::Fft;
pub use rustfft::num_complex::Complex;

/// The parts of the numbers that are transformed.
pub trait Float: rustfft::FftNum {
    /// Complex numbers to complex numbers; `inverse` has the other sign in the exponent.
    fn complex(length: usize, inverse: bool) -> Arc<dyn Fft<Self>>;

    /// Real numbers to the first half of their transform.
    fn forward(length: usize) -> Arc<dyn RealToComplex<Self>>;

    /// The first half of a transform to real numbers.
    fn inverse(length: usize) -> Arc<dyn ComplexToReal<Self>>;

    /// `1 / length`, rounded once.
    fn reciprocal(length: f64) -> Self;
}

macro_rules! floats {
    ($($t:ty),*) => {$(
        impl Float for $t {
            fn complex(length: usize, inverse: bool) -> Arc<dyn Fft<$t>> {
                let mut planner = rustfft::FftPlanner::<$t>::new();
                if inverse { planner.plan_fft_inverse(length) } else { planner.plan_fft_forward(length) }
            }

            fn forward(length: usize) -> Arc<dyn RealToComplex<$t>> {
                realfft::RealFftPlanner::<$t>::new().plan_fft_forward(length)
            }

            fn inverse(length: usize) -> Arc<dyn ComplexToReal<$t>> {
                realfft::RealFftPlanner::<$t>::new().plan_fft_inverse(length)
            }

            fn reciprocal(length: f64) -> $t {
                (1.0 / length) as $t
            }
        }
    )*};
}

floats!(f32, f64);
