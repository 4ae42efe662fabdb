//! Gather, scatter and dynamic slices: windows at positions known at run time.

use ferrax_compile::{Argument, Path};
use ferrax_ir::ops::{DynamicSlice, Gather, GatherMode, Scatter, ScatterKind};
use ferrax_ir::{DType, Result, internal_error};
use half::{bf16, f16};
use smallvec::SmallVec;

use super::copy::{CopyLoop, StridedCopy, byte_strides, copy_shared, merged};
use super::singles::Singles;
use crate::call::{Call, Kernel};
use crate::pool;
use crate::tuning::{Threads, Tuning};
use crate::vm::ops::Number;

/// Reads one integer of a dtype, clamped to `i64`.
type ReadIndex = unsafe fn(*const u8) -> i64;

fn read_index(dtype: DType) -> Result<ReadIndex> {
    macro_rules! read {
        ($t:ty) => {{
            /// # Safety
            /// The pointer is to an element of this type.
            unsafe fn read(pointer: *const u8) -> i64 {
                // SAFETY: the pointer is to an element of this type: the caller chose the function by the
                // dtype.
                i64::try_from(unsafe { *pointer.cast::<$t>() }).unwrap_or(i64::MAX)
            }
            read
        }};
    }
    Ok(match dtype {
        DType::I8 => read!(i8),
        DType::I16 => read!(i16),
        DType::I32 => read!(i32),
        DType::I64 => read!(i64),
        DType::U8 | DType::Bool => read!(u8),
        DType::U16 => read!(u16),
        DType::U32 => read!(u32),
        DType::U64 => read!(u64),
        other => return Err(internal_error!("indices of {other}")),
    })
}

struct Pointers<'a> {
    inputs: &'a [*const u8],
    out: *mut u8,
}

// SAFETY: chunks write disjoint parts of the output and only read the inputs.
unsafe impl Sync for Pointers<'_> {}

/// Where windows lie: loops over the index array, and within a window.
#[derive(Debug)]
struct Placement {
    /// For each axis of the index array but the last: its size and byte strides
    /// in the indices, the windowed array and (batching axes) the operand.
    positions: SmallVec<[[isize; 4]; 4]>,
    count: usize,
    /// For each entry of an index vector: byte stride in the operand and the
    /// last start that fits.
    starts: SmallVec<[(isize, i64); 4]>,
    vector_stride: isize,
    clamp: bool,
    read: fn(DType) -> Result<ReadIndex>,
    index_dtype: DType,
}

impl Placement {
    /// Where windows of one element lie, if indices say it and they are in the order of the
    /// windowed array, of these sizes.
    fn singles(&self, windowed: &[usize], element: usize) -> Option<Singles> {
        if windowed.contains(&0) || element == 0 {
            return None;
        }
        let positions = self.positions.iter().map(|&[size, _, _, in_operand]| (size as usize, in_operand));
        Singles::new(positions, &self.starts, self.clamp, self.index_dtype)
    }

    /// Byte offsets of window `number`: in the windowed array, and in the
    /// operand, if it is in bounds.
    ///
    /// # Safety
    /// `indices` is the index array.
    unsafe fn find(&self, read: ReadIndex, indices: *const u8, number: usize) -> (isize, Option<isize>) {
        let (mut index_at, mut window_at, mut operand_at, mut rest) = (0, 0, 0, number as isize);
        for (axis, &[size, in_indices, in_windows, in_operand]) in self.positions.iter().enumerate().rev() {
            // Divisions take as long as a small window: there is none for the outermost axis.
            let (outside, i) = if axis == 0 { (0, rest) } else { (rest / size, rest % size) };
            rest = outside;
            index_at += i * in_indices;
            window_at += i * in_windows;
            operand_at += i * in_operand;
        }
        for (entry, &(stride, last)) in self.starts.iter().enumerate() {
            // SAFETY: the entry is inside the index array.
            let start = unsafe { read(indices.offset(index_at + entry as isize * self.vector_stride)) };
            if !self.clamp && !(0..=last).contains(&start) {
                return (window_at, None);
            }
            operand_at += start.clamp(0, last) as isize * stride;
        }
        (window_at, Some(operand_at))
    }
}

struct Numbers<'a> {
    operand: &'a Argument,
    indices: &'a Argument,
    windowed: &'a Argument,
    window_dims: &'a [usize],
    thin: SmallVec<[usize; 4]>,
    index_map: &'a [usize],
    operand_batching: &'a [usize],
    indices_batching: &'a [usize],
    window: SmallVec<[usize; 6]>,
    clamp: bool,
}

/// The placement, and the loops of a window: count, stride in the operand, in the windowed array.
fn place(n: &Numbers<'_>) -> (Placement, SmallVec<[CopyLoop; 6]>) {
    let element = n.operand.dtype.size();
    let operand_strides = byte_strides(&n.operand.sizes, element);
    let windowed_strides = byte_strides(&n.windowed.sizes, element);
    let index_strides = byte_strides(&n.indices.sizes, n.indices.dtype.size());
    let outer: SmallVec<[usize; 6]> =
        (0..n.windowed.sizes.len()).filter(|axis| !n.window_dims.contains(axis)).collect();
    let rank = n.indices.sizes.len() - 1;
    let positions: SmallVec<[[isize; 4]; 4]> = (0..rank)
        .map(|axis| {
            let batching = n.indices_batching.iter().position(|&a| a == axis);
            let in_operand = batching.map_or(0, |pair| operand_strides[n.operand_batching[pair]]);
            [n.indices.sizes[axis] as isize, index_strides[axis], windowed_strides[outer[axis]], in_operand]
        })
        .collect();
    let starts = n
        .index_map
        .iter()
        .map(|&axis| (operand_strides[axis], n.operand.sizes[axis] as i64 - n.window[axis] as i64))
        .collect();
    let kept = (0..n.operand.sizes.len()).filter(|axis| !n.thin.contains(axis));
    let loops = kept
        .zip(n.window_dims)
        .map(|(axis, &dim)| CopyLoop {
            count: n.window[axis],
            from: operand_strides[axis],
            to: windowed_strides[dim],
        })
        .collect();
    let placement = Placement {
        count: if n.windowed.sizes.contains(&0) {
            0
        } else {
            positions.iter().map(|p| p[0] as usize).product()
        },
        positions,
        starts,
        vector_stride: n.indices.dtype.size() as isize,
        clamp: n.clamp,
        read: read_index,
        index_dtype: n.indices.dtype,
    };
    (placement, loops)
}

#[derive(Debug)]
struct GatherKernel {
    placement: Placement,
    copy: StridedCopy,
    /// Fills a window: all its loops read one element.
    fill: StridedCopy,
    fill_value: u128,
    bytes_per_window: usize,
    empty: bool,
    tuning: &'static Threads,
}

/// Windows that are gathered an element of each at a time, at least: there are loops around each line.
const LINE: usize = 16;

pub fn gather(
    op: &Gather,
    inputs: &[Argument],
    outputs: &[Argument],
    tuning: &'static Tuning,
) -> Result<Box<dyn Kernel>> {
    let tuning = &tuning.threads;
    let (operand, out) = (&inputs[0], &outputs[0]);
    let element = operand.dtype.size();
    let mut window = SmallVec::new();
    for size in &op.slice_sizes {
        window.push(size.require("gather")?);
    }
    let thin = op.collapsed_slice_dims.iter().chain(&op.operand_batching_dims).copied().collect();
    let (placement, loops) = place(&Numbers {
        operand,
        indices: &inputs[1],
        windowed: out,
        window_dims: &op.offset_dims,
        thin,
        index_map: &op.start_index_map,
        operand_batching: &op.operand_batching_dims,
        indices_batching: &op.start_indices_batching_dims,
        window,
        clamp: op.mode != GatherMode::Fill,
    });
    let elements: usize = loops.iter().map(|l| l.count).product();
    // Windows that are apart in the result: an element of each is a line of it, which should not be short.
    let apart = op.offset_dims.iter().copied().eq(0..op.offset_dims.len()) && placement.count >= LINE;
    if (elements == 1 || (apart && elements > 0))
        && let Some(singles) = placement.singles(&out.sizes, element)
        && let Some(kernel) = singles.gather(
            op,
            operand.dtype,
            loops.iter().copied().filter(|each| each.count > 1).collect(),
            tuning,
        )
    {
        return Ok(kernel);
    }
    Path::GatherWindows.take();
    let fill = StridedCopy::new(loops.iter().map(|l| CopyLoop { from: 0, ..*l }), element);
    let fill_value = op.fill(operand.dtype).bits();
    Ok(Box::new(GatherKernel {
        placement,
        copy: StridedCopy::new(loops, element),
        fill,
        fill_value,
        bytes_per_window: elements * element,
        empty: out.sizes.contains(&0) || element == 0,
        tuning,
    }))
}

impl Kernel for GatherKernel {
    unsafe fn run(&self, call: &Call<'_>) -> Result<()> {
        if self.empty {
            return Ok(());
        }
        let read = (self.placement.read)(self.placement.index_dtype)?;
        let pointers = Pointers { inputs: call.inputs, out: call.outputs[0] };
        let fill = self.fill_value.to_le_bytes();
        let some = |from: usize, to: usize| {
            let pointers = &pointers;
            for number in from..to {
                // SAFETY: windows in bounds of the operand go to disjoint places of the output.
                unsafe {
                    let (at, source) = self.placement.find(read, pointers.inputs[1], number);
                    let target = pointers.out.offset(at);
                    match source {
                        Some(source) => self.copy.run(pointers.inputs[0].offset(source), target),
                        None => self.fill.run(fill.as_ptr(), target),
                    }
                }
            }
        };
        let count = self.placement.count;
        let bytes = count * self.bytes_per_window.max(16);
        if bytes < self.tuning.windows {
            some(0, count);
        } else {
            let chunks = (bytes / self.tuning.windows).clamp(1, 64).min(count);
            pool::run_interruptibly(chunks, &|chunk| {
                some(chunk * count / chunks, (chunk + 1) * count / chunks);
            })?;
        }
        Ok(())
    }
}

/// Combines a window of updates into the operand: `f(loops, operand, updates)`. The loops have to stay
/// inside both arrays, which are of the dtype that [`combine`] was asked for and do not overlap.
type Combine = unsafe fn(&[CopyLoop], *mut u8, *const u8);

#[derive(Debug)]
struct ScatterKernel {
    placement: Placement,
    /// From updates to operand.
    loops: SmallVec<[CopyLoop; 6]>,
    /// The loop along which windows can be cut: all begin at the same place there.
    cut: Option<usize>,
    element: usize,
    combine: Option<Combine>,
    operand_bytes: usize,
    empty: bool,
    tuning: &'static Threads,
}

/// A part of each window: where it begins in updates and operand, and its loops.
struct Stripe {
    from: isize,
    to: isize,
    loops: SmallVec<[CopyLoop; 6]>,
    copy: StridedCopy,
}

pub fn scatter(
    op: &Scatter,
    inputs: &[Argument],
    tuning: &'static Tuning,
) -> Result<Option<Box<dyn Kernel>>> {
    let tuning = &tuning.threads;
    let (operand, updates) = (&inputs[0], &inputs[2]);
    let element = operand.dtype.size();
    let combine = match op.kind {
        ScatterKind::Set => None,
        kind => match combine(kind, operand.dtype) {
            Some(combine) => Some(combine),
            None => return Ok(None),
        },
    };
    let thin: SmallVec<[usize; 4]> =
        op.inserted_window_dims.iter().chain(&op.operand_batching_dims).copied().collect();
    let mut sizes = op.update_window_dims.iter().map(|&dim| updates.sizes[dim]);
    let window = (0..operand.sizes.len())
        .map(|axis| if thin.contains(&axis) { 1 } else { sizes.next().unwrap_or(1) })
        .collect();
    let (placement, mut loops) = place(&Numbers {
        operand,
        indices: &inputs[1],
        windowed: updates,
        window_dims: &op.update_window_dims,
        thin: thin.clone(),
        index_map: &op.scatter_dims_to_operand_dims,
        operand_batching: &op.operand_batching_dims,
        indices_batching: &op.scatter_indices_batching_dims,
        window,
        clamp: op.mode == GatherMode::Clip,
    });
    // Windows that are lines of adjacent elements, one after the other in the updates.
    let first = updates.sizes.len() - op.update_window_dims.len();
    let trailing = op.update_window_dims.iter().copied().eq(first..updates.sizes.len());
    let line = match *merged(loops.iter().copied()) {
        [] => Some(1),
        [CopyLoop { count, from, to }] => {
            (trailing && from == to && from == element as isize).then_some(count)
        }
        _ => None,
    };
    if let Some(width) = line
        && let Some(singles) = placement.singles(&updates.sizes, element)
        && let Some(kernel) = singles.scatter(
            op.kind,
            operand,
            width,
            op.scatter_dims_to_operand_dims.iter().all(|axis| thin.contains(axis)),
            tuning,
        )
    {
        return Ok(Some(kernel));
    }
    Path::ScatterWindows.take();
    for each in &mut loops {
        std::mem::swap(&mut each.from, &mut each.to);
    }
    let kept = (0..operand.sizes.len()).filter(|axis| !thin.contains(axis)).enumerate();
    let still = kept.filter(|(_, axis)| !op.scatter_dims_to_operand_dims.contains(axis));
    let cut = still.map(|(number, _)| number).max_by_key(|&number| loops[number].count);
    Ok(Some(Box::new(ScatterKernel {
        placement,
        loops,
        cut,
        element,
        combine,
        operand_bytes: operand.bytes(),
        empty: updates.sizes.contains(&0) || element == 0,
        tuning,
    })))
}

impl ScatterKernel {
    /// How many stripes are worth their threads. Elements of one meet no others, and each takes its updates in
    /// order: their number changes no bit.
    fn stripes(&self) -> usize {
        let window: usize = self.loops.iter().map(|each| each.count).product::<usize>() * self.element;
        let Some(cut) =
            self.cut.filter(|_| self.placement.count.saturating_mul(window) / 2 >= self.tuning.windows)
        else {
            return 1;
        };
        let length = self.loops[cut].count;
        let inner: usize = self.loops[cut + 1..].iter().map(|each| each.count).product();
        (length * inner * self.element / self.tuning.stripe).min(length).clamp(1, pool::threads())
    }

    fn stripe(&self, number: usize, count: usize) -> Stripe {
        let mut loops = self.loops.clone();
        let (mut from, mut to) = (0, 0);
        if let Some(cut) = self.cut {
            let each = &mut loops[cut];
            let (first, end) = (number * each.count / count, (number + 1) * each.count / count);
            (from, to) = (first as isize * each.from, first as isize * each.to);
            each.count = end - first;
        }
        Stripe { from, to, copy: StridedCopy::new(loops.iter().copied(), self.element), loops: merged(loops) }
    }

    /// Brings this part of all updates to the operand, in the order of the indices, so that repeated ones have
    /// one meaning.
    ///
    /// # Safety
    /// The pointers are the indices, the updates and the result; no other thread is at this stripe.
    unsafe fn update(
        &self,
        stripe: &Stripe,
        indices: *const u8,
        updates: *const u8,
        out: *mut u8,
    ) -> Result<()> {
        let read = (self.placement.read)(self.placement.index_dtype)?;
        for number in 0..self.placement.count {
            // SAFETY: windows out of bounds have no place; the others are inside the operand, and so are their
            // stripes.
            unsafe {
                let (at, target) = self.placement.find(read, indices, number);
                let Some(target) = target else { continue };
                let source = updates.offset(at + stripe.from);
                let target = out.offset(target + stripe.to);
                match self.combine {
                    None => stripe.copy.run(source, target),
                    Some(combine) => combine(&stripe.loops, target, source),
                }
            }
        }
        Ok(())
    }
}

impl Kernel for ScatterKernel {
    unsafe fn run(&self, call: &Call<'_>) -> Result<()> {
        let out = call.outputs[0];
        if !std::ptr::eq(out, call.inputs[0]) {
            // SAFETY: operand and result have the same size.
            unsafe { copy_shared(call.inputs[0], out, self.operand_bytes, self.tuning) };
        }
        if self.empty {
            return Ok(());
        }
        let stripes = self.stripes();
        Path::ScatterWindowStripes.take_if(stripes > 1);
        let pointers = Pointers { inputs: call.inputs, out };
        pool::run_fallibly(stripes, &|number| {
            let pointers = &pointers;
            let stripe = self.stripe(number, stripes);
            // SAFETY: the pointers are those of the call; each stripe is one chunk's.
            unsafe { self.update(&stripe, pointers.inputs[1], pointers.inputs[2], pointers.out) }
        })
    }
}

/// An element that updates combine with.
trait Combined: Copy {
    fn add(self, b: Self) -> Self;
    fn sub(self, b: Self) -> Self;
    fn mul(self, b: Self) -> Self;
    fn min(self, b: Self) -> Self;
    fn max(self, b: Self) -> Self;
}

macro_rules! combined {
    ($($t:ty)*) => {$(
        impl Combined for $t {
            fn add(self, b: $t) -> $t { Number::add(self, b) }
            fn sub(self, b: $t) -> $t { Number::sub(self, b) }
            fn mul(self, b: $t) -> $t { Number::mul(self, b) }
            fn min(self, b: $t) -> $t { Number::min(self, b) }
            fn max(self, b: $t) -> $t { Number::max(self, b) }
        }
    )*};
}

combined!(i8 i16 i32 i64 u8 u16 u32 u64 f32 f64);

macro_rules! combined_halves {
    ($($t:ident)*) => {$(
        impl Combined for $t {
            fn add(self, b: $t) -> $t { $t::from_f32(self.to_f32() + b.to_f32()) }
            fn sub(self, b: $t) -> $t { $t::from_f32(self.to_f32() - b.to_f32()) }
            fn mul(self, b: $t) -> $t { $t::from_f32(self.to_f32() * b.to_f32()) }
            fn min(self, b: $t) -> $t { $t::from_f32(Number::min(self.to_f32(), b.to_f32())) }
            fn max(self, b: $t) -> $t { $t::from_f32(Number::max(self.to_f32(), b.to_f32())) }
        }
    )*};
}

combined_halves!(bf16 f16);

/// # Safety
/// The loops stay inside both arrays, which do not overlap.
unsafe fn each<T: Copy>(loops: &[CopyLoop], to: *mut u8, from: *const u8, f: impl Fn(T, T) -> T + Copy) {
    // SAFETY: the loops' indices stay below their counts, so `to` and `from` stay inside both arrays, which
    // are apart; elements lie at multiples of their size from the start of an array, which is aligned.
    unsafe {
        match loops {
            [] => {
                let to = to.cast::<T>();
                *to = f(*to, *from.cast::<T>());
            }
            // Adjacent elements, as slices: the compiler makes vectors of these.
            &[CopyLoop { count, from: step, to: same }]
                if step == same && step == size_of::<T>() as isize =>
            {
                let to = std::slice::from_raw_parts_mut(to.cast::<T>(), count);
                let from = std::slice::from_raw_parts(from.cast::<T>(), count);
                for (to, from) in to.iter_mut().zip(from) {
                    *to = f(*to, *from);
                }
            }
            [first, rest @ ..] => {
                for i in 0..first.count as isize {
                    each(rest, to.offset(i * first.to), from.offset(i * first.from), f);
                }
            }
        }
    }
}

fn combine(kind: ScatterKind, dtype: DType) -> Option<Combine> {
    macro_rules! kinds {
        ($t:ty) => {
            match kind {
                ScatterKind::Add => |loops, to, from| {
                    // SAFETY: `Combine` asks what `each` asks, of arrays of type `$t`.
                    unsafe { each::<$t>(loops, to, from, Combined::add) }
                },
                ScatterKind::Sub => |loops, to, from| {
                    // SAFETY: `Combine` asks what `each` asks, of arrays of type `$t`.
                    unsafe { each::<$t>(loops, to, from, Combined::sub) }
                },
                ScatterKind::Mul => |loops, to, from| {
                    // SAFETY: `Combine` asks what `each` asks, of arrays of type `$t`.
                    unsafe { each::<$t>(loops, to, from, Combined::mul) }
                },
                ScatterKind::Min => |loops, to, from| {
                    // SAFETY: `Combine` asks what `each` asks, of arrays of type `$t`.
                    unsafe { each::<$t>(loops, to, from, Combined::min) }
                },
                ScatterKind::Max => |loops, to, from| {
                    // SAFETY: `Combine` asks what `each` asks, of arrays of type `$t`.
                    unsafe { each::<$t>(loops, to, from, Combined::max) }
                },
                ScatterKind::Set => return None,
            }
        };
    }
    Some(match dtype {
        DType::I8 => kinds!(i8),
        DType::I16 => kinds!(i16),
        DType::I32 => kinds!(i32),
        DType::I64 => kinds!(i64),
        DType::U8 => kinds!(u8),
        DType::U16 => kinds!(u16),
        DType::U32 => kinds!(u32),
        DType::U64 => kinds!(u64),
        DType::BF16 => kinds!(bf16),
        DType::F16 => kinds!(f16),
        DType::F32 => kinds!(f32),
        DType::F64 => kinds!(f64),
        _ => return None,
    })
}

/// Start indices of a dynamic slice: how to read each, its byte stride in the
/// operand, and the last that fits.
type Starts = SmallVec<[(ReadIndex, isize, i64); 4]>;

fn starts_of(operand: &Argument, window: &[usize], starts: &[Argument]) -> Result<Starts> {
    let strides = byte_strides(&operand.sizes, operand.dtype.size());
    starts
        .iter()
        .enumerate()
        .map(|(axis, start)| {
            Ok((read_index(start.dtype)?, strides[axis], operand.sizes[axis] as i64 - window[axis] as i64))
        })
        .collect()
}

/// # Safety
/// `indices` point to the start indices.
unsafe fn offset_of(starts: &Starts, indices: &[*const u8]) -> isize {
    let mut offset = 0;
    for (&(read, stride, last), &index) in starts.iter().zip(indices) {
        // SAFETY: the index points to an element of the dtype that `read` was chosen by.
        offset += unsafe { read(index) }.clamp(0, last) as isize * stride;
    }
    offset
}

struct SliceKernel {
    copy: StridedCopy,
    starts: Starts,
    /// Updates: bytes of the operand, which the result starts from.
    update: Option<usize>,
    empty: bool,
}

impl std::fmt::Debug for SliceKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SliceKernel").field("copy", &self.copy).field("update", &self.update).finish()
    }
}

pub fn dynamic_slice(_: &DynamicSlice, inputs: &[Argument], outputs: &[Argument]) -> Result<Box<dyn Kernel>> {
    let (operand, out) = (&inputs[0], &outputs[0]);
    Path::SliceDynamic.take();
    let element = operand.dtype.size();
    let from = byte_strides(&operand.sizes, element);
    let to = byte_strides(&out.sizes, element);
    let loops =
        (0..out.sizes.len()).map(|axis| CopyLoop { count: out.sizes[axis], from: from[axis], to: to[axis] });
    Ok(Box::new(SliceKernel {
        copy: StridedCopy::new(loops, element),
        starts: starts_of(operand, &out.sizes, &inputs[1..])?,
        update: None,
        empty: out.sizes.contains(&0) || element == 0,
    }))
}

pub fn dynamic_update_slice(inputs: &[Argument]) -> Result<Box<dyn Kernel>> {
    let (operand, update) = (&inputs[0], &inputs[1]);
    let element = operand.dtype.size();
    let from = byte_strides(&update.sizes, element);
    let to = byte_strides(&operand.sizes, element);
    let loops = (0..update.sizes.len()).map(|axis| CopyLoop {
        count: update.sizes[axis],
        from: from[axis],
        to: to[axis],
    });
    Ok(Box::new(SliceKernel {
        copy: StridedCopy::new(loops, element),
        starts: starts_of(operand, &update.sizes, &inputs[2..])?,
        update: Some(operand.bytes()),
        empty: update.sizes.contains(&0) || element == 0,
    }))
}

impl Kernel for SliceKernel {
    unsafe fn run(&self, call: &Call<'_>) -> Result<()> {
        let out = call.outputs[0];
        // SAFETY: clamped windows lie inside the operand.
        unsafe {
            match self.update {
                None if self.empty => {}
                None => {
                    let offset = offset_of(&self.starts, &call.inputs[1..]);
                    self.copy.run(call.inputs[0].offset(offset), out);
                }
                Some(bytes) => {
                    let is_copied = !std::ptr::eq(out, call.inputs[0]);
                    if is_copied { Path::UpdateCopied } else { Path::UpdateInPlace }.take();
                    if is_copied {
                        std::ptr::copy_nonoverlapping(call.inputs[0], out, bytes);
                    }
                    if !self.empty {
                        let offset = offset_of(&self.starts, &call.inputs[2..]);
                        self.copy.run(call.inputs[1], out.offset(offset));
                    }
                }
            }
        }
        Ok(())
    }
}
