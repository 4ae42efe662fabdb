//! Scatters and dynamic updates of slices: launches of [`crate::wgsl::scatter`].
//!
//! In: an operand, windows of updates and where they go. Out: the operand with these, in its own memory if nobody else
//! has it. Cost: linear in the updates where no two can have one place, else that of sorting the windows, or their
//! elements if windows can overlap.

use ferrax_compile::Argument;
use ferrax_ir::ops::{GatherMode, ScatterKind};
use ferrax_ir::tensor::{element_count, row_major};
use ferrax_ir::{DType, Op, Result};

use crate::backend::Library;
use crate::gpu::{Gpu, Prepared};
use crate::memory::Memory;
use crate::pipelines::Source;
use crate::sort::{exchanges, units, word};
use crate::wgsl::scatter::{ScatterForm, Way};
use crate::wgsl::{WORKGROUP, types};

#[derive(Debug)]
struct Scatter {
    /// Keys, exchanges, and the bytes of what is sorted, unless no two updates have one place.
    order: Option<(Prepared, Vec<Prepared>, usize)>,
    updates: Prepared,
    /// Where updates and indices are among the inputs.
    operands: (usize, Vec<usize>),
}

/// Where windows are: see [`crate::wgsl::scatter`].
#[derive(Default)]
struct Windows {
    positions: Vec<[usize; 4]>,
    starts: Vec<[usize; 2]>,
    loops: Vec<[usize; 3]>,
    /// Whether two windows can overlap without being one.
    overlap: bool,
    clamp: bool,
    unique: bool,
}

/// What scatters, if elements are combined by shaders.
pub fn bind(gpu: &Gpu, op: &Op, inputs: &[Argument]) -> Result<Option<Box<dyn Library>>> {
    let (kind, windows, operands) = match op {
        Op::Scatter(op) => (op.kind, of_scatter(op, inputs), (2, vec![1])),
        Op::DynamicUpdateSlice(_) => {
            let (windows, starts) = of_update(inputs);
            (ScatterKind::Set, windows, (1, starts))
        }
        _ => return Ok(None),
    };
    let (dtype, updates) = (inputs[0].dtype, &inputs[operands.0]);
    let combines = match kind {
        ScatterKind::Set => dtype.size() > 0,
        ScatterKind::Min | ScatterKind::Max if dtype.is_complex() => false,
        _ => dtype != DType::Bool && types::storage(dtype).is_ok(),
    };
    if !combines || inputs[0].sizes.contains(&0) || operands.1.len() + 2 > gpu.most_operands() {
        return Ok(None);
    }
    let elements = element_count(&updates.sizes);
    let of_window: usize = windows.loops.iter().map(|each| each[0]).product();
    let count = elements / of_window.max(1);
    let items = if windows.overlap { elements } else { count };
    let indices = operands.1.first().map_or(DType::I32, |&input| inputs[input].dtype);
    // Each in a batch of its own, or as the program says, of places that are not clamped.
    let apart = windows.positions.iter().all(|&[size, _, _, in_operand]| size <= 1 || in_operand > 0);
    let direct = apart || (windows.unique && !windows.clamp);
    let form = ScatterForm {
        way: if direct { Way::Direct } else { Way::Runs },
        kind,
        dtype: if kind == ScatterKind::Set { crate::wgsl::sort::unit(units(dtype).0) } else { dtype },
        units: units(dtype).1,
        indices,
        scalars: matches!(op, Op::DynamicUpdateSlice(_)),
        clamp: windows.clamp,
        by_element: windows.overlap,
        positions: windows.positions.len(),
        starts: windows.starts.len(),
        loops: windows.loops.len(),
    };
    let launch = |form: ScatterForm, invocations: usize| -> Result<Prepared> {
        let mut numbers = vec![0, invocations, of_window, items];
        numbers.extend(windows.positions.iter().flatten());
        numbers.extend(windows.starts.iter().flatten());
        numbers.extend(windows.loops.iter().flatten());
        let numbers = numbers.into_iter().map(word).collect::<Result<Vec<u32>>>()?;
        gpu.prepared(Source::Scatter(form), &numbers, numbers[1].div_ceil(WORKGROUP))
    };
    let order = match direct {
        true => None,
        false => Some((
            launch(ScatterForm { way: Way::Keys, ..form }, items)?,
            exchanges(gpu, 2, 1, items)?,
            2 * items * size_of::<u32>(),
        )),
    };
    Ok(Some(Box::new(Scatter { order, updates: launch(form, elements)?, operands })))
}

fn of_scatter(op: &ferrax_ir::ops::Scatter, inputs: &[Argument]) -> Windows {
    let [operand, indices, updates] = [0, 1, 2].map(|input| &inputs[input].sizes);
    let [in_operand, in_indices, in_updates] = [operand, indices, updates].map(|sizes| row_major(sizes, 1));
    let thin =
        |axis: &usize| op.inserted_window_dims.contains(axis) || op.operand_batching_dims.contains(axis);
    let mut window = vec![1; operand.len()];
    let mut loops = Vec::new();
    for (axis, &dim) in (0..operand.len()).filter(|axis| !thin(axis)).zip(&op.update_window_dims) {
        window[axis] = updates[dim];
        loops.push([updates[dim], in_updates[dim], in_operand[axis]]);
    }
    let outer = (0..updates.len()).filter(|dim| !op.update_window_dims.contains(dim));
    let positions = outer.enumerate().map(|(axis, dim)| {
        let batching = op.scatter_indices_batching_dims.iter().position(|&other| other == axis);
        let of_operand = batching.map_or(0, |pair| in_operand[op.operand_batching_dims[pair]]);
        [indices[axis], in_indices[axis], in_updates[dim], of_operand]
    });
    let moved = &op.scatter_dims_to_operand_dims;
    Windows {
        positions: positions.collect(),
        starts: moved.iter().map(|&axis| [in_operand[axis], operand[axis] - window[axis]]).collect(),
        loops,
        overlap: moved.iter().any(|&axis| window[axis] > 1 && window[axis] < operand[axis]),
        clamp: op.mode == GatherMode::Clip,
        unique: op.unique_indices,
    }
}

/// The one window of an update, and the inputs that say where it goes along axes that it does not fill.
fn of_update(inputs: &[Argument]) -> (Windows, Vec<usize>) {
    let [operand, update] = [0, 1].map(|input| &inputs[input].sizes);
    let [in_operand, in_update] = [operand, update].map(|sizes| row_major(sizes, 1));
    let axes = 0..operand.len();
    let free: Vec<usize> = axes.clone().filter(|&axis| update[axis] < operand[axis]).collect();
    let windows = Windows {
        starts: free.iter().map(|&axis| [in_operand[axis], operand[axis] - update[axis]]).collect(),
        loops: axes.map(|axis| [update[axis], in_update[axis], in_operand[axis]]).collect(),
        clamp: true,
        ..Windows::default()
    };
    (windows, free.iter().map(|axis| 2 + axis).collect())
}

impl Library for Scatter {
    fn run(&self, gpu: &Gpu, inputs: &[Memory]) -> Result<Vec<Memory>> {
        let result = if inputs[0].is_shared() { gpu.copy(&inputs[0])? } else { inputs[0].clone() };
        let (updates, places) = (&inputs[self.operands.0], &self.operands.1);
        let Some((keys, exchanges, bytes)) = &self.order else {
            let operands = [&result, updates].into_iter().chain(places.iter().map(|&input| &inputs[input]));
            gpu.launch(&self.updates, operands)?;
            return Ok(vec![result]);
        };
        let planes = gpu.allocate(*bytes)?;
        gpu.launch(keys, std::iter::once(&planes).chain(places.iter().map(|&input| &inputs[input])))?;
        for exchange in exchanges {
            gpu.launch(exchange, [&planes])?;
        }
        gpu.launch(&self.updates, [&result, updates, &planes])?;
        Ok(vec![result])
    }
}
