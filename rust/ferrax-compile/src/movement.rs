//! Index maps in a kernel: what they read, at which view.
//!
//! Most only turn the view of their result into one of their operand. A pad
//! restricts it too, to where it is inside of the operand, and chooses between
//! the operand and the padding value. What is picked at computed places is a load
//! with jumps, of an operand that is in memory.

use ferrax_ir::lowering::{Follow, IndexMap, Picked};
use ferrax_ir::ops::Kept;
use ferrax_ir::scalar::{Reg, ScalarOp, ScalarType, Value};
use ferrax_ir::{Atom, DType, Equation, Var, internal_error};
use smallvec::SmallVec;

use crate::emit::{Emitted, Emitter, Interrupt};
use crate::index::{AxisIndices, Indivisible, View, row_major};
use crate::kernel::{Jump, Jumps};

impl Emitter<'_> {
    /// The value of `var`, which this equation defines by an index map, at a view.
    pub fn movement(&mut self, equation: &Equation, var: Var, view: &View) -> Emitted<Value> {
        let graph = self.graph;
        let sizes = &graph.sizes[var.index()];
        let Some(map) = graph.map_of(var) else {
            return Err(internal_error!("{} does not only move elements", equation.op.name()).into());
        };
        let (axes, input) = match map {
            IndexMap::InOrder => return self.atom(&equation.inputs[0], view),
            IndexMap::Along(_) if graph.atom_count(&equation.inputs[0]) == 1 => {
                return self.atom(&equation.inputs[0], &view.scalar());
            }
            IndexMap::Along(axes) => (axes, &equation.inputs[0]),
            IndexMap::Constant(value) => return Ok(self.literal(*value)),
            IndexMap::Padded(kept) => return self.pad(kept, equation, var, view),
            IndexMap::Picked(picked) => return self.pick(picked, equation, var, view),
            IndexMap::Counted { axis } => {
                return match view.decompose(sizes) {
                    Ok(indices) => self.count(graph.dtypes[var.index()], (*axis, sizes[*axis]), &indices),
                    Err(failure) => self.stored(failure, view, var),
                };
            }
            IndexMap::Joined { axis } => return self.part(*axis, equation, var, view),
            map @ IndexMap::Bytes => {
                return Err(internal_error!("{map:?} of {} in a kernel", equation.op.name()).into());
            }
        };
        let indices = match view.decompose(sizes) {
            Ok(indices) => indices,
            Err(failure) => return self.stored(failure, view, var),
        };
        let inner = indices.view(view, graph.atom_sizes(input), axes.iter().copied());
        let inner = inner.map_err(|_| Interrupt::from(self.too_large(var)))?;
        self.atom(input, &inner)
    }

    /// The element of the first operand at a place that other operands say.
    fn pick(&mut self, picked: &Picked, equation: &Equation, var: Var, view: &View) -> Emitted<Value> {
        let graph = self.graph;
        let Some(operand) = equation.inputs[0].as_var() else {
            return Err(internal_error!("{} picks from no array", equation.op.name()).into());
        };
        let indices = match view.decompose(&graph.sizes[var.index()]) {
            Ok(indices) => indices,
            Err(failure) => return self.stored(failure, view, var),
        };
        let sizes = &graph.sizes[operand.index()];
        let weights = row_major(sizes);
        let follow = |emitter: &Self, sizes: &[usize], axes: &[Follow]| {
            let inner = indices.view(view, sizes, axes.iter().copied());
            inner.map_err(|_| Interrupt::from(emitter.too_large(var)))
        };
        let inner = follow(self, sizes, &picked.within)?;
        let (mut jumps, mut places) = (Jumps::new(), SmallVec::<[Reg; 2]>::new());
        let mut inside: Option<Reg> = None;
        for start in &picked.starts {
            if start.last == 0 && picked.outside.is_none() {
                continue;
            }
            let input = &equation.inputs[start.operand];
            let at = follow(self, graph.atom_sizes(input), &start.at)?;
            let Value::Real(place) = self.atom(input, &at)? else {
                return Err(internal_error!("{} picks at complex places", equation.op.name()).into());
            };
            let place = self.as_index(place);
            if picked.outside.is_some() {
                let within = self.is_at_most(place, start.last);
                inside = Some(match inside {
                    Some(before) => self.body().op(ScalarOp::And, &[before, within]),
                    None => within,
                });
            }
            if start.last > 0 {
                jumps.push(Jump { stride: weights[start.axis], last: start.last });
                places.push(place);
            }
        }
        let value = self.element(operand, &inner, jumps, &places)?;
        let (Some(inside), Some(outside)) = (inside, picked.outside) else { return Ok(value) };
        let outside = self.literal(outside);
        self.choose(inside, value, outside)
    }

    /// What is joined, where the view is at one place along the axis.
    fn part(&mut self, axis: usize, equation: &Equation, var: Var, view: &View) -> Emitted<Value> {
        let graph = self.graph;
        let indices = match view.decompose(&graph.sizes[var.index()]) {
            Ok(indices) if indices.terms_of(axis).next().is_none() => indices,
            Ok(_) => return self.stored(Indivisible::Never, view, var),
            Err(failure) => return self.stored(failure, view, var),
        };
        let mut first = 0;
        for input in &equation.inputs {
            let sizes = graph.atom_sizes(input);
            let size = sizes[axis] as i64;
            if indices.start[axis] < first + size {
                let follow = (0..sizes.len()).map(|at| Follow {
                    axis: Some(at),
                    start: if at == axis { -first } else { 0 },
                    step: 1,
                });
                let inner = indices.view(view, sizes, follow);
                let inner = inner.map_err(|_| Interrupt::from(self.too_large(var)))?;
                return self.atom(input, &inner);
            }
            first += size;
        }
        Err(internal_error!("{} joins fewer elements than it gives", equation.op.name()).into())
    }

    /// An integer as the index of a jump; what is beyond the numbers of its type is the largest.
    fn as_index(&mut self, place: Reg) -> Reg {
        let body = self.body();
        match body.type_of(place) {
            ScalarType::I32 | ScalarType::I64 => place,
            ScalarType::U64 => {
                let most = body.int(ScalarType::U64, i64::MAX);
                let place = body.op(ScalarOp::Min, &[place, most]);
                body.convert(place, ScalarType::I64)
            }
            ScalarType::U32 => body.convert(place, ScalarType::I64),
            _ => body.convert(place, ScalarType::I32),
        }
    }

    /// Whether an index is in `0..=last`: as an unsigned number it is not above.
    fn is_at_most(&mut self, place: Reg, last: i64) -> Reg {
        let unsigned = match self.body().type_of(place) {
            ScalarType::I32 => ScalarType::U32,
            _ => ScalarType::U64,
        };
        let last = if unsigned == ScalarType::U32 { last.min(i32::MAX.into()) } else { last };
        let last = self.param_of(unsigned, last);
        let place = self.body().bitcast(place, unsigned);
        self.body().compare(ScalarOp::Le, place, last)
    }

    fn choose(&mut self, condition: Reg, then: Value, otherwise: Value) -> Emitted<Value> {
        let body = self.body();
        Ok(match (then, otherwise) {
            (Value::Real(a), Value::Real(b)) => Value::Real(body.select(condition, a, b)),
            (Value::Complex(a, b), Value::Complex(c, d)) => {
                Value::Complex(body.select(condition, a, c), body.select(condition, b, d))
            }
            _ => return Err(internal_error!("a choice between real and complex").into()),
        })
    }

    /// The index along an axis of so many elements, as a number. Sums of 32 bits that wrap around on the way come to it,
    /// too; what else has 32 bits or fewer is made of it faster.
    fn count(&mut self, dtype: DType, axis: (usize, usize), indices: &AxisIndices) -> Emitted<Value> {
        let (axis, size) = axis;
        let long = matches!(dtype, DType::I64 | DType::U64) || i32::try_from(size).is_err();
        let ty = if long { ScalarType::I64 } else { ScalarType::I32 };
        let mut sum = match indices.start[axis] {
            0 => None,
            start => Some(self.param_of(ty, start)),
        };
        for term in indices.terms_of(axis) {
            let index = self.body().push(ScalarOp::Index { axis: term.index as u32 }, ty, &[]);
            let scaled = match term.factor {
                1 => index,
                factor => {
                    let factor = self.param_of(ty, factor);
                    self.body().op(ScalarOp::Mul, &[index, factor])
                }
            };
            sum = Some(match sum {
                None => scaled,
                Some(sum) => self.body().op(ScalarOp::Add, &[sum, scaled]),
            });
        }
        let body = self.body();
        let sum = sum.unwrap_or_else(|| body.int(ty, 0));
        let value = body.convert(sum, ScalarType::of(dtype)?);
        let value = body.round_to(dtype, value);
        Ok(if dtype.is_complex() {
            let zero = body.float(ScalarType::of(dtype)?, 0.0);
            Value::Complex(value, zero)
        } else {
            Value::Real(value)
        })
    }

    /// The first operand where it is kept, of each axis a run; else the second one.
    fn pad(&mut self, kept: &[Kept], equation: &Equation, var: Var, view: &View) -> Emitted<Value> {
        let graph = self.graph;
        let sizes = &graph.sizes[var.index()];
        let input_sizes = graph.atom_sizes(&equation.inputs[0]);
        let outside = view.scalar();
        if kept.iter().any(|kept| kept.count == 0) {
            return self.atom(&equation.inputs[1], &outside);
        }
        let indices = match view.decompose(sizes) {
            Ok(indices) => indices,
            Err(failure) => return self.stored(failure, view, var),
        };
        let follow = kept.iter().enumerate().map(|(axis, kept)| {
            let start = kept.from as i64 - kept.to as i64;
            Follow { axis: Some(axis), start, step: 1 }
        });
        let mut inner =
            indices.view(view, input_sizes, follow).map_err(|_| Interrupt::from(self.too_large(var)))?;
        // Loop indices at which every axis is inside of the run.
        let mut restricted: SmallVec<[usize; 4]> = SmallVec::new();
        for (axis, kept) in kept.iter().enumerate() {
            let start = i128::from(indices.start[axis]) - kept.to as i128;
            let size = kept.count as i128;
            let mut terms = indices.terms_of(axis);
            match (terms.next(), terms.next()) {
                (None, _) => {
                    if start < 0 || start >= size {
                        return self.atom(&equation.inputs[1], &outside);
                    }
                }
                (Some(term), None) => {
                    // 0 <= start + factor * i < size.
                    let factor = i128::from(term.factor.abs());
                    let (low, high) = if term.factor > 0 {
                        (ceil_div(-start, factor), ceil_div(size - start, factor))
                    } else {
                        (ceil_div(start - size + 1, factor), ceil_div(start + 1, factor))
                    };
                    let range = &mut inner.ranges[term.index];
                    let within = |bound: i128| bound.clamp(range.0.into(), range.1.into()) as i64;
                    let narrowed = (within(low), within(high));
                    if narrowed.0 >= narrowed.1 {
                        return self.atom(&equation.inputs[1], &outside);
                    }
                    if narrowed != *range {
                        *range = narrowed;
                        restricted.push(term.index);
                    }
                }
                _ => {
                    let (mut least, mut most) = (start, start);
                    for term in indices.terms_of(axis) {
                        let (low, high) = view.ranges[term.index];
                        let ends = [low, high - 1].map(|i| i128::from(term.factor) * i128::from(i));
                        least += ends[0].min(ends[1]);
                        most += ends[0].max(ends[1]);
                    }
                    if least < 0 || most >= size {
                        return self.stored(Indivisible::Never, view, var);
                    }
                }
            }
        }
        let value = self.atom(&equation.inputs[0], &inner)?;
        if restricted.is_empty() {
            return Ok(value);
        }
        if let Atom::Literal(literal) = &equation.inputs[1] {
            if let Some(filled) = self.filled(value, &inner.ranges, literal.value) {
                return Ok(filled);
            }
            if self.is_outside(value, &inner.ranges, literal.value)? {
                return Ok(value);
            }
        }
        let fill = self.atom(&equation.inputs[1], &outside)?;
        let ranges = inner.ranges;
        let mut inside: Option<Reg> = None;
        for &loop_index in &restricted {
            let (low, high) = ranges[loop_index];
            let (old_low, old_high) = view.ranges[loop_index];
            let short = |number: i64| i32::try_from(number).is_ok();
            let extent = self.draft.extents[loop_index] as i64;
            let ty =
                if short(extent) && short(low) && short(high) { ScalarType::I32 } else { ScalarType::I64 };
            let index = self.body().push(ScalarOp::Index { axis: loop_index as u32 }, ty, &[]);
            let mut conditions: SmallVec<[Reg; 2]> = SmallVec::new();
            if low > old_low {
                let low = self.param_of(ty, low);
                conditions.push(self.body().compare(ScalarOp::Le, low, index));
            }
            if high < old_high {
                let high = self.param_of(ty, high);
                conditions.push(self.body().compare(ScalarOp::Lt, index, high));
            }
            for condition in conditions {
                inside = Some(match inside {
                    Some(before) => self.body().op(ScalarOp::And, &[before, condition]),
                    None => condition,
                });
            }
        }
        let Some(inside) = inside else { return Ok(value) };
        self.choose(inside, value, fill)
    }
}

fn ceil_div(a: i128, b: i128) -> i128 {
    -(-a).div_euclid(b)
}
