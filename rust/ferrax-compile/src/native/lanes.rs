//! Kernels over many elements as chains over memory.
//!
//! In: a launch one of whose loops goes through elements that follow one another, or reads one of them. Out: [`Code::Lanes`](super::Code::Lanes)
//! for each index of the other loops, and of folds what they give.
//!
//! Lanes come in groups. The function's own memory has room before and behind each array, so that a group may begin before an
//! array's first element or end behind its last; of other memory only elements are touched. Where a load has guards, a group
//! that they divide chooses lane by lane, and the others have all or nothing of it.
//!
//! Cost: a chain for each index of the outer loops, of which code is limited.

use std::ops::Range;

use ferrax_ir::scalar::{Reg, ScalarOp, ScalarType};
use ferrax_ir::{Result, Tensor, internal_error};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::lower::{Array, Lowering, Pointer, moved, operation, parts};
use super::{Address, GROUP, Id, Lane};
use crate::chain::{Chain, computes};
use crate::index::View;
use crate::interpret::{BLOCK, LANES, counted};
use crate::kernel::{Accumulator, AxisKind, Kernel, Launch, Stage, registers};

/// Elements from which on a kernel is done in lanes.
pub(super) const LEAST: usize = 16;
/// Elements of an array that lanes go through, at most.
pub(super) const MOST: usize = 1024;

/// How a launch goes through lanes.
pub(super) struct Form {
    /// The loop of lanes; loops before it that go on where it ends are one with it.
    axis: usize,
    pub lanes: usize,
    /// The other loops that are not folded.
    outer: SmallVec<[usize; 6]>,
}

/// The elements of an array that a chain can have, one register each.
pub(super) fn element(dtype: ferrax_ir::DType) -> Option<ScalarType> {
    let (ty, parts) = parts(dtype)?;
    (parts == 1 && (ty.size() >= 4 || ty == ScalarType::Bool)).then_some(ty)
}

/// The form of a launch, if it has one.
pub(super) fn form(launch: &Launch) -> Option<Form> {
    let kernel = &launch.kernel;
    let folds = kernel.folds();
    let wanted = if folds { AxisKind::Reduction } else { AxisKind::Parallel };
    let long: SmallVec<[usize; 6]> = (0..kernel.axes.len())
        .filter(|&axis| launch.extents[axis] > 1 && (!folds || kernel.axes[axis] == wanted))
        .collect();
    let main = || {
        kernel
            .stores
            .iter()
            .zip(&launch.stores)
            .filter(|(store, _)| store.stage == Stage::Main)
            .map(|(_, view)| view)
    };
    let axis = match (folds, &*long) {
        (true, &[axis]) => axis,
        (true, _) => return None,
        (false, long) => *long.iter().find(|&&axis| main().all(|view| view.strides[axis] == 1))?,
    };
    if main().any(|view| view.strides[axis] != 1) || !is_of_chains(kernel, launch, axis, folds) {
        return None;
    }
    let indexed = |axis: usize| {
        let is_index = |op: ScalarOp| matches!(op, ScalarOp::Index { axis: of } if of as usize == axis);
        kernel.body.instructions().iter().any(|instruction| is_index(instruction.op))
    };
    let mut lanes = launch.extents[axis];
    let mut outer: SmallVec<[usize; 6]> = SmallVec::new();
    let whole = |view: &View, axis: usize| view.ranges[axis] == (0, launch.extents[axis] as i64);
    let views = || launch.loads.iter().chain(main());
    let mut open = !folds && !indexed(axis) && views().all(|view| whole(view, axis));
    for before in (0..kernel.axes.len()).rev().filter(|&before| before != axis) {
        if kernel.axes[before] == AxisKind::Reduction && folds {
            continue;
        }
        let goes_on =
            |view: &View| view.strides[before] == lanes as i64 * view.strides[axis] && whole(view, before);
        if launch.extents[before] == 1 {
            outer.insert(0, before);
        } else if open && before < axis && !indexed(before) && views().all(goes_on) {
            lanes = lanes.checked_mul(launch.extents[before])?;
        } else {
            open = false;
            outer.insert(0, before);
        }
    }
    (lanes >= LEAST && launch.iterations() <= MOST).then_some(Form { axis, lanes, outer })
}

/// Which values of a kernel's main body are the same for all lanes.
fn uniform(kernel: &Kernel, launch: &Launch, axis: usize) -> Vec<bool> {
    let mut uniform: Vec<bool> = Vec::with_capacity(kernel.body.instructions().len());
    for instruction in kernel.body.instructions() {
        uniform.push(match instruction.op {
            ScalarOp::Input { operand, .. } => {
                let view = &launch.loads[operand as usize];
                view.strides[axis] == 0 && view.ranges[axis] == (0, launch.extents[axis] as i64)
            }
            ScalarOp::Index { axis: of } => of as usize != axis,
            _ => instruction.args.iter().all(|arg| uniform[arg.0 as usize]),
        });
    }
    uniform
}

/// Whether chains compute all of a kernel's main body that differs between lanes, reading what is in one place or follows
/// lanes.
fn is_of_chains(kernel: &Kernel, launch: &Launch, axis: usize, folds: bool) -> bool {
    let loads = kernel.loads.iter().zip(&launch.loads).zip(&launch.jumps).all(|((load, view), jumps)| {
        jumps.is_empty()
            && matches!(view.strides[axis], 0 | 1)
            && element(kernel.operands[load.operand as usize].dtype).is_some()
    });
    let stores = kernel.stores.iter().filter(|store| store.stage == Stage::Main).all(|store| {
        let ty = element(kernel.operands[store.operand as usize].dtype);
        matches!(&*registers(store.value), [reg] if Some(kernel.body.type_of(*reg)) == ty)
    });
    let typed = |op: ScalarOp| usize::from(op == ScalarOp::Select);
    let uniform = uniform(kernel, launch, axis);
    let fits = |ty: ScalarType| ty.size() >= 4 || ty == ScalarType::Bool;
    let all = kernel.body.instructions().iter().zip(&uniform);
    let operations = all.map(|(instruction, uniform)| match instruction.op {
        ScalarOp::Input { part, .. } => part == 0,
        _ if *uniform => true,
        ScalarOp::Index { .. } => instruction.ty.size() >= 4,
        op => {
            let of = |arg: Reg| kernel.body.type_of(arg);
            let from = instruction.args.get(typed(op)).map(|&arg| of(arg));
            from.is_some_and(|from| computes(op, instruction.ty, from))
                && instruction.args.iter().all(|&arg| fits(of(arg)))
        }
    });
    let operations = operations.fold(true, |all, this| all & this);
    let folded = |accumulator: &Accumulator| {
        let ty = accumulator.ty;
        fits(ty) && operation(accumulator.kind).is_some_and(|(op, _)| computes(op, ty, ty))
    };
    loads && stores && operations && (!folds || kernel.accumulators.iter().all(folded))
}

/// What a group of lanes has of a load.
#[derive(Clone, Copy, PartialEq)]
enum Guard {
    Inside,
    Outside,
    /// Lanes from one to before another.
    Between(usize, usize),
}

/// The lanes of an index that are done at once.
struct Segment {
    first: usize,
    count: usize,
    guards: SmallVec<[Guard; 4]>,
}

/// A launch with its operands.
#[derive(Clone, Copy)]
pub(super) struct Work<'a> {
    pub launch: &'a Launch,
    pub form: &'a Form,
    /// What operands hold, and how many elements they have.
    pub arrays: &'a [Option<Array>],
    pub counts: &'a [usize],
}

impl Work<'_> {
    /// What each store of the main stage writes, with its number: elements that follow one another, in this order, so that
    /// a group that ends beyond its lanes is written over by those that come after it.
    pub fn written(&self) -> Option<Vec<(usize, Range<usize>)>> {
        let indices = self.launch.indices(&self.form.outer, &vec![0; self.launch.extents.len()]);
        let stores = self.launch.kernel.stores.iter().zip(&self.launch.stores).enumerate();
        let of_main = stores.filter(|(_, (store, _))| store.stage == Stage::Main);
        of_main
            .map(|(number, (_, view))| {
                let first = view.element(indices.first()?)?;
                let mut next = first;
                for index in &indices {
                    if view.element(index)? != next {
                        return None;
                    }
                    next += self.form.lanes as i64;
                }
                Some((number, usize::try_from(first).ok()?..usize::try_from(next).ok()?))
            })
            .collect()
    }

    /// The elements of a load: where it stands at an index, and the lanes that its guards let through.
    fn lanes_of(&self, load: usize, index: &[i64]) -> Option<(i64, usize, usize)> {
        let view = &self.launch.loads[load];
        let (low, high) = view.ranges[self.form.axis];
        let merged = self.form.lanes != self.launch.extents[self.form.axis];
        let lanes = self.form.lanes as i64;
        let (low, high) = if merged { (0, lanes) } else { (low.max(0), high.min(lanes)) };
        if low >= high {
            return None;
        }
        let mut inside = SmallVec::<[i64; 6]>::from_slice(index);
        if !merged {
            inside[self.form.axis] = low;
        }
        let at = view.element(&inside)? - if merged { 0 } else { low * view.strides[self.form.axis] };
        Some((at, low as usize, high as usize))
    }

    fn segments(&self, index: &[i64]) -> Vec<Segment> {
        let lanes = self.form.lanes;
        let loads: Vec<Option<(i64, usize, usize)>> =
            (0..self.launch.loads.len()).map(|load| self.lanes_of(load, index)).collect();
        let mut segments: Vec<Segment> = Vec::new();
        for first in (0..lanes).step_by(GROUP) {
            let end = lanes.min(first + GROUP);
            let guards: SmallVec<[Guard; 4]> = loads
                .iter()
                .map(|load| match *load {
                    Some((_, low, high)) if low <= first && end <= high => Guard::Inside,
                    Some((_, low, high)) if low < end && first < high => {
                        Guard::Between(low.saturating_sub(first), high.min(end) - first)
                    }
                    _ => Guard::Outside,
                })
                .collect();
            let divided = guards.iter().any(|guard| matches!(guard, Guard::Between(..)));
            match segments.last_mut() {
                Some(last) if !divided && last.guards == guards => last.count += GROUP,
                _ => segments.push(Segment { first, count: GROUP, guards }),
            }
        }
        segments
    }
}

/// A value of a body: the same for all lanes, or one of the chain.
#[derive(Clone, Copy)]
enum Of {
    All(Id),
    Each(Reg),
}

/// A chain while it is made, and what it reads.
#[derive(Default)]
struct Draft {
    chain: Chain,
    inputs: SmallVec<[Lane; 4]>,
    singles: FxHashMap<Id, Reg>,
}

impl Draft {
    /// An input of one value.
    fn single(&mut self, ty: ScalarType, value: Id) -> Reg {
        *self.singles.entry(value).or_insert_with(|| {
            self.inputs.push(Lane::Each(value));
            self.chain.input(ty, true)
        })
    }

    fn block(&mut self, ty: ScalarType, at: Address) -> Reg {
        self.inputs.push(Lane::Block(at));
        self.chain.input(ty, false)
    }

    fn constant(&mut self, ty: ScalarType, bits: u64) -> Reg {
        self.chain.body.push(ScalarOp::Const { bits }, ty, &[])
    }
}

impl Lowering<'_> {
    /// Does a launch that folds nothing; `results` is where each store of the main stage begins its array.
    pub fn in_lanes(&mut self, work: &Work<'_>, results: &[Array]) -> Result<Option<()>> {
        for index in work.launch.indices(&work.form.outer, &vec![0; work.launch.extents.len()]) {
            if self.at_index(work, &index, results, &[])?.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(()))
    }

    /// The accumulators of a launch at an index of its parallel loops; what the main stage stores goes to `results`, and terms
    /// that are computed to `terms`.
    pub fn folded(
        &mut self,
        work: &Work<'_>,
        index: &[i64],
        results: &[Array],
        terms: &[Option<Array>],
    ) -> Result<Option<Vec<Id>>> {
        if self.at_index(work, index, results, terms)?.is_none() {
            return Ok(None);
        }
        let kernel = &work.launch.kernel;
        let mut values = Vec::with_capacity(kernel.accumulators.len());
        for (accumulator, terms) in kernel.accumulators.iter().zip(terms) {
            let at = match terms {
                Some(Array::Memory { at, .. }) => Some(*at),
                _ => match read_alone(kernel, accumulator) {
                    Some(load) => self.block_of(work, load, index, 0, work.form.lanes)?,
                    None => None,
                },
            };
            let Some(at) = at else { return Ok(None) };
            match self.fold_lanes(accumulator, at, work.form.lanes)? {
                Some(value) => values.push(value),
                None => return Ok(None),
            }
        }
        Ok(Some(values))
    }

    /// Memory for terms that are not read as they are.
    pub fn rooms_of_terms(&mut self, work: &Work<'_>) -> Option<Vec<Option<Array>>> {
        let kernel = &work.launch.kernel;
        let whole = |view: &View| {
            (0..view.ranges.len()).all(|axis| view.ranges[axis] == (0, work.launch.extents[axis] as i64))
        };
        let mut terms = Vec::with_capacity(kernel.accumulators.len());
        for accumulator in &kernel.accumulators {
            let alone = read_alone(kernel, accumulator).is_some_and(|load| {
                let view = &work.launch.loads[load];
                view.strides[work.form.axis] == 1 && whole(view)
            });
            terms.push(if alone { None } else { Some(self.room(work.form.lanes * accumulator.ty.size())?) });
        }
        Some(terms)
    }

    /// The main body at an index of the outer loops.
    fn at_index(
        &mut self,
        work: &Work<'_>,
        index: &[i64],
        results: &[Array],
        terms: &[Option<Array>],
    ) -> Result<Option<()>> {
        let Work { launch, .. } = *work;
        let kernel = &launch.kernel;
        // What is written: a register, and where its lanes go.
        let mut written: SmallVec<[(Reg, Address); 4]> = SmallVec::new();
        let stores = kernel.stores.iter().zip(&launch.stores).filter(|(store, _)| store.stage == Stage::Main);
        for ((store, view), result) in stores.zip(results) {
            let (Array::Memory { at, .. }, Some(element), Some(&reg)) =
                (result, view.element(index), registers(store.value).first())
            else {
                return Ok(None);
            };
            let bytes = element * kernel.body.type_of(reg).size() as i64;
            let Some(at) = moved(*at, bytes) else { return Ok(None) };
            written.push((reg, at));
        }
        for (accumulator, terms) in kernel.accumulators.iter().zip(terms) {
            if let Some(Array::Memory { at, .. }) = terms {
                written.push((accumulator.arg, *at));
            }
        }
        if written.is_empty() {
            return Ok(Some(()));
        }
        for segment in work.segments(index) {
            if self.segment(work, index, &segment, &written)?.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(()))
    }

    fn segment(
        &mut self,
        work: &Work<'_>,
        index: &[i64],
        segment: &Segment,
        written: &[(Reg, Address)],
    ) -> Result<Option<()>> {
        let body = &work.launch.kernel.body;
        let mut draft = Draft::default();
        let mut values: Vec<Of> = Vec::with_capacity(body.instructions().len());
        for instruction in body.instructions() {
            let ty = instruction.ty;
            let value = match instruction.op {
                ScalarOp::Input { operand, .. } => {
                    self.input(work, index, segment, operand as usize, &mut draft)?
                }
                ScalarOp::Index { axis } if axis as usize == work.form.axis => {
                    Some(Of::Each(self.count_up(ty, segment, &mut draft)?))
                }
                ScalarOp::Index { axis } => {
                    Some(Of::All(self.build.constant(ty, index[axis as usize] as u64)))
                }
                ScalarOp::Param { index } => {
                    Some(Of::All(self.build.constant(ty, work.launch.params[index as usize])))
                }
                op => Some(self.operation(
                    op,
                    ty,
                    instruction.args.iter().map(|arg| values[arg.0 as usize]),
                    &mut draft,
                )?),
            };
            match value {
                Some(value) => values.push(value),
                None => return Ok(None),
            }
        }
        let mut outputs: SmallVec<[Address; 2]> = SmallVec::new();
        for &(reg, at) in written {
            let bytes = (segment.first * body.type_of(reg).size()) as i64;
            let Some(at) = moved(at, bytes) else { return Ok(None) };
            let value = self.of_chain(values[reg.0 as usize], &mut draft)?;
            draft.chain.outputs.push(value);
            outputs.push(at);
        }
        self.build.lanes(draft.chain, draft.inputs, outputs, segment.count);
        Ok(Some(()))
    }

    /// An operation: once, if it is the same for all lanes.
    fn operation(
        &mut self,
        op: ScalarOp,
        ty: ScalarType,
        args: impl Iterator<Item = Of>,
        draft: &mut Draft,
    ) -> Result<Of> {
        let args: SmallVec<[Of; 3]> = args.collect();
        let same: Option<SmallVec<[Id; 3]>> = args
            .iter()
            .map(|arg| match arg {
                Of::All(id) => Some(*id),
                Of::Each(_) => None,
            })
            .collect();
        if let Some(same) = same {
            return self.build.compute(op, ty, &same).map(Of::All);
        }
        let mut regs: SmallVec<[Reg; 3]> = SmallVec::new();
        for arg in args {
            regs.push(self.of_chain(arg, draft)?);
        }
        draft.chain.push(op, ty, &regs).map(Of::Each)
    }

    /// A value as one of the chain: one that is known is a constant, and chains have no single truths.
    fn of_chain(&mut self, value: Of, draft: &mut Draft) -> Result<Reg> {
        let value = match value {
            Of::Each(reg) => return Ok(reg),
            Of::All(value) => value,
        };
        let ty = self.build.type_of(value);
        if let Some(bits) = self.build.known(value) {
            return Ok(draft.constant(ty, bits));
        }
        if ty != ScalarType::Bool {
            return Ok(draft.single(ty, value));
        }
        let number = self.build.compute(ScalarOp::Convert, ScalarType::I32, &[value])?;
        let number = draft.single(ScalarType::I32, number);
        let zero = draft.constant(ScalarType::I32, 0);
        draft.chain.push(ScalarOp::Ne, ScalarType::Bool, &[number, zero])
    }

    /// What a load gives to the lanes of a segment.
    fn input(
        &mut self,
        work: &Work<'_>,
        index: &[i64],
        segment: &Segment,
        number: usize,
        draft: &mut Draft,
    ) -> Result<Option<Of>> {
        let load = &work.launch.kernel.loads[number];
        let dtype = work.launch.kernel.operands[load.operand as usize].dtype;
        let Some(ty) = element(dtype) else { return Ok(None) };
        let fill = load.fill.map_or(0, |fill| fill.bits() as u64);
        let guard = segment.guards[number];
        if guard == Guard::Outside {
            return Ok(Some(Of::All(self.build.constant(ty, fill))));
        }
        let value = if work.launch.loads[number].strides[work.form.axis] == 0 {
            let (Some((at, ..)), Some(array)) =
                (work.lanes_of(number, index), &work.arrays[load.operand as usize])
            else {
                return Ok(None);
            };
            let value = usize::try_from(at).ok().and_then(|at| self.read(array, dtype, at, 0));
            let Some(value) = value else { return Ok(None) };
            Of::All(value)
        } else {
            let Some(at) = self.block_of(work, number, index, segment.first, segment.count)? else {
                return Ok(None);
            };
            Of::Each(draft.block(ty, at))
        };
        let Guard::Between(low, high) = guard else { return Ok(Some(value)) };
        let mask: Vec<u8> = (0..GROUP).map(|lane| u8::from((low..high).contains(&lane))).collect();
        let holds = self.constant_block(ScalarType::Bool, mask, draft)?;
        let fill = draft.constant(ty, fill);
        let value = self.of_chain(value, draft)?;
        Ok(Some(Of::Each(draft.chain.push(ScalarOp::Select, ty, &[holds, value, fill])?)))
    }

    /// The numbers of a segment's lanes.
    fn count_up(&mut self, ty: ScalarType, segment: &Segment, draft: &mut Draft) -> Result<Reg> {
        let lanes = segment.first..segment.first + segment.count;
        let bytes = lanes.flat_map(|lane| (lane as u64).to_le_bytes()[..ty.size()].to_vec()).collect();
        self.constant_block(ty, bytes, draft)
    }

    /// A block whose elements never change.
    fn constant_block(&mut self, ty: ScalarType, bytes: Vec<u8>, draft: &mut Draft) -> Result<Reg> {
        let count = bytes.len() / ty.size();
        let tensor = Tensor::from_bytes(ty.dtype(), [count].as_slice(), &bytes)?;
        match self.elements_of(tensor) {
            Array::Memory { at, .. } => Ok(draft.block(ty, at)),
            Array::Values(_) => Err(internal_error!("constants of lanes are in memory")),
        }
    }

    /// Where the lanes of a load are that moves with them.
    fn block_of(
        &mut self,
        work: &Work<'_>,
        number: usize,
        index: &[i64],
        first: usize,
        count: usize,
    ) -> Result<Option<Address>> {
        let operand = work.launch.kernel.loads[number].operand as usize;
        let dtype = work.launch.kernel.operands[operand].dtype;
        let (Some((at, ..)), Some(array)) = (work.lanes_of(number, index), &work.arrays[operand]) else {
            return Ok(None);
        };
        let at = at + first as i64;
        // Folds go through terms in rows of this many lanes.
        let end = at + count.next_multiple_of(if work.launch.kernel.folds() { LANES } else { GROUP }) as i64;
        let total = work.counts[operand];
        let within = at >= 0 && end <= total as i64;
        let memory = match array {
            Array::Memory { at, .. } if within || self.is_own(at) => array.clone(),
            array => match self.padded(operand as u32, array, dtype, total)? {
                Some(memory) => memory,
                None => return Ok(None),
            },
        };
        let Array::Memory { at: memory, .. } = memory else { return Ok(None) };
        Ok(moved(memory, at * dtype.size() as i64))
    }

    /// A copy of an array with room before and behind it.
    fn padded(
        &mut self,
        operand: u32,
        array: &Array,
        dtype: ferrax_ir::DType,
        count: usize,
    ) -> Result<Option<Array>> {
        if let Some(known) = self.rooms.get(&operand) {
            return Ok(Some(known.clone()));
        }
        // What nothing writes is copied once.
        let lasting = match array {
            Array::Memory { at, constant: true } if at.bytes.is_none() => Some(*at),
            _ => None,
        };
        if let Some(known) = lasting.and_then(|at| self.lasting.get(&(at.pointer, at.offset))) {
            return Ok(Some(known.clone()));
        }
        let Some(room) = self.room(count * dtype.size()) else { return Ok(None) };
        self.build.outermost = lasting.is_some();
        let copied = self.copy(array, &room, dtype, count);
        self.build.outermost = false;
        if copied?.is_none() {
            return Ok(None);
        }
        match lasting {
            Some(at) => self.lasting.insert((at.pointer, at.offset), room.clone()),
            None => self.rooms.insert(operand, room.clone()),
        };
        Ok(Some(room))
    }

    /// Copies all elements of an array to memory that is not that of another one.
    pub fn copy(
        &mut self,
        from: &Array,
        to: &Array,
        dtype: ferrax_ir::DType,
        count: usize,
    ) -> Result<Option<()>> {
        let beyond = match (from, to) {
            (Array::Memory { at: from, .. }, Array::Memory { at: to, .. }) => {
                self.is_own(from) && self.is_own(to) && to.bytes.is_none()
            }
            _ => false,
        };
        let done = if beyond { count.next_multiple_of(GROUP) } else { count / GROUP * GROUP };
        self.copy_lanes(from, to, dtype, (done, count))
    }

    /// The same to a part of an array, of which others are written before.
    pub fn copy_exactly(
        &mut self,
        from: &Array,
        to: &Array,
        dtype: ferrax_ir::DType,
        count: usize,
    ) -> Result<Option<()>> {
        self.copy_lanes(from, to, dtype, (count / GROUP * GROUP, count))
    }

    /// Copies so many elements in lanes, if it can be, and others that are left one by one.
    fn copy_lanes(
        &mut self,
        from: &Array,
        to: &Array,
        dtype: ferrax_ir::DType,
        (lanes, count): (usize, usize),
    ) -> Result<Option<()>> {
        let Some((_, parts)) = parts(dtype) else { return Ok(None) };
        let mut done = 0;
        if let (Array::Memory { at: source, .. }, Array::Memory { at: target, .. }, Some(ty)) =
            (from, to, element(dtype))
            && lanes > 0
        {
            done = lanes;
            let mut draft = Draft::default();
            let value = draft.block(ty, *source);
            draft.chain.outputs.push(value);
            self.build.lanes(draft.chain, draft.inputs, SmallVec::from_elem(*target, 1), done);
        }
        for element in done..count {
            for part in 0..parts {
                let value = self.read(from, dtype, element, part);
                if value.and_then(|value| self.write_part(value, to, element * parts + part)).is_none() {
                    return Ok(None);
                }
            }
        }
        Ok(Some(()))
    }

    /// Whether memory is of the function's own.
    pub fn is_own(&self, at: &Address) -> bool {
        self.pointers[at.pointer as usize] == Pointer::Scratch
    }

    /// What becomes of terms that follow one another: in blocks, lanes, and halves of lanes as the kernel IR says.
    fn fold_lanes(&mut self, accumulator: &Accumulator, at: Address, count: usize) -> Result<Option<Id>> {
        let Some((_, identity)) = operation(accumulator.kind) else { return Ok(None) };
        let mut blocks = Vec::new();
        for first in (0..count).step_by(BLOCK) {
            match self.fold_block(accumulator, at, first, BLOCK.min(count - first))? {
                Some(value) => blocks.push(value),
                None => return Ok(None),
            }
        }
        let Some((op, ty)) = operation(accumulator.kind).map(|(op, _)| (op, accumulator.ty)) else {
            return Ok(None);
        };
        let identity = match (identity, blocks.first()) {
            (Some(identity), _) => self.identity(ty, identity),
            (None, Some(&first)) => first,
            (None, None) => return Ok(None),
        };
        let build = std::cell::RefCell::new(&mut self.build);
        counted(blocks, identity, &|a, b| build.borrow_mut().compute(op, ty, &[a, b])).map(Some)
    }

    fn fold_block(
        &mut self,
        accumulator: &Accumulator,
        at: Address,
        first: usize,
        count: usize,
    ) -> Result<Option<Id>> {
        let ty = accumulator.ty;
        let size = ty.size();
        let Some((op, identity)) = operation(accumulator.kind) else { return Ok(None) };
        let from = |place: usize| moved(at, ((first + place) * size) as i64);
        if count < LANES {
            let terms: Option<Vec<Id>> =
                (0..count).map(|place| Some(self.build.load(ty, from(place)?, false))).collect();
            return match terms {
                Some(terms) => self.fold(accumulator, &terms),
                None => Ok(None),
            };
        }
        let mut draft = Draft::default();
        let mut lanes = None;
        for row in 0..count.div_ceil(LANES) {
            let Some(at) = from(row * LANES) else { return Ok(None) };
            let term = draft.block(ty, at);
            lanes = Some(match (lanes, identity) {
                (None, None) => term,
                (None, Some(identity)) => {
                    let bits = ferrax_ir::Scalar::from_f64(ty.dtype(), identity).bits() as u64;
                    let identity = draft.constant(ty, bits);
                    draft.chain.push(op, ty, &[identity, term])?
                }
                (Some(lanes), _) => {
                    let all = draft.chain.push(op, ty, &[lanes, term])?;
                    let left = count - row * LANES;
                    if left >= LANES {
                        all
                    } else {
                        let mask = (0..LANES).map(|lane| u8::from(lane < left)).collect();
                        let holds = self.constant_block(ScalarType::Bool, mask, &mut draft)?;
                        draft.chain.push(ScalarOp::Select, ty, &[holds, all, lanes])?
                    }
                }
            });
        }
        let (Some(lanes), Some(Array::Memory { at: room, .. })) = (lanes, self.room_of_lanes()) else {
            return Ok(None);
        };
        draft.chain.outputs.push(lanes);
        self.build.lanes(draft.chain, draft.inputs, SmallVec::from_elem(room, 1), LANES);
        let half = LANES / 2;
        let Some(upper) = moved(room, (half * size) as i64) else { return Ok(None) };
        let mut draft = Draft::default();
        let (a, b) = (draft.block(ty, room), draft.block(ty, upper));
        let halves = draft.chain.push(op, ty, &[a, b])?;
        draft.chain.outputs.push(halves);
        self.build.lanes(draft.chain, draft.inputs, SmallVec::from_elem(room, 1), half);
        let mut values = Vec::with_capacity(half);
        for lane in 0..half {
            let Some(at) = moved(room, (lane * size) as i64) else { return Ok(None) };
            values.push(self.build.load(ty, at, false));
        }
        while values.len() > 1 {
            let upper = values.split_off(values.len() / 2);
            for (value, other) in values.iter_mut().zip(upper) {
                *value = self.build.compute(op, ty, &[*value, other])?;
            }
        }
        Ok(Some(values[0]))
    }

    /// Memory for the lanes of a fold, which are read before another's are there.
    fn room_of_lanes(&mut self) -> Option<Array> {
        if self.of_folds.is_none() {
            self.of_folds = self.room(LANES * size_of::<u64>());
        }
        self.of_folds.clone()
    }
}

/// The load that an accumulator's terms are, if they are as they were read.
fn read_alone(kernel: &Kernel, accumulator: &Accumulator) -> Option<usize> {
    match kernel.body.instructions()[accumulator.arg.0 as usize].op {
        ScalarOp::Input { operand, .. } => Some(operand as usize),
        _ => None,
    }
}
