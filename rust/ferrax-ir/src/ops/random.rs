//! Counter-based random bits: Threefry-2x32 with 20 rounds (Salmon, Moraes,
//! Dror, Shaw: "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011), and the
//! ops on keys that stand on it. Keys of other generators are wrapped, unwrapped
//! and moved; what is drawn from them is computed from their words by whoever
//! defines the generator.
//!
//! The n-th of the things drawn from a key comes from encrypting the 64-bit
//! counter n (high word first): element n of `random_bits`, key n of
//! `random_split`; `random_fold_in` encrypts its number. So each element stands
//! for itself, whatever the shape.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::common::{arrays, check_arity, elementwise_batch, elementwise_operands, elementwise_shape, one};
use super::derive::{Cotangents, Tangents};
use super::evaluate;
use super::random_expand as expand;
use crate::convert::{Wide, load};
use crate::rules::{
    Batch, Batched, Extents, IndexMap, Jvp, Lowering, Row, Rules, Transpose, Types, not_linear,
};
use crate::tensor::element_count;
use crate::{
    ArrayType, Atom, Builder, DType, Dim, KeyImpl, Result, Shape, ShowShape, Sizes, Tensor, Type,
    internal_error, op_struct, type_error,
};

op_struct! {
    /// The block cipher: key words k1, k2 and counter words x1, x2 to two words of bits.
    Threefry2x32 "threefry2x32" {}
}
op_struct! {
    /// A key from an integer.
    RandomSeed "random_seed" { r#impl: Arc<str> }
}
op_struct! {
    /// New keys from each key, as many as `shape` has places.
    RandomSplit "random_split" { shape: Shape }
}
op_struct! {
    /// A new key from a key and an integer.
    RandomFoldIn "random_fold_in" {}
}
op_struct! {
    /// An array of random unsigned integers of `bit_width` bits for each key.
    RandomBits "random_bits" { bit_width: u32, shape: Shape }
}
op_struct! {
    /// Keys from their raw words (a last axis of u32).
    RandomWrap "random_wrap" { r#impl: Arc<str> }
}
op_struct! {
    /// The raw words of keys.
    RandomUnwrap "random_unwrap" {}
}

/// Rotations of the eight distinct rounds, and the constant that makes the
/// third key word (the paper's table 2 and section 4.2).
pub const ROTATIONS: [[u32; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];
pub const PARITY: u32 = 0x1BD1_1BDA;

/// Encrypts the counter `x` under the key `k`.
pub fn threefry2x32(k: [u32; 2], x: [u32; 2]) -> [u32; 2] {
    let words = [k[0], k[1], k[0] ^ k[1] ^ PARITY];
    let [mut a, mut b] = [x[0].wrapping_add(words[0]), x[1].wrapping_add(words[1])];
    for group in 0..5 {
        for rotation in ROTATIONS[group % 2] {
            a = a.wrapping_add(b);
            b = b.rotate_left(rotation) ^ a;
        }
        a = a.wrapping_add(words[(group + 1) % 3]);
        b = b.wrapping_add(words[(group + 2) % 3]).wrapping_add(group as u32 + 1);
    }
    [a, b]
}

/// The generator named by an `impl` parameter, by its name or its short name.
fn key_impl(name: &str) -> Result<KeyImpl> {
    KeyImpl::named(name)
}

fn check_keys(name: &str, ty: &ArrayType) -> Result<()> {
    if ty.dtype.is_key() {
        return Ok(());
    }
    Err(type_error!("{name} requires a key array, got {ty}"))
}

/// The ops that draw know one generator.
fn check_threefry(name: &str, dtype: DType) -> Result<()> {
    let known = DType::Key(KeyImpl::THREEFRY2X32);
    if dtype == known || !dtype.is_key() {
        return Ok(());
    }
    Err(type_error!("{name} computes with {known}; of {dtype} unwrap the words and compute with these"))
}

fn unsigned(bit_width: u32) -> Result<DType> {
    match bit_width {
        8 => Ok(DType::U8),
        16 => Ok(DType::U16),
        32 => Ok(DType::U32),
        64 => Ok(DType::U64),
        other => Err(type_error!("random_bits makes words of 8, 16, 32 or 64 bits, not of {other}")),
    }
}

/// The words of each key.
fn keys(tensor: &Tensor) -> Result<impl Iterator<Item = [u32; 2]> + '_> {
    Ok(tensor.elements::<u32>()?.chunks_exact(2).map(|words| [words[0], words[1]]))
}

fn counter(index: usize) -> [u32; 2] {
    let index = index as u64;
    [(index >> 32) as u32, index as u32]
}

/// No output has a tangent: all are keys or integers.
macro_rules! without_derivatives {
    ($outputs:literal) => {
        fn jvp(&self, _: &mut Builder, _: &Jvp<'_>) -> Result<Tangents> {
            Ok(smallvec![None; $outputs])
        }

        fn transpose(&self, _: &mut Builder, _: &Transpose<'_>) -> Result<Cotangents> {
            not_linear(self)
        }
    };
}

impl Row for Threefry2x32 {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        check_arity(Threefry2x32::NAME, inputs, 4)?;
        let operands = arrays(Threefry2x32::NAME, inputs)?;
        if operands.iter().any(|operand| operand.dtype != DType::U32) {
            let got: Vec<_> = operands.iter().map(|operand| operand.to_string()).collect();
            return Err(type_error!("threefry2x32 takes words of uint32, got [{}]", got.join(", ")));
        }
        let ty = ArrayType::new(elementwise_shape(Threefry2x32::NAME, &operands)?, DType::U32);
        Ok(smallvec![ty.clone().into(), ty.into()])
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        let (_, sizes) = evaluate::output(outputs)?;
        let operands = inputs.iter().map(Tensor::elements::<u32>).collect::<Result<Vec<_>>>()?;
        let at = |operand: usize, index: usize| {
            operands[operand][if inputs[operand].rank() == 0 { 0 } else { index }]
        };
        let (high, low): (Vec<u32>, Vec<u32>) = (0..element_count(&sizes))
            .map(|index| {
                let [high, low] = threefry2x32([at(0, index), at(1, index)], [at(2, index), at(3, index)]);
                (high, low)
            })
            .unzip();
        Ok(vec![Tensor::from_elements(sizes.clone(), &high)?, Tensor::from_elements(sizes, &low)?])
    }
}

impl Rules for Threefry2x32 {
    without_derivatives!(2);

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        let (operands, dim) = elementwise_operands(b, eqn)?;
        let outputs = b.emit(self.clone(), &operands)?;
        Ok(outputs.into_iter().map(|output| (Atom::Var(output), Some(dim))).collect())
    }

    fn lower(&self) -> Lowering {
        Lowering::Expand
    }

    fn expand(&self, b: &mut Builder, inputs: &[Atom]) -> Result<SmallVec<[Atom; 1]>> {
        expand::threefry2x32(b, inputs)
    }
}

impl Row for RandomSeed {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        check_arity(RandomSeed::NAME, inputs, 1)?;
        let seed = arrays(RandomSeed::NAME, inputs)?[0];
        if !seed.dtype.is_integer() {
            return Err(type_error!("a key is made of an integer, got {seed}"));
        }
        let dtype = DType::Key(key_impl(&self.r#impl)?);
        check_threefry(RandomSeed::NAME, dtype)?;
        one(ArrayType::new(seed.shape.clone(), dtype))
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        let (ty, sizes) = evaluate::output(outputs)?;
        let seeds = &inputs[0];
        let mut result = Tensor::zeros(ty.dtype, sizes)?;
        let words = result.elements_mut::<u32>()?;
        for (key, seed) in words.chunks_exact_mut(2).zip(seeds.bytes().chunks_exact(seeds.dtype().size())) {
            let Some(Wide::Int(seed)) = load(seeds.dtype(), seed) else {
                return Err(internal_error!("a seed of {}", seeds.dtype()));
            };
            // Narrow seeds have no high word, not even a sign.
            key[0] = if seeds.dtype().bits() > 32 { (seed >> 32) as u32 } else { 0 };
            key[1] = seed as u32;
        }
        Ok(vec![result])
    }
}

impl Rules for RandomSeed {
    without_derivatives!(1);

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        elementwise_batch(self.clone(), b, eqn)
    }

    fn lower(&self) -> Lowering {
        Lowering::Expand
    }

    fn expand(&self, b: &mut Builder, inputs: &[Atom]) -> Result<SmallVec<[Atom; 1]>> {
        expand::seed(b, inputs[0], &self.r#impl)
    }
}

impl Row for RandomSplit {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        check_arity(RandomSplit::NAME, inputs, 1)?;
        let keys = arrays(RandomSplit::NAME, inputs)?[0];
        check_keys(RandomSplit::NAME, keys)?;
        check_threefry(RandomSplit::NAME, keys.dtype)?;
        one(ArrayType::new(keys.shape.iter().chain(&self.shape).cloned().collect::<Shape>(), keys.dtype))
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        let (ty, sizes) = evaluate::output(outputs)?;
        let count = element_count(&sizes) / inputs[0].len().max(1);
        let mut words: Vec<u32> = Vec::new();
        for key in keys(&inputs[0])? {
            words.extend((0..count).flat_map(|index| threefry2x32(key, counter(index))));
        }
        Ok(vec![Tensor::from_bytes(ty.dtype, sizes, bytemuck::cast_slice(&words))?])
    }
}

impl Rules for RandomSplit {
    without_derivatives!(1);

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        let output = b.emit1(self.clone(), eqn.inputs)?;
        Ok(smallvec![(output, eqn.dims[0])])
    }

    fn lower(&self) -> Lowering {
        Lowering::Expand
    }

    fn expand(&self, b: &mut Builder, inputs: &[Atom]) -> Result<SmallVec<[Atom; 1]>> {
        expand::split(b, inputs[0], &self.shape)
    }
}

impl Row for RandomFoldIn {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        check_arity(RandomFoldIn::NAME, inputs, 2)?;
        let operands = arrays(RandomFoldIn::NAME, inputs)?;
        check_keys(RandomFoldIn::NAME, operands[0])?;
        check_threefry(RandomFoldIn::NAME, operands[0].dtype)?;
        if !operands[1].dtype.is_integer() {
            return Err(type_error!("random_fold_in requires integers to fold in, got {}", operands[1]));
        }
        one(ArrayType::new(elementwise_shape(RandomFoldIn::NAME, &operands)?, operands[0].dtype))
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        let (ty, sizes) = evaluate::output(outputs)?;
        let numbers = crate::convert::convert(&inputs[1], DType::U32)?;
        let (keys, numbers): (Vec<_>, _) = (keys(&inputs[0])?.collect(), numbers.elements::<u32>()?);
        let mut words: Vec<u32> = Vec::new();
        for index in 0..element_count(&sizes) {
            let key = keys[if inputs[0].rank() == 0 { 0 } else { index }];
            let number = numbers[if inputs[1].rank() == 0 { 0 } else { index }];
            words.extend(threefry2x32(key, [0, number]));
        }
        Ok(vec![Tensor::from_bytes(ty.dtype, sizes, bytemuck::cast_slice(&words))?])
    }
}

impl Rules for RandomFoldIn {
    without_derivatives!(1);

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        elementwise_batch(self.clone(), b, eqn)
    }

    fn lower(&self) -> Lowering {
        Lowering::Expand
    }

    fn expand(&self, b: &mut Builder, inputs: &[Atom]) -> Result<SmallVec<[Atom; 1]>> {
        expand::fold_in(b, inputs[0], inputs[1])
    }
}

impl Row for RandomBits {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        check_arity(RandomBits::NAME, inputs, 1)?;
        let keys = arrays(RandomBits::NAME, inputs)?[0];
        check_keys(RandomBits::NAME, keys)?;
        check_threefry(RandomBits::NAME, keys.dtype)?;
        let shape: Shape = keys.shape.iter().chain(&self.shape).cloned().collect();
        one(ArrayType::new(shape, unsigned(self.bit_width)?))
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        let (ty, sizes) = evaluate::output(outputs)?;
        let count = element_count(&sizes) / inputs[0].len().max(1);
        let size = ty.dtype.size();
        let mut bytes: Vec<u8> = Vec::new();
        for key in keys(&inputs[0])? {
            for index in 0..count {
                let [high, low] = threefry2x32(key, counter(index));
                let bits =
                    if size == 8 { u64::from(high) << 32 | u64::from(low) } else { u64::from(high ^ low) };
                bytes.extend_from_slice(&bits.to_le_bytes()[..size]);
            }
        }
        Ok(vec![Tensor::from_bytes(ty.dtype, sizes, &bytes)?])
    }
}

impl Rules for RandomBits {
    without_derivatives!(1);

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        let output = b.emit1(self.clone(), eqn.inputs)?;
        Ok(smallvec![(output, eqn.dims[0])])
    }

    fn lower(&self) -> Lowering {
        Lowering::Expand
    }

    fn expand(&self, b: &mut Builder, inputs: &[Atom]) -> Result<SmallVec<[Atom; 1]>> {
        expand::bits(b, inputs[0], unsigned(self.bit_width)?, &self.shape)
    }
}

impl Row for RandomWrap {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        check_arity(RandomWrap::NAME, inputs, 1)?;
        let words = arrays(RandomWrap::NAME, inputs)?[0];
        let key = key_impl(&self.r#impl)?;
        if words.dtype != DType::U32 {
            return Err(type_error!("random_wrap requires uint32 key data, got {words}"));
        }
        let inner = key.key_shape();
        match words.shape.len().checked_sub(inner.len()).map(|rank| words.shape.split_at(rank)) {
            Some((rest, last)) if last.iter().zip(inner).all(|(extent, &size)| *extent == size) => {
                one(ArrayType::new(Shape::from(rest), DType::Key(key)))
            }
            _ => Err(type_error!(
                "random_wrap requires key data whose shape ends with {inner:?}, that of the words of a key, got \
                 shape {}",
                ShowShape(&words.shape)
            )),
        }
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        let (ty, sizes) = evaluate::output(outputs)?;
        Ok(vec![Tensor::from_storage(ty.dtype, sizes, inputs[0].storage().clone())?])
    }
}

impl Rules for RandomWrap {
    without_derivatives!(1);

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        let Some(dim) = eqn.dims[0] else { return Err(internal_error!("nothing is batched")) };
        // The words stay last.
        let outer = b.rank(eqn.inputs[0]).saturating_sub(key_impl(&self.r#impl)?.key_shape().len());
        let (words, dim) =
            if dim >= outer { (b.move_axis(eqn.inputs[0], dim, 0)?, 0) } else { (eqn.inputs[0], dim) };
        let output = b.emit1(self.clone(), &[words])?;
        Ok(smallvec![(output, Some(dim))])
    }

    /// The same bytes under another type.
    fn lower(&self) -> Lowering {
        Lowering::Library
    }

    fn index_map(&self, _inputs: &[Extents<'_>], _output: Extents<'_>) -> Result<Option<IndexMap>> {
        Ok(Some(IndexMap::Bytes))
    }
}

impl Row for RandomUnwrap {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        check_arity(RandomUnwrap::NAME, inputs, 1)?;
        let keys = arrays(RandomUnwrap::NAME, inputs)?[0];
        check_keys(RandomUnwrap::NAME, keys)?;
        let DType::Key(key) = keys.dtype else { return Err(internal_error!("keys of {}", keys.dtype)) };
        let mut shape = keys.shape.clone();
        shape.extend(key.key_shape().iter().map(|&extent| Dim::Const(extent)));
        one(ArrayType::new(shape, DType::U32))
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        let (_, sizes): (_, Sizes) = evaluate::output(outputs)?;
        Ok(vec![Tensor::from_storage(DType::U32, sizes, inputs[0].storage().clone())?])
    }
}

impl Rules for RandomUnwrap {
    without_derivatives!(1);

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        let output = b.emit1(self.clone(), eqn.inputs)?;
        Ok(smallvec![(output, eqn.dims[0])])
    }

    /// The same bytes under another type.
    fn lower(&self) -> Lowering {
        Lowering::Library
    }

    fn index_map(&self, _inputs: &[Extents<'_>], _output: Extents<'_>) -> Result<Option<IndexMap>> {
        Ok(Some(IndexMap::Bytes))
    }
}
