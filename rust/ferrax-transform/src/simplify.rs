//! Algebraic identities, one row each in [`REWRITES`]; the simpler forms of
//! scans (`control/scan/simplify.rs`), loops of no step, and branches that are
//! taken in any case.
//!
//! Invariants: a rewrite goes from left to right only and makes the program
//! cheaper or more regular, so the pass ends; the result has the bits of the
//! original for all inputs, signed zeros and infinities included (which NaN comes
//! out is not defined); types stay, weakness included: a rewrite that would
//! change one does not fire. Cost: linear; each equation is rewritten at most
//! [`MAX_STEPS`] times.

use ferrax_ir::ops::{Binary, BroadcastInDim, Compare, ConvertElementType, Reshape, Transpose, Unary};
use ferrax_ir::program::Atoms;
use ferrax_ir::verify::debug_verify;
use ferrax_ir::{Atom, Axes, DType, Equation, Kind, Literal, Op, Program, Result, Scalar, Shape, Type};
use smallvec::{SmallVec, smallvec};

use crate::control::{cond, scan, while_loop};
use crate::rewrite::Rewriter;

/// The longest chain of rewrites that one equation goes through.
const MAX_STEPS: usize = 8;

/// What a rewrite puts in an equation's place.
#[allow(clippy::large_enum_variant, reason = "lives for one step")]
enum Action {
    /// A value that is there already.
    Use(Atom),
    /// Another equation.
    Emit(Op, Atoms),
    /// The same op of 0-d values, and the op that repeats what it makes.
    Repeat(Atoms, Op),
}

/// One identity.
struct Rewrite {
    /// What it says, left to right.
    #[allow(dead_code, reason = "names the row for its reader and for tests")]
    law: &'static str,
    apply: fn(&Site<'_>) -> Option<Action>,
}

static REWRITES: &[Rewrite] = &[
    Rewrite { law: "op(broadcast(scalar), y) = op(scalar, y)", apply: scalar_operand },
    Rewrite {
        law: "x + 0 = x (floats: -0.0), x - 0 = x, x * 1 = x, x / 1 = x, x | 0 = x, max(x, -inf) = x, …",
        apply: neutral,
    },
    Rewrite { law: "x * -1 = -x, 0 - x = -x (floats: -0.0 - x)", apply: to_negation },
    Rewrite { law: "x + -y = x - y, x - -y = x + y", apply: absorb_negation },
    Rewrite {
        law: "-(c * x) = -c * x, c * -x = -c * x, -x * -y = x * y; of floats, / too",
        apply: factor_sign,
    },
    Rewrite { law: "max(x, x) = min(x, x) = x & x = x | x = x", apply: idempotent },
    Rewrite { law: "--x = x, !!x = x, conj(conj(x)) = x", apply: involution },
    Rewrite { law: "real(complex(a, b)) = a, imag(complex(a, b)) = b", apply: complex_part },
    Rewrite { law: "x == true is x, x != false is x", apply: compare_bool },
    Rewrite { law: "x^1 = x", apply: first_power },
    Rewrite { law: "stand_in(c, x, y) = x, where no more derivatives are taken", apply: stand_in },
    Rewrite { law: "select(literal, …) = its case, select(c, x, x) = x", apply: select },
    Rewrite { law: "convert(x) to its own type = x; convert(exact convert(x)) = convert(x)", apply: convert },
    Rewrite { law: "transpose(transpose(x)) = transpose(x); by the identity = x", apply: transpose },
    Rewrite { law: "reshape(reshape(x)) = reshape(x); to its own shape = x", apply: reshape },
    Rewrite { law: "broadcast(broadcast(x)) = broadcast(x); to its own shape = x", apply: broadcast },
    Rewrite { law: "squeeze(broadcast(x)) = broadcast(x) without the axes", apply: squeeze },
    Rewrite { law: "rev(rev(x)) = x over the same axes", apply: reverse },
    Rewrite { law: "dot_general(transpose(x), y) = dot_general(x, y) over other axes", apply: product },
    Rewrite { law: "a whole slice, an empty pad, one operand's concatenation, no axes: x", apply: trivial },
    // Last: operands are broadcast no more when other rows look at them.
    Rewrite { law: "op(broadcast(scalar), …) = broadcast(op(scalar, …)), of elements", apply: repeated },
];

/// `program` with the identities applied, to be run and not differentiated any more.
pub fn simplify(program: &Program) -> Result<Program> {
    let mut rewriter = Rewriter::with_inputs(program);
    rewriter.constants(|_| true);
    // The equation that defines each variable of the new program.
    let mut definitions: Vec<Option<u32>> = Vec::new();
    for equation in &program.equations {
        let first = rewriter.builder.program().equations.len();
        let decided = match &equation.op {
            Op::Scan(op) => scan::simplified(&mut rewriter, equation, op)?,
            Op::Cond(op) => cond::decided(&mut rewriter, equation, op)?,
            Op::While(op) => while_loop::skipped(&mut rewriter, equation, op)?,
            _ => None,
        };
        if let Some(outputs) = decided {
            for (&var, atom) in equation.outputs.iter().zip(outputs) {
                rewriter.set(var, atom);
            }
            define(&mut definitions, rewriter.builder.program(), first);
            continue;
        }
        let mut op = equation.op.clone();
        let mut inputs = rewriter.atoms(&equation.inputs)?;
        let mut replacement = None;
        let mut repeated = None;
        if let [output] = equation.outputs.as_slice()
            && op.effects().is_empty()
        {
            let output = &program.types[output.index()];
            for _ in 0..MAX_STEPS {
                let site = Site {
                    program: rewriter.builder.program(),
                    definitions: &definitions,
                    op: &op,
                    inputs: &inputs,
                    output,
                };
                match site.rewrite() {
                    None => break,
                    Some(Action::Repeat(scalars, repeat)) => {
                        repeated = Some((scalars, repeat));
                        break;
                    }
                    Some(Action::Use(atom)) => {
                        replacement = Some(atom);
                        break;
                    }
                    Some(Action::Emit(new_op, new_inputs)) => {
                        op = new_op;
                        inputs = new_inputs;
                    }
                }
            }
        }
        if let (Some(atom), [output]) = (replacement, equation.outputs.as_slice()) {
            rewriter.set(*output, atom);
            continue;
        }
        if let Some((scalars, repeat)) = repeated {
            rewriter.builder.source = equation.source;
            inputs = smallvec![rewriter.builder.emit1(op, &scalars)?];
            op = repeat;
        }
        rewriter.copy_as(equation, op, &inputs)?;
        define(&mut definitions, rewriter.builder.program(), first);
    }
    let result = rewriter.finish(&program.outputs)?;
    debug_verify(&result, "simplification")?;
    Ok(result)
}

/// Notes what the equations of `program` define, from the one at `first` on.
fn define(definitions: &mut Vec<Option<u32>>, program: &Program, first: usize) {
    definitions.resize(program.types.len(), None);
    for (index, equation) in program.equations.iter().enumerate().skip(first) {
        for var in &equation.outputs {
            definitions[var.index()] = Some(index as u32);
        }
    }
}

/// An equation that is about to be emitted, with what is before it.
struct Site<'a> {
    program: &'a Program,
    definitions: &'a [Option<u32>],
    op: &'a Op,
    inputs: &'a [Atom],
    output: &'a Type,
}

impl Site<'_> {
    /// The first rewrite that fires and keeps the type.
    fn rewrite(&self) -> Option<Action> {
        REWRITES.iter().filter_map(|row| (row.apply)(self)).find(|action| self.keeps_type(action))
    }

    fn keeps_type(&self, action: &Action) -> bool {
        match action {
            Action::Use(atom) => self.program.type_of(atom) == *self.output,
            Action::Emit(op, inputs) => {
                let types: SmallVec<[Type; 3]> =
                    inputs.iter().map(|atom| self.program.type_of(atom)).collect();
                op.infer(&types).is_ok_and(|found| found.as_slice() == [self.output.clone()])
            }
            Action::Repeat(scalars, repeat) => {
                let types: SmallVec<[Type; 3]> =
                    scalars.iter().map(|atom| self.program.type_of(atom)).collect();
                let repeated = self.op.infer(&types).and_then(|once| repeat.infer(&once));
                repeated.is_ok_and(|found| found.as_slice() == [self.output.clone()])
            }
        }
    }

    fn definition(&self, atom: Atom) -> Option<&Equation> {
        let index = *self.definitions.get(atom.as_var()?.index())?;
        self.program.equations.get(index? as usize)
    }

    fn dtype(&self, atom: Atom) -> Option<DType> {
        match atom {
            Atom::Var(var) => self.program.types[var.index()].as_array().map(|ty| ty.dtype),
            Atom::Literal(literal) => Some(literal.value.dtype()),
        }
    }

    fn shape(&self, atom: Atom) -> Option<Shape> {
        self.program.type_of(&atom).as_array().map(|ty| ty.shape.clone())
    }

    fn unary(&self) -> Option<Atom> {
        match self.inputs {
            [x] => Some(*x),
            _ => None,
        }
    }

    fn binary(&self) -> Option<(Binary, Atom, Atom)> {
        match (self.op, self.inputs) {
            (Op::Binary(op), [x, y]) => Some((*op, *x, *y)),
            _ => None,
        }
    }

    /// The operand of `atom`, if that is `-operand`.
    fn negated(&self, atom: Atom) -> Option<Atom> {
        let equation = self.definition(atom)?;
        (equation.op == Op::Unary(Unary::Neg)).then(|| equation.inputs[0])
    }
}

fn scalar_operand(site: &Site<'_>) -> Option<Action> {
    if !matches!(site.op, Op::Binary(_) | Op::Compare(_)) {
        return None;
    }
    let position = site.inputs.iter().position(|&atom| scalar_source(site, atom).is_some())?;
    let scalar = scalar_source(site, site.inputs[position])?;
    let mut inputs = Atoms::from_slice(site.inputs);
    inputs[position] = scalar;
    Some(Action::Emit(site.op.clone(), inputs))
}

/// The 0-d value that `atom` repeats.
fn scalar_source(site: &Site<'_>, atom: Atom) -> Option<Atom> {
    let equation = site.definition(atom)?;
    let (Op::BroadcastInDim(_), [x]) = (&equation.op, equation.inputs.as_slice()) else { return None };
    site.shape(*x)?.is_empty().then_some(*x)
}

/// What is the same for all elements is computed once.
fn repeated(site: &Site<'_>) -> Option<Action> {
    let elementwise = matches!(
        site.op,
        Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::SelectN(_) | Op::ConvertElementType(_)
    );
    let shape = &site.output.as_array()?.shape;
    if !elementwise || shape.is_empty() {
        return None;
    }
    let scalar = |&atom: &Atom| match site.shape(atom)?.is_empty() {
        true => Some(atom),
        false => scalar_source(site, atom),
    };
    let scalars = site.inputs.iter().map(scalar).collect::<Option<Atoms>>()?;
    let repeat = BroadcastInDim { shape: shape.clone(), broadcast_dimensions: Axes::new() };
    Some(Action::Repeat(scalars, repeat.into()))
}

/// What leaves the other operand of `op` as it is, on the right or the left.
fn is_neutral(op: Binary, literal: Literal, right: bool) -> bool {
    let value = literal.value;
    let kind = value.dtype().kind();
    let float_zero = |negative: bool| {
        value.to_f64().is_some_and(|zero| zero == 0.0 && zero.is_sign_negative() == negative)
    };
    let infinite = |value: f64| literal.value.to_f64() == Some(value);
    let all_ones = value == Scalar::from_i64(value.dtype(), -1) || (kind == Kind::Bool && value.bits() == 1);
    match (op, kind) {
        // A complex product or quotient with 1 turns infinities into NaN.
        (Binary::Mul | Binary::Div, Kind::Complex) => false,
        (Binary::Mul, _) => value.is_one(),
        (Binary::Div, _) => right && value.is_one(),
        (Binary::Add, Kind::Float) => float_zero(true),
        (Binary::Sub, Kind::Float) => right && float_zero(false),
        (Binary::Add | Binary::Sub, Kind::Complex) => false,
        (Binary::Add | Binary::Or | Binary::Xor, _) => value.is_zero(),
        (Binary::Sub | Binary::ShiftLeft | Binary::ShiftRightArithmetic | Binary::ShiftRightLogical, _) => {
            right && value.is_zero()
        }
        (Binary::And, Kind::Bool | Kind::Signed | Kind::Unsigned) => all_ones,
        (Binary::Max, Kind::Float) => infinite(f64::NEG_INFINITY),
        (Binary::Min, Kind::Float) => infinite(f64::INFINITY),
        _ => false,
    }
}

fn neutral(site: &Site<'_>) -> Option<Action> {
    let (op, x, y) = site.binary()?;
    if y.as_literal().is_some_and(|literal| is_neutral(op, literal, true)) {
        return Some(Action::Use(x));
    }
    x.as_literal().is_some_and(|literal| is_neutral(op, literal, false)).then_some(Action::Use(y))
}

fn to_negation(site: &Site<'_>) -> Option<Action> {
    let (op, x, y) = site.binary()?;
    let negate = |x: Atom| Some(Action::Emit(Unary::Neg.into(), smallvec![x]));
    let is = |atom: Atom, wanted: f64| {
        atom.as_literal().is_some_and(|literal| {
            let value = literal.value.to_f64().unwrap_or(f64::NAN);
            let signed = literal.value.dtype().is_signed() || literal.value.dtype().is_float();
            signed
                && value == wanted
                && (value != 0.0 || literal.value.dtype().is_signed() || value.is_sign_negative())
        })
    };
    match op {
        Binary::Mul if is(y, -1.0) => negate(x),
        Binary::Mul if is(x, -1.0) => negate(y),
        Binary::Sub if is(x, 0.0) => negate(y),
        _ => None,
    }
}

fn absorb_negation(site: &Site<'_>) -> Option<Action> {
    let (op, x, y) = site.binary()?;
    let emit = |op: Binary, x: Atom, y: Atom| Some(Action::Emit(op.into(), smallvec![x, y]));
    match op {
        Binary::Add => match (site.negated(x), site.negated(y)) {
            (_, Some(y)) => emit(Binary::Sub, x, y),
            (Some(x), None) => emit(Binary::Sub, y, x),
            (None, None) => None,
        },
        Binary::Sub => emit(Binary::Add, x, site.negated(y)?),
        _ => None,
    }
}

/// Products and quotients of real floats round alike for either sign.
fn factor_sign(site: &Site<'_>) -> Option<Action> {
    let opposite = |atom: Atom| {
        let literal = atom.as_literal()?;
        let dtype = literal.value.dtype();
        let value = literal.value.to_f64().filter(|_| dtype.kind() == Kind::Float)?;
        Some(Atom::Literal(Literal { value: Scalar::from_f64(dtype, -value), ..literal }))
    };
    let emit = |op: Binary, x: Atom, y: Atom| Some(Action::Emit(op.into(), smallvec![x, y]));
    if *site.op == Op::Unary(Unary::Neg) {
        let inner = site.definition(site.unary()?)?;
        let (&Op::Binary(op @ (Binary::Mul | Binary::Div)), &[x, y]) = (&inner.op, inner.inputs.as_slice())
        else {
            return None;
        };
        return match (opposite(x), opposite(y)) {
            (Some(x), _) => emit(op, x, y),
            (None, Some(y)) => emit(op, x, y),
            (None, None) => None,
        };
    }
    let (op @ (Binary::Mul | Binary::Div), x, y) = site.binary()? else { return None };
    if site.dtype(x)?.kind() != Kind::Float {
        return None;
    }
    match (site.negated(x), site.negated(y)) {
        (Some(x), Some(y)) => emit(op, x, y),
        (Some(x), None) => emit(op, x, opposite(y)?),
        (None, Some(y)) => emit(op, opposite(x)?, y),
        (None, None) => None,
    }
}

fn idempotent(site: &Site<'_>) -> Option<Action> {
    let (op, x, y) = site.binary()?;
    let holds = matches!(op, Binary::Max | Binary::Min | Binary::And | Binary::Or);
    (holds && x == y).then_some(Action::Use(x))
}

fn involution(site: &Site<'_>) -> Option<Action> {
    let inner = site.definition(site.unary()?)?;
    let holds = matches!(site.op, Op::Unary(Unary::Neg | Unary::Not | Unary::Conj));
    (holds && inner.op == *site.op).then(|| Action::Use(inner.inputs[0]))
}

fn complex_part(site: &Site<'_>) -> Option<Action> {
    let part = match site.op {
        Op::Unary(Unary::Real) => 0,
        Op::Unary(Unary::Imag) => 1,
        _ => return None,
    };
    let inner = site.definition(site.unary()?)?;
    (inner.op == Op::Binary(Binary::Complex)).then(|| Action::Use(inner.inputs[part]))
}

fn compare_bool(site: &Site<'_>) -> Option<Action> {
    let (Op::Compare(op), &[x, y]) = (site.op, site.inputs) else { return None };
    let neutral = match op {
        Compare::Eq => Scalar::bool(true),
        Compare::Ne => Scalar::bool(false),
        _ => return None,
    };
    let is = |atom: Atom| atom.as_literal().is_some_and(|literal| literal.value == neutral);
    if is(y) { Some(Action::Use(x)) } else { is(x).then_some(Action::Use(y)) }
}

fn first_power(site: &Site<'_>) -> Option<Action> {
    match site.op {
        Op::IntegerPow(power) if power.y == 1 => Some(Action::Use(site.unary()?)),
        _ => None,
    }
}

fn stand_in(site: &Site<'_>) -> Option<Action> {
    match (site.op, site.inputs) {
        (Op::StandIn(_), [_, x, _]) => Some(Action::Use(*x)),
        _ => None,
    }
}

fn select(site: &Site<'_>) -> Option<Action> {
    let (Op::SelectN(_), [which, cases @ ..]) = (site.op, site.inputs) else { return None };
    let first = cases.first()?;
    if cases.iter().all(|case| case == first) {
        return Some(Action::Use(*first));
    }
    let index = usize::try_from(which.as_literal()?.value.to_i128()?).ok()?;
    cases.get(index).map(|case| Action::Use(*case))
}

/// Whether converting keeps every value, so that it may be skipped on the way
/// to `then`.
fn is_exact(from: DType, to: DType, then: DType) -> bool {
    use DType::*;
    if from == to {
        return true;
    }
    match (from.kind(), to.kind()) {
        (Kind::Bool, Kind::Signed | Kind::Unsigned | Kind::Float | Kind::Complex) => !to.is_storage_only(),
        (Kind::Signed, Kind::Signed) | (Kind::Unsigned, Kind::Unsigned) => from.bits() <= to.bits(),
        (Kind::Unsigned, Kind::Signed) => from.bits() < to.bits(),
        // From a float, integers saturate; from an integer they wrap.
        (Kind::Signed | Kind::Unsigned, Kind::Float) => {
            let exact = matches!((from.bits(), to), (..=16, F32 | F64) | (32, F64));
            exact && !then.is_integer()
        }
        (Kind::Float, Kind::Float) => matches!((from, to), (BF16 | F16, F32 | F64) | (F32, F64)),
        (Kind::Float, Kind::Complex) => from == to.real() || (from, to) == (F32, C128),
        (Kind::Complex, Kind::Complex) => from.bits() <= to.bits(),
        _ => false,
    }
}

fn convert(site: &Site<'_>) -> Option<Action> {
    let Op::ConvertElementType(convert) = site.op else { return None };
    let x = site.unary()?;
    if site.program.type_of(&x) == *site.output {
        return Some(Action::Use(x));
    }
    let inner = site.definition(x)?;
    let (Op::ConvertElementType(middle), [source]) = (&inner.op, inner.inputs.as_slice()) else {
        return None;
    };
    let from = site.dtype(*source)?;
    // To bool and from complex to real say more than a value: leave those.
    let plain = convert.new_dtype.is_complex() || !middle.new_dtype.is_complex();
    if !plain || !is_exact(from, middle.new_dtype, convert.new_dtype) {
        return None;
    }
    if site.program.type_of(source) == *site.output {
        return Some(Action::Use(*source));
    }
    let op = ConvertElementType { new_dtype: convert.new_dtype, weak_type: convert.weak_type };
    Some(Action::Emit(op.into(), smallvec![*source]))
}

fn transpose(site: &Site<'_>) -> Option<Action> {
    let Op::Transpose(outer) = site.op else { return None };
    let x = site.unary()?;
    if outer.permutation.iter().enumerate().all(|(axis, &from)| axis == from) {
        return Some(Action::Use(x));
    }
    let inner = site.definition(x)?;
    let Op::Transpose(first) = &inner.op else { return None };
    let permutation: Option<Axes> =
        outer.permutation.iter().map(|&axis| first.permutation.get(axis).copied()).collect();
    Some(Action::Emit(Transpose { permutation: permutation? }.into(), inner.inputs.clone()))
}

fn reshape(site: &Site<'_>) -> Option<Action> {
    let Op::Reshape(outer) = site.op else { return None };
    let x = site.unary()?;
    if outer.dimensions.is_some() {
        return None;
    }
    if site.shape(x)? == outer.new_sizes {
        return Some(Action::Use(x));
    }
    let inner = site.definition(x)?;
    match &inner.op {
        Op::Reshape(first) if first.dimensions.is_none() => Some(Action::Emit(
            Reshape { new_sizes: outer.new_sizes.clone(), dimensions: None }.into(),
            inner.inputs.clone(),
        )),
        _ => None,
    }
}

fn broadcast(site: &Site<'_>) -> Option<Action> {
    let Op::BroadcastInDim(outer) = site.op else { return None };
    let x = site.unary()?;
    if site.shape(x)? == outer.shape {
        return Some(Action::Use(x));
    }
    let inner = site.definition(x)?;
    let Op::BroadcastInDim(first) = &inner.op else { return None };
    let dims: Option<Axes> = first
        .broadcast_dimensions
        .iter()
        .map(|&axis| outer.broadcast_dimensions.get(axis).copied())
        .collect();
    let op = BroadcastInDim { shape: outer.shape.clone(), broadcast_dimensions: dims? };
    Some(Action::Emit(op.into(), inner.inputs.clone()))
}

fn squeeze(site: &Site<'_>) -> Option<Action> {
    let Op::Squeeze(outer) = site.op else { return None };
    let x = site.unary()?;
    if outer.dimensions.is_empty() {
        return Some(Action::Use(x));
    }
    let inner = site.definition(x)?;
    let Op::BroadcastInDim(first) = &inner.op else { return None };
    // Where each axis of the broadcast goes; those squeezed go nowhere.
    let mut places: SmallVec<[Option<usize>; 4]> = SmallVec::new();
    let mut next = 0;
    for axis in 0..first.shape.len() {
        let gone = outer.dimensions.contains(&axis);
        places.push((!gone).then_some(next));
        next += usize::from(!gone);
    }
    let dims: Option<Axes> =
        first.broadcast_dimensions.iter().map(|&axis| places.get(axis).copied().flatten()).collect();
    let shape: Shape = first
        .shape
        .iter()
        .zip(&places)
        .filter(|(_, place)| place.is_some())
        .map(|(d, _)| d.clone())
        .collect();
    let source = inner.inputs[0];
    if site.shape(source)? == shape {
        return Some(Action::Use(source));
    }
    Some(Action::Emit(BroadcastInDim { shape, broadcast_dimensions: dims? }.into(), smallvec![source]))
}

fn reverse(site: &Site<'_>) -> Option<Action> {
    let Op::Rev(outer) = site.op else { return None };
    let inner = site.definition(site.unary()?)?;
    let Op::Rev(first) = &inner.op else { return None };
    let sorted = |axes: &Axes| {
        let mut axes = axes.clone();
        axes.sort_unstable();
        axes
    };
    (sorted(&outer.dimensions) == sorted(&first.dimensions)).then(|| Action::Use(inner.inputs[0]))
}

/// Where the axes of the result stay in their order.
fn product(site: &Site<'_>) -> Option<Action> {
    let Op::DotGeneral(dot) = site.op else { return None };
    for side in 0..2 {
        let Some(inner) = site.definition(site.inputs[side]) else { continue };
        let Op::Transpose(Transpose { permutation }) = &inner.op else { continue };
        let mut dot = dot.clone();
        let (contracting, batch) = match side {
            0 => (&mut dot.lhs_contracting, &mut dot.lhs_batch),
            _ => (&mut dot.rhs_contracting, &mut dot.rhs_batch),
        };
        let free = (0..permutation.len()).filter(|axis| !contracting.contains(axis) && !batch.contains(axis));
        if !free.map(|axis| permutation[axis]).is_sorted() {
            continue;
        }
        for axis in contracting.iter_mut().chain(batch) {
            *axis = permutation[*axis];
        }
        let mut inputs: Atoms = site.inputs.into();
        inputs[side] = inner.inputs[0];
        return Some(Action::Emit(dot.into(), inputs));
    }
    None
}

fn trivial(site: &Site<'_>) -> Option<Action> {
    let x = *site.inputs.first()?;
    let whole = match site.op {
        Op::Slice(slice) => {
            slice.start_indices.iter().all(|start| *start == 0)
                && slice.strides.as_ref().is_none_or(|strides| strides.iter().all(|&stride| stride == 1))
                && site.shape(x)? == slice.limit_indices
        }
        Op::DynamicSlice(slice) => site.shape(x)? == slice.slice_sizes,
        Op::Pad(pad) => pad.padding_config.iter().all(|&widths| widths == (0, 0, 0)),
        Op::Concatenate(_) => site.inputs.len() == 1,
        Op::Rev(rev) => rev.dimensions.is_empty(),
        Op::Reduce(reduce) => reduce.axes.is_empty(),
        _ => false,
    };
    whole.then_some(Action::Use(x))
}
