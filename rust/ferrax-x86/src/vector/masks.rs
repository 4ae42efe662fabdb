//! Truth in vector code.
//!
//! With AVX2 it is a vector whose lanes have all bits or none: one of words, or two of eight bytes where elements of
//! these are compared or chosen. With AVX-512 it is a mask register, or two likewise. Either form is made of the other
//! when it is asked for first.

use ferrax_ir::scalar::{Reg, ScalarOp, ScalarType};
use ferrax_ir::{Result, internal_error};
use smallvec::{SmallVec, smallvec};

use super::forms::{Parts, Truth, float, int, op, second, third};
use super::lower::Lower;
use super::{Class, Isa, Shape, Source};
use crate::encode::floats::{COMPARE, EQUAL, LESS, LESS_EQUAL, NOT_EQUAL};
use crate::encode::{Length, Map, Prefix};

/// Instructions of mask registers.
const KAND: u8 = 0x41;
const KANDN: u8 = 0x42;
const KOR: u8 = 0x45;
const KXOR: u8 = 0x47;
const KNOT: u8 = 0x44;

impl Lower<'_> {
    fn truth_of(&mut self, reg: Reg) -> Result<Truth> {
        if let Some(truth) = self.truths.get(&reg.0) {
            return Ok(truth.clone());
        }
        // A constant: as a mask register it is made of a comparison.
        let Some(&all) = self.parts(reg).first() else {
            return Err(internal_error!("chain register {} has no truth", reg.0));
        };
        let words = match self.isa {
            Isa::Avx2 => all,
            Isa::Avx512 => {
                let compare = (Length::Evex512, third(0x1f, false), Some(NOT_EQUAL));
                let zero = Source::Constant(0);
                self.micro(Shape::Plain, compare, Class::Mask, &[zero, all])
            }
        };
        let truth = Truth::of(&[words]);
        self.truths.insert(reg.0, truth.clone());
        Ok(truth)
    }

    /// A truth for elements of four bytes, or of eight.
    pub fn masks(&mut self, reg: Reg, wide: bool) -> Result<Parts> {
        let mut truth = self.truth_of(reg)?;
        let formless = || internal_error!("chain register {} is a truth of no form", reg.0);
        let parts = if wide {
            let halves = match (truth.halves, truth.words) {
                (Some(halves), _) => halves,
                (None, Some(words)) => self.split(words),
                _ => return Err(formless()),
            };
            truth.halves = Some(halves);
            Parts::from_slice(&halves)
        } else {
            let words = match (truth.words, truth.halves) {
                (Some(words), _) => words,
                (None, Some(halves)) => self.merged(halves),
                _ => return Err(formless()),
            };
            truth.words = Some(words);
            smallvec![words]
        };
        self.truths.insert(reg.0, truth);
        Ok(parts)
    }

    fn split(&mut self, words: Source) -> [Source; 2] {
        match self.isa {
            Isa::Avx2 => {
                if matches!(words, Source::Constant(_)) {
                    return [words; 2];
                }
                let upper = self.upper(words);
                [words, upper].map(|half| {
                    let widen = (Length::Vex256, second(0x25, false), None);
                    self.micro(Shape::Registers, widen, Class::Vector, &[half])
                })
            }
            Isa::Avx512 => {
                let shift = (Length::Vex128, third(0x30, true), Some(8));
                [words, self.micro(Shape::Registers, shift, Class::Mask, &[words])]
            }
        }
    }

    fn merged(&mut self, [low, high]: [Source; 2]) -> Source {
        match self.isa {
            Isa::Avx2 => {
                let words = self.with_byte(op(Prefix::None, Map::M0F, 0xc6, false), 0x88, &[low, high]);
                self.with_byte(third(0x00, true), 0xd8, &[words])
            }
            Isa::Avx512 => {
                let unpack = (Length::Vex256, int(0x4b, false), None);
                self.micro(Shape::Registers, unpack, Class::Mask, &[high, low])
            }
        }
    }

    /// An instruction of masks.
    fn of_masks(&mut self, code: u8, args: &[Source]) -> Source {
        match self.isa {
            Isa::Avx2 => {
                let code = match code {
                    KAND => 0xdb,
                    KOR => 0xeb,
                    KANDN => 0xdf,
                    _ => 0xef,
                };
                let ones = Source::Constant(u64::MAX);
                let args: SmallVec<[Source; 2]> = args.iter().copied().chain([ones]).take(2).collect();
                self.plain(int(code, false), &args)
            }
            Isa::Avx512 => {
                let length = if code == KNOT { Length::Vex128 } else { Length::Vex256 };
                let opcode = op(Prefix::None, Map::M0F, code, false);
                self.micro(Shape::Registers, (length, opcode, None), Class::Mask, args)
            }
        }
    }

    pub fn compare_floats(&mut self, kind: u8, ty: ScalarType, a: Source, b: Source) -> Source {
        let class = match self.isa {
            Isa::Avx2 => Class::Vector,
            Isa::Avx512 => Class::Mask,
        };
        self.micro(Shape::Plain, (self.isa.length(), float(COMPARE, ty), Some(kind)), class, &[a, b])
    }

    fn compare_integers(&mut self, kind: u8, ty: ScalarType, a: Source, b: Source) -> Source {
        let (wide, signed) = (ty.size() == 8, ty.is_signed());
        if self.isa == Isa::Avx512 {
            let opcode = third(if signed { 0x1f } else { 0x1e }, wide);
            return self.micro(Shape::Plain, (Length::Evex512, opcode, Some(kind)), Class::Mask, &[a, b]);
        }
        let equal = if wide { second(0x29, false) } else { int(0x76, false) };
        let greater = if wide { second(0x37, false) } else { int(0x66, false) };
        match kind {
            EQUAL => self.plain(equal, &[a, b]),
            NOT_EQUAL => {
                let same = self.plain(equal, &[a, b]);
                self.of_masks(KNOT, &[same])
            }
            _ => {
                let [a, b] = [a, b].map(|side| {
                    if signed {
                        return side;
                    }
                    // The order of unsigned numbers is that of signed ones with the sign turned.
                    let sign = if wide { 1 << 63 } else { 0x8000_0000_8000_0000 };
                    self.plain(int(0xef, false), &[side, Source::Constant(sign)])
                });
                if kind == LESS {
                    return self.plain(greater, &[b, a]);
                }
                let above = self.plain(greater, &[a, b]);
                self.of_masks(KNOT, &[above])
            }
        }
    }

    /// `holds ? then : otherwise`, in lanes of a type's size.
    pub fn blend(&mut self, ty: ScalarType, holds: Source, then: Source, otherwise: Source) -> Source {
        let wide = ty == ScalarType::F64;
        match self.isa {
            Isa::Avx2 => {
                let blend = (Length::Vex256, third(if wide { 0x4b } else { 0x4a }, false), None);
                self.micro(Shape::Blend, blend, Class::Vector, &[holds, otherwise, then])
            }
            Isa::Avx512 if otherwise == Source::Constant(0) => {
                let moved = (Length::Evex512, float(0x28, ty), None);
                self.micro(Shape::Masked, moved, Class::Vector, &[holds, then])
            }
            Isa::Avx512 => {
                let blend = (Length::Evex512, second(0x65, wide), None);
                self.micro(Shape::Masked, blend, Class::Vector, &[holds, otherwise, then])
            }
        }
    }

    /// What an operation gives whose result is a truth.
    pub fn truth(&mut self, op: ScalarOp, from: ScalarType, args: &[Reg]) -> Result<Truth> {
        let kind = match op {
            ScalarOp::Eq => Some(EQUAL),
            ScalarOp::Ne | ScalarOp::Convert => Some(NOT_EQUAL),
            ScalarOp::Lt => Some(LESS),
            ScalarOp::Le => Some(LESS_EQUAL),
            _ => None,
        };
        if let Some(kind) = kind {
            let a = self.parts(args[0]);
            let b = match args.get(1) {
                Some(&b) => self.parts(b),
                None => smallvec![Source::Constant(0); a.len()],
            };
            let parts: Parts = (0..a.len())
                .map(|part| {
                    if from.is_float() {
                        self.compare_floats(kind, from, a[part], b[part])
                    } else {
                        self.compare_integers(kind, from, a[part], b[part])
                    }
                })
                .collect();
            return Ok(Truth::of(&parts));
        }
        let code = match op {
            ScalarOp::And => KAND,
            ScalarOp::Or => KOR,
            ScalarOp::Xor => KXOR,
            ScalarOp::Not => KNOT,
            ScalarOp::Select => KANDN,
            op => return Err(internal_error!("{op:?} gives no truth in vector code")),
        };
        let truths = args.iter().map(|&arg| self.truth_of(arg)).collect::<Result<SmallVec<[Truth; 3]>>>()?;
        let wide = truths.iter().all(|truth| truth.halves.is_some());
        let mut masks: SmallVec<[Parts; 3]> = SmallVec::new();
        for &arg in args {
            masks.push(self.masks(arg, wide)?);
        }
        let parts: Parts = (0..masks[0].len())
            .map(|part| {
                let of: SmallVec<[Source; 3]> = masks.iter().map(|parts| parts[part]).collect();
                if op != ScalarOp::Select {
                    return self.of_masks(code, &of);
                }
                let then = self.of_masks(KAND, &[of[0], of[1]]);
                let otherwise = self.of_masks(KANDN, &[of[0], of[2]]);
                self.of_masks(KOR, &[then, otherwise])
            })
            .collect();
        Ok(Truth::of(&parts))
    }

    /// A block of bytes, 0 or 1.
    pub fn loaded_truth(&mut self, block: u32) -> Truth {
        let shape = Shape::Load { block, offset: 0 };
        let words = match self.isa {
            Isa::Avx2 => {
                let extend = (Length::Vex256, second(0x31, false), None);
                let numbers = self.micro(shape, extend, Class::Vector, &[]);
                self.plain(int(0xfa, false), &[Source::Constant(0), numbers])
            }
            Isa::Avx512 => {
                let load = (Length::Evex128, op(Prefix::F3, Map::M0F, 0x6f, false), None);
                let bytes = self.micro(shape, load, Class::Vector, &[]);
                let test = (Length::Evex128, second(0x26, false), None);
                self.micro(Shape::Registers, test, Class::Mask, &[bytes, bytes])
            }
        };
        Truth::of(&[words])
    }

    pub fn store_truth(&mut self, reg: Reg, block: u32) -> Result<()> {
        let words = self.masks(reg, false)?[0];
        let ones = Source::Constant(0x0101_0101_0101_0101);
        match self.isa {
            Isa::Avx2 => {
                let upper = self.upper(words);
                let pack = |code: u8| (Length::Vex128, int(code, false), None);
                let halves = self.micro(Shape::Registers, pack(0x6b), Class::Vector, &[words, upper]);
                let bytes = self.micro(Shape::Registers, pack(0x63), Class::Vector, &[halves, halves]);
                let bytes = self.micro(Shape::Plain, pack(0xdb), Class::Vector, &[bytes, ones]);
                let store = op(Prefix::P66, Map::M0F, 0xd6, false);
                self.store_value((Length::Vex128, store), block, 0, bytes);
            }
            Isa::Avx512 => {
                let moved = (Length::Evex128, op(Prefix::F2, Map::M0F, 0x6f, false), None);
                let bytes = self.micro(Shape::Masked, moved, Class::Vector, &[words, ones]);
                let store = op(Prefix::F3, Map::M0F, 0x7f, false);
                self.store_value((Length::Evex128, store), block, 0, bytes);
            }
        }
        Ok(())
    }
}
