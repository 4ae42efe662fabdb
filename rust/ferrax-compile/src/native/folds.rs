//! What becomes of accumulators' terms: of values, one by one; of what follows one another in memory, in lanes.
//!
//! Trees are those of the kernel IR: blocks of terms, lanes in a block, and halves of lanes.

use ferrax_ir::scalar::{ScalarOp, ScalarType};
use ferrax_ir::{Result, Scalar};
use smallvec::SmallVec;

use super::arrays::{Array, moved};
use super::form::Work;
use super::lanes::Draft;
use super::lower::Lowering;
use super::{Address, Id};
use crate::index::View;
use crate::interpret::{BLOCK, LANES, counted, operation, tree};
use crate::kernel::{Accumulator, AccumulatorKind, Kernel};

impl Lowering<'_> {
    /// What becomes of an accumulator's terms, in the order that the kernel IR says.
    pub fn fold(&mut self, accumulator: &Accumulator, terms: &[Id]) -> Result<Option<Id>> {
        let ty = accumulator.ty;
        let Some((op, identity)) = operation(accumulator.kind) else {
            return self.first(accumulator.kind == AccumulatorKind::ArgMax, ty, terms);
        };
        let identity = identity.map(|identity| self.identity(ty, identity));
        let build = std::cell::RefCell::new(&mut self.build);
        let combine = |a: Id, b: Id| build.borrow_mut().compute(op, ty, &[a, b]);
        if let Some(identity) = identity {
            return tree(terms, identity, &combine).map(Some);
        }
        let Some((&first, rest)) = terms.split_first() else { return Ok(None) };
        rest.iter().try_fold(first, |a, &b| combine(a, b)).map(Some)
    }

    fn identity(&mut self, ty: ScalarType, identity: f64) -> Id {
        let bits = Scalar::from_f64(ty.dtype(), identity).bits() as u64;
        self.build.constant(ty, bits)
    }

    /// The number of the first of the greatest terms, or of the least; NaN counts as both.
    fn first(&mut self, greatest: bool, ty: ScalarType, terms: &[Id]) -> Result<Option<Id>> {
        let Some((&first, rest)) = terms.split_first() else { return Ok(None) };
        let bool = ScalarType::Bool;
        let (mut best, mut place) = (first, self.build.int(0));
        for (number, &term) in (1..).zip(rest) {
            let pair = if greatest { [best, term] } else { [term, best] };
            let mut better = self.build.compute(ScalarOp::Lt, bool, &pair)?;
            if ty.is_float() {
                let [no_best, no_term] = [best, term].map(|id| [id, id]);
                let is_nan = self.build.compute(ScalarOp::Ne, bool, &no_term)?;
                let number = self.build.compute(ScalarOp::Eq, bool, &no_best)?;
                let either = self.build.compute(ScalarOp::Or, bool, &[better, is_nan])?;
                better = self.build.compute(ScalarOp::And, bool, &[number, either])?;
            }
            let number = self.build.int(number);
            best = self.build.compute(ScalarOp::Select, ty, &[better, term, best])?;
            place = self.build.compute(ScalarOp::Select, ScalarType::I64, &[better, number, place])?;
        }
        Ok(Some(place))
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

    /// What becomes of terms that follow one another, of which there are some.
    fn fold_lanes(&mut self, accumulator: &Accumulator, at: Address, count: usize) -> Result<Option<Id>> {
        let ty = accumulator.ty;
        let Some((op, identity)) = operation(accumulator.kind) else { return Ok(None) };
        let mut blocks = Vec::new();
        for first in (0..count).step_by(BLOCK) {
            match self.fold_block(accumulator, at, first, BLOCK.min(count - first))? {
                Some(value) => blocks.push(value),
                None => return Ok(None),
            }
        }
        let none = self.identity(ty, identity.unwrap_or(0.0));
        let build = std::cell::RefCell::new(&mut self.build);
        counted(blocks, none, &|a, b| build.borrow_mut().compute(op, ty, &[a, b])).map(Some)
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
                    let bits = Scalar::from_f64(ty.dtype(), identity).bits() as u64;
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
