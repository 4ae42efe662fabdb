//! Element types: what an array's element is, how it is stored, how it prints.
//!
//! Sub-byte types are stored one element a byte, as `ml_dtypes` does. Keys are
//! a dtype of their own: an element is the generator's whole state.

use crate::generators::KeyImpl;
use crate::{Result, parse_error};

/// What arithmetic a dtype takes part in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Bool,
    Signed,
    Unsigned,
    Float,
    Complex,
    Key,
    /// The tangent type of things without tangents; arrays of it hold nothing.
    Float0,
}

macro_rules! dtypes {
    ($($variant:ident $name:literal $short:literal $kind:ident $bits:literal $bytes:literal;)*) => {
        /// The element type of an array.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum DType {
            $($variant,)*
            Key(KeyImpl),
        }

        impl DType {
            /// Every dtype but keys, in promotion-table order.
            pub const ALL: &'static [DType] = &[$(DType::$variant),*];

            /// NumPy's name.
            pub fn name(self) -> &'static str {
                match self {
                    $(DType::$variant => $name,)*
                    DType::Key(key) => key.dtype_name(),
                }
            }

            /// The name in program text: `f32`, `i8`, `bool`.
            pub fn short_name(self) -> &'static str {
                match self {
                    $(DType::$variant => $short,)*
                    DType::Key(key) => key.dtype_name(),
                }
            }

            pub const fn kind(self) -> Kind {
                match self {
                    $(DType::$variant => Kind::$kind,)*
                    DType::Key(_) => Kind::Key,
                }
            }

            /// Significant bits of one element (4 for `int4`).
            pub const fn bits(self) -> usize {
                match self {
                    $(DType::$variant => $bits,)*
                    DType::Key(key) => key.words() * 32,
                }
            }

            /// Bytes that one element takes in memory.
            pub const fn size(self) -> usize {
                match self {
                    $(DType::$variant => $bytes,)*
                    DType::Key(key) => key.words() * 4,
                }
            }
        }
    };
}

dtypes! {
    Bool "bool" "bool" Bool 8 1;
    U2 "uint2" "u2" Unsigned 2 1;
    U4 "uint4" "u4" Unsigned 4 1;
    U8 "uint8" "u8" Unsigned 8 1;
    U16 "uint16" "u16" Unsigned 16 2;
    U32 "uint32" "u32" Unsigned 32 4;
    U64 "uint64" "u64" Unsigned 64 8;
    I2 "int2" "i2" Signed 2 1;
    I4 "int4" "i4" Signed 4 1;
    I8 "int8" "i8" Signed 8 1;
    I16 "int16" "i16" Signed 16 2;
    I32 "int32" "i32" Signed 32 4;
    I64 "int64" "i64" Signed 64 8;
    F4E2M1FN "float4_e2m1fn" "f4_e2m1fn" Float 4 1;
    F8E3M4 "float8_e3m4" "f8_e3m4" Float 8 1;
    F8E4M3 "float8_e4m3" "f8_e4m3" Float 8 1;
    F8E4M3B11FNUZ "float8_e4m3b11fnuz" "f8_e4m3b11fnuz" Float 8 1;
    F8E4M3FN "float8_e4m3fn" "f8_e4m3fn" Float 8 1;
    F8E4M3FNUZ "float8_e4m3fnuz" "f8_e4m3fnuz" Float 8 1;
    F8E5M2 "float8_e5m2" "f8_e5m2" Float 8 1;
    F8E5M2FNUZ "float8_e5m2fnuz" "f8_e5m2fnuz" Float 8 1;
    F8E8M0FNU "float8_e8m0fnu" "f8_e8m0fnu" Float 8 1;
    BF16 "bfloat16" "bf16" Float 16 2;
    F16 "float16" "f16" Float 16 2;
    F32 "float32" "f32" Float 32 4;
    F64 "float64" "f64" Float 64 8;
    C64 "complex64" "c64" Complex 64 8;
    C128 "complex128" "c128" Complex 128 16;
    Float0 "float0" "float0" Float0 0 0;
}

impl DType {
    pub const fn is_bool(self) -> bool {
        matches!(self.kind(), Kind::Bool)
    }

    pub const fn is_signed(self) -> bool {
        matches!(self.kind(), Kind::Signed)
    }

    pub const fn is_unsigned(self) -> bool {
        matches!(self.kind(), Kind::Unsigned)
    }

    pub const fn is_integer(self) -> bool {
        self.is_signed() || self.is_unsigned()
    }

    pub const fn is_float(self) -> bool {
        matches!(self.kind(), Kind::Float)
    }

    pub const fn is_complex(self) -> bool {
        matches!(self.kind(), Kind::Complex)
    }

    pub const fn is_inexact(self) -> bool {
        self.is_float() || self.is_complex()
    }

    pub const fn is_key(self) -> bool {
        matches!(self.kind(), Kind::Key)
    }

    /// How many registers hold one element: two for complex numbers and for keys of four words.
    pub const fn parts(self) -> usize {
        match self {
            DType::C64 | DType::C128 => 2,
            DType::Key(key) => key.words().div_ceil(2),
            _ => 1,
        }
    }

    /// Types that can be stored and converted but not computed with.
    pub const fn is_storage_only(self) -> bool {
        self.is_float() && self.bits() <= 8
    }

    /// Types that no register has: elements change their format on the way from memory.
    pub const fn is_narrow(self) -> bool {
        self.is_storage_only() || (self.is_integer() && self.bits() < 8)
    }

    /// The dtype of tangents: its own for floats and complex, else `Float0`.
    pub const fn tangent(self) -> DType {
        if self.is_inexact() { self } else { DType::Float0 }
    }

    /// The dtype of the real and imaginary parts; itself if not complex.
    pub const fn real(self) -> DType {
        match self {
            DType::C64 => DType::F32,
            DType::C128 => DType::F64,
            other => other,
        }
    }

    /// The complex dtype whose parts are of this float dtype.
    pub const fn complex(self) -> Option<DType> {
        match self {
            DType::F32 | DType::C64 => Some(DType::C64),
            DType::F64 | DType::C128 => Some(DType::C128),
            _ => None,
        }
    }

    /// Parses a NumPy name or a short name.
    pub fn parse(name: &str) -> Result<DType> {
        if name.starts_with("key<") {
            return KeyImpl::of_dtype(name).map(DType::Key);
        }
        DType::ALL
            .iter()
            .copied()
            .find(|dtype| dtype.name() == name || dtype.short_name() == name)
            .ok_or_else(|| parse_error!("unknown dtype '{name}'"))
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
