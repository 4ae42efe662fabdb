//! Kernels over many elements as chains over memory.
//!
//! In: a launch one of whose loops goes through elements that follow one another, or reads one of them. Out:
//! [`Code::Lanes`](super::Code::Lanes) for each index of the other loops, and of folds what they give. What is the same for all
//! lanes is computed once, as scalars are.
//!
//! Lanes come in groups. The function's own memory has room before and behind each array, so that a group may begin before an
//! array's first element or end behind its last; of other memory only elements are touched. Where a load has guards, a group
//! that they divide chooses lane by lane, and the others have all or nothing of it.
//!
//! Cost: a chain for each index of the outer loops, of which code is limited.

use std::ops::Range;

use ferrax_ir::scalar::{Reg, ScalarOp, ScalarType};
use ferrax_ir::{DType, Result, Tensor, internal_error};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::arrays::{Array, Pointer, element, moved, parts, same_memory};
use super::course::{Course, Held, Parts, Written};
use super::form::{Guard, Segment, Work};
use super::lower::{Lowering, MOST_CODE};
use super::{Address, GROUP, Id, Lane};
use crate::chain::Chain;
use crate::interpret::LANES;
use crate::kernel::{Stage, registers};
use crate::plan::BufferId;

/// A value of a body: the same for all lanes, or one of the chain.
#[derive(Clone, Copy)]
enum Of {
    All(Id),
    Each(Reg),
}

/// A chain while it is made, and what it reads.
#[derive(Default)]
pub(super) struct Draft {
    pub chain: Chain,
    pub inputs: SmallVec<[Lane; 4]>,
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

    pub fn block(&mut self, ty: ScalarType, at: Address) -> Reg {
        self.inputs.push(Lane::Block(at));
        self.chain.input(ty, false)
    }

    pub fn constant(&mut self, ty: ScalarType, bits: u64) -> Reg {
        self.chain.body.push(ScalarOp::Const { bits }, ty, &[])
    }
}

impl Lowering<'_> {
    /// Does a launch that folds nothing; `results` is where each store of the main stage begins its array.
    pub fn in_lanes(&mut self, work: &Work<'_>, results: &[Array]) -> Result<Option<()>> {
        for index in work.launch.indices(&work.form.outer, &vec![0; work.launch.extents.len()]) {
            if self.build.written() > MOST_CODE || self.at_index(work, &index, results, &[])?.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(()))
    }

    /// The main body at an index of the outer loops.
    pub fn at_index(
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
    pub fn constant_block(&mut self, ty: ScalarType, bytes: Vec<u8>, draft: &mut Draft) -> Result<Reg> {
        let count = bytes.len() / ty.size();
        let tensor = Tensor::from_bytes(ty.dtype(), [count].as_slice(), &bytes)?;
        match self.elements_of(tensor) {
            Array::Memory { at, .. } => Ok(draft.block(ty, at)),
            Array::Values(_) => Err(internal_error!("constants of lanes are in memory")),
        }
    }

    /// Where the lanes of a load are that moves with them.
    pub fn block_of(
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
    fn padded(&mut self, operand: u32, array: &Array, dtype: DType, count: usize) -> Result<Option<Array>> {
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
    pub fn copy(&mut self, from: &Array, to: &Array, dtype: DType, count: usize) -> Result<Option<()>> {
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
        dtype: DType,
        count: usize,
    ) -> Result<Option<()>> {
        self.copy_lanes(from, to, dtype, (count / GROUP * GROUP, count))
    }

    /// Copies so many elements in lanes, if it can be, and others that are left one by one.
    fn copy_lanes(
        &mut self,
        from: &Array,
        to: &Array,
        dtype: DType,
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

    /// Where a store of a step writes its array, of which others of that step may write parts too.
    pub fn result(
        &mut self,
        (step, work, operands): (usize, &Work<'_>, &[BufferId]),
        (store, range): (usize, Range<usize>),
        earlier: &[Written],
        course: &mut Course<'_>,
    ) -> Option<Written> {
        let Work { launch, form, counts, .. } = *work;
        let operand = launch.kernel.stores[store].operand as usize;
        let (dtype, buffer, count) =
            (launch.kernel.operands[operand].dtype, operands[operand], counts[operand]);
        let whole = range == (0..count);
        if whole {
            // The last group of lanes ends in the next ones, or behind the array.
            let exact = form.lanes.is_multiple_of(GROUP);
            let place = course.place(step, launch, operands).filter(|place| match place {
                Array::Memory { at, .. } => exact || (self.is_own(at) && form.lanes == count),
                Array::Values(_) => false,
            });
            let array = place.or_else(|| self.room(count * dtype.size()))?;
            return Some(Written { buffer, dtype, range, array, beside: None });
        }
        let parts = self.parts_of(course, buffer, dtype, count)?;
        let array = parts.array.clone();
        let end = count.min(range.start + range.len().next_multiple_of(GROUP));
        let shared = earlier.iter().any(|other| other.buffer == buffer);
        if !shared && !parts.written[range.end..end].contains(&true) {
            return Some(Written { buffer, dtype, range, array, beside: None });
        }
        // What is there already, or is written by the launch too, is not to be written over.
        let bytes = range.len() * dtype.size();
        let Some(Array::Memory { at, constant }) = self.room(bytes) else { return None };
        let at = moved(at, -((range.start * dtype.size()) as i64))?;
        Some(Written { buffer, dtype, range, array, beside: Some(Array::Memory { at, constant }) })
    }

    /// Notes what a launch has written, and puts it where it belongs.
    pub fn note(&mut self, written: &[Written], course: &mut Course<'_>) -> Result<Option<()>> {
        for Written { buffer, dtype, range, array, beside } in written {
            if let Some(beside) = beside {
                let first = (range.start * dtype.size()) as i64;
                let at = |array: &Array| match array {
                    Array::Memory { at, constant } => {
                        moved(*at, first).map(|at| Array::Memory { at, constant: *constant })
                    }
                    Array::Values(_) => None,
                };
                let (Some(from), Some(to)) = (at(beside), at(array)) else { return Ok(None) };
                if self.copy_exactly(&from, &to, *dtype, range.len())?.is_none() {
                    return Ok(None);
                }
            }
            match &mut course.held[buffer.0 as usize] {
                Held::Parts(parts) if same_memory(&parts.array, array) => parts.note(range.clone()),
                held => *held = Held::Array(array.clone()),
            }
        }
        Ok(Some(()))
    }

    /// The parts of a buffer that are written.
    pub fn parts_of<'c>(
        &mut self,
        course: &'c mut Course<'_>,
        buffer: BufferId,
        dtype: DType,
        count: usize,
    ) -> Option<&'c mut Parts> {
        let held = &mut course.held[buffer.0 as usize];
        if !matches!(held, Held::Parts(parts) if parts.left > 0) {
            let array = self.room(count * dtype.size())?;
            let mut parts = Parts { array, written: vec![false; count], left: count };
            if let Held::Written(_, values) = held
                && values.len() == count
            {
                for (element, value) in values.iter().enumerate() {
                    if let Some(value) = *value {
                        self.write_part(value, &parts.array, element)?;
                        parts.note(element..element + 1);
                    }
                }
            }
            *held = Held::Parts(parts);
        }
        match held {
            Held::Parts(parts) => Some(parts),
            _ => None,
        }
    }
}
