//! Rewrites of programs into what the CPU's library kernels take.
//!
//! Products of halves, or with a result dtype of their own, become products in
//! the dtype of accumulation between conversions, which fuse with their
//! neighbours. Sub-programs are rewritten too, each once.

use std::sync::Arc;

use ferrax_ir::ops::DotGeneral;
use ferrax_ir::{Atom, Builder, DType, Op, Program, Result, builder::substitute};
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
        Op::DotGeneral(_) => {
            let dtypes = dtypes(program, equation);
            dtypes.iter().any(|&dtype| dtype != accumulation(dtypes[0], dtypes[1], dtypes[2]))
        }
        op => !op.programs().is_empty(),
    })
}

fn dtypes(program: &Program, equation: &ferrax_ir::Equation) -> [DType; 3] {
    let of = |atom: &Atom| program.type_of(atom).as_array().map_or(DType::Float0, |ty| ty.dtype);
    let output = equation.outputs.first().map_or(DType::Float0, |&var| of(&Atom::Var(var)));
    match equation.inputs.as_slice() {
        [left, right, ..] => [of(left), of(right), output],
        _ => [output; 3],
    }
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
        if let Op::DotGeneral(op) = &equation.op {
            let [left, right, out] = dtypes(&program, equation);
            let wide = accumulation(left, right, out);
            let a = builder.convert(inputs[0], wide)?;
            let b = builder.convert(inputs[1], wide)?;
            let plain = DotGeneral { preferred_element_type: Some(wide), ..op.clone() };
            let product = builder.emit1(plain, &[a, b])?;
            map[equation.outputs[0].index()] = Some(builder.convert(product, out)?);
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
