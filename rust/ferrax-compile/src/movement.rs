//! Movement ops in a kernel: what they read, at which view.
//!
//! Most only turn the view of their result into one of their operand. A pad
//! restricts it too, to where it is inside of the operand, and chooses between
//! the operand and the padding value.

use ferrax_ir::ops::{Iota, Kept, Pad};
use ferrax_ir::scalar::{Body, Reg, ScalarOp, ScalarType, Value};
use ferrax_ir::{Atom, Equation, Op, Scalar, Sizes, Var, internal_error};
use smallvec::SmallVec;

use crate::emit::{Emitted, Emitter, Interrupt};
use crate::index::{AxisIndices, Indivisible, View};

impl Emitter<'_> {
    /// The value of `var`, which this equation defines, at a view.
    pub fn movement(&mut self, equation: &Equation, var: Var, view: &View) -> Emitted<Value> {
        let graph = self.graph;
        let sizes = &graph.sizes[var.index()];
        let input_sizes = equation.inputs.first().map_or(&[][..], |atom| graph.atom_sizes(atom));
        // What needs no index along each axis.
        match &equation.op {
            Op::Reshape(op) if op.dimensions.is_none() => return self.atom(&equation.inputs[0], view),
            Op::Squeeze(_) => return self.atom(&equation.inputs[0], view),
            Op::Pad(op) => return self.pad(op, equation, var, view),
            // Over axes of size 1.
            Op::ArgReduce(op) => return Ok(self.literal(Scalar::zero(op.index_dtype))),
            Op::BroadcastInDim(_) if graph.atom_count(&equation.inputs[0]) == 1 => {
                return self.atom(&equation.inputs[0], &view.scalar());
            }
            _ if graph.counts[var.index()] == 1 && graph.atom_count_of(equation) == 1 => {
                return self.atom(&equation.inputs[0], &view.scalar());
            }
            // Over nothing.
            Op::Reduce(op) => {
                let identity = op.kind.of_nothing(graph.dtypes[var.index()])?;
                return Ok(self.literal(identity));
            }
            _ => {}
        }
        // A reshape with `dimensions` is a transpose, then a reshape.
        let permutation = match &equation.op {
            Op::Reshape(op) => op.dimensions.as_deref().unwrap_or_default(),
            _ => &[],
        };
        let permuted: Sizes = permutation.iter().map(|&axis| input_sizes[axis]).collect();
        let through = if permutation.is_empty() { sizes } else { &permuted };
        let indices = match view.decompose(through) {
            Ok(indices) => indices,
            Err(failure) => return self.stored(failure, view, var),
        };
        let inner = match &equation.op {
            Op::Reshape(_) => indices.view(view, input_sizes, |axis| Some((permutation[axis], 0, 1))),
            Op::BroadcastInDim(op) => indices.view(view, input_sizes, |axis| {
                let from = op.broadcast_dimensions.iter().position(|&to| to == axis)?;
                (input_sizes[from] != 1).then_some((from, 0, 1))
            }),
            Op::Transpose(op) => indices.view(view, input_sizes, |axis| Some((op.permutation[axis], 0, 1))),
            Op::Slice(op) => {
                let mut starts: SmallVec<[i64; 4]> = SmallVec::new();
                for start in &op.start_indices {
                    starts.push(start.require("slice")? as i64);
                }
                // Of a single element the step says nothing, and may be anything.
                let step = |axis: usize| match &op.strides {
                    Some(strides) if sizes[axis] > 1 => strides[axis] as i64,
                    _ => 1,
                };
                indices.view(view, input_sizes, |axis| Some((axis, starts[axis], step(axis))))
            }
            Op::Rev(op) => indices.view(view, input_sizes, |axis| {
                let reversed = op.dimensions.contains(&axis);
                Some(if reversed { (axis, sizes[axis] as i64 - 1, -1) } else { (axis, 0, 1) })
            }),
            Op::Iota(op) => return self.iota(op, &indices),
            op => return Err(internal_error!("{} does not only move elements", op.name()).into()),
        };
        let inner = inner.map_err(|_| Interrupt::from(self.too_large(var)))?;
        self.atom(&equation.inputs[0], &inner)
    }

    fn iota(&mut self, op: &Iota, indices: &AxisIndices) -> Emitted<Value> {
        let body = self.body();
        let mut sum = body.int(ScalarType::I64, indices.start[op.dimension]);
        for term in indices.terms_of(op.dimension) {
            let index = body.push(ScalarOp::Index { axis: term.index as u32 }, ScalarType::I64, &[]);
            let scaled = match term.factor {
                1 => index,
                factor => {
                    let factor = body.int(ScalarType::I64, factor);
                    body.op(ScalarOp::Mul, &[index, factor])
                }
            };
            sum = match body.instructions()[sum.0 as usize].op {
                ScalarOp::Const { bits: 0 } => scaled,
                _ => body.op(ScalarOp::Add, &[sum, scaled]),
            };
        }
        let value = body.convert(sum, ScalarType::of(op.dtype)?);
        let value = body.round_to(op.dtype, value);
        Ok(if op.dtype.is_complex() {
            let zero = body.float(ScalarType::of(op.dtype)?, 0.0);
            Value::Complex(value, zero)
        } else {
            Value::Real(value)
        })
    }

    fn pad(&mut self, op: &Pad, equation: &Equation, var: Var, view: &View) -> Emitted<Value> {
        let graph = self.graph;
        let sizes = &graph.sizes[var.index()];
        let input_sizes = graph.atom_sizes(&equation.inputs[0]);
        let outside = view.scalar();
        // This op has no interior padding: what it keeps of an axis is a run.
        let kept: SmallVec<[Kept; 4]> = op
            .padding_config
            .iter()
            .enumerate()
            .map(|(axis, &config)| Kept::new(input_sizes[axis], sizes[axis], config))
            .collect();
        if kept.iter().any(|kept| kept.count == 0) {
            return self.atom(&equation.inputs[1], &outside);
        }
        let indices = match view.decompose(sizes) {
            Ok(indices) => indices,
            Err(failure) => return self.stored(failure, view, var),
        };
        let mut inner = indices
            .view(view, input_sizes, |axis| Some((axis, kept[axis].from as i64 - kept[axis].to as i64, 1)))
            .map_err(|_| Interrupt::from(self.too_large(var)))?;
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
        if let Atom::Literal(literal) = &equation.inputs[1]
            && let Some(filled) = self.filled(value, &inner.ranges, literal.value)
        {
            return Ok(filled);
        }
        let fill = self.atom(&equation.inputs[1], &outside)?;
        let ranges = inner.ranges;
        let body = self.body();
        let mut inside: Option<Reg> = None;
        let mut and = |body: &mut Body, condition: Reg| {
            inside = Some(match inside {
                Some(before) => body.op(ScalarOp::And, &[before, condition]),
                None => condition,
            });
        };
        for &loop_index in &restricted {
            let (low, high) = ranges[loop_index];
            let (old_low, old_high) = view.ranges[loop_index];
            let index = body.push(ScalarOp::Index { axis: loop_index as u32 }, ScalarType::I64, &[]);
            if low > old_low {
                let low = body.int(ScalarType::I64, low);
                let condition = body.compare(ScalarOp::Le, low, index);
                and(body, condition);
            }
            if high < old_high {
                let high = body.int(ScalarType::I64, high);
                let condition = body.compare(ScalarOp::Lt, index, high);
                and(body, condition);
            }
        }
        let Some(inside) = inside else { return Ok(value) };
        Ok(match (value, fill) {
            (Value::Real(value), Value::Real(fill)) => Value::Real(body.select(inside, value, fill)),
            (Value::Complex(a, b), Value::Complex(c, d)) => {
                Value::Complex(body.select(inside, a, c), body.select(inside, b, d))
            }
            _ => return Err(internal_error!("pad mixes real and complex").into()),
        })
    }
}

fn ceil_div(a: i128, b: i128) -> i128 {
    -(-a).div_euclid(b)
}
