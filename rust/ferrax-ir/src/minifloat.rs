//! The 4- and 8-bit float formats, as tables of their defining numbers.
//!
//! Sources: Micikevicius et al., "FP8 Formats for Deep Learning" (2022); OCP
//! "Microscaling Formats (MX)" v1.0 (2023); the `ml_dtypes` documentation for
//! the FNUZ and B11 variants.

use crate::DType;

/// What the format has besides finite numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Specials {
    /// Exponent all ones: infinity and NaNs, as IEEE 754.
    Ieee,
    /// No infinity; all ones is NaN, per sign.
    Fn,
    /// No infinity, no negative zero: its encoding is the one NaN.
    Fnuz,
    /// Finite numbers only.
    Finite,
}

/// A binary float format of at most 8 bits.
#[derive(Clone, Copy, Debug)]
pub struct MiniFloat {
    exponent_bits: u32,
    mantissa_bits: u32,
    bias: i32,
    specials: Specials,
}

impl MiniFloat {
    /// The format of a dtype; `None` if the dtype is not one of the small floats.
    pub const fn of(dtype: DType) -> Option<MiniFloat> {
        let (exponent_bits, mantissa_bits, bias, specials) = match dtype {
            DType::F4E2M1FN => (2, 1, 1, Specials::Finite),
            DType::F8E3M4 => (3, 4, 3, Specials::Ieee),
            DType::F8E4M3 => (4, 3, 7, Specials::Ieee),
            DType::F8E4M3B11FNUZ => (4, 3, 11, Specials::Fnuz),
            DType::F8E4M3FN => (4, 3, 7, Specials::Fn),
            DType::F8E4M3FNUZ => (4, 3, 8, Specials::Fnuz),
            DType::F8E5M2 => (5, 2, 15, Specials::Ieee),
            DType::F8E5M2FNUZ => (5, 2, 16, Specials::Fnuz),
            DType::F8E8M0FNU => (8, 0, 127, Specials::Fn),
            _ => return None,
        };
        Some(MiniFloat { exponent_bits, mantissa_bits, bias, specials })
    }

    /// Whether the only NaN has the encoding of a negative zero.
    pub const fn is_fnuz(self) -> bool {
        matches!(self.specials, Specials::Fnuz)
    }

    /// Powers of two without sign or zero (E8M0).
    const fn is_exponent_only(self) -> bool {
        self.mantissa_bits == 0
    }

    const fn sign_bit(self) -> u8 {
        if self.is_exponent_only() { 0 } else { 1 << (self.exponent_bits + self.mantissa_bits) }
    }

    const fn nan(self) -> u8 {
        let magnitude = ((1u16 << (self.exponent_bits + self.mantissa_bits)) - 1) as u8;
        match self.specials {
            // A quiet NaN: the top mantissa bit set.
            Specials::Ieee => magnitude & !((1 << (self.mantissa_bits - 1)) - 1),
            Specials::Fn => magnitude,
            Specials::Fnuz => self.sign_bit(),
            Specials::Finite => 0,
        }
    }

    /// The largest finite encoding, without sign.
    const fn max_finite(self) -> u8 {
        let magnitude = ((1u16 << (self.exponent_bits + self.mantissa_bits)) - 1) as u8;
        match self.specials {
            Specials::Ieee => magnitude - (1 << self.mantissa_bits),
            Specials::Fn => magnitude - 1,
            Specials::Fnuz | Specials::Finite => magnitude,
        }
    }

    /// The value of an encoding.
    pub fn decode(self, bits: u8) -> f64 {
        if self.is_exponent_only() {
            return if bits == u8::MAX { f64::NAN } else { 2f64.powi(i32::from(bits) - self.bias) };
        }
        let negative = bits & self.sign_bit() != 0;
        let magnitude = bits & (self.sign_bit() - 1);
        if self.specials == Specials::Fnuz && bits == self.sign_bit() {
            return f64::NAN;
        }
        if self.specials != Specials::Finite && magnitude > self.max_finite() {
            let infinite = self.specials == Specials::Ieee && magnitude == self.max_finite() + 1;
            let value = if infinite { f64::INFINITY } else { f64::NAN };
            return if negative { -value } else { value };
        }
        let exponent = i32::from(magnitude >> self.mantissa_bits);
        let fraction = f64::from(magnitude & ((1 << self.mantissa_bits) - 1));
        let unit = 2f64.powi(-(self.mantissa_bits as i32));
        let value = if exponent == 0 {
            fraction * unit * 2f64.powi(1 - self.bias)
        } else {
            (1.0 + fraction * unit) * 2f64.powi(exponent - self.bias)
        };
        if negative { -value } else { value }
    }

    /// The encoding nearest to `value`, ties to even. Too large becomes infinity
    /// where the format has one, else NaN (as `ml_dtypes`), else the largest.
    pub fn encode(self, value: f64) -> u8 {
        if self.is_exponent_only() {
            return self.encode_exponent(value);
        }
        if value.is_nan() {
            let sign =
                if value.is_sign_negative() && self.specials != Specials::Fnuz { self.sign_bit() } else { 0 };
            return if self.specials == Specials::Finite { self.sign_bit() } else { self.nan() | sign };
        }
        let sign = if value.is_sign_negative() { self.sign_bit() } else { 0 };
        let magnitude = value.abs();
        // Encodings grow with the value, so the code is exponent and mantissa
        // counted together in units of the last place.
        let exponent = if magnitude == 0.0 { i32::MIN } else { exponent_of(magnitude) };
        let scale_exponent = exponent.max(1 - self.bias);
        let ulps = if magnitude.is_infinite() {
            f64::INFINITY
        } else {
            (magnitude / 2f64.powi(scale_exponent - self.mantissa_bits as i32)).round_ties_even()
        };
        let offset = f64::from((scale_exponent - 1 + self.bias) << self.mantissa_bits);
        let code = ulps + offset;
        if code > f64::from(self.max_finite()) {
            return match self.specials {
                Specials::Ieee => (self.max_finite() + 1) | sign,
                Specials::Fn => self.nan() | sign,
                Specials::Fnuz => self.nan(),
                Specials::Finite => self.max_finite() | sign,
            };
        }
        let code = code as u8;
        if code == 0 && self.specials == Specials::Fnuz { 0 } else { code | sign }
    }

    fn encode_exponent(self, value: f64) -> u8 {
        if value.is_nan() || value.is_infinite() || value <= 0.0 {
            return u8::MAX;
        }
        let exponent = exponent_of(value);
        let fraction = value / 2f64.powi(exponent);
        // Ties, at 1.5, go up, as in `ml_dtypes`.
        let code = exponent + self.bias + i32::from(fraction >= 1.5);
        if code > 254 { u8::MAX } else { code.max(0) as u8 }
    }
}

/// `floor(log2(value))` of a positive finite number.
fn exponent_of(value: f64) -> i32 {
    let exponent = ((value.to_bits() >> 52) & 0x7ff) as i32;
    if exponent == 0 { -1022 - (value.to_bits().leading_zeros() as i32 - 11) } else { exponent - 1023 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_encoding_round_trips() {
        for &dtype in DType::ALL {
            let Some(format) = MiniFloat::of(dtype) else { continue };
            let count = if dtype == DType::F4E2M1FN { 16 } else { 256u16 };
            for bits in 0..count {
                let value = format.decode(bits as u8);
                let again = format.decode(format.encode(value));
                assert!(
                    value.to_bits() == again.to_bits() || (value.is_nan() && again.is_nan()),
                    "{dtype} {bits}"
                );
            }
        }
    }

    #[test]
    fn rounds_to_even_and_overflows_as_the_format_says() {
        let e4m3fn = MiniFloat::of(DType::F8E4M3FN).unwrap();
        assert_eq!(e4m3fn.decode(e4m3fn.encode(17.0)), 16.0);
        assert_eq!(e4m3fn.decode(e4m3fn.encode(464.0)), 448.0);
        assert!(e4m3fn.decode(e4m3fn.encode(465.0)).is_nan());
        let e5m2 = MiniFloat::of(DType::F8E5M2).unwrap();
        assert_eq!(e5m2.decode(e5m2.encode(1e6)), f64::INFINITY);
        let e8m0 = MiniFloat::of(DType::F8E8M0FNU).unwrap();
        assert_eq!([3.0, 6.0, 5.0, 1.5].map(|x| e8m0.decode(e8m0.encode(x))), [4.0, 8.0, 4.0, 2.0]);
        assert!([0.0, -0.0, -1.0].iter().all(|&x| e8m0.decode(e8m0.encode(x)).is_nan()));
        let e2m1 = MiniFloat::of(DType::F4E2M1FN).unwrap();
        assert_eq!(e2m1.decode(e2m1.encode(-100.0)), -6.0);
    }
}
