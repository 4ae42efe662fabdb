//! How the values of a loop get from one step to the next.
//!
//! Nothing is copied between steps. A carry is *kept* where the body hands it
//! on as it is; it is worked on *in place* where the body's plan lets the new
//! value take over the memory of the old one; it *swaps* between two places
//! where the body computes it anew. All others *follow*: a pointer goes to
//! wherever the body found the value, such as another carry, an element of an
//! array that is gone through, or of one that is stacked. What the body
//! computes for them goes to places of a pool that no carry points to.
//!
//! In: what of a body's plan can be seen from outside. Out: which carry is which, and places for their values, as
//! offsets into memory that a loop has of its own. Cost: linear in the number of carries and outputs.

use ferrax_ir::tensor::element_count;
use ferrax_ir::{DType, Result, Sizes, internal_error};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::plan::{ALIGNMENT, Argument, Place};

/// What of a plan can be seen from outside.
#[derive(Clone, Copy, Debug)]
pub struct Ends<'a> {
    pub inputs: &'a [(DType, Sizes)],
    pub outputs: &'a [Argument],
    /// Of each buffer.
    pub places: &'a [Place],
    pub donations: &'a [(usize, usize)],
}

impl Ends<'_> {
    fn buffer_of(&self, output: usize) -> u32 {
        self.outputs[output].buffer.0
    }

    /// The number of the fresh buffer of an output, if it has one.
    pub fn fresh_of(&self, output: usize) -> Option<usize> {
        match self.places.get(self.buffer_of(output) as usize) {
            Some(&Place::Fresh(index)) => Some(index),
            _ => None,
        }
    }

    /// The buffer of each input.
    fn input_buffers(&self) -> Result<Vec<u32>> {
        let mut buffers = vec![None; self.inputs.len()];
        for (number, place) in self.places.iter().enumerate() {
            if let &Place::Input(index) = place {
                *buffers.get_mut(index).ok_or_else(|| internal_error!("there is no input {index}"))? =
                    Some(number as u32);
            }
        }
        let known = |(index, buffer): (usize, Option<u32>)| {
            buffer.ok_or_else(|| internal_error!("input {index} of a body has no buffer"))
        };
        buffers.into_iter().enumerate().map(known).collect()
    }
}

/// A carry: the buffers of the body's input and output, and where its values
/// are. The number is the carry's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Carry {
    pub number: usize,
    pub bytes: usize,
    pub input: u32,
    pub output: u32,
}

/// A computed value that a carry follows, and the places of the pool for its size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target {
    pub buffer: u32,
    pub places: (u32, u32),
}

/// A stacked output: one element for each step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stacked {
    pub bytes: usize,
    pub buffer: u32,
    /// Computed where it is wanted; else copied there.
    pub direct: bool,
}

/// See the head of this file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Carries {
    pub kept: Vec<Carry>,
    pub in_place: Vec<Carry>,
    /// With the offset of the second place.
    pub swapped: Vec<(Carry, usize)>,
    pub followed: Vec<Carry>,
    pub targets: Vec<Target>,
    /// Offsets of the pool's places.
    pub pool: Vec<usize>,
    pub stacked: Vec<Stacked>,
    /// Buffers of the elements of arrays that are gone through, with their bytes.
    pub elements: Vec<(u32, usize)>,
    /// Bytes of all places.
    pub bytes: usize,
}

impl Carries {
    /// Of a body whose inputs are so many constants, the carry, and elements, and whose outputs are the carry and
    /// what is stacked.
    pub fn new(ends: &Ends<'_>, constants: usize, carries: usize) -> Result<Carries> {
        let inputs = ends.input_buffers()?;
        let outputs = ends.outputs.len();
        if outputs < carries || inputs.len() < constants + carries {
            return Err(internal_error!("a body of {} inputs has {carries} carries", inputs.len()));
        }
        let mut found = Carries::default();
        // How many outputs have each buffer, and how many carries among them.
        let mut holders: FxHashMap<u32, (usize, usize)> = FxHashMap::default();
        for number in 0..outputs {
            let (all, carried) = holders.entry(ends.buffer_of(number)).or_default();
            *all += 1;
            *carried += usize::from(number < carries);
        }
        let holders = |buffer: u32| holders.get(&buffer).copied().unwrap_or_default();
        let donations: FxHashSet<(usize, usize)> = ends.donations.iter().copied().collect();
        for number in 0..carries {
            let input = inputs[constants + number];
            let (bytes, output) = (ends.outputs[number].bytes(), ends.buffer_of(number));
            let carry = Carry { number, bytes, input, output };
            match ends.fresh_of(number) {
                _ if output == input => found.kept.push(carry),
                // No other output has its buffer, and no carry hands its input on.
                Some(fresh) if holders(output).0 == 1 && holders(input).1 == 0 => {
                    if donations.contains(&(constants + number, fresh)) {
                        found.in_place.push(carry);
                    } else {
                        let spare = found.place(bytes);
                        found.swapped.push((carry, spare));
                    }
                }
                _ => found.followed.push(carry),
            }
        }
        let mut stacked: FxHashSet<u32> = FxHashSet::default();
        for output in carries..outputs {
            let buffer = ends.buffer_of(output);
            let direct = stacked.insert(buffer) && ends.fresh_of(output).is_some();
            found.stacked.push(Stacked { bytes: ends.outputs[output].bytes(), buffer, direct });
        }
        found.pool(ends, stacked);
        let elements = ends.inputs.iter().zip(&inputs).skip(constants + carries);
        found.elements =
            elements.map(|((dtype, sizes), &buffer)| (buffer, element_count(sizes) * dtype.size())).collect();
        Ok(found)
    }

    fn place(&mut self, bytes: usize) -> usize {
        let offset = self.bytes;
        self.bytes += bytes.next_multiple_of(ALIGNMENT);
        offset
    }

    /// Places for what carries follow that has no place of its own: at any time each of these carries
    /// may hold one, and each new value takes one more.
    /// `known` are the buffers of what is stacked.
    fn pool(&mut self, ends: &Ends<'_>, mut known: FxHashSet<u32>) {
        let mut fresh: Vec<Carry> = Vec::new();
        let mut holders: FxHashMap<usize, usize> = FxHashMap::default();
        for carry in &self.followed {
            *holders.entry(carry.bytes).or_default() += 1;
            if ends.fresh_of(carry.number).is_some() && known.insert(carry.output) {
                fresh.push(*carry);
            }
        }
        fresh.sort_by_key(|carry| carry.bytes);
        for group in fresh.chunk_by(|a, b| a.bytes == b.bytes) {
            let holders = holders.get(&group[0].bytes).copied().unwrap_or(0);
            let first = self.pool.len() as u32;
            for _ in 0..holders + group.len() {
                let offset = self.place(group[0].bytes);
                self.pool.push(offset);
            }
            let places = (first, self.pool.len() as u32);
            self.targets.extend(group.iter().map(|carry| Target { buffer: carry.output, places }));
        }
    }
}
