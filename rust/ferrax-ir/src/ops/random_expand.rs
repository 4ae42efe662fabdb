//! The random ops in terms of integer arithmetic, so that drawing bits fuses
//! with what is made of them.

use smallvec::{SmallVec, smallvec};

use super::Binary;
use super::Concatenate;
use super::random::{PARITY, ROTATIONS, RandomUnwrap, RandomWrap, Threefry2x32};
use crate::{Atom, Axes, Builder, DType, Dim, KeyImpl, Result, Shape, internal_error};

type Outputs = SmallVec<[Atom; 1]>;

fn word(b: &Builder, value: u32) -> Atom {
    b.int_scalar(DType::U32, value.into())
}

fn rotate_left(b: &mut Builder, x: Atom, by: u32) -> Result<Atom> {
    let (left, right) = (word(b, by), word(b, 32 - by));
    let high = b.binary(Binary::ShiftLeft, x, left)?;
    let low = b.binary(Binary::ShiftRightLogical, x, right)?;
    b.binary(Binary::Or, high, low)
}

/// The twenty rounds.
pub fn threefry2x32(b: &mut Builder, inputs: &[Atom]) -> Result<Outputs> {
    let &[k1, k2, x1, x2] = inputs else {
        return Err(internal_error!("threefry2x32 of {} operands", inputs.len()));
    };
    let parity = word(b, PARITY);
    let mixed = b.binary(Binary::Xor, k1, k2)?;
    let k3 = b.binary(Binary::Xor, mixed, parity)?;
    let words = [k1, k2, k3];
    let (mut x, mut y) = (b.add(x1, k1)?, b.add(x2, k2)?);
    for group in 0..5 {
        for rotation in ROTATIONS[group % 2] {
            x = b.add(x, y)?;
            let rotated = rotate_left(b, y, rotation)?;
            y = b.binary(Binary::Xor, rotated, x)?;
        }
        x = b.add(x, words[(group + 1) % 3])?;
        y = b.add(y, words[(group + 2) % 3])?;
        let round = word(b, group as u32 + 1);
        y = b.add(y, round)?;
    }
    // With 0-d operands throughout but one, both results have its shape already:
    // each mixes all four.
    Ok(smallvec![x, y])
}

/// The two words of each key.
fn words(b: &mut Builder, keys: Atom) -> Result<[Atom; 2]> {
    let raw = b.emit1(RandomUnwrap {}, &[keys])?;
    let axis = b.rank(keys);
    let mut word = |at: usize| {
        let slice = b.slice_axis(raw, axis, at, at + 1)?;
        b.squeeze(slice, &[axis])
    };
    Ok([word(0)?, word(1)?])
}

/// Keys from their two words, which are arrays of one shape.
fn wrap(b: &mut Builder, high: Atom, low: Atom, name: &str) -> Result<Outputs> {
    let axis = b.rank(high);
    let (high, low) = (b.expand_dim(high, axis)?, b.expand_dim(low, axis)?);
    let raw = b.emit1(Concatenate { dimension: axis }, &[high, low])?;
    Ok(smallvec![b.emit1(RandomWrap { r#impl: name.into() }, &[raw])?])
}

/// The high and low words of 0, 1, 2, … in row-major order over `shape`.
fn counters(b: &mut Builder, shape: &[Dim]) -> Result<[Atom; 2]> {
    let count = Dim::product(shape)?;
    let small = count.as_const().is_some_and(|count| u32::try_from(count).is_ok());
    let dtype = if small { DType::U32 } else { DType::U64 };
    let index = if let Some(sizes) = shape.iter().map(Dim::as_const).collect::<Option<Vec<_>>>() {
        // A sum over axes rather than a reshape: it fuses.
        let mut total: Option<Atom> = None;
        let mut stride = 1usize;
        for (axis, &size) in sizes.iter().enumerate().rev() {
            if size != 1 {
                let mut place = b.iota(dtype, shape, axis)?;
                if stride != 1 {
                    let step = b.int_scalar(dtype, stride as i64);
                    place = b.mul(place, step)?;
                }
                total = Some(match total {
                    Some(sum) => b.add(sum, place)?,
                    None => place,
                });
            }
            stride = stride.saturating_mul(size);
        }
        match total {
            Some(total) => total,
            None => {
                let zero = b.int_scalar(dtype, 0);
                b.broadcast_scalar(zero, shape)?
            }
        }
    } else {
        let flat = b.iota(dtype, &[count], 0)?;
        b.reshape(flat, shape)?
    };
    if small {
        return Ok([word(b, 0), index]);
    }
    let shift = b.int_scalar(DType::U64, 32);
    let high = b.binary(Binary::ShiftRightLogical, index, shift)?;
    Ok([b.convert(high, DType::U32)?, b.convert(index, DType::U32)?])
}

/// The cipher's words for every key and every place of `shape`, in the shape of
/// the keys followed by `shape`.
fn draw(b: &mut Builder, keys: Atom, shape: &[Dim]) -> Result<[Atom; 2]> {
    let outer = b.shape(keys);
    let full: Shape = outer.iter().chain(shape).cloned().collect();
    let (key_axes, axes): (Axes, Axes) = ((0..outer.len()).collect(), (outer.len()..full.len()).collect());
    let [k1, k2] = words(b, keys)?;
    let [x1, x2] = counters(b, shape)?;
    let mut spread = |atom: Atom, axes: &[usize]| {
        if b.rank(atom) == 0 { Ok(atom) } else { b.broadcast_in_dim(atom, &full, axes) }
    };
    let operands = [spread(k1, &key_axes)?, spread(k2, &key_axes)?, spread(x1, &axes)?, spread(x2, &axes)?];
    let bits = b.emit(Threefry2x32 {}, &operands)?;
    let [high, low] = bits[..] else { return Err(internal_error!("threefry2x32 gives two words")) };
    Ok([high.into(), low.into()])
}

fn key_name(b: &Builder, keys: Atom) -> &'static str {
    match b.dtype(keys) {
        DType::Key(key) => key.name(),
        _ => KeyImpl::THREEFRY2X32.name(),
    }
}

pub fn split(b: &mut Builder, keys: Atom, shape: &[Dim]) -> Result<Outputs> {
    let [high, low] = draw(b, keys, shape)?;
    wrap(b, high, low, key_name(b, keys))
}

pub fn bits(b: &mut Builder, keys: Atom, dtype: DType, shape: &[Dim]) -> Result<Outputs> {
    let [high, low] = draw(b, keys, shape)?;
    if dtype == DType::U64 {
        let (high, low) = (b.convert(high, dtype)?, b.convert(low, dtype)?);
        let shift = b.int_scalar(dtype, 32);
        let high = b.binary(Binary::ShiftLeft, high, shift)?;
        return Ok(smallvec![b.binary(Binary::Or, high, low)?]);
    }
    let mixed = b.binary(Binary::Xor, high, low)?;
    Ok(smallvec![b.convert(mixed, dtype)?])
}

pub fn fold_in(b: &mut Builder, keys: Atom, number: Atom) -> Result<Outputs> {
    let [k1, k2] = words(b, keys)?;
    let number = b.convert(number, DType::U32)?;
    let zero = word(b, 0);
    let bits = b.emit(Threefry2x32 {}, &[k1, k2, zero, number])?;
    let [high, low] = bits[..] else { return Err(internal_error!("threefry2x32 gives two words")) };
    wrap(b, high.into(), low.into(), key_name(b, keys))
}

pub fn seed(b: &mut Builder, seed: Atom, name: &str) -> Result<Outputs> {
    let dtype = b.dtype(seed);
    let shape = b.shape(seed);
    let high = if dtype.bits() > 32 {
        let shift = b.int_scalar(dtype, 32);
        let high = b.binary(Binary::ShiftRightLogical, seed, shift)?;
        b.convert(high, DType::U32)?
    } else {
        let zero = word(b, 0);
        b.broadcast_scalar(zero, &shape)?
    };
    let low = b.convert(seed, DType::U32)?;
    wrap(b, high, low, name)
}
