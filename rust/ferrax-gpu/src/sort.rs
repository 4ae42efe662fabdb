//! Sorting and the largest elements: launches of [`crate::wgsl::sort`].
//!
//! In: lines along one axis. Out: operands in the order of the lines' keys. Cost: `O(log² n)` launches for lines that
//! are longer than a block, one for others.

use ferrax_compile::Argument;
use ferrax_ir::tensor::element_count;
use ferrax_ir::{DType, Op, Result, unsupported};

use crate::gpu::{Gpu, Prepared};
use crate::library::Library;
use crate::memory::Memory;
use crate::pipelines::Source;
use crate::wgsl::WORKGROUP;
use crate::wgsl::sort::{BLOCK, MOST_WORDS, Order, SortForm, Way, key_words};

/// A number as a word of a launch.
pub fn word(number: usize) -> Result<u32> {
    let small = u32::try_from(number).ok().filter(|&word| word <= i32::MAX as u32);
    small.ok_or_else(|| unsupported!("arrays of more than 2^31 elements on a GPU, got {number}"))
}

/// Bits of the units that elements are moved as, and how many an element has.
pub fn units(dtype: DType) -> (u32, u32) {
    let bytes = dtype.size() as u32;
    if bytes < 4 { (8 * bytes, 1) } else { (32, bytes / 4) }
}

/// Exchanges that sort lines of items of so many planes, the last of which has places.
pub fn exchanges(gpu: &Gpu, planes: usize, lines: usize, length: usize) -> Result<Vec<Prepared>> {
    let mut launches = Vec::new();
    if length < 2 || lines == 0 {
        return Ok(launches);
    }
    let (all, blocks) = (lines * length, length.div_ceil(BLOCK));
    let pairs = length.next_power_of_two() / 2;
    let mut push = |way: Way, distance: usize| -> Result<()> {
        let over_blocks = matches!(way, Way::Mirror | Way::Step);
        let of_line = if over_blocks { pairs } else { blocks };
        let numbers = [0, lines * of_line, length, of_line, all, distance];
        let numbers = numbers.into_iter().map(word).collect::<Result<Vec<u32>>>()?;
        let groups = if over_blocks { numbers[1].div_ceil(WORKGROUP) } else { numbers[1] };
        launches.push(gpu.prepared(Source::Sort(SortForm::Exchange { planes, way }), &numbers, groups)?);
        Ok(())
    };
    push(Way::Block, 0)?;
    let mut distance = BLOCK;
    while distance < length {
        push(Way::Mirror, distance)?;
        let mut near = distance / 2;
        while near >= BLOCK {
            push(Way::Step, near)?;
            near /= 2;
        }
        push(Way::Merge, 0)?;
        distance *= 2;
    }
    Ok(launches)
}

#[derive(Debug)]
struct Sort {
    /// Of each key, then of places.
    keys: Vec<Prepared>,
    places: Prepared,
    exchanges: Vec<Prepared>,
    /// The operand that is taken in the order of the places, and the bytes of the result.
    takes: Vec<(usize, Prepared, usize)>,
    plane_bytes: usize,
}

/// What sorts, if keys are not too long.
pub fn bind(
    gpu: &Gpu,
    op: &Op,
    inputs: &[Argument],
    outputs: &[Argument],
) -> Result<Option<Box<dyn Library>>> {
    let (axis, keys, order, kept) = match op {
        Op::Sort(op) => (op.dimension, op.num_keys, Order::Keys, None),
        Op::TopK(op) => (op.axis, 1, Order::Descending, Some(op.k)),
        _ => return Ok(None),
    };
    let sizes = &inputs[0].sizes;
    let length = sizes[axis];
    let (all, inner) = (element_count(sizes), element_count(&sizes[axis + 1..]));
    let mut words = 0;
    for key in &inputs[..keys] {
        let Ok(more) = key_words(key.dtype) else { return Ok(None) };
        words += more;
    }
    let results: Vec<(usize, &Argument)> = match kept {
        Some(_) => vec![(0, &outputs[0]), (inputs.len(), &outputs[1])],
        None => outputs.iter().enumerate().collect(),
    };
    let empty = outputs.iter().any(|output| output.sizes.contains(&0));
    if words >= MOST_WORDS || empty || results.iter().any(|(_, result)| result.dtype.size() == 0) {
        return Ok(None);
    }
    let launch = |form: SortForm, numbers: &[usize]| -> Result<Prepared> {
        let numbers = numbers.iter().copied().map(word).collect::<Result<Vec<u32>>>()?;
        gpu.prepared(Source::Sort(form), &numbers, numbers[1].div_ceil(WORKGROUP))
    };
    let mut plane = 0;
    let mut of_keys = Vec::with_capacity(keys);
    for key in &inputs[..keys] {
        let form = SortForm::Keys { dtype: key.dtype, order };
        of_keys.push(launch(form, &[0, all, length, inner, plane])?);
        plane += key_words(key.dtype)?;
    }
    let lines = all / length;
    let first_place = words * all;
    let takes = results.into_iter().map(|(operand, result)| {
        let kept = result.sizes[axis];
        // Places themselves are lines of their own array, which are one after the other.
        let (bits, units) = units(result.dtype);
        let form = match operand < inputs.len() {
            true => SortForm::Take { bits, units },
            false => SortForm::TakePlaces,
        };
        let numbers = [0, lines * kept, kept, inner, length, first_place];
        Ok((operand, launch(form, &numbers)?, result.bytes()))
    });
    Ok(Some(Box::new(Sort {
        keys: of_keys,
        places: launch(SortForm::Places, &[0, all, length, inner, words])?,
        exchanges: exchanges(gpu, words + 1, lines, length)?,
        takes: takes.collect::<Result<_>>()?,
        plane_bytes: (words + 1) * all * size_of::<u32>(),
    })))
}

impl Library for Sort {
    fn run(&self, gpu: &Gpu, inputs: &[Memory]) -> Result<Vec<Memory>> {
        let planes = gpu.allocate(self.plane_bytes)?;
        for (key, input) in self.keys.iter().zip(inputs) {
            gpu.launch(key, [input, &planes])?;
        }
        gpu.launch(&self.places, [&planes])?;
        for exchange in &self.exchanges {
            gpu.launch(exchange, [&planes])?;
        }
        let mut results = Vec::with_capacity(self.takes.len());
        for (operand, take, bytes) in &self.takes {
            let result = gpu.allocate(*bytes)?;
            match inputs.get(*operand) {
                Some(input) => gpu.launch(take, [input, &planes, &result])?,
                None => gpu.launch(take, [&planes, &result])?,
            }
            results.push(result);
        }
        Ok(results)
    }
}
