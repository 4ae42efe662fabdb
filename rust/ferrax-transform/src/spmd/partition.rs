//! Programs of one device from programs over whole arrays.
//!
//! In: a program, the axes of a mesh, how inputs and outputs are cut, and what equations say of themselves. Out: the program that
//! each device runs on its parts, with collectives over the axes of the mesh by name, and a list of these. How arrays between are
//! cut is found by `propagate`. An equation is done on parts where its rule (`ferrax_ir::shard_rule`) says exactly what becomes of
//! them: what it folds over a cut axis is folded over the devices, at once into parts if the result is cut over these axes; else
//! (windows that reach into neighbouring parts: `halo`, `moves`) its operands are gathered and each device does all of it. Loops and branches are those of the parts; conditions are computed of
//! whole arrays, so that all devices go on alike. Calls, and ops that are made of others, are opened (`open`). Cost: linear in the opened program.

use std::sync::Arc;

use ferrax_ir::ops::{AxisReduceKind, Cond, Scan, While};
use ferrax_ir::rules::{AccumulatorKind, Extents, Lowering, Rules};
use ferrax_ir::shard_rule::{ArrayFactors, Cut, ShardRule};
use ferrax_ir::{
    Atom, Builder, DType, Dim, Effect, Equation, Op, Program, Result, Sizes, Tensor, Type, Var, View,
    internal_error, unsupported,
};
use smallvec::SmallVec;

use super::assign::{Movable, assign, sides};
use super::graph::{Asked, Frame, OneDevice, Value};
use super::halo::{Halo, halos};
use super::hoist::{Together, hoist_sums};
use super::local;
use super::moves::moved;
use super::open::{Stays, opened};
use super::partial::{Partial, Terms};
use super::propagate::{MeshAxes, Spec, fitting, settled};
use super::reshard::{Communication, Lane, Mesh, Part};
use super::span::Spans;
use super::spanned::{counted_once, held_type, nearly_even, spanned, spans_of};
use crate::cse::cse;
use crate::dce::dce;
use crate::rewrite::at;

/// See the head of the file.
pub struct Partitioned {
    pub program: Program,
    /// Values of its last inputs, the same on all devices.
    pub constants: Vec<Tensor>,
    pub outputs: Vec<Spec>,
    pub communication: Vec<Communication>,
}

/// See the head of the file. Outputs of which nothing is said are cut as `propagate` finds. Ops that are made of others are opened,
/// but for those that are to `stay`: of which `asked` knows something, or that have a rule of their own.
pub fn partition(
    program: &Program,
    mesh: &Mesh<'_>,
    inputs: &[Spec],
    outputs: &[Option<Spec>],
    stays: Stays<'_>,
    asked: Asked<'_>,
) -> Result<Partitioned> {
    // What nobody uses would be exchanged all the same: devices wait for each other.
    let program = &dce(&cse(&opened(program, stays)?)?)?;
    let given: Vec<Option<Spec>> = inputs.iter().cloned().map(Some).collect();
    let settled = settled(program, mesh.sizes, &given, outputs, asked)?;
    let mut lane = Lane::new(program.name.clone(), mesh);
    let mut parts = Vec::new();
    for (var, spec) in program.inputs.iter().zip(inputs) {
        let ty = &program.types[var.index()];
        let spec = spec_of_rank(spec, sizes_of(program, &Atom::Var(*var))?.len());
        let atom = lane.b.input(mesh.part(ty, &spec));
        parts.push(Part::new(atom, spec, sizes_of(program, &Atom::Var(*var))?));
    }
    let walk = Walk { values: &settled.values, stays };
    let found = walk.program(&mut lane, program, &settled.frame, parts)?;
    let (mut atoms, mut specs) = (Vec::new(), Vec::new());
    for ((part, said), &array) in found.iter().zip(outputs).zip(&settled.outputs) {
        let spec = match said {
            Some(spec) => spec_of_rank(spec, part.sizes.len()),
            None => fitting(&settled.values[array], mesh.sizes),
        };
        atoms.push(lane.laid_out(part, &spec)?);
        specs.push(spec);
    }
    let Lane { b, mut said, .. } = lane;
    // What the program itself sums over axes of a mesh it sums where it says.
    let own_sums = program.effects.iter().any(|effect| matches!(effect, Effect::NamedAxis(_)));
    let whole = b.finish(atoms);
    let (mut program, together) = if own_sums { (whole, Vec::new()) } else { hoist_sums(&whole)? };
    for Together { source, bytes, steps } in together {
        let of_steps = |one: &&mut Communication| one.source == source && one.bytes == bytes;
        if let Some(one) = said.iter_mut().find(of_steps) {
            one.bytes *= steps;
        }
    }
    let (vars, constants): (Vec<_>, Vec<_>) = std::mem::take(&mut program.constants).into_iter().unzip();
    program.inputs.extend(vars);
    Ok(Partitioned { program, constants, outputs: specs, communication: said })
}

fn spec_of_rank(spec: &Spec, rank: usize) -> Spec {
    let mut spec = spec.clone();
    spec.resize(rank, MeshAxes::new());
    spec
}

fn sizes_of(program: &Program, atom: &Atom) -> Result<Sizes> {
    let ty = program.type_of(atom);
    ty.as_array().and_then(|ty| ty.sizes()).ok_or_else(|| {
        unsupported!("a program over several processes has a value of type {ty}: arrays of fixed sizes alone can be divided")
    })
}

struct Walk<'a> {
    values: &'a [Value],
    stays: Stays<'a>,
}

/// An equation, of which program, as it was opened.
#[derive(Clone, Copy)]
struct Step<'p> {
    program: &'p Program,
    frame: &'p Frame,
    equation: &'p Equation,
}

impl Step<'_> {
    /// The sizes of each result.
    fn sizes(&self) -> Result<Vec<Sizes>> {
        self.equation.outputs.iter().map(|var| sizes_of(self.program, &Atom::Var(*var))).collect()
    }

    /// The types of the parts of results.
    fn part_types(&self, mesh: &Mesh<'_>, specs: &[Spec]) -> Vec<Type> {
        let vars = self.equation.outputs.iter().zip(specs);
        vars.map(|(var, spec)| mesh.part(&self.program.types[var.index()], spec)).collect()
    }
}

type Known = Vec<Option<Part>>;

impl Walk<'_> {
    /// The outputs of a program of these inputs, written into `lane`.
    fn program(
        &self,
        lane: &mut Lane<'_>,
        program: &Program,
        frame: &Frame,
        inputs: Vec<Part>,
    ) -> Result<Vec<Part>> {
        let mut known: Known = vec![None; program.types.len()];
        for (var, mut part) in program.inputs.iter().zip(inputs) {
            let weak = program.types[var.index()].as_array().is_some_and(|ty| ty.weak);
            part.atom = lane.b.with_weak(part.atom, weak)?;
            known[var.index()] = Some(part);
        }
        for (var, tensor) in &program.constants {
            let ty = &program.types[var.index()];
            let atom = lane.b.constant(tensor.clone(), ty.as_array().is_some_and(|ty| ty.weak));
            known[var.index()] = Some(whole(program, &Atom::Var(*var), atom)?);
        }
        let mut inner = frame.inner.iter();
        let mut partial = Partial::new(program);
        let outside = lane.b.source;
        for (number, equation) in program.equations.iter().enumerate() {
            let step = Step { program, frame, equation };
            lane.b.source = equation.source.within(outside);
            lane.needed_by.clear();
            let (first, together) = (equation.outputs.first(), partial.both(&equation.op, &equation.inputs));
            let may_wait = first.is_some_and(|&var| partial.may_wait(var));
            if let (Some(over), Some(&var)) = (together, first)
                && let [x, y] = parts_of(program, &equation.inputs, &known)?.as_slice()
                && (&x.spec, &x.spans) == (&y.spec, &y.spans)
            {
                equation.inputs.iter().for_each(|atom| drop(partial.take(atom)));
                let atom = lane.b.emit1(equation.op.clone(), &[x.atom, y.atom])?;
                let mut sum = Part { atom, ..x.clone() };
                let wanted = self.wanted(lane, step).swap_remove(0);
                match may_wait {
                    true => partial.put(var, Terms { over, wanted }),
                    false => fold_over(lane, &mut sum, AxisReduceKind::Sum, &over, &wanted)?,
                }
                known[var.index()] = Some(sum);
                continue;
            }
            summed(lane, &mut partial, &equation.inputs, &mut known)?;
            let operands = parts_of(program, &equation.inputs, &known)?;
            lane.may_wait = may_wait;
            let done = match frame.stated.get(&number) {
                Some(said) => self.stated(lane, step, operands, said.as_ref()),
                None => self.equation(lane, step, &mut inner, operands),
            };
            lane.may_wait = false;
            if let (Some(over), Some(&var)) = (lane.waiting.take(), first) {
                partial.put(var, Terms { over, wanted: self.wanted(lane, step).swap_remove(0) });
            }
            for (var, part) in equation.outputs.iter().zip(at(equation, done)?) {
                known[var.index()] = Some(part);
            }
        }
        lane.b.source = outside;
        lane.needed_by.clear();
        parts_of(program, &program.outputs, &known)
    }

    /// How the results of an equation are to be cut.
    fn wanted(&self, lane: &Lane<'_>, step: Step<'_>) -> Vec<Spec> {
        let of = |array: usize| fitting(&self.values[array], lane.mesh.sizes);
        let spec = |var: &Var| step.frame.arrays[var.index()].map(of).unwrap_or_default();
        step.equation.outputs.iter().map(spec).collect()
    }

    /// How the results of an equation hang together with other arrays, whatever their sizes.
    fn reached(&self, step: Step<'_>, sizes: &[Sizes]) -> Vec<Spec> {
        let of = |var: &Var| step.frame.arrays[var.index()].map(|array| self.values[array].spec.clone());
        let specs = step.equation.outputs.iter().map(|var| of(var).unwrap_or_default());
        specs.zip(sizes).map(|(spec, sizes)| spec_of_rank(&spec, sizes.len())).collect()
    }

    /// An equation that says how its results are cut.
    fn stated(
        &self,
        lane: &mut Lane<'_>,
        step: Step<'_>,
        operands: Vec<Part>,
        body: Option<&OneDevice>,
    ) -> Result<Vec<Part>> {
        let specs = self.wanted(lane, step);
        let atoms: Vec<Atom> = match body {
            None => {
                let pairs = operands.iter().zip(&specs);
                pairs.map(|(part, spec)| lane.laid_out(part, spec)).collect::<Result<_>>()?
            }
            Some((body, cut)) => {
                let pairs = operands.iter().zip(cut);
                let given =
                    pairs.map(|(part, spec)| lane.laid_out(part, &spec_of_rank(spec, part.sizes.len())));
                let given = given.collect::<Result<Vec<_>>>()?;
                lane.b.inline(body, &given)?.into_vec()
            }
        };
        let parts = atoms.into_iter().zip(specs).zip(step.sizes()?);
        Ok(parts.map(|((atom, spec), sizes)| Part::new(atom, spec, sizes)).collect())
    }

    fn equation<'f>(
        &self,
        lane: &mut Lane<'_>,
        step: Step<'_>,
        inner: &mut impl Iterator<Item = &'f Frame>,
        operands: Vec<Part>,
    ) -> Result<Vec<Part>> {
        let mut next = || inner.next().ok_or_else(|| internal_error!("a program was not opened"));
        let called = match step.equation.op.view() {
            View::Leaf(row) => return self.leaf(lane, step, row, &operands),
            View::Cond(op) => {
                let frames = op.branches.iter().map(|_| next()).collect::<Result<Vec<_>>>()?;
                return self.cond(lane, step, op, &frames, &operands);
            }
            View::While(op) => return self.while_loop(lane, step, op, next()?, &operands),
            View::Scan(op) => return self.scan(lane, step, op, next()?, &operands),
            View::Sweeps(_) => return all_of_it(lane, step, &operands),
            View::Call(op) => &op.program,
            View::Checkpoint(op) => &op.jaxpr,
            View::CustomJvp(op) => &op.call_jaxpr,
            View::CustomVjp(op) => &op.call_jaxpr,
            View::Ruled(_, called) => called,
        };
        if called.inputs.len() != operands.len() {
            return all_of_it(lane, step, &operands);
        }
        self.program(lane, called, next()?, operands)
    }

    fn leaf(
        &self,
        lane: &mut Lane<'_>,
        step: Step<'_>,
        row: &dyn Rules,
        operands: &[Part],
    ) -> Result<Vec<Part>> {
        let (mut wanted, Step { program, equation, .. }) = (self.wanted(lane, step), step);
        let none_cut = |spec: &Spec| spec.iter().all(|axis| axis.is_empty());
        let idle = wanted.iter().all(none_cut) && operands.iter().all(|part| none_cut(&part.spec));
        let effects = equation.op.effects();
        if idle || !effects.iter().all(|effect| matches!(effect, Effect::NamedAxis(_))) {
            return all_of_it(lane, step, operands);
        }
        lane.needed_by = equation.op.name().to_string();
        let result_sizes = step.sizes()?;
        let reached = self.reached(step, &result_sizes);
        if let ([sizes], [reached], [var]) =
            (result_sizes.as_slice(), reached.as_slice(), equation.outputs.as_slice())
            && let Some(mut part) = moved(lane, &equation.op, operands, sizes, reached)?
        {
            let weak = program.types[var.index()].as_array().is_some_and(|ty| ty.weak);
            part.atom = lane.b.with_weak(part.atom, weak)?;
            return Ok(vec![part]);
        }
        let operands = &nearly_even(lane, operands)?;
        let types: Vec<_> = equation.inputs.iter().map(|atom| program.type_of(atom)).collect();
        let dtype = |ty: &Type| ty.as_array().map_or(DType::Bool, |ty| ty.dtype);
        let inputs: Vec<Extents<'_>> = types
            .iter()
            .zip(operands)
            .map(|(ty, part)| Extents { dtype: dtype(ty), sizes: &part.sizes })
            .collect();
        let outputs: Vec<Extents<'_>> = equation
            .outputs
            .iter()
            .zip(&result_sizes)
            .map(|(var, sizes)| Extents { dtype: dtype(&program.types[var.index()]), sizes })
            .collect();
        let rule = row.shard(&inputs, &outputs)?;
        if !rule.exact {
            return all_of_it(lane, step, operands);
        }
        if row.lower() == Lowering::Expand
            && reaches_over_parts(&rule, operands)
            && let Some(found) = self.opened_here(lane, step, row, operands, &reached)?
        {
            return Ok(found);
        }
        let fold = fold_of(&equation.op, row, &inputs)?;
        let halos = match (operands.as_slice(), result_sizes.as_slice()) {
            ([first, ..], [result]) => halos(&equation.op, &rule, &first.sizes, result),
            _ => SmallVec::new(),
        };
        let mut spanned = spanned(&equation.op, &rule, lane.mesh, operands);
        for ((spec, reached), axes) in wanted.iter_mut().zip(&reached).zip(&rule.results) {
            spans_of(&spanned, axes).iter().for_each(|&(axis, _)| spec[axis] = reached[axis].clone());
        }
        let factors = Movable {
            folds: fold.is_some(),
            shifts: halos.iter().map(Halo::factor).collect(),
            uneven: spanned.iter().map(|one| one.factor).collect(),
        };
        let mut cut = assign(&rule, lane.mesh, &factors, &sides(&rule, &inputs, operands, &outputs, &wanted));
        halos.iter().for_each(|halo| halo.keep(&mut cut, lane.mesh, &operands[0].sizes));
        spanned.retain(|one| one.stays(&rule, lane.mesh, &mut cut));
        let natural: Vec<Spec> = rule.results.iter().map(|axes| spec_by(axes, &cut)).collect();
        let needed: Vec<Spec> = rule.operands.iter().map(|axes| spec_by(axes, &cut)).collect();
        let spans: Vec<Spans> = rule.operands.iter().map(|axes| spans_of(&spanned, axes)).collect();
        let held: Vec<Spans> = rule.results.iter().map(|axes| spans_of(&spanned, axes)).collect();
        let vars = equation.outputs.iter().zip(natural.iter().zip(&held));
        let held_type = |ty: &Type, (spec, spans): (&Spec, &Spans)| held_type(lane.mesh, ty, spec, spans);
        let mut local_types: Vec<Type> =
            vars.map(|(var, how)| held_type(&program.types[var.index()], how)).collect();
        let mut given: Vec<_> =
            types.iter().zip(needed.iter().zip(&spans)).map(|(ty, how)| held_type(ty, how)).collect();
        let mut op = local::of_parts(&equation.op, &given, &local_types)?;
        let halos: SmallVec<[Halo; 2]> =
            halos.into_iter().filter(|halo| !cut[usize::from(halo.factor())].is_empty()).collect();
        for halo in &halos {
            if let (Op::ConvGeneralDilated(op), Type::Array(ty)) = (&mut op, &mut given[0]) {
                let (axis, more) = halo.unpadded(op);
                ty.shape[axis] = Dim::Const(ty.shape[axis].require("an array over a mesh")? + more);
            }
        }
        if !local::gives(&op, &given, &local_types) {
            return all_of_it(lane, step, operands);
        }
        let folded = rule.factors.iter().zip(&cut).filter(|(factor, _)| factor.cut == Cut::Fold);
        let over: MeshAxes = folded.flat_map(|(_, axes)| axes.iter().copied()).collect();
        let added_to = match &equation.op {
            Op::Scatter(_) if !over.is_empty() && fold == Some(AxisReduceKind::Sum) => operands.first(),
            _ => None,
        };
        let mut atoms = Vec::with_capacity(operands.len());
        for (number, (part, spec)) in operands.iter().zip(&needed).enumerate() {
            atoms.push(match (number, added_to, &given[number]) {
                // What the sums are added to counts once.
                (0, Some(_), Type::Array(ty)) => lane.b.zeros(ty)?,
                _ => {
                    let atom = lane.aligned(part, spec, &spans[number])?;
                    counted_once(lane, &op, &rule, &spanned, &rule.operands[number], atom)?
                }
            });
        }
        for halo in &halos {
            lane.needed_by.clear();
            atoms[0] = halo.widened(lane, atoms[0], &cut[usize::from(halo.factor())])?;
        }
        let narrow = outputs.first().map_or(DType::Bool, |output| output.dtype);
        let sums = !over.is_empty() && fold == Some(AxisReduceKind::Sum);
        if let (true, Some(wide)) = (sums, local::in_wide(&op, &local_types)) {
            op = wide;
            local_types = local_types.iter().map(in_32_bits).collect();
            if matches!(op, Op::Reduce(_)) {
                atoms[0] = lane.b.convert(atoms[0], DType::F32)?;
            }
        }
        let results = lane.b.emit_typed(op, &atoms, local_types);
        let mut results: Vec<Part> = results
            .into_iter()
            .zip(natural.into_iter().zip(held))
            .zip(result_sizes)
            .map(|((var, (spec, spans)), sizes)| Part { atom: Atom::Var(var), spec, sizes, spans })
            .collect();
        if let Op::Iota(op) = &equation.op {
            results[0].atom = counted(lane, &results[0], op.dimension)?;
        }
        if let (false, Some(kind), [result]) = (over.is_empty(), fold, results.as_mut_slice()) {
            lane.needed_by.clear();
            if lane.may_wait && sums && added_to.is_none() && lane.b.dtype(result.atom) == narrow {
                lane.waiting = Some(over);
                return Ok(results);
            }
            fold_over(lane, result, kind, &over, &wanted[0])?;
            if lane.b.dtype(result.atom) != narrow {
                result.atom = lane.b.convert(result.atom, narrow)?;
            }
            if let Some(part) = added_to {
                let before = lane.aligned(part, &result.spec, &result.spans)?;
                result.atom = lane.b.add(before, result.atom)?;
            }
        }
        Ok(results)
    }

    /// An op that stays as it is where it is of parts, as what it is made of: windows that reach into other parts are slices and padding.
    fn opened_here(
        &self,
        lane: &mut Lane<'_>,
        step: Step<'_>,
        row: &dyn Rules,
        operands: &[Part],
        reached: &[Spec],
    ) -> Result<Option<Vec<Part>>> {
        let mut b = Builder::new(step.equation.op.name());
        b.source = step.equation.source;
        let types = step.equation.inputs.iter().map(|atom| step.program.type_of(atom));
        let inputs: Vec<Atom> = types.map(|ty| b.input(ty)).collect();
        let outputs = row.expand(&mut b, &inputs)?;
        let program = dce(&cse(&opened(&b.finish(outputs), self.stays)?)?)?;
        let only_moves = |equation: &Equation| match equation.op.view() {
            View::Leaf(row) => {
                row.lower() == Lowering::Elementwise
                    || matches!(
                        &equation.op,
                        Op::Slice(_) | Op::Pad(_) | Op::Concatenate(_) | Op::BroadcastInDim(_)
                    )
            }
            _ => false,
        };
        if !program.equations.iter().all(only_moves) {
            return Ok(None);
        }
        let given: Vec<Option<Spec>> = operands.iter().map(|part| Some(part.spec.clone())).collect();
        let wanted: Vec<Option<Spec>> = reached.iter().cloned().map(Some).collect();
        let settled = settled(&program, lane.mesh.sizes, &given, &wanted, &mut |_| Ok(None))?;
        let walk = Walk { values: &settled.values, stays: self.stays };
        let mut found = walk.program(lane, &program, &settled.frame, operands.to_vec())?;
        for (part, var) in found.iter_mut().zip(&step.equation.outputs) {
            let weak = step.program.types[var.index()].as_array().is_some_and(|ty| ty.weak);
            part.atom = lane.b.with_weak(part.atom, weak)?;
        }
        Ok(Some(found))
    }

    fn cond(
        &self,
        lane: &mut Lane<'_>,
        step: Step<'_>,
        op: &Cond,
        frames: &[&Frame],
        operands: &[Part],
    ) -> Result<Vec<Part>> {
        let operands = in_equal_parts(lane, operands)?;
        let specs = self.wanted(lane, step);
        let mut atoms: Vec<Atom> = operands.iter().map(|part| part.atom).collect();
        atoms[0] = lane.laid_out(&operands[0], &Spec::new())?;
        let branches = op.branches.iter().zip(frames);
        let branches = branches
            .map(|(branch, frame)| self.sub_program(lane, branch, frame, &operands[1..], &specs))
            .collect::<Result<Vec<_>>>()?;
        emitted(lane, step, Cond { branches }.into(), &atoms, specs)
    }

    fn while_loop(
        &self,
        lane: &mut Lane<'_>,
        step: Step<'_>,
        op: &While,
        body_frame: &Frame,
        operands: &[Part],
    ) -> Result<Vec<Part>> {
        let operands = in_equal_parts(lane, operands)?;
        let specs = self.wanted(lane, step);
        let consts = op.cond_nconsts + op.body_nconsts;
        let carry = carried(lane, &operands[consts..], &specs)?;
        let of_body = [&operands[op.cond_nconsts..consts], &carry].concat();
        let of_cond = [&operands[..op.cond_nconsts], &carry].concat();
        let body_jaxpr = self.sub_program(lane, &op.body_jaxpr, body_frame, &of_body, &specs)?;
        let cond_jaxpr = condition(lane, &op.cond_jaxpr, &of_cond)?;
        let atoms: Vec<Atom> = operands[..consts].iter().chain(&carry).map(|part| part.atom).collect();
        let op = While { body_jaxpr, cond_jaxpr, ..op.clone() };
        emitted(lane, step, op.into(), &atoms, specs)
    }

    fn scan(
        &self,
        lane: &mut Lane<'_>,
        step: Step<'_>,
        op: &Scan,
        body_frame: &Frame,
        operands: &[Part],
    ) -> Result<Vec<Part>> {
        let operands = in_equal_parts(lane, operands)?;
        let mut specs = self.wanted(lane, step);
        let (consts, count) = (op.num_consts, op.num_carry);
        for spec in &mut specs[count..] {
            if let Some(steps) = spec.first_mut() {
                steps.clear();
            }
        }
        let carry = carried(lane, &operands[consts..consts + count], &specs[..count])?;
        let mut given: Vec<Part> = [&operands[..consts], &carry].concat();
        let mut atoms: Vec<Atom> = given.iter().map(|part| part.atom).collect();
        for part in &operands[consts + count..] {
            let mut spec = part.spec.clone();
            spec[0].clear();
            let atom = lane.laid_out(part, &spec)?;
            atoms.push(atom);
            given.push(Part::new(atom, spec[1..].into(), part.sizes[1..].into()));
        }
        let results = specs.iter().enumerate().map(|(number, spec)| match number < count {
            true => spec.clone(),
            false => spec.get(1..).unwrap_or_default().into(),
        });
        let results: Vec<Spec> = results.collect();
        let jaxpr = self.sub_program(lane, &op.jaxpr, body_frame, &given, &results)?;
        emitted(lane, step, Scan { jaxpr, ..op.clone() }.into(), &atoms, specs)
    }

    /// The program of parts of these inputs that gives its results cut so.
    fn sub_program(
        &self,
        lane: &mut Lane<'_>,
        program: &Program,
        frame: &Frame,
        inputs: &[Part],
        outputs: &[Spec],
    ) -> Result<Arc<Program>> {
        within(lane, program, inputs, |inside, given| {
            let found = self.program(inside, program, frame, given)?;
            found.iter().zip(outputs).map(|(part, spec)| inside.laid_out(part, spec)).collect()
        })
    }
}

/// Whether operands are cut along axes whose elements depend on others.
fn reaches_over_parts(rule: &ShardRule, operands: &[Part]) -> bool {
    let shifts = |own: &SmallVec<[u16; 2]>| {
        own.iter().any(|factor| rule.factors[usize::from(*factor)].cut == Cut::Shift)
    };
    let of_part = |(part, axes): (&Part, &ArrayFactors)| {
        part.spec.iter().zip(axes).any(|(over, own)| !over.is_empty() && shifts(own))
    };
    operands.iter().zip(&rule.operands).any(of_part)
}

/// A program written in a lane of its own, with inputs of the types of the program's.
fn within<'m>(
    lane: &mut Lane<'m>,
    program: &Program,
    inputs: &[Part],
    write: impl FnOnce(&mut Lane<'m>, Vec<Part>) -> Result<Vec<Atom>>,
) -> Result<Arc<Program>> {
    let mut inside = Lane::new(program.name.clone(), lane.mesh);
    inside.b.source = lane.b.source;
    let given = program.inputs.iter().zip(inputs).map(|(var, part)| {
        let atom = inside.b.input(lane.mesh.part(&program.types[var.index()], &part.spec));
        Part { atom, ..part.clone() }
    });
    let given = given.collect();
    let outputs = write(&mut inside, given)?;
    let Lane { b, said, .. } = inside;
    lane.said.extend(said);
    Ok(Arc::new(b.finish(outputs)))
}

/// A condition, of whole arrays: those that it looks at are gathered.
fn condition(lane: &mut Lane<'_>, program: &Program, inputs: &[Part]) -> Result<Arc<Program>> {
    within(lane, program, inputs, |inside, given| {
        inside.needed_by = "the condition of while".to_string();
        let used = |var| {
            program.equations.iter().any(|equation| equation.inputs.contains(&Atom::Var(var)))
                || program.outputs.contains(&Atom::Var(var))
        };
        let whole = program.inputs.iter().zip(&given).map(|(&var, part)| match used(var) {
            true => inside.laid_out(part, &spec_of_rank(&Spec::new(), part.sizes.len())),
            false => inside.b.zeros(&unused(program, var)?),
        });
        let whole = whole.collect::<Result<Vec<_>>>()?;
        Ok(inside.b.inline(program, &whole)?.into_vec())
    })
}

fn unused(program: &Program, var: Var) -> Result<ferrax_ir::ArrayType> {
    let ty = program.types[var.index()].as_array();
    ty.cloned().ok_or_else(|| internal_error!("{} is no array", program.types[var.index()]))
}

fn carried(lane: &mut Lane<'_>, before: &[Part], specs: &[Spec]) -> Result<Vec<Part>> {
    let pairs = before.iter().zip(specs);
    pairs
        .map(|(part, spec)| {
            let atom = lane.laid_out(part, spec)?;
            Ok(Part::new(atom, spec.clone(), part.sizes.clone()))
        })
        .collect()
}

fn in_equal_parts(lane: &mut Lane<'_>, operands: &[Part]) -> Result<Vec<Part>> {
    operands.iter().map(|part| lane.evened(part, &part.spec)).collect()
}

fn parts_of(program: &Program, atoms: &[Atom], known: &Known) -> Result<Vec<Part>> {
    let part = |atom: &Atom| match atom.as_var() {
        Some(var) => known[var.index()]
            .clone()
            .ok_or_else(|| internal_error!("variable {} is used before it is made", var.0)),
        None => whole(program, atom, *atom),
    };
    atoms.iter().map(part).collect()
}

/// An array of which each device has all.
fn whole(program: &Program, of: &Atom, atom: Atom) -> Result<Part> {
    let sizes = sizes_of(program, of)?;
    Ok(Part::new(atom, spec_of_rank(&Spec::new(), sizes.len()), sizes))
}

/// The equation, of whole arrays.
fn all_of_it(lane: &mut Lane<'_>, step: Step<'_>, operands: &[Part]) -> Result<Vec<Part>> {
    lane.needed_by = step.equation.op.name().to_string();
    let whole = |rank| spec_of_rank(&Spec::new(), rank);
    let atoms = operands.iter().map(|part| lane.laid_out(part, &whole(part.sizes.len())));
    let atoms = atoms.collect::<Result<Vec<_>>>()?;
    let specs = step.sizes()?.iter().map(|sizes| whole(sizes.len())).collect();
    emitted(lane, step, step.equation.op.clone(), &atoms, specs)
}

/// The results of an op that stands for the equation's, cut so.
fn emitted(
    lane: &mut Lane<'_>,
    step: Step<'_>,
    op: Op,
    operands: &[Atom],
    specs: Vec<Spec>,
) -> Result<Vec<Part>> {
    let results = lane.b.emit_typed(op, operands, step.part_types(lane.mesh, &specs));
    let parts = results.into_iter().zip(specs).zip(step.sizes()?);
    Ok(parts.map(|((var, spec), sizes)| Part::new(Atom::Var(var), spec, sizes)).collect())
}

/// What counts along an axis counts on from where the device's part begins.
fn counted(lane: &mut Lane<'_>, part: &Part, axis: usize) -> Result<Atom> {
    let cut = &part.spec[axis];
    if cut.is_empty() {
        return Ok(part.atom);
    }
    let place = lane.place(cut, part.sizes[axis] / lane.mesh.parts(cut))?;
    let place = lane.b.convert(place, lane.b.dtype(part.atom))?;
    let shape = lane.b.shape(part.atom);
    let begin = lane.b.broadcast_scalar(place, &shape)?;
    lane.b.add(part.atom, begin)
}

/// The fold over devices of what each has of a result; into parts where it is cut so.
fn fold_over(
    lane: &mut Lane<'_>,
    part: &mut Part,
    kind: AxisReduceKind,
    over: &MeshAxes,
    wanted: &Spec,
) -> Result<()> {
    let scattered = (0..wanted.len()).find(|&axis| {
        kind == AxisReduceKind::Sum
            && part.spans.iter().all(|(of, _)| *of != axis)
            && wanted[axis].len() == part.spec[axis].len() + over.len()
            && wanted[axis].starts_with(&part.spec[axis])
            && wanted[axis].ends_with(over)
    });
    match scattered {
        Some(axis) => {
            part.atom = lane.sum_scattered(part.atom, axis, over)?;
            part.spec[axis] = wanted[axis].clone();
        }
        None => part.atom = lane.folded(part.atom, kind, over)?,
    }
    Ok(())
}

/// Makes the sums that are left to be made of these values.
fn summed(lane: &mut Lane<'_>, partial: &mut Partial, atoms: &[Atom], known: &mut Known) -> Result<()> {
    for atom in atoms {
        if let (Some(terms), Atom::Var(var)) = (partial.take(atom), atom)
            && let Some(part) = &mut known[var.index()]
        {
            fold_over(lane, part, AxisReduceKind::Sum, &terms.over, &terms.wanted)?;
        }
    }
    Ok(())
}

/// How the results of parts are folded; `None` if they cannot be.
fn fold_of(op: &Op, row: &dyn Rules, inputs: &[Extents<'_>]) -> Result<Option<AxisReduceKind>> {
    if let Op::Scatter(op) = op {
        return Ok(op.kind.fold());
    }
    let [input] = inputs else { return Ok(Some(AxisReduceKind::Sum)) };
    let kind = row.reduction(*input)?.map(|reduction| reduction.kind);
    Ok(match kind {
        None | Some(AccumulatorKind::Sum) => Some(AxisReduceKind::Sum),
        Some(AccumulatorKind::Max) => Some(AxisReduceKind::Max),
        Some(AccumulatorKind::Min) => Some(AxisReduceKind::Min),
        Some(_) => None,
    })
}

/// The type of the same array in 32 bits.
fn in_32_bits(ty: &Type) -> Type {
    match ty {
        Type::Array(ty) => Type::Array(ty.with_dtype(DType::F32)),
        other => other.clone(),
    }
}

fn spec_by(axes: &[SmallVec<[u16; 2]>], cut: &[MeshAxes]) -> Spec {
    axes.iter()
        .map(|own| own.iter().flat_map(|factor| cut[usize::from(*factor)].iter().copied()).collect())
        .collect()
}
