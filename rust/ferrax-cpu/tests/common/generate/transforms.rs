//! Steps that are Fourier transforms, or make keys and random bits.

use ferrax_ir::DType;
use ferrax_ir::ops::{
    Fft, FftType, RandomBits, RandomFoldIn, RandomSeed, RandomSplit, RandomUnwrap, RandomWrap, Rev,
    Threefry2x32,
};

use super::bound::{EXACT, epsilon};
use super::{Made, Maker, Site, Value, dims};
use crate::common::Choices;

impl<C: Choices> Maker<'_, C> {
    /// Errors are within a few units of the largest result that there may be.
    pub(super) fn fourier(&mut self, site: &Site) -> Made {
        let Site { x, ref sizes, dtype, .. } = *site;
        if dtype.real().size() < 4 || !dtype.is_inexact() || sizes.is_empty() || site.count() == 0 {
            return None;
        }
        let axes = 1 + self.choices.below(sizes.len().min(3));
        let fft_type = if dtype.is_float() {
            FftType::Rfft
        } else {
            self.pick(&[FftType::Fft, FftType::Ifft, FftType::Irfft])
        };
        let mut lengths = sizes[sizes.len() - axes..].to_vec();
        if fft_type == FftType::Irfft {
            let last = lengths.last_mut()?;
            *last = (2 * *last).saturating_sub(1 + self.choices.below(2)).max(1);
        }
        let terms = if fft_type.is_inverse() { 1.0 } else { lengths.iter().product::<usize>() as f64 };
        let magnitude = x.bound.magnitude * terms;
        let bound = x.bound.through(terms, magnitude, 32.0 * epsilon(dtype) * magnitude);
        self.emit(Fft { fft_lengths: dims(&lengths).into(), fft_type }, &[x.atom], bound)
    }

    /// Bits of keys that are made of numbers.
    pub(super) fn random(&mut self, site: &Site) -> Made {
        let x = site.x;
        if site.dtype == DType::U32 && self.flip() {
            return self.words(x, &site.sizes);
        }
        if !site.dtype.is_integer() || site.rank() > 2 || site.count() > 200 {
            return None;
        }
        let mut keys = self.exactly(RandomSeed { r#impl: "fry".into() }, &[x])?[0];
        for _ in 0..self.choices.below(4) {
            keys = self.other_keys(keys)?;
        }
        if self.choices.below(4) == 0 {
            return self.exactly(RandomUnwrap {}, &[keys]);
        }
        let bit_width = self.pick(&[8, 16, 32, 64]);
        let shape: Vec<usize> = (0..self.choices.below(3)).map(|_| self.choices.below(6)).collect();
        self.exactly(RandomBits { bit_width, shape: dims(&shape).into() }, &[keys])
    }

    fn other_keys(&mut self, keys: Value) -> Option<Value> {
        let sizes = self.sizes(keys);
        let made = match self.choices.below(4) {
            0 if sizes.iter().product::<usize>() < 50 => {
                let count = 1 + self.choices.below(3);
                self.exactly(RandomSplit { shape: dims(&[count]).into() }, &[keys])
            }
            1 => {
                let data = self.any(|maker, value| {
                    value.is_exact() && maker.dtype(value) == DType::U32 && maker.sizes(value) == sizes
                });
                let data = data.map_or_else(|| self.b.int_scalar(DType::U32, 5), |value| value.atom);
                self.emit(RandomFoldIn {}, &[keys.atom, data], EXACT)
            }
            2 if !sizes.is_empty() => self.exactly(Rev { dimensions: [0][..].into() }, &[keys]),
            _ => {
                let raw = self.exactly(RandomUnwrap {}, &[keys])?[0];
                self.exactly(RandomWrap { r#impl: "fry".into() }, &[raw])
            }
        }?;
        Some(made[0])
    }

    /// The cipher of words.
    fn words(&mut self, x: Value, sizes: &[usize]) -> Made {
        let mut word =
            || self.any(|maker, y| y.is_exact() && maker.dtype(y) == DType::U32 && maker.sizes(y) == sizes);
        let words = [x, word()?, word()?, word()?];
        self.exactly(Threefry2x32 {}, &words)
    }
}
