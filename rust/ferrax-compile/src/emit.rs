//! From a group of roots to a kernel.
//!
//! Virtual variables are emitted on demand at the view at which they are
//! needed; a (variable, view) pair is emitted once. Movement ops only change
//! the view. Where a view has no index per axis the loops are split and the
//! group starts over; where that does not help the caller stores the variable.

use ferrax_ir::ops::{ArgKind, ReduceKind};
use ferrax_ir::scalar::{Body, Reg, ScalarOp, ScalarType, Value};
use ferrax_ir::{
    ArrayType, Atom, DType, Equation, Error, Op, Scalar, Type, Var, View as OpView, internal_error,
};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::graph::{Class, Graph};
use crate::group::{Group, Grouping, Item, Piece};
use crate::index::{Indivisible, PerLoop, View};
use crate::kernel::{Accumulator, AccumulatorKind, AxisKind, Kernel, Launch, Load, Operand, Stage, Store};

/// Why a group was not emitted.
pub enum Failure {
    Split {
        index: usize,
        inner: i64,
    },
    /// This variable must be stored (or, if it is, have a kernel to itself).
    Store(Var),
    Error(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Error(error)
    }
}

type Emitted<T> = Result<T, Failure>;

/// A kernel and the variables in whose memory its operands are.
pub struct KernelStep {
    pub launch: Launch,
    pub operands: Vec<Var>,
}

/// Splits of loops in one group before it is given up.
const MAX_SPLITS: usize = 12;

/// The register type of elements: keys are moved as raw words.
fn register_type(dtype: DType) -> Result<ScalarType, Error> {
    if dtype.is_key() { Ok(ScalarType::U64) } else { ScalarType::of(dtype) }
}

/// Emits group `number`. `stored` says which roots need memory.
pub fn emit_group(
    graph: &Graph<'_>,
    grouping: &Grouping,
    number: u32,
    stored: &[bool],
) -> Emitted<Option<KernelStep>> {
    let group = &grouping.groups[number as usize];
    let mut extents: PerLoop<usize> = SmallVec::new();
    let mut kinds: PerLoop<AxisKind> = SmallVec::new();
    for (&size, &reduced) in group.sizes.iter().zip(&group.reduced) {
        if size != 1 {
            extents.push(size);
            kinds.push(if reduced { AxisKind::Reduction } else { AxisKind::Parallel });
        }
    }
    for _ in 0..MAX_SPLITS {
        let mut emitter = Emitter::new(graph, grouping, number, extents.clone(), kinds.clone());
        match emitter.group(group, stored) {
            Err(Failure::Split { index, inner }) => {
                let inner = inner as usize;
                extents[index] /= inner;
                extents.insert(index + 1, inner);
                let kind = kinds[index];
                kinds.insert(index + 1, kind);
            }
            Err(failure) => return Err(failure),
            Ok(()) => return Ok(emitter.finish()),
        }
    }
    Err(Failure::Error(internal_error!("the loops of a kernel were split too often")))
}

struct Emitter<'a> {
    graph: &'a Graph<'a>,
    grouping: &'a Grouping,
    number: u32,
    stage: Stage,
    launch: Launch,
    operands: Vec<Var>,
    views: FxHashMap<View, u32>,
    memo: FxHashMap<(Var, u32, Stage), Value>,
    /// Loads by operand, view and fill.
    loads: FxHashMap<(u32, u32, Option<Scalar>), u32>,
}

impl<'a> Emitter<'a> {
    fn new(
        graph: &'a Graph<'a>,
        grouping: &'a Grouping,
        number: u32,
        extents: PerLoop<usize>,
        kinds: PerLoop<AxisKind>,
    ) -> Self {
        let launch =
            Launch { kernel: Kernel { axes: kinds, ..Kernel::default() }, extents, ..Launch::default() };
        Emitter {
            graph,
            grouping,
            number,
            stage: Stage::Main,
            launch,
            operands: Vec::new(),
            views: FxHashMap::default(),
            memo: FxHashMap::default(),
            loads: FxHashMap::default(),
        }
    }

    fn finish(mut self) -> Option<KernelStep> {
        if self.launch.kernel.stores.is_empty() {
            return None;
        }
        // An accumulator that nothing reads is not computed: drop those first.
        self.drop_unused_accumulators();
        self.launch.prune();
        Some(KernelStep { launch: self.launch, operands: self.operands })
    }

    fn drop_unused_accumulators(&mut self) {
        let kernel = &mut self.launch.kernel;
        let base = kernel.loads.len() as u32;
        // Every accumulator has its `Input` in the epilogue; stores decide.
        let mut live = vec![false; kernel.epilogue.instructions().len()];
        for store in kernel.stores.iter().filter(|store| store.stage == Stage::Epilogue) {
            for reg in crate::kernel::registers(store.value) {
                live[reg.0 as usize] = true;
            }
        }
        for (index, instruction) in kernel.epilogue.instructions().iter().enumerate().rev() {
            if live[index] {
                for arg in &instruction.args {
                    live[arg.0 as usize] = true;
                }
            }
        }
        let mut used = vec![false; kernel.accumulators.len()];
        for (instruction, _) in kernel.epilogue.instructions().iter().zip(&live).filter(|(_, live)| **live) {
            if let ScalarOp::Input { operand, .. } = instruction.op
                && operand >= ACCUMULATOR
            {
                used[(operand - ACCUMULATOR) as usize] = true;
            }
        }
        let mut renumber = vec![0u32; used.len()];
        let mut count = 0;
        for (index, &used) in used.iter().enumerate() {
            renumber[index] = count;
            count += u32::from(used);
        }
        let mut index = 0;
        kernel.accumulators.retain(|_| {
            index += 1;
            used[index - 1]
        });
        let mut epilogue = Body::default();
        let mut map: Vec<Reg> = Vec::with_capacity(live.len());
        for (index, instruction) in kernel.epilogue.instructions().iter().enumerate() {
            let args: SmallVec<[Reg; 3]> = instruction.args.iter().map(|arg| map[arg.0 as usize]).collect();
            let op = match instruction.op {
                ScalarOp::Input { operand, part } if operand >= ACCUMULATOR => {
                    if !live[index] {
                        map.push(Reg(0));
                        continue;
                    }
                    ScalarOp::Input { operand: base + renumber[(operand - ACCUMULATOR) as usize], part }
                }
                op => op,
            };
            if !live[index] {
                map.push(Reg(0));
                continue;
            }
            map.push(epilogue.push(op, instruction.ty, &args));
        }
        for store in kernel.stores.iter_mut().filter(|store| store.stage == Stage::Epilogue) {
            store.value = match store.value {
                Value::Real(reg) => Value::Real(map[reg.0 as usize]),
                Value::Complex(re, im) => Value::Complex(map[re.0 as usize], map[im.0 as usize]),
            };
        }
        kernel.epilogue = epilogue;
    }

    fn body(&mut self) -> &mut Body {
        match self.stage {
            Stage::Main => &mut self.launch.kernel.body,
            Stage::Epilogue => &mut self.launch.kernel.epilogue,
        }
    }

    /// Row-major over all loops (main) or the parallel ones (epilogue).
    fn identity(&self) -> View {
        let mut view = View::identity(&self.launch.extents);
        if self.stage == Stage::Epilogue {
            let mut weight = 1;
            for axis in (0..self.launch.extents.len()).rev() {
                if self.launch.kernel.axes[axis] == AxisKind::Reduction {
                    view.strides[axis] = 0;
                } else {
                    view.strides[axis] = weight;
                    weight *= self.launch.extents[axis] as i64;
                }
            }
        }
        view
    }

    fn stage_of(&self, count: usize) -> Stage {
        let all: usize = self.launch.extents.iter().product();
        if count == all { Stage::Main } else { Stage::Epilogue }
    }

    fn group(&mut self, group: &Group, stored: &[bool]) -> Emitted<()> {
        for item in &group.items {
            match item {
                Item::Main(var) | Item::Epilogue(var) => {
                    self.stage = if matches!(item, Item::Main(_)) { Stage::Main } else { Stage::Epilogue };
                    let view = self.identity();
                    let value = self.define(*var, &view)?;
                    self.remember(*var, &view, value);
                    if stored[var.index()] {
                        self.store(*var, value, view);
                    }
                }
                Item::Reduce(var) => {
                    let value = self.reduce(*var)?;
                    let view = self.identity();
                    self.remember(*var, &view, value);
                    if stored[var.index()] {
                        self.store(*var, value, view);
                    }
                }
                Item::Piece(piece) => self.piece(piece)?,
            }
        }
        Ok(())
    }

    fn remember(&mut self, var: Var, view: &View, value: Value) {
        let id = self.view_id(view);
        self.memo.insert((var, id, self.stage), value);
    }

    fn view_id(&mut self, view: &View) -> u32 {
        if let Some(&id) = self.views.get(view) {
            return id;
        }
        let id = self.views.len() as u32;
        self.views.insert(view.clone(), id);
        id
    }

    fn operand(&mut self, var: Var, dtype: DType, written: bool) -> u32 {
        let operand = Operand { dtype, written };
        let found = self
            .operands
            .iter()
            .zip(&self.launch.kernel.operands)
            .position(|(have, kind)| *have == var && *kind == operand);
        found.unwrap_or_else(|| {
            self.operands.push(var);
            self.launch.kernel.operands.push(operand);
            self.operands.len() - 1
        }) as u32
    }

    fn store(&mut self, var: Var, value: Value, view: View) {
        let operand = self.operand(var, self.graph.dtypes[var.index()], true);
        self.launch.kernel.stores.push(Store { operand, stage: self.stage, value });
        self.launch.stores.push(view);
    }

    fn reduce(&mut self, var: Var) -> Emitted<Value> {
        let Some((equation, _)) = self.graph.equation_of(var) else {
            return Err(internal_error!("a reduction without equation").into());
        };
        self.stage = Stage::Main;
        let view = self.identity();
        let input = self.atom(&equation.inputs[0], &view)?;
        let input_dtype = self.graph.atom_dtype(&equation.inputs[0]);
        let output_dtype = self.graph.dtypes[var.index()];
        let (kind, input) = match &equation.op {
            Op::Reduce(op) => {
                let boolean = input_dtype == DType::Bool;
                let kind = match op.kind {
                    ReduceKind::Sum => AccumulatorKind::Sum,
                    ReduceKind::Prod => AccumulatorKind::Prod,
                    ReduceKind::Max if boolean => AccumulatorKind::Or,
                    ReduceKind::Min if boolean => AccumulatorKind::And,
                    ReduceKind::Max => AccumulatorKind::Max,
                    ReduceKind::Min => AccumulatorKind::Min,
                    ReduceKind::And => AccumulatorKind::And,
                    ReduceKind::Or => AccumulatorKind::Or,
                    ReduceKind::Xor => AccumulatorKind::Xor,
                };
                (kind, input)
            }
            Op::ArgReduce(op) => {
                let kind =
                    if op.kind == ArgKind::Max { AccumulatorKind::ArgMax } else { AccumulatorKind::ArgMin };
                let input = match input {
                    Value::Real(reg) if input_dtype == DType::Bool => {
                        Value::Real(self.body().convert(reg, ScalarType::U8))
                    }
                    other => other,
                };
                (kind, input)
            }
            op => return Err(internal_error!("{} is no reduction", op.name()).into()),
        };
        let mut results: SmallVec<[Reg; 2]> = SmallVec::new();
        for arg in crate::kernel::registers(input) {
            let ty = self.launch.kernel.body.type_of(arg);
            let accumulator = Accumulator { kind, ty, arg };
            let index = match self.launch.kernel.accumulators.iter().position(|have| *have == accumulator) {
                Some(index) => index,
                None => {
                    self.launch.kernel.accumulators.push(accumulator);
                    self.launch.kernel.accumulators.len() - 1
                }
            };
            let input = ScalarOp::Input { operand: ACCUMULATOR + index as u32, part: 0 };
            results.push(self.launch.kernel.epilogue.push(input, accumulator.result(), &[]));
        }
        self.stage = Stage::Epilogue;
        let epilogue = &mut self.launch.kernel.epilogue;
        Ok(match results.as_slice() {
            [re, im] => Value::Complex(*re, *im),
            [only] if kind.is_arg() => Value::Real(epilogue.convert(*only, register_type(output_dtype)?)),
            [only] => Value::Real(epilogue.round_to(output_dtype, *only)),
            _ => return Err(internal_error!("a reduction of nothing").into()),
        })
    }

    /// What to do where `view` has no index per axis. A loop that a pad restricts is not split: the
    /// pad could not say where its operand is, and the loop's extent need not be divisible.
    fn without_index(&self, failure: Indivisible, view: &View, var: Var) -> Failure {
        match failure {
            Indivisible::Split { index, inner }
                if view.ranges[index] == (0, self.launch.extents[index] as i64) =>
            {
                Failure::Split { index, inner }
            }
            _ => Failure::Store(var),
        }
    }

    fn piece(&mut self, piece: &Piece) -> Emitted<()> {
        self.stage = self.stage_of(piece.sizes.iter().product());
        let view = self.identity();
        let indices = view
            .decompose(&piece.sizes)
            .map_err(|failure| self.without_index(failure, &view, piece.target))?;
        let source = match &piece.source_start {
            None => view.scalar(),
            Some(start) => indices.view(&view, self.graph.atom_sizes(&piece.source), |axis| {
                Some((axis, start[axis] as i64, 1))
            }),
        };
        let value = self.atom(&piece.source, &source)?;
        let target = indices.view(&view, &self.graph.sizes[piece.target.index()], |axis| {
            Some((axis, piece.target_start[axis] as i64, piece.target_step[axis] as i64))
        });
        self.store(piece.target, value, target);
        Ok(())
    }

    fn atom(&mut self, atom: &Atom, view: &View) -> Emitted<Value> {
        match atom {
            Atom::Literal(literal) => Ok(self.literal(literal.value)),
            Atom::Var(var) => self.var(*var, view),
        }
    }

    fn literal(&mut self, value: Scalar) -> Value {
        self.body().literal(value)
    }

    fn var(&mut self, var: Var, view: &View) -> Emitted<Value> {
        let id = self.view_id(view);
        if let Some(base) = self.graph.base[var.index()] {
            let key = (base, id, self.stage);
            if let Some(&value) = self.memo.get(&key)
                && self.graph.dtypes[base.index()] == self.graph.dtypes[var.index()]
            {
                return Ok(value);
            }
            if self.grouping.group_of[base.index()] == Some(self.number) {
                return Err(Failure::Store(base));
            }
            return self.load(var, base, view, None);
        }
        let key = (var, id, self.stage);
        if let Some(&value) = self.memo.get(&key) {
            return Ok(value);
        }
        let value = self.define(var, view)?;
        self.memo.insert(key, value);
        Ok(value)
    }

    fn load(&mut self, var: Var, base: Var, view: &View, fill: Option<Scalar>) -> Emitted<Value> {
        let dtype = self.graph.dtypes[var.index()];
        let id = self.view_id(view);
        let operand = self.operand(base, dtype, false);
        let key = (operand, id, fill);
        let index = match self.loads.get(&key) {
            Some(&index) => index,
            None => {
                let index = self.launch.kernel.loads.len() as u32;
                self.launch.kernel.loads.push(Load { operand, fill });
                self.launch.loads.push(view.clone());
                self.loads.insert(key, index);
                index
            }
        };
        let ty = register_type(dtype)?;
        let body = self.body();
        let mut part = |part| body.push(ScalarOp::Input { operand: index, part }, ty, &[]);
        Ok(if dtype.is_complex() { Value::Complex(part(0), part(1)) } else { Value::Real(part(0)) })
    }

    /// The code of a virtual variable, or of a root where it is defined.
    fn define(&mut self, var: Var, view: &View) -> Emitted<Value> {
        let Some((equation, class)) = self.graph.equation_of(var) else {
            return Err(internal_error!("variable {} has no definition", var.0).into());
        };
        match class {
            Class::Elementwise => self.elementwise(equation, view),
            Class::Alias => self.atom(&equation.inputs[0], view),
            Class::Movement => self.movement(equation, var, view),
            other => Err(internal_error!("{} is {other:?}, not code", equation.op.name()).into()),
        }
    }

    fn elementwise(&mut self, equation: &Equation, view: &View) -> Emitted<Value> {
        let output = equation.outputs[0];
        let count = self.graph.counts[output.index()];
        let mut args: SmallVec<[Value; 3]> = SmallVec::new();
        let mut types: SmallVec<[ArrayType; 3]> = SmallVec::new();
        for input in &equation.inputs {
            let scalar = self.graph.atom_count(input) == 1 && count != 1;
            let value = if scalar { self.atom(input, &view.scalar())? } else { self.atom(input, view)? };
            args.push(value);
            match self.graph.program.type_of(input) {
                Type::Array(ty) => types.push(ty),
                other => return Err(internal_error!("{} of {other}", equation.op.name()).into()),
            }
        }
        let Type::Array(ty) = &self.graph.program.types[output.index()] else {
            return Err(internal_error!("{} gives no array", equation.op.name()).into());
        };
        match equation.op.view() {
            OpView::Leaf(rules) => Ok(rules.scalar(self.body(), &types, &args, ty)?),
            _ => Err(internal_error!("{} reached a kernel", equation.op.name()).into()),
        }
    }

    fn movement(&mut self, equation: &Equation, var: Var, view: &View) -> Emitted<Value> {
        let graph = self.graph;
        let sizes = &graph.sizes[var.index()];
        let input_sizes = equation.inputs.first().map_or(&[][..], |atom| graph.atom_sizes(atom));
        let failed = |failure| self.without_index(failure, view, var);
        let inner = match &equation.op {
            Op::Reshape(op) if op.dimensions.is_none() => view.clone(),
            Op::Reshape(op) => {
                // A transpose by `dimensions`, then the reshape.
                let permutation = op.dimensions.as_deref().unwrap_or_default();
                let permuted: SmallVec<[usize; 4]> =
                    permutation.iter().map(|&axis| input_sizes[axis]).collect();
                let indices = view.decompose(&permuted).map_err(failed)?;
                indices.view(view, input_sizes, |axis| Some((permutation[axis], 0, 1)))
            }
            Op::Squeeze(_) => view.clone(),
            _ if graph.counts[var.index()] == 1
                && !matches!(equation.op, Op::Pad(_) | Op::ArgReduce(_))
                && graph.atom_count_of(equation) == 1 =>
            {
                view.scalar()
            }
            Op::BroadcastInDim(op) => {
                if equation.inputs.is_empty() || graph.atom_count(&equation.inputs[0]) == 1 {
                    view.scalar()
                } else {
                    let indices = view.decompose(sizes).map_err(failed)?;
                    indices.view(view, input_sizes, |axis| {
                        let from = op.broadcast_dimensions.iter().position(|&to| to == axis)?;
                        (input_sizes[from] != 1).then_some((from, 0, 1))
                    })
                }
            }
            Op::Transpose(op) => {
                let indices = view.decompose(sizes).map_err(failed)?;
                indices.view(view, input_sizes, |axis| Some((op.permutation[axis], 0, 1)))
            }
            Op::Slice(op) => {
                let indices = view.decompose(sizes).map_err(failed)?;
                let mut starts: SmallVec<[i64; 4]> = SmallVec::new();
                for start in &op.start_indices {
                    starts.push(start.require("slice")? as i64);
                }
                let step = |axis: usize| op.strides.as_ref().map_or(1, |strides| strides[axis] as i64);
                indices.view(view, input_sizes, |axis| Some((axis, starts[axis], step(axis))))
            }
            Op::Rev(op) => {
                let indices = view.decompose(sizes).map_err(failed)?;
                indices.view(view, input_sizes, |axis| {
                    let reversed = op.dimensions.contains(&axis);
                    Some(if reversed { (axis, sizes[axis] as i64 - 1, -1) } else { (axis, 0, 1) })
                })
            }
            Op::Pad(op) => return self.pad(&op.padding_config, equation, var, view),
            Op::Iota(op) => {
                let indices = view.decompose(sizes).map_err(failed)?;
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
                let value = body.convert(sum, register_type(op.dtype)?);
                let value = body.round_to(op.dtype, value);
                return Ok(if op.dtype.is_complex() {
                    let zero = body.float(register_type(op.dtype)?, 0.0);
                    Value::Complex(value, zero)
                } else {
                    Value::Real(value)
                });
            }
            // Over nothing.
            Op::Reduce(op) => {
                let identity = reduce_identity(op.kind, graph.dtypes[var.index()]);
                return Ok(self.literal(identity));
            }
            // Over axes of size 1.
            Op::ArgReduce(op) => return Ok(self.literal(Scalar::zero(op.index_dtype))),
            op => return Err(internal_error!("{} does not only move elements", op.name()).into()),
        };
        self.atom(&equation.inputs[0], &inner)
    }

    fn pad(
        &mut self,
        config: &[(i64, i64, i64)],
        equation: &Equation,
        var: Var,
        view: &View,
    ) -> Emitted<Value> {
        let graph = self.graph;
        let sizes = &graph.sizes[var.index()];
        let input_sizes = graph.atom_sizes(&equation.inputs[0]);
        let outside = view.scalar();
        if graph.atom_count(&equation.inputs[0]) == 0 {
            return self.atom(&equation.inputs[1], &outside);
        }
        let indices = match view.decompose(sizes) {
            Ok(indices) => indices,
            Err(failure) => return Err(self.without_index(failure, view, var)),
        };
        let mut inner = indices.view(view, input_sizes, |axis| Some((axis, -config[axis].0, 1)));
        // Loop indices at which every axis is inside the operand.
        let mut restricted: SmallVec<[usize; 4]> = SmallVec::new();
        for (axis, &(low, _, _)) in config.iter().enumerate() {
            let size = input_sizes[axis] as i64;
            let mut terms = indices.terms_of(axis);
            let start = indices.start[axis] - low;
            match (terms.next(), terms.next()) {
                (None, _) => {
                    if start < 0 || start >= size {
                        return self.atom(&equation.inputs[1], &outside);
                    }
                }
                (Some(term), None) => {
                    // 0 <= start + factor * i < size.
                    let (low, high) = if term.factor > 0 {
                        (ceil_div(-start, term.factor), ceil_div(size - start, term.factor))
                    } else {
                        let factor = -term.factor;
                        (ceil_div(start - size + 1, factor), ceil_div(start + 1, factor))
                    };
                    let range = &mut inner.ranges[term.index];
                    let narrowed = (range.0.max(low), range.1.min(high));
                    if narrowed != *range {
                        *range = narrowed;
                        restricted.push(term.index);
                    }
                    if range.0 >= range.1 {
                        return self.atom(&equation.inputs[1], &outside);
                    }
                }
                _ => {
                    let moved: i64 = indices
                        .terms_of(axis)
                        .map(|t| t.factor.abs() * (view.ranges[t.index].1 - view.ranges[t.index].0 - 1))
                        .sum();
                    let least: i64 = start
                        + indices
                            .terms_of(axis)
                            .map(|t| {
                                let (low, high) = view.ranges[t.index];
                                t.factor * if t.factor < 0 { high - 1 } else { low }
                            })
                            .sum::<i64>();
                    if least < 0 || least + moved >= size {
                        return Err(Failure::Store(var));
                    }
                }
            }
        }
        let value = self.atom(&equation.inputs[0], &inner)?;
        if restricted.is_empty() {
            return Ok(value);
        }
        // A plain load fills itself.
        if let (Value::Real(reg), Atom::Literal(literal)) = (value, &equation.inputs[1])
            && let ScalarOp::Input { operand, part: 0 } = self.body().instructions()[reg.0 as usize].op
            && operand < ACCUMULATOR
            && self.launch.loads[operand as usize].ranges == inner.ranges
            && self.launch.kernel.loads[operand as usize].fill.is_none()
        {
            let load = self.launch.kernel.loads[operand as usize];
            let operand_dtype = self.launch.kernel.operands[load.operand as usize].dtype;
            if operand_dtype == literal.value.dtype() {
                let view = self.launch.loads[operand as usize].clone();
                let id = self.view_id(&view);
                let key = (load.operand, id, Some(literal.value));
                let index = match self.loads.get(&key) {
                    Some(&index) => index,
                    None => {
                        let index = self.launch.kernel.loads.len() as u32;
                        self.launch
                            .kernel
                            .loads
                            .push(Load { operand: load.operand, fill: Some(literal.value) });
                        self.launch.loads.push(view);
                        self.loads.insert(key, index);
                        index
                    }
                };
                let ty = self.body().type_of(reg);
                let input = ScalarOp::Input { operand: index, part: 0 };
                return Ok(Value::Real(self.body().push(input, ty, &[])));
            }
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

/// Inputs of the epilogue from here on are accumulators, until the number of
/// loads is known.
const ACCUMULATOR: u32 = 1 << 24;

fn ceil_div(a: i64, b: i64) -> i64 {
    -(-a).div_euclid(b)
}

/// The reduction of nothing.
fn reduce_identity(kind: ReduceKind, dtype: DType) -> Scalar {
    let float = dtype.is_inexact();
    let bits = dtype.bits() as u32;
    match kind {
        ReduceKind::Sum | ReduceKind::Or | ReduceKind::Xor => Scalar::zero(dtype),
        ReduceKind::Prod => Scalar::from_f64(dtype, 1.0),
        ReduceKind::Max if float => Scalar::from_f64(dtype, f64::NEG_INFINITY),
        ReduceKind::Min if float => Scalar::from_f64(dtype, f64::INFINITY),
        ReduceKind::Max if dtype.is_signed() => Scalar::from_bits(dtype, 1u128 << (bits - 1)),
        ReduceKind::Max => Scalar::zero(dtype),
        ReduceKind::Min if dtype.is_signed() => Scalar::from_bits(dtype, (1u128 << (bits - 1)) - 1),
        ReduceKind::And | ReduceKind::Min if dtype == DType::Bool => Scalar::bool(true),
        ReduceKind::And | ReduceKind::Min => Scalar::from_bits(dtype, u128::MAX),
    }
}
