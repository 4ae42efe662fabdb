//! Instructions by what they do, and what a value of a chain is made of.

use ferrax_ir::scalar::ScalarType;
use smallvec::SmallVec;

use super::Source;
use crate::encode::{Map, Opcode, Prefix};

/// The values of an element: one, or two where it has eight bytes.
pub(super) type Parts = SmallVec<[Source; 2]>;

pub(super) const fn op(prefix: Prefix, map: Map, code: u8, wide: bool) -> Opcode {
    Opcode::new(prefix, map, code, wide)
}

/// An instruction of floats, by its type.
pub(super) const fn float(code: u8, ty: ScalarType) -> Opcode {
    let wide = matches!(ty, ScalarType::F64);
    op(if wide { Prefix::P66 } else { Prefix::None }, Map::M0F, code, wide)
}

/// An instruction of integers.
pub(super) const fn int(code: u8, wide: bool) -> Opcode {
    op(Prefix::P66, Map::M0F, code, wide)
}

/// One of the second map.
pub(super) const fn second(code: u8, wide: bool) -> Opcode {
    op(Prefix::P66, Map::M0F38, code, wide)
}

/// One of the third map, which has a byte.
pub(super) const fn third(code: u8, wide: bool) -> Opcode {
    op(Prefix::P66, Map::M0F3A, code, wide)
}

/// The forms of a truth that there are.
#[derive(Clone, Default, Debug)]
pub(super) struct Truth {
    pub words: Option<Source>,
    pub halves: Option<[Source; 2]>,
}

impl Truth {
    pub fn of(parts: &[Source]) -> Truth {
        match *parts {
            [low, high] => Truth { words: None, halves: Some([low, high]) },
            _ => Truth { words: parts.first().copied(), halves: None },
        }
    }
}
