//! Types of the elements of arrays.
//!
//! Invariant: every pattern of bits is a value of an element, so that memory of the caller's is a slice of them.

use std::ffi::c_int;

mod sealed {
    pub trait Sealed {}
}

/// An element of arrays: the integers and floats of Rust, [`Bool`], [`F16`], [`BF16`] and [`Complex`] ones.
///
/// # Safety
/// Every pattern of bits is a value; size and alignment are those of the dtype's elements in memory. It is sealed:
/// the types below are all there are.
pub unsafe trait Element: sealed::Sealed + Copy + Send + Sync + 'static {
    /// The number of the dtype.
    const DTYPE: c_int;
    /// Its name in Python.
    const NAME: &'static str;
}

/// An element of a bool array: a byte, 0 or 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Bool(u8);

impl Bool {
    pub fn new(value: bool) -> Bool {
        Bool(value.into())
    }

    pub fn get(self) -> bool {
        self.0 != 0
    }
}

/// A float16, as its bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct F16(pub u16);

/// A bfloat16: the upper half of a float32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct BF16(pub u16);

impl BF16 {
    pub fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }

    /// The nearest one, of two the even one; NaN stays NaN.
    pub fn from_f32(value: f32) -> BF16 {
        let bits = value.to_bits();
        if value.is_nan() {
            return BF16((bits >> 16) as u16 | 0x40);
        }
        let rounding = 0x7fff + ((bits >> 16) & 1);
        BF16((bits.wrapping_add(rounding) >> 16) as u16)
    }
}

/// A complex number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct Complex<T> {
    pub re: T,
    pub im: T,
}

/// Dtypes whose elements are bytes, for which there is no type here.
const BYTES: [(c_int, &str); 8] = [
    (19, "float8_e5m2"),
    (20, "float8_e4m3fn"),
    (23, "float8_e4m3b11fnuz"),
    (24, "float8_e5m2fnuz"),
    (25, "float8_e4m3fnuz"),
    (28, "float8_e4m3"),
    (29, "float8_e3m4"),
    (33, "float8_e8m0fnu"),
];

macro_rules! elements {
    ($($ty:ty = $number:literal, $name:literal;)*) => {
        $(impl sealed::Sealed for $ty {}
        // SAFETY: a number, or numbers, of the dtype's size, of which every pattern of bits is one.
        unsafe impl Element for $ty {
            const DTYPE: c_int = $number;
            const NAME: &'static str = $name;
        })*

        /// The name of a dtype, and the bytes of an element; `None` for one that is not known here.
        pub(crate) fn described(dtype: c_int) -> Option<(&'static str, usize)> {
            match dtype {
                $($number => Some(($name, size_of::<$ty>())),)*
                _ => BYTES.iter().find(|(number, _)| *number == dtype).map(|&(_, name)| (name, 1)),
            }
        }
    };
}

elements! {
    Bool = 1, "bool";
    i8 = 2, "int8";
    i16 = 3, "int16";
    i32 = 4, "int32";
    i64 = 5, "int64";
    u8 = 6, "uint8";
    u16 = 7, "uint16";
    u32 = 8, "uint32";
    u64 = 9, "uint64";
    F16 = 10, "float16";
    f32 = 11, "float32";
    f64 = 12, "float64";
    Complex<f32> = 15, "complex64";
    BF16 = 16, "bfloat16";
    Complex<f64> = 18, "complex128";
}

/// For messages.
pub(crate) fn name(dtype: c_int) -> String {
    described(dtype).map_or_else(|| format!("dtype number {dtype}"), |(name, _)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bfloat16_is_the_nearest() {
        for (value, bits) in
            [(1.0, 0x3f80), (-2.5, 0xc020), (1.003_906_3, 0x3f80), (1.011_718_8, 0x3f82), (f32::MAX, 0x7f80)]
        {
            assert_eq!(BF16::from_f32(value), BF16(bits), "{value}");
        }
        assert!(BF16::from_f32(f32::from_bits(0x7f80_0001)).to_f32().is_nan());
        for bits in 0..=u16::MAX {
            let value = BF16(bits);
            assert!(value.to_f32().is_nan() || BF16::from_f32(value.to_f32()) == value);
        }
    }

    #[test]
    fn dtypes_by_number() {
        assert_eq!((described(15), described(33)), (Some(("complex64", 8)), Some(("float8_e8m0fnu", 1))));
        assert_eq!((described(17), name(17)), (None, "dtype number 17".to_owned()));
    }
}
