//! What random programs are given: types of inputs and their elements.

use ferrax_ir::{ArrayType, DType, Scalar, Tensor};

use super::bound::{Bound, limit};
use crate::common::{Choices, Random, fill};

/// All that programs compute with. Earlier ones are drawn more often.
pub const DTYPES: &[DType] = &[
    DType::F32,
    DType::I32,
    DType::F64,
    DType::BF16,
    DType::F16,
    DType::Bool,
    DType::U8,
    DType::I8,
    DType::U32,
    DType::I64,
    DType::C64,
    DType::C128,
    DType::I16,
    DType::U16,
    DType::U64,
    DType::I4,
    DType::U4,
    DType::I2,
    DType::U2,
    DType::F8E4M3FN,
    DType::F8E5M2,
    DType::F8E3M4,
    DType::F8E4M3,
    DType::F8E4M3B11FNUZ,
    DType::F8E4M3FNUZ,
    DType::F8E5M2FNUZ,
    DType::F8E8M0FNU,
    DType::F4E2M1FN,
];

/// How many of them are drawn as often as all others together.
const COMMON: usize = 12;

const SHAPES: &[&[usize]] = &[
    &[7],
    &[],
    &[4, 6],
    &[3, 1, 5],
    &[2, 3, 4],
    &[130, 3],
    &[0, 3],
    &[6],
    &[5, 5],
    &[2, 3, 3],
    &[2, 4, 9],
    &[2, 4, 5, 6],
];

/// The elements of an input.
#[derive(Clone, Copy)]
pub enum Elements {
    /// Numbers of many digits.
    Varied,
    /// Quarters from -3 to 3, whose sums and products are exact.
    Quarters,
    /// Whole numbers from -2 to 2.
    Whole,
}

pub fn dtype(choices: &mut impl Choices) -> DType {
    match choices.below(3) {
        0 => DTYPES[choices.below(DTYPES.len())],
        // Half of these the first dtype, so that they meet.
        _ => DTYPES[choices.below(2 * COMMON).saturating_sub(COMMON)],
    }
}

pub fn any_type(choices: &mut impl Choices) -> (ArrayType, Elements) {
    let sizes = SHAPES[choices.below(SHAPES.len())];
    let dtype = dtype(choices);
    let quarters = dtype.is_inexact() && !dtype.is_storage_only() && choices.below(2) == 1;
    (ArrayType::of_sizes(sizes, dtype), if quarters { Elements::Quarters } else { Elements::Varied })
}

impl Elements {
    pub fn bound(self, dtype: DType) -> Bound {
        match self {
            Elements::Quarters => {
                Bound { unit: 0.25, ..Bound::exact(if dtype.is_complex() { 6.0 } else { 3.0 }) }
            }
            Elements::Varied if dtype.is_storage_only() => Bound::exact(f64::INFINITY),
            Elements::Whole => {
                Bound { unit: 1.0, ..Bound::exact(if dtype.is_complex() { 3.0 } else { 2.0 }) }
            }
            // Complex numbers have two such parts.
            Elements::Varied if dtype.is_inexact() => {
                Bound::exact(if dtype.is_complex() { 6.0 } else { 4.125 })
            }
            Elements::Varied => Bound::exact(limit(dtype)),
        }
    }

    pub fn make(self, ty: &ArrayType, seed: u64) -> Tensor {
        let sizes = ty.sizes().unwrap();
        match self {
            Elements::Varied => fill(ty.dtype, &sizes, seed),
            Elements::Quarters | Elements::Whole => {
                let mut random = Random::new(seed);
                let real = ty.dtype.real();
                let parts = sizes.iter().product::<usize>() * ty.dtype.parts();
                let number = |_| {
                    let number = match self {
                        Elements::Whole => random.below(5) as f64 - 2.0,
                        _ => random.below(25) as f64 / 4.0 - 3.0,
                    };
                    Scalar::from_f64(real, number).bytes()
                };
                let bytes: Vec<u8> = (0..parts).flat_map(number).collect();
                Tensor::from_bytes(ty.dtype, &sizes[..], &bytes).unwrap()
            }
        }
    }
}
