//! From a group of roots to a kernel.
//!
//! Virtual variables are emitted on demand at the view at which they are
//! needed; a (variable, view) pair is emitted once. Movement ops only change
//! the view (`movement`). Where a view has no index per axis the loops are
//! split and the group starts over, [`cost_model::SPLITS`] times at most. Where that
//! does not help or is not allowed, the variable must be stored: emission goes
//! on as if it were, so that one pass finds all such variables of a group, and
//! gives their list instead of a kernel.

use std::collections::BTreeSet;

use ferrax_ir::lowering::Follow;
use ferrax_ir::scalar::reference::{Inputs, evaluate};
use ferrax_ir::scalar::{Body, Reg, ScalarOp, ScalarType, Value};
use ferrax_ir::{
    ArrayType, Atom, DType, Equation, Error, Scalar, Type, Var, View as OpView, internal_error,
    overflow_error,
};
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

use crate::cost_model;
use crate::draft::{Draft, Source};
use crate::graph::{Class, Graph};
use crate::group::{Group, Grouping, Item, Piece};
use crate::index::{Indivisible, PerLoop, View};
use crate::interpret::{FEW, operation};
use crate::kernel::{Accumulator, AxisKind, Jumps, Launch, Load, Operand, Stage, Store, registers};

/// Why emission stopped.
pub enum Interrupt {
    /// A loop must be split first.
    Split {
        index: usize,
        inner: i64,
    },
    Error(Error),
}

impl From<Error> for Interrupt {
    fn from(error: Error) -> Self {
        Interrupt::Error(error)
    }
}

pub type Emitted<T> = Result<T, Interrupt>;

/// What a group became.
#[expect(clippy::large_enum_variant, reason = "one a group, taken apart at once")]
pub enum Emission {
    /// A kernel; none if nothing of it needs memory.
    Kernel(Option<KernelStep>),
    /// These variables must be stored (or, if they are, have kernels to themselves).
    Store(Vec<Var>),
}

/// A kernel and the variables in whose memory its operands are.
pub struct KernelStep {
    pub launch: Launch,
    pub operands: Vec<Var>,
}

/// Emits group `number`. `stored` says which roots need memory.
pub fn emit_group(
    graph: &Graph<'_>,
    grouping: &Grouping,
    number: u32,
    stored: &[bool],
) -> Result<Emission, Error> {
    let group = &grouping.groups[number as usize];
    let mut extents: PerLoop<usize> = SmallVec::new();
    let mut kinds: PerLoop<AxisKind> = SmallVec::new();
    for (&size, &reduced) in group.sizes.iter().zip(&group.reduced) {
        if size != 1 {
            extents.push(size);
            kinds.push(if reduced { AxisKind::Reduction } else { AxisKind::Parallel });
        }
    }
    let mut splits_left = cost_model::SPLITS;
    loop {
        let mut emitter =
            Emitter::new(graph, grouping, number, extents.clone(), kinds.clone(), splits_left > 0);
        match emitter.group(group, stored) {
            // Only an emitter that may split asks for it: this ends.
            Err(Interrupt::Split { index, inner }) => {
                let inner = inner as usize;
                extents[index] /= inner;
                extents.insert(index + 1, inner);
                let kind = kinds[index];
                kinds.insert(index + 1, kind);
                splits_left -= 1;
            }
            Err(Interrupt::Error(error)) => return Err(error),
            Ok(()) => {
                let unrolled = match emitter.unrolled(group, stored)? {
                    None => emitter.few_terms(group, stored)?,
                    found => found,
                };
                return Ok(unrolled.unwrap_or(emitter).finish());
            }
        }
    }
}

pub struct Emitter<'a> {
    pub graph: &'a Graph<'a>,
    grouping: &'a Grouping,
    number: u32,
    may_split: bool,
    stage: Stage,
    pub draft: Draft,
    operands: Vec<Var>,
    /// The number of each operand.
    operand_of: FxHashMap<(Var, Operand), u32>,
    views: FxHashMap<View, u32>,
    memo: FxHashMap<(Var, u32, Stage), Value>,
    /// Loads, as sources, by operand, view, jumps and fill.
    loads: FxHashMap<(u32, u32, Jumps, Option<Scalar>), u32>,
    /// What must be stored.
    without_index: Vec<Var>,
}

impl<'a> Emitter<'a> {
    fn new(
        graph: &'a Graph<'a>,
        grouping: &'a Grouping,
        number: u32,
        extents: PerLoop<usize>,
        axes: PerLoop<AxisKind>,
        may_split: bool,
    ) -> Self {
        Emitter {
            graph,
            grouping,
            number,
            may_split,
            stage: Stage::Main,
            draft: Draft::new(axes, extents),
            operands: Vec::new(),
            operand_of: FxHashMap::default(),
            views: FxHashMap::default(),
            memo: FxHashMap::default(),
            loads: FxHashMap::default(),
            without_index: Vec::new(),
        }
    }

    fn finish(self) -> Emission {
        if !self.without_index.is_empty() {
            return Emission::Store(self.without_index);
        }
        let operands = self.operands;
        Emission::Kernel(self.draft.finish().map(|launch| KernelStep { launch, operands }))
    }

    pub fn body(&mut self) -> &mut Body {
        self.draft.body_of(self.stage)
    }

    /// A number that depends on sizes.
    pub fn param(&mut self, value: i64) -> Reg {
        self.param_of(ScalarType::I64, value)
    }

    /// A number that depends on sizes, of an integer type that holds it.
    pub fn param_of(&mut self, ty: ScalarType, value: i64) -> Reg {
        self.draft.param(self.stage, ty, value)
    }

    /// Row-major over all loops (main) or the parallel ones (epilogue).
    fn identity(&self) -> View {
        let mut view = View::identity(&self.draft.extents);
        if self.stage == Stage::Epilogue {
            let mut weight = 1;
            for axis in (0..self.draft.extents.len()).rev() {
                if self.draft.axes[axis] == AxisKind::Reduction {
                    view.strides[axis] = 0;
                } else {
                    view.strides[axis] = weight;
                    weight *= self.draft.extents[axis] as i64;
                }
            }
        }
        view
    }

    fn stage_of(&self, count: usize) -> Stage {
        let all: usize = self.draft.extents.iter().product();
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

    /// The group without its last loop, if that has few steps and pads restrict it: with each step written out, what a step
    /// reads of padded arrays is known, and nothing is computed that another one needs.
    fn unrolled(&self, group: &Group, stored: &[bool]) -> Result<Option<Emitter<'a>>, Error> {
        let (Some((&steps, extents)), true) =
            (self.draft.extents.split_last(), self.without_index.is_empty())
        else {
            return Ok(None);
        };
        let few =
            (2..=cost_model::UNROLLED_STEPS).contains(&steps) && extents.iter().product::<usize>() > steps;
        let restricted = |source: &Source| match source {
            Source::Load(_, view, _) => view.ranges[extents.len()] != (0, steps as i64),
            _ => false,
        };
        if !few
            || self.draft.axes.contains(&AxisKind::Reduction)
            || !group.items.iter().all(|item| matches!(item, Item::Main(_)))
            || !self.draft.sources.iter().any(restricted)
        {
            return Ok(None);
        }
        let axes = self.draft.axes[..extents.len()].into();
        let mut unrolled = Emitter::new(self.graph, self.grouping, self.number, extents.into(), axes, false);
        let mut along = View::identity(extents);
        for stride in &mut along.strides {
            let Some(apart) = stride.checked_mul(steps as i64) else { return Ok(None) };
            *stride = apart;
        }
        for item in &group.items {
            let Item::Main(var) = item else { continue };
            for step in 0..steps as i64 {
                let view = View { offset: step, ..along.clone() };
                let value = match unrolled.define(*var, &view) {
                    Ok(value) => value,
                    Err(Interrupt::Split { .. }) => return Ok(None),
                    Err(Interrupt::Error(error)) => return Err(error),
                };
                unrolled.remember(*var, &view, value);
                if stored[var.index()] {
                    unrolled.store(*var, value, view);
                }
            }
        }
        Ok(unrolled.if_small())
    }

    /// The group without reduction loops, if these have few terms, and results are lines: a term is an operation in registers
    /// then, rather than a pass over memory. Of so few terms the tree is one after the other, so no bit changes.
    fn few_terms(&self, group: &Group, stored: &[bool]) -> Result<Option<Emitter<'a>>, Error> {
        let Draft { axes, extents, .. } = &self.draft;
        let loops = |kind: AxisKind| (0..axes.len()).filter(move |&axis| axes[axis] == kind);
        let terms: usize = loops(AxisKind::Reduction).map(|axis| extents[axis]).product();
        let line = loops(AxisKind::Parallel).next_back().map_or(0, |axis| extents[axis]);
        if !(2..=FEW).contains(&terms) || line < cost_model::UNROLLED_LINE || !self.without_index.is_empty() {
            return Ok(None);
        }
        let kept: PerLoop<usize> = loops(AxisKind::Parallel).map(|axis| extents[axis]).collect();
        let whole = View::identity(extents);
        let along = View {
            strides: loops(AxisKind::Parallel).map(|axis| whole.strides[axis]).collect(),
            ..View::identity(&kept)
        };
        let mut offsets: SmallVec<[i64; FEW]> = smallvec![0];
        for axis in loops(AxisKind::Reduction) {
            let (steps, stride) = (extents[axis] as i64, whole.strides[axis]);
            let from = |offset: i64| (0..steps).map(move |step| offset + step * stride);
            offsets = offsets.into_iter().flat_map(from).collect();
        }
        let views: Vec<View> = offsets.into_iter().map(|offset| View { offset, ..along.clone() }).collect();
        let parallel = SmallVec::from_elem(AxisKind::Parallel, kept.len());
        let mut unrolled = Emitter::new(self.graph, self.grouping, self.number, kept, parallel, false);
        match unrolled.written_out(group, stored, &views) {
            // Terms that are side by side would be read from lines that are apart, unless they are one.
            Ok(true)
                if axes.last() == Some(&AxisKind::Reduction) && unrolled.loads.len() > self.loads.len() =>
            {
                Ok(None)
            }
            Ok(true) => Ok(unrolled.if_small()),
            Ok(false) | Err(Interrupt::Split { .. }) => Ok(None),
            Err(Interrupt::Error(error)) => Err(error),
        }
    }

    /// Emits the group with a term at each of these views, if all its folds have operations.
    fn written_out(&mut self, group: &Group, stored: &[bool], terms: &[View]) -> Emitted<bool> {
        let whole = self.identity();
        for item in &group.items {
            let values: SmallVec<[(Value, &View); FEW]> = match item {
                Item::Main(var) => {
                    let of = |view| Ok((self.define(*var, view)?, view));
                    terms.iter().map(of).collect::<Emitted<_>>()?
                }
                Item::Epilogue(var) => smallvec![(self.define(*var, &whole)?, &whole)],
                Item::Reduce(var) => match self.few(*var, terms)? {
                    Some(value) => smallvec![(value, &whole)],
                    None => return Ok(false),
                },
                Item::Piece(_) => return Ok(false),
            };
            let (Item::Main(var) | Item::Epilogue(var) | Item::Reduce(var)) = item else { continue };
            for (value, view) in values {
                self.remember(*var, view, value);
                if stored[var.index()] {
                    self.store(*var, value, view.clone());
                }
            }
        }
        Ok(true)
    }

    /// What becomes of few terms, at these views; none if that is no operation's.
    fn few(&mut self, var: Var, views: &[View]) -> Emitted<Option<Value>> {
        let Some((op, identity)) = operation(self.graph.reduction_of(var)?.kind) else { return Ok(None) };
        let mut results: SmallVec<[Reg; 2]> = SmallVec::new();
        for (number, view) in views.iter().enumerate() {
            for (part, term) in self.term(var, view)?.into_iter().enumerate() {
                let ty = self.draft.body.type_of(term);
                match (number, op, identity) {
                    // A sum of negative zeros is none.
                    (0, ScalarOp::Add, Some(zero)) => {
                        let Value::Real(zero) = self.literal(Scalar::from_f64(ty.dtype(), zero)) else {
                            return Err(internal_error!("a register of two parts").into());
                        };
                        results.push(self.body().push(op, ty, &[zero, term]));
                    }
                    (0, ..) => results.push(term),
                    _ => results[part] = self.body().push(op, ty, &[results[part], term]),
                }
            }
        }
        self.reduced(var, &results).map(Some)
    }

    fn if_small(self) -> Option<Emitter<'a>> {
        let small = self.draft.body.instructions().len() <= cost_model::UNROLLED_CODE;
        (small && self.without_index.is_empty()).then_some(self)
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
        *self.operand_of.entry((var, operand)).or_insert_with(|| {
            self.operands.push(var);
            self.draft.operands.push(operand);
            self.operands.len() as u32 - 1
        })
    }

    fn store(&mut self, var: Var, value: Value, view: View) {
        let operand = self.operand(var, self.graph.dtypes[var.index()], true);
        self.draft.stores.push((Store { operand, stage: self.stage, value }, view));
    }

    fn reduce(&mut self, var: Var) -> Emitted<Value> {
        self.stage = Stage::Main;
        let kind = self.graph.reduction_of(var)?.kind;
        let mut results: SmallVec<[Reg; 2]> = SmallVec::new();
        for arg in self.term(var, &self.identity())? {
            let ty = self.draft.body.type_of(arg);
            results.push(self.draft.accumulate(Accumulator { kind, ty, arg }));
        }
        self.stage = Stage::Epilogue;
        self.reduced(var, &results)
    }

    /// A term of a reduction.
    fn term(&mut self, var: Var, view: &View) -> Emitted<SmallVec<[Reg; 2]>> {
        let Some((equation, _)) = self.graph.equation_of(var) else {
            return Err(internal_error!("a reduction without equation").into());
        };
        let input = self.atom(&equation.inputs[0], view)?;
        let is_bool = self.graph.atom_dtype(&equation.inputs[0]) == DType::Bool;
        Ok(match input {
            Value::Real(reg) if is_bool && self.graph.reduction_of(var)?.kind.is_arg() => {
                smallvec![self.body().convert(reg, ScalarType::U8)]
            }
            other => registers(other),
        })
    }

    /// The result of a reduction from what its terms became.
    fn reduced(&mut self, var: Var, results: &[Reg]) -> Emitted<Value> {
        let dtype = self.graph.dtypes[var.index()];
        let is_arg = self.graph.reduction_of(var)?.kind.is_arg();
        Ok(match results {
            [re, im] => Value::Complex(*re, *im),
            [only] if is_arg => Value::Real(self.body().convert(*only, ScalarType::of(dtype)?)),
            [only] => Value::Real(self.body().round_to(dtype, *only)),
            _ => return Err(internal_error!("a reduction of nothing").into()),
        })
    }

    /// What to do where `view` has no index per axis: asks for a split, or notes that `var` must be
    /// stored. A loop that a pad restricts is not split: the pad could not say where its operand is, and
    /// the loop's extent need not be divisible.
    fn must_store(&mut self, failure: Indivisible, view: &View, var: Var) -> Emitted<()> {
        match failure {
            Indivisible::Split { index, inner }
                if self.may_split && view.ranges[index] == (0, self.draft.extents[index] as i64) =>
            {
                Err(Interrupt::Split { index, inner })
            }
            Indivisible::TooLarge => Err(self.too_large(var).into()),
            Indivisible::Split { .. } | Indivisible::Never => {
                self.without_index.push(var);
                Ok(())
            }
        }
    }

    /// As [`Emitter::must_store`]; then a load stands for the value.
    pub fn stored(&mut self, failure: Indivisible, view: &View, var: Var) -> Emitted<Value> {
        self.must_store(failure, view, var)?;
        self.load(var, var, view, Jumps::new(), &[])
    }

    /// The error where positions among the elements of `var` exceed 64-bit integers.
    pub fn too_large(&self, var: Var) -> Error {
        let name = self.graph.equation_of(var).map_or_else(String::new, |(e, _)| e.op.name().to_owned());
        overflow_error!(
            "the positions of the elements that '{name}' moves, of a result of shape {:?}, exceed 64-bit \
             integers",
            self.graph.sizes[var.index()].as_slice()
        )
    }

    fn piece(&mut self, piece: &Piece) -> Emitted<()> {
        self.stage = self.stage_of(piece.sizes.iter().product());
        let view = self.identity();
        let indices = match view.decompose(&piece.sizes) {
            Ok(indices) => indices,
            Err(failure) => return self.must_store(failure, &view, piece.target),
        };
        let too_large = |_| Interrupt::from(self.too_large(piece.target));
        let source = match &piece.source_start {
            None => view.scalar(),
            Some(start) => indices
                .view(&view, self.graph.atom_sizes(&piece.source), window(start, &[]))
                .map_err(too_large)?,
        };
        let value = self.atom(&piece.source, &source)?;
        let target = indices
            .view(
                &view,
                &self.graph.sizes[piece.target.index()],
                window(&piece.target_start, &piece.target_step),
            )
            .map_err(|_| Interrupt::from(self.too_large(piece.target)))?;
        self.store(piece.target, value, target);
        Ok(())
    }

    pub fn atom(&mut self, atom: &Atom, view: &View) -> Emitted<Value> {
        match atom {
            Atom::Literal(literal) => Ok(self.literal(literal.value)),
            Atom::Var(var) => self.var(*var, view),
        }
    }

    pub fn literal(&mut self, value: Scalar) -> Value {
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
            return self.element(var, view, Jumps::new(), &[]);
        }
        let key = (var, id, self.stage);
        if let Some(&value) = self.memo.get(&key) {
            return Ok(value);
        }
        let value = self.define(var, view)?;
        self.memo.insert(key, value);
        Ok(value)
    }

    /// The element of `var`, which other steps leave in memory, at a view that indices move on by jumps.
    pub fn element(&mut self, var: Var, view: &View, jumps: Jumps, indices: &[Reg]) -> Emitted<Value> {
        let Some(base) = self.graph.base[var.index()] else {
            return Err(internal_error!("variable {} is not in memory", var.0).into());
        };
        if self.grouping.group_of[base.index()] == Some(self.number) {
            self.without_index.push(base);
        }
        self.load(var, base, view, jumps, indices)
    }

    /// The element of `var`, in the memory of `base`, at a view, moved on by as many indices as there are jumps.
    fn load(&mut self, var: Var, base: Var, view: &View, jumps: Jumps, indices: &[Reg]) -> Emitted<Value> {
        let dtype = self.graph.dtypes[var.index()];
        let operand = self.operand(base, dtype, false);
        let source = self.source(Load { operand, fill: None }, view, jumps);
        let ty = ScalarType::of(dtype)?;
        let mut part = |part| self.draft.input(self.stage, source, part, ty, indices);
        Ok(if dtype.parts() == 2 { Value::Complex(part(0), part(1)) } else { Value::Real(part(0)) })
    }

    /// The source of a load: one for all that read the same.
    fn source(&mut self, load: Load, view: &View, jumps: Jumps) -> u32 {
        let id = self.view_id(view);
        let draft = &mut self.draft;
        *self
            .loads
            .entry((load.operand, id, jumps.clone(), load.fill))
            .or_insert_with(|| draft.source(Source::Load(load, view.clone(), jumps)))
    }

    /// `value` as a load that fills itself outside of its guards, if it is a plain load with these guards.
    pub fn filled(&mut self, value: Value, ranges: &[(i64, i64)], fill: Scalar) -> Option<Value> {
        let Value::Real(reg) = value else { return None };
        let instruction = self.body().instructions()[reg.0 as usize].clone();
        let ScalarOp::Input { operand: source, part: 0 } = instruction.op else { return None };
        let Source::Load(load, view, jumps) = &self.draft.sources[source as usize] else { return None };
        let dtype = self.draft.operands[load.operand as usize].dtype;
        if view.ranges.as_slice() != ranges || load.fill.is_some() || dtype != fill.dtype() {
            return None;
        }
        let (load, view, jumps) = (Load { fill: Some(fill), ..*load }, view.clone(), jumps.clone());
        let source = self.source(load, &view, jumps);
        Some(Value::Real(self.draft.input(self.stage, source, 0, instruction.ty, &instruction.args)))
    }

    /// Whether `value` is `fill` outside of these guards as it is: a few operations make it of loads that are guarded so,
    /// which read zero there.
    pub fn is_outside(&self, value: Value, guards: &[(i64, i64)], fill: Scalar) -> Emitted<bool> {
        let sources = &self.draft.sources;
        let instructions = match self.stage {
            Stage::Main => self.draft.body.instructions(),
            Stage::Epilogue => self.draft.epilogue.instructions(),
        };
        let mut needed: BTreeSet<Reg> = registers(value).into_iter().collect();
        let mut pending = needed.clone();
        while let Some(reg) = pending.pop_last() {
            for &arg in instructions[reg.0 as usize].args.iter().filter(|&&arg| needed.insert(arg)) {
                pending.insert(arg);
            }
            if needed.len() > cost_model::OUTSIDE_CODE {
                return Ok(false);
            }
        }
        let within = |view: &View| {
            view.ranges.iter().zip(guards).all(|(inner, outer)| outer.0 <= inner.0 && inner.1 <= outer.1)
        };
        let mut small = Body::default();
        let mut known: FxHashMap<Reg, Reg> = FxHashMap::default();
        for reg in needed {
            let instruction = &instructions[reg.0 as usize];
            let op = match instruction.op {
                ScalarOp::Input { operand, .. } => match &sources[operand as usize] {
                    Source::Load(Load { fill: None, .. }, view, _)
                        if within(view) && instruction.args.is_empty() =>
                    {
                        ScalarOp::Const { bits: 0 }
                    }
                    _ => return Ok(false),
                },
                ScalarOp::Index { .. } | ScalarOp::Param { .. } | ScalarOp::Math(_) => return Ok(false),
                op => op,
            };
            let args: SmallVec<[Reg; 3]> = instruction.args.iter().map(|arg| known[arg]).collect();
            known.insert(reg, small.push(op, instruction.ty, &args));
        }
        let value = match value {
            Value::Real(reg) => Value::Real(known[&reg]),
            Value::Complex(re, im) => Value::Complex(known[&re], known[&im]),
        };
        let fill = small.literal(fill);
        let found = evaluate(&small, &Inputs::default(), &[value, fill])?;
        Ok(found[0] == found[1])
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
}

/// The index maps of a window that begins here and moves by these steps, or by 1.
fn window<'a>(starts: &'a [usize], steps: &'a [usize]) -> impl Iterator<Item = Follow> + 'a {
    starts.iter().enumerate().map(|(axis, &start)| {
        let step = steps.get(axis).map_or(1, |&step| step as i64);
        Follow { axis: Some(axis), start: start as i64, step }
    })
}
