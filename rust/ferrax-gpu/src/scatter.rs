//! Scatters and dynamic updates of slices, and gathers that are no kernels, as those of keys: launches of
//! [`crate::wgsl::scatter`].
//!
//! In: an operand, windows of updates and where they go. Out: the operand with these, in its own memory if nobody
//! else has it. Or in: an operand and where windows begin; out: these. Cost: linear in the updates where no two can
//! have one place, else that of sorting the windows, or their elements if windows can overlap.

use ferrax_compile::Argument;
use ferrax_ir::ops::{Gather, GatherMode, ScatterKind};
use ferrax_ir::tensor::{element_count, row_major};
use ferrax_ir::{DType, Op, Result};

use crate::gpu::{Gpu, Prepared};
use crate::library::Library;
use crate::memory::Memory;
use crate::pipelines::Source;
use crate::sort::{exchanges, units, word};
use crate::wgsl::scatter::{ScatterForm, Way};
use crate::wgsl::sort::unit;
use crate::wgsl::{WORKGROUP, types};

#[derive(Debug)]
struct Scatter {
    /// Keys, exchanges, and the bytes of what is sorted, unless no two updates have one place.
    order: Option<(Prepared, Vec<Prepared>, usize)>,
    updates: Vec<Prepared>,
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
            let (windows, starts) = of_slice(&inputs[0].sizes, &inputs[1].sizes, 2);
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
    let count = elements / windows.of_window().max(1);
    let items = if windows.overlap { elements } else { count };
    // Each in a batch of its own, or as the program says, of places that are not clamped.
    let apart = windows.positions.iter().all(|&[size, _, _, in_operand]| size <= 1 || in_operand > 0);
    let direct = apart || (windows.unique && !windows.clamp);
    let scalars = matches!(op, Op::DynamicUpdateSlice(_));
    let way = if direct { Way::Direct } else { Way::Runs };
    let form = windows.form(way, kind, dtype, inputs, &operands.1, scalars);
    let launch = |form: ScatterForm, invocations: usize| windows.launch(gpu, form, invocations, items, 0);
    let order = match direct {
        true => None,
        false => Some((
            launch(ScatterForm { way: Way::Keys, ..form }, items)?,
            exchanges(gpu, 2, 1, items)?,
            2 * items * size_of::<u32>(),
        )),
    };
    // All that go to one place, or as many as an invocation has time for.
    let most = if direct { items } else { items.min(gpu.patience().0) };
    let updates = (0..items).step_by(most.max(1)).map(|taken| {
        let range = u128::from(word(taken)?) | u128::from(word(most)?) << 32;
        windows.launch(gpu, form, elements, items, range)
    });
    Ok(Some(Box::new(Scatter { order, updates: updates.collect::<Result<_>>()?, operands })))
}

/// How the axes of operand, indices and windows belong together.
struct Axes<'a> {
    window_dims: &'a [usize],
    thin: [&'a [usize]; 2],
    moved: &'a [usize],
    batching: [&'a [usize]; 2],
}

fn of_axes(of: &Axes<'_>, [operand, indices, windowed]: [&[usize]; 3]) -> Windows {
    let [in_operand, in_indices, in_windows] = [operand, indices, windowed].map(|sizes| row_major(sizes, 1));
    let thin = |axis: &usize| of.thin.iter().any(|list| list.contains(axis));
    let mut window = vec![1; operand.len()];
    let mut loops = Vec::new();
    for (axis, &dim) in (0..operand.len()).filter(|axis| !thin(axis)).zip(of.window_dims) {
        window[axis] = windowed[dim];
        loops.push([windowed[dim], in_windows[dim], in_operand[axis]]);
    }
    let outer = (0..windowed.len()).filter(|dim| !of.window_dims.contains(dim));
    let positions = outer.enumerate().map(|(axis, dim)| {
        let pair = of.batching[1].iter().position(|&other| other == axis);
        let of_operand = pair.map_or(0, |pair| in_operand[of.batching[0][pair]]);
        [indices[axis], in_indices[axis], in_windows[dim], of_operand]
    });
    Windows {
        positions: positions.collect(),
        starts: of.moved.iter().map(|&axis| [in_operand[axis], operand[axis] - window[axis]]).collect(),
        loops,
        overlap: of.moved.iter().any(|&axis| window[axis] > 1 && window[axis] < operand[axis]),
        ..Windows::default()
    }
}

fn of_scatter(op: &ferrax_ir::ops::Scatter, inputs: &[Argument]) -> Windows {
    let of = Axes {
        window_dims: &op.update_window_dims,
        thin: [&op.inserted_window_dims, &op.operand_batching_dims],
        moved: &op.scatter_dims_to_operand_dims,
        batching: [&op.operand_batching_dims, &op.scatter_indices_batching_dims],
    };
    let windows = of_axes(&of, [0, 1, 2].map(|input| inputs[input].sizes.as_slice()));
    Windows { clamp: op.mode == GatherMode::Clip, unique: op.unique_indices, ..windows }
}

fn of_gather(op: &Gather, inputs: &[Argument], out: &Argument) -> Windows {
    let of = Axes {
        window_dims: &op.offset_dims,
        thin: [&op.collapsed_slice_dims, &op.operand_batching_dims],
        moved: &op.start_index_map,
        batching: [&op.operand_batching_dims, &op.start_indices_batching_dims],
    };
    let windows = of_axes(&of, [&inputs[0].sizes, &inputs[1].sizes, &out.sizes]);
    Windows { clamp: op.mode != GatherMode::Fill, ..windows }
}

/// What gathers, or takes a slice whose start is known at run time.
pub fn bind_gather(
    gpu: &Gpu,
    op: &Op,
    inputs: &[Argument],
    outputs: &[Argument],
) -> Result<Option<Box<dyn Library>>> {
    let (operand, out) = (&inputs[0], &outputs[0]);
    let (windows, places, fill) = match op {
        Op::Gather(op) => (of_gather(op, inputs, out), vec![1], op.fill(operand.dtype).bits()),
        Op::DynamicSlice(_) => {
            let (windows, starts) = of_slice(&operand.sizes, &out.sizes, 1);
            (windows, starts, 0)
        }
        _ => return Ok(None),
    };
    let elements = element_count(&out.sizes);
    let fits = operand.sizes.iter().all(|&size| size > 0) && operand.dtype.size() > 0;
    if !fits || elements == 0 || places.len() + 2 > gpu.most_operands() {
        return Ok(None);
    }
    let scalars = matches!(op, Op::DynamicSlice(_));
    let form = windows.form(Way::Gather, ScatterKind::Set, operand.dtype, inputs, &places, scalars);
    let taken = windows.launch(gpu, form, elements, elements, fill)?;
    Ok(Some(Box::new(Taken { taken, places, bytes: out.bytes() })))
}

/// Windows that are taken out of an operand.
#[derive(Debug)]
struct Taken {
    taken: Prepared,
    places: Vec<usize>,
    bytes: usize,
}

impl Library for Taken {
    fn run(&self, gpu: &Gpu, inputs: &[Memory]) -> Result<Vec<Memory>> {
        let result = gpu.allocate(self.bytes)?;
        let places = self.places.iter().map(|&input| &inputs[input]);
        gpu.launch(&self.taken, [&result, &inputs[0]].into_iter().chain(places))?;
        Ok(vec![result])
    }
}

/// The one window of an update, or of a slice, and the inputs that say where it is along axes that it does not fill, of
/// which the first would be that of the first axis.
fn of_slice(operand: &[usize], window: &[usize], first: usize) -> (Windows, Vec<usize>) {
    let [in_operand, in_window] = [operand, window].map(|sizes| row_major(sizes, 1));
    let axes = 0..operand.len();
    let free: Vec<usize> = axes.clone().filter(|&axis| window[axis] < operand[axis]).collect();
    let windows = Windows {
        starts: free.iter().map(|&axis| [in_operand[axis], operand[axis] - window[axis]]).collect(),
        loops: axes.map(|axis| [window[axis], in_window[axis], in_operand[axis]]).collect(),
        clamp: true,
        ..Windows::default()
    };
    (windows, free.iter().map(|axis| first + axis).collect())
}

impl Windows {
    fn of_window(&self) -> usize {
        self.loops.iter().map(|each| each[0]).product()
    }

    fn form(
        &self,
        way: Way,
        kind: ScatterKind,
        dtype: DType,
        inputs: &[Argument],
        places: &[usize],
        scalars: bool,
    ) -> ScatterForm {
        let (bits, units) = units(dtype);
        ScatterForm {
            way,
            kind,
            dtype: if kind == ScatterKind::Set { unit(bits) } else { dtype },
            units,
            indices: places.first().map_or(DType::I32, |&input| inputs[input].dtype),
            scalars,
            clamp: self.clamp,
            by_element: self.overlap,
            positions: self.positions.len(),
            starts: self.starts.len(),
            loops: self.loops.len(),
        }
    }

    fn launch(
        &self,
        gpu: &Gpu,
        form: ScatterForm,
        invocations: usize,
        items: usize,
        fill: u128,
    ) -> Result<Prepared> {
        let head = [0, invocations, self.of_window(), items].map(word);
        let mut numbers = head.into_iter().collect::<Result<Vec<u32>>>()?;
        numbers.extend((0..4).map(|part| (fill >> (32 * part)) as u32));
        let rest = self
            .positions
            .iter()
            .flatten()
            .chain(self.starts.iter().flatten())
            .chain(self.loops.iter().flatten());
        for &number in rest {
            numbers.push(word(number)?);
        }
        gpu.prepared(Source::Scatter(form), &numbers, numbers[1].div_ceil(WORKGROUP))
    }
}

impl Library for Scatter {
    fn run(&self, gpu: &Gpu, inputs: &[Memory]) -> Result<Vec<Memory>> {
        let result = if inputs[0].is_shared() { gpu.copy(&inputs[0])? } else { inputs[0].clone() };
        let (updates, places) = (&inputs[self.operands.0], &self.operands.1);
        let Some((keys, exchanges, bytes)) = &self.order else {
            for update in &self.updates {
                let places = places.iter().map(|&input| &inputs[input]);
                gpu.launch(update, [&result, updates].into_iter().chain(places))?;
            }
            return Ok(vec![result]);
        };
        let planes = gpu.allocate(*bytes)?;
        gpu.launch(keys, std::iter::once(&planes).chain(places.iter().map(|&input| &inputs[input])))?;
        for exchange in exchanges {
            gpu.launch(exchange, [&planes])?;
        }
        for update in &self.updates {
            gpu.launch(update, [&result, updates, &planes])?;
        }
        Ok(vec![result])
    }
}
