//! Rewrites of programs into what libraries compute: the same for all machines, whose results are the same.
//!
//! Products and convolutions of halves, or with a result dtype of their own, become ones in
//! the dtype of accumulation between conversions, which fuse with their
//! neighbours. Products of vectors, or of batches of them, become sums of
//! products of elements, which fuse too and have the accuracy of sums. Products
//! without a contracted axis are multiplications.
//! Long reductions by multiplication are made safe from parts that overflow beside a zero.
//! Sub-programs are rewritten too, each once.

use std::sync::Arc;

use ferrax_ir::ops::{Binary, Compare, ConvGeneralDilated, DotGeneral, Reduce, ReduceKind, Unary};
use ferrax_ir::{
    Atom, Axes, Builder, DType, Dim, Equation, Op, Program, Result, builder::substitute, internal_error,
};
use rustc_hash::FxHashMap;

/// The dtype in which a product is computed.
fn accumulation(left: DType, right: DType, out: DType) -> DType {
    if [left, right, out].iter().any(|dtype| dtype.is_complex()) {
        let wide = [left, right, out].iter().any(|dtype| dtype.real() == DType::F64);
        return if wide { DType::C128 } else { DType::C64 };
    }
    match out {
        DType::F64 => DType::F64,
        out if out.is_float() => {
            if left == DType::F64 || right == DType::F64 {
                DType::F64
            } else {
                DType::F32
            }
        }
        DType::Bool => DType::I32,
        _ if left.is_float() || right.is_float() => {
            if left == DType::F64 || right == DType::F64 {
                DType::F64
            } else {
                DType::F32
            }
        }
        out if out.is_narrow() => DType::I32,
        out => out,
    }
}

fn needs(program: &Program) -> bool {
    program.equations.iter().any(|equation| match &equation.op {
        Op::DotGeneral(op) => {
            is_converted(program, equation)
                || op.lhs_contracting.is_empty()
                || is_of_vectors(op, program, equation)
        }
        Op::ConvGeneralDilated(_) => is_converted(program, equation),
        Op::Reduce(op) => is_long_product(op, program, equation),
        op => !op.programs().is_empty(),
    })
}

/// Whether operands and result of a product do not all have the dtype of accumulation.
fn is_converted(program: &Program, equation: &Equation) -> bool {
    let dtypes = dtypes(program, equation);
    dtypes.iter().any(|&dtype| dtype != accumulation(dtypes[0], dtypes[1], dtypes[2]))
}

fn dtypes(program: &Program, equation: &Equation) -> [DType; 3] {
    let of = |atom: &Atom| program.type_of(atom).as_array().map_or(DType::Float0, |ty| ty.dtype);
    let output = equation.outputs.first().map_or(DType::Float0, |&var| of(&Atom::Var(var)));
    match equation.inputs.as_slice() {
        [left, right, ..] => [of(left), of(right), output],
        _ => [output; 3],
    }
}

/// Whether neither operand has an axis of its own, but for those of size 1, and there is something to sum.
fn is_of_vectors(op: &DotGeneral, program: &Program, equation: &Equation) -> bool {
    let operand = |number: usize, batch: &Axes, contracted: &Axes| {
        let ty = equation.inputs.get(number).map(|atom| program.type_of(atom));
        let sizes = ty.as_ref().and_then(|ty| ty.as_array()).and_then(|array| array.sizes());
        sizes.is_some_and(|sizes| {
            let free = |axis: &usize| !batch.contains(axis) && !contracted.contains(axis);
            (0..sizes.len()).filter(free).all(|axis| sizes[axis] == 1) && !sizes.contains(&0)
        })
    };
    !op.lhs_contracting.is_empty()
        && operand(0, &op.lhs_batch, &op.lhs_contracting)
        && operand(1, &op.rhs_batch, &op.rhs_contracting)
}

/// The product of vectors `a` and `b` as a sum, of this type.
fn sum_of_products(b: &mut Builder, op: &DotGeneral, left: Atom, right: Atom, out: &[Dim]) -> Result<Atom> {
    // Pairs of contracted axes in the order of the left operand, in which it is likely to lie.
    let mut pairs: Vec<(usize, usize)> =
        op.lhs_contracting.iter().copied().zip(op.rhs_contracting.iter().copied()).collect();
    pairs.sort_unstable();
    let (lhs, rhs): (Axes, Axes) = pairs.into_iter().unzip();
    let mut ordered = |x: Atom, batch: &Axes, contracted: &Axes| -> Result<Atom> {
        let free = (0..b.rank(x)).filter(|axis| !batch.contains(axis) && !contracted.contains(axis));
        let order: Axes = batch.iter().chain(contracted).copied().chain(free).collect();
        let x = b.transpose(x, &order)?;
        let shape: Vec<Dim> = b.shape(x).iter().take(batch.len() + contracted.len()).cloned().collect();
        b.reshape(x, &shape)
    };
    let left = ordered(left, &op.lhs_batch, &lhs)?;
    let right = ordered(right, &op.rhs_batch, &rhs)?;
    let product = b.mul(left, right)?;
    let batch = op.lhs_batch.len();
    let sum = b.reduce_sum(product, &(batch..batch + lhs.len()).collect::<Axes>())?;
    b.reshape(sum, out)
}

/// A product without contracted axes: the axes of the result are those of the batch, the left operand's
/// and the right operand's.
fn outer_product(b: &mut Builder, op: &DotGeneral, left: Atom, right: Atom) -> Result<Atom> {
    let batch = op.lhs_batch.len();
    let free = |b: &Builder, x: Atom, batch: &Axes| -> Axes {
        (0..b.rank(x)).filter(|axis| !batch.contains(axis)).collect()
    };
    let (of_left, of_right) = (free(b, left, &op.lhs_batch), free(b, right, &op.rhs_batch));
    let size = |b: &Builder, x: Atom, axis: usize| b.shape(x)[axis].clone();
    let mut shape: Vec<Dim> = op.lhs_batch.iter().map(|&axis| size(b, left, axis)).collect();
    shape.extend(of_left.iter().map(|&axis| size(b, left, axis)));
    shape.extend(of_right.iter().map(|&axis| size(b, right, axis)));
    let mut spread = |x: Atom, batch_axes: &Axes, free: &Axes, first: usize| -> Result<Atom> {
        let order: Axes = batch_axes.iter().chain(free).copied().collect();
        let x = b.transpose(x, &order)?;
        let along: Axes = (0..batch).chain(first..first + free.len()).collect();
        b.broadcast_in_dim(x, &shape, &along)
    };
    let left = spread(left, &op.lhs_batch, &of_left, batch)?;
    let right = spread(right, &op.rhs_batch, &of_right, batch + of_left.len())?;
    b.mul(left, right)
}

/// Whether more floats are multiplied than a tree takes in order, so that a part of them may overflow.
fn is_long_product(op: &Reduce, program: &Program, equation: &Equation) -> bool {
    let ty = equation.inputs.first().map(|atom| program.type_of(atom));
    op.kind == ReduceKind::Prod
        && ty.as_ref().and_then(|ty| ty.as_array()).is_some_and(|array| {
            let sizes = array.sizes().unwrap_or_default();
            let terms = op
                .axes
                .iter()
                .filter_map(|&axis| sizes.get(axis))
                .try_fold(1usize, |n, &size| n.checked_mul(size));
            array.dtype.is_float() && terms.is_none_or(|terms| terms > 2)
        })
}

/// A product of floats, where finite terms with a zero among them give zero: the partial products of a
/// tree may overflow to infinity on one side and be zero on the other, whose product would be NaN.
fn safe_product(b: &mut Builder, op: &Reduce, x: Atom) -> Result<Atom> {
    let product = b.reduce(ReduceKind::Prod, x, &op.axes)?;
    let finite = b.unary(Unary::IsFinite, x)?;
    let finite = b.reduce(ReduceKind::And, finite, &op.axes)?;
    let lost = b.compare(Compare::Ne, product, product)?;
    let lost = b.binary(Binary::And, lost, finite)?;
    let zeros = b.zeros_like(product)?;
    b.select(lost, zeros, product)
}

/// A flat program whose library calls the CPU has kernels for.
pub fn legalise(program: Program) -> Result<Program> {
    rewrite(program, &mut FxHashMap::default())
}

/// `done` has sub-programs by identity, before and after.
fn rewrite(program: Program, done: &mut FxHashMap<usize, (Arc<Program>, Arc<Program>)>) -> Result<Program> {
    if !needs(&program) {
        return Ok(program);
    }
    let mut builder = Builder::new(program.name.clone());
    let mut map: Vec<Option<Atom>> = vec![None; program.types.len()];
    for var in &program.inputs {
        map[var.index()] = Some(builder.input(program.types[var.index()].clone()));
    }
    for (var, tensor) in &program.constants {
        let weak = program.types[var.index()].as_array().is_some_and(|ty| ty.weak);
        map[var.index()] = Some(builder.constant(tensor.clone(), weak));
    }
    for equation in &program.equations {
        let inputs = substitute(&map, &equation.inputs)?;
        builder.source = equation.source;
        let types = equation.outputs.iter().map(|var| program.types[var.index()].clone());
        if matches!(equation.op, Op::DotGeneral(_) | Op::ConvGeneralDilated(_)) {
            let [left, right, out] = dtypes(&program, equation);
            let wide = accumulation(left, right, out);
            let a = builder.convert(inputs[0], wide)?;
            let b = builder.convert(inputs[1], wide)?;
            let product = match &equation.op {
                Op::DotGeneral(op) if is_of_vectors(op, &program, equation) => {
                    let ty = program.type_of(&Atom::Var(equation.outputs[0]));
                    let shape = ty.as_array().map(|array| array.shape.to_vec()).unwrap_or_default();
                    sum_of_products(&mut builder, op, a, b, &shape)?
                }
                Op::DotGeneral(op) if op.lhs_contracting.is_empty() => outer_product(&mut builder, op, a, b)?,
                Op::DotGeneral(op) => {
                    let plain = DotGeneral { preferred_element_type: Some(wide), ..op.clone() };
                    builder.emit1(plain, &[a, b])?
                }
                Op::ConvGeneralDilated(op) => {
                    let plain = ConvGeneralDilated { preferred_element_type: Some(wide), ..op.clone() };
                    builder.emit1(plain, &[a, b])?
                }
                _ => return Err(internal_error!("{} is no product", equation.op.name())),
            };
            map[equation.outputs[0].index()] = Some(builder.convert(product, out)?);
            continue;
        }
        if let Op::Reduce(op) = &equation.op
            && is_long_product(op, &program, equation)
        {
            map[equation.outputs[0].index()] = Some(safe_product(&mut builder, op, inputs[0])?);
            continue;
        }
        let op = equation.op.map_programs(|callee| -> Result<Arc<Program>> {
            if let Some((_, known)) = done.get(&Arc::as_ptr(callee).addr()) {
                return Ok(known.clone());
            }
            let rewritten = match needs(callee) {
                true => Arc::new(rewrite(Program::clone(callee), done)?),
                false => callee.clone(),
            };
            done.insert(Arc::as_ptr(callee).addr(), (callee.clone(), rewritten.clone()));
            Ok(rewritten)
        })?;
        let outputs = builder.emit_typed(op, &inputs, types);
        for (old, new) in equation.outputs.iter().zip(outputs) {
            map[old.index()] = Some(Atom::Var(new));
        }
    }
    let outputs = substitute(&map, &program.outputs)?;
    let mut result = builder.finish(outputs);
    result.effects = program.effects;
    Ok(result)
}
