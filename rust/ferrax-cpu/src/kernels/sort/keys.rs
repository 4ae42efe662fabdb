//! Elements as unsigned integers in the orders of `ferrax_ir::ops` (`order.rs`
//! there): keys, for which some elements are equal, and the total order, which
//! has its inverse.

use half::{bf16, f16};

use super::words::KeyWord;

/// An element whose order is that of an integer as wide.
pub trait Key: Copy + Send + Sync + 'static {
    type Word: KeyWord;

    /// The key of zero.
    const ZERO: Self::Word;

    /// In the order of keys.
    fn key(self) -> Self::Word;
    /// In the total order.
    fn total(self) -> Self::Word;
    /// The element whose `total` this is.
    fn from_total(word: Self::Word) -> Self;
    fn is_nan(self) -> bool;
    fn is_zero(self) -> bool;
    /// Whether its places in both orders differ.
    fn is_special(self) -> bool;
}

macro_rules! sign_bit {
    ($word:ty) => {
        (1 << (<$word>::BITS - 1))
    };
}

macro_rules! unsigned {
    ($($t:ty)*) => {$(
        impl Key for $t {
            type Word = $t;

            const ZERO: $t = 0;

            #[inline(always)]
            fn key(self) -> $t { self }
            #[inline(always)]
            fn total(self) -> $t { self }
            #[inline(always)]
            fn from_total(word: $t) -> Self { word }
            #[inline(always)]
            fn is_nan(self) -> bool { false }
            #[inline(always)]
            fn is_zero(self) -> bool { false }
            #[inline(always)]
            fn is_special(self) -> bool { false }
        }
    )*};
}

unsigned! { u16 u32 u64 }

macro_rules! signed {
    ($($t:ty as $word:ty),*) => {$(
        impl Key for $t {
            type Word = $word;

            const ZERO: $word = sign_bit!($word);

            #[inline(always)]
            fn key(self) -> $word { self.total() }
            #[inline(always)]
            fn total(self) -> $word { self.cast_unsigned() ^ sign_bit!($word) }
            #[inline(always)]
            fn from_total(word: $word) -> Self { (word ^ sign_bit!($word)).cast_signed() }
            #[inline(always)]
            fn is_nan(self) -> bool { false }
            #[inline(always)]
            fn is_zero(self) -> bool { false }
            #[inline(always)]
            fn is_special(self) -> bool { false }
        }
    )*};
}

signed! { i16 as u16, i32 as u32, i64 as u64 }

macro_rules! floats {
    ($($t:ty as $word:ty),*) => {$(
        impl Key for $t {
            type Word = $word;

            const ZERO: $word = sign_bit!($word);

            #[inline(always)]
            fn key(self) -> $word {
                if self.is_nan() { <$word>::MAX } else if Key::is_zero(self) { sign_bit!($word) } else { self.total() }
            }
            #[inline(always)]
            fn total(self) -> $word {
                let bits = self.to_bits();
                // All bits of negative numbers are flipped, of others the sign.
                let negative = (bits.cast_signed() >> (<$word>::BITS - 1)).cast_unsigned();
                bits ^ (negative | sign_bit!($word))
            }
            #[inline(always)]
            fn from_total(word: $word) -> Self {
                let negative = (!word.cast_signed() >> (<$word>::BITS - 1)).cast_unsigned();
                <$t>::from_bits(word ^ (negative | sign_bit!($word)))
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                self.to_bits() & !sign_bit!($word) > <$t>::INFINITY.to_bits()
            }
            #[inline(always)]
            fn is_zero(self) -> bool { self.to_bits() & !sign_bit!($word) == 0 }
            #[inline(always)]
            fn is_special(self) -> bool { Key::is_nan(self) | (self.to_bits() == sign_bit!($word)) }
        }
    )*};
}

floats! { bf16 as u16, f16 as u16, f32 as u32, f64 as u64 }
