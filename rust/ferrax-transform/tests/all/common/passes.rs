//! Every transformation of one program, judged by the interpreter: derivatives by
//! differences and by each other, batches by their lanes, parts by the whole.

use std::sync::Arc;

use ferrax_ir::ops::Call;
use ferrax_ir::rules::{Batch, Batched, Jvp, Lowering, Row, Rules, Transpose, Types, not_linear};
use ferrax_ir::verify::verify;
use ferrax_ir::{
    ArrayType, Atom, Builder, DType, Dim, Effect, Effects, Extension, KeyImpl, Op, Param, Program, Result,
    Tensor, Type,
};
use ferrax_transform::{OutDims, batch, dce_with, jvp, linearize, optimise, partial_eval, vjp_program};

use smallvec::{SmallVec, smallvec};

use super::loops::assert_same;
use super::{Random, dot, offset, run};

/// A program with inputs to try it on: each a lane, all of the same types.
pub struct Case {
    pub name: &'static str,
    pub program: Program,
    pub lanes: Vec<Vec<Tensor>>,
    /// Whether it has a reverse derivative.
    pub reverse: bool,
}

pub fn case(name: &'static str, text: &str, lanes: Vec<Vec<Tensor>>, reverse: bool) -> Case {
    let program = Program::parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
    Case { name, program, lanes, reverse }
}

pub fn f(value: f64) -> Tensor {
    Tensor::from_elements([].as_slice(), &[value]).unwrap()
}

pub fn v(values: &[f64]) -> Tensor {
    Tensor::from_elements([values.len()].as_slice(), values).unwrap()
}

pub fn i(value: i32) -> Tensor {
    Tensor::from_elements([].as_slice(), &[value]).unwrap()
}

pub fn key(words: [u32; 2]) -> Tensor {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    Tensor::from_bytes(DType::Key(KeyImpl::THREEFRY2X32), [].as_slice(), &bytes).unwrap()
}

/// All sets of `count` things, or many if there are too many.
pub fn subsets(count: usize) -> Vec<Vec<bool>> {
    let all = (0..1usize << count.min(10)).map(|bits| (0..count).map(|at| bits >> at & 1 == 1).collect());
    all.step_by(1 + (1usize << count.min(10)) / 64).collect()
}

fn floats_of<'a>(types: impl IntoIterator<Item = &'a Type>) -> Vec<bool> {
    types.into_iter().map(|ty| ty.as_array().is_some_and(|ty| ty.dtype == DType::F64)).collect()
}

fn pick<T: Clone>(items: &[T], flags: &[bool]) -> Vec<T> {
    super::chosen(items, flags)
}

/// The sets of inputs to differentiate in: each alone, and all.
fn directions(program: &Program) -> Vec<Vec<bool>> {
    let floats = floats_of(program.input_types());
    let alone = (0..floats.len())
        .filter(|&at| floats[at])
        .map(|at| (0..floats.len()).map(|other| other == at).collect::<Vec<bool>>());
    let mut all: Vec<Vec<bool>> = alone.collect();
    if floats.iter().filter(|flag| **flag).count() > 1 {
        all.push(floats);
    }
    all
}

/// Central differences of the float outputs along `tangents`.
fn differences(program: &Program, inputs: &[Tensor], nonzero: &[bool], tangents: &[Tensor]) -> Vec<Tensor> {
    let step = 1e-6;
    let shifted = |by: f64| {
        let mut tangents = tangents.iter();
        let moved = inputs
            .iter()
            .zip(nonzero)
            .map(|(x, &flag)| if flag { offset(x, tangents.next().unwrap(), by) } else { x.clone() });
        run(program, &moved.collect::<Vec<_>>())
    };
    let (ahead, behind) = (shifted(step), shifted(-step));
    let floats = floats_of(&program.output_types().collect::<Vec<_>>());
    let slope = |(a, b): (&Tensor, &Tensor)| {
        let difference = offset(a, b, -1.0);
        offset(&difference, &difference, 1.0 / (2.0 * step) - 1.0)
    };
    pick(&ahead.iter().zip(&behind).collect::<Vec<_>>(), &floats).into_iter().map(slope).collect()
}

/// Tangents of all float outputs, zeros where the program says that they are.
fn tangents_of(program: &Program, results: &[Tensor], flags: &[bool]) -> Vec<Tensor> {
    let mut given = results.iter();
    let types: Vec<Type> = program.output_types().collect();
    let mut all = Vec::new();
    for (ty, &flag) in types.iter().zip(flags) {
        let ty = ty.as_array().unwrap();
        if flag {
            all.push(given.next().unwrap().clone());
        } else if ty.dtype == DType::F64 {
            all.push(Tensor::zeros(DType::F64, ty.sizes().unwrap()).unwrap());
        }
    }
    assert!(given.next().is_none());
    all
}

pub fn check_derivatives(case: &Case) {
    let Case { name, program, lanes, reverse } = case;
    let mut random = Random::new(17);
    let types: Vec<Type> = program.input_types().cloned().collect();
    let outputs: Vec<Type> = program.output_types().collect();
    for nonzero in directions(program) {
        let (forward, flags) = jvp(program, &nonzero).unwrap();
        verify(&forward).unwrap();
        let linear = linearize(program, &nonzero).unwrap();
        verify(&linear.primal).unwrap();
        verify(&linear.linear).unwrap();
        let twice: Vec<bool> =
            (0..forward.inputs.len()).map(|at| at < nonzero.len() && nonzero[at]).collect();
        let (second, second_flags) = jvp(&forward, &twice).unwrap();
        for inputs in lanes {
            let tangents = random.tensors(&pick(&types, &nonzero));
            let all = [inputs.as_slice(), &tangents].concat();
            let results = run(&forward, &all);
            let (values, slopes) = results.split_at(outputs.len());
            assert_same(values, &run(program, inputs), 0.0, &format!("{name}: primal"), program);
            let slopes = tangents_of(program, slopes, &flags);
            let want = differences(program, inputs, &nonzero, &tangents);
            assert_same(&slopes, &want, 1e-5, &format!("{name}: jvp {nonzero:?}"), program);

            let primal = run(&linear.primal, inputs);
            let (values, residuals) = primal.split_at(outputs.len());
            assert_same(values, &run(program, inputs), 0.0, &format!("{name}: linearized"), program);
            let found = run(&linear.linear, &[residuals, &tangents].concat());
            let found = tangents_of(program, &found, &linear.nonzero_out);
            assert_same(&found, &slopes, 1e-10, &format!("{name}: linear {nonzero:?}"), program);

            // Forward over forward.
            let again = random.tensors(&pick(&types, &nonzero));
            let results = run(&second, &[all.as_slice(), &again].concat());
            let found = tangents_of(&forward, &results[forward.outputs.len()..], &second_flags);
            let want = differences(&forward, &all, &twice, &again);
            assert_same(&found, &want, 1e-4, &format!("{name}: second {nonzero:?}"), program);
        }
        if *reverse {
            check_reverse(case, &nonzero, &mut random);
        }
    }
}

fn check_reverse(case: &Case, nonzero: &[bool], random: &mut Random) {
    let Case { name, program, lanes, .. } = case;
    let types: Vec<Type> = program.input_types().cloned().collect();
    let outputs: Vec<Type> = program.output_types().collect();
    let given = floats_of(&outputs);
    let reverse = vjp_program(program, nonzero, &given).unwrap();
    verify(&reverse).unwrap();
    let (forward, flags) = jvp(program, nonzero).unwrap();
    let outer: Vec<bool> = floats_of(reverse.input_types());
    let (forward_reverse, outer_flags) = jvp(&reverse, &outer).unwrap();
    let reverse_reverse =
        vjp_program(&reverse, &outer, &floats_of(&reverse.output_types().collect::<Vec<_>>())).unwrap();
    verify(&reverse_reverse).unwrap();
    for inputs in lanes {
        let tangents = random.tensors(&pick(&types, nonzero));
        let cotangents = random.tensors(&pick(&outputs, &given));
        let results = run(&forward, &[inputs.as_slice(), &tangents].concat());
        let slopes = tangents_of(program, &results[outputs.len()..], &flags);
        let all = [inputs.as_slice(), &cotangents].concat();
        let found = run(&reverse, &all);
        let (values, gradients) = found.split_at(outputs.len());
        assert_same(values, &results[..outputs.len()], 1e-12, &format!("{name}: vjp's primal"), program);
        dual(name, (&slopes, &cotangents), (gradients, &tangents), program);

        // Forward over reverse against differences, reverse over reverse against that.
        let moves = random.tensors(&pick(&reverse.input_types().cloned().collect::<Vec<_>>(), &outer));
        let results = run(&forward_reverse, &[all.as_slice(), &moves].concat());
        let slopes = tangents_of(&reverse, &results[reverse.outputs.len()..], &outer_flags);
        let want = differences(&reverse, &all, &outer, &moves);
        assert_same(&slopes, &want, 1e-4, &format!("{name}: forward over reverse"), program);
        let back = floats_of(&reverse.output_types().collect::<Vec<_>>());
        let cotangents = random.tensors(&pick(&reverse.output_types().collect::<Vec<_>>(), &back));
        let found = run(&reverse_reverse, &[all.as_slice(), &cotangents].concat());
        dual(name, (&slopes, &cotangents), (&found[reverse.outputs.len()..], &moves), program);
    }
}

/// A linear map and its transpose have the same products.
fn dual(name: &str, one: (&[Tensor], &[Tensor]), other: (&[Tensor], &[Tensor]), program: &Program) {
    let product = |(a, b): (&[Tensor], &[Tensor])| -> f64 {
        assert_eq!(a.len(), b.len(), "{name}");
        a.iter().zip(b).map(|(a, b)| dot(a, b)).sum()
    };
    let (left, right) = (product(one), product(other));
    assert!((left - right).abs() < 1e-8 * (1.0 + left.abs()), "{name}: {left} {right}\n{program}");
}

/// Arrays one after another along a new axis in front.
pub fn stack(items: &[Tensor]) -> Tensor {
    let bytes: Vec<u8> = items.iter().flat_map(|item| item.bytes().iter().copied()).collect();
    let sizes: Vec<usize> = std::iter::once(items.len()).chain(items[0].sizes().iter().copied()).collect();
    Tensor::from_bytes(items[0].dtype(), sizes.as_slice(), &bytes).unwrap()
}

/// What lanes give one by one, where inputs that are not flagged are the first lane's.
fn one_by_one(program: &Program, lanes: &[Vec<Tensor>], flags: &[bool]) -> Vec<Tensor> {
    let results: Vec<Vec<Tensor>> = lanes
        .iter()
        .map(|lane| {
            let inputs = lane.iter().zip(&lanes[0]).zip(flags);
            let inputs: Vec<Tensor> =
                inputs.map(|((own, first), flag)| if *flag { own.clone() } else { first.clone() }).collect();
            run(program, &inputs)
        })
        .collect();
    (0..program.outputs.len())
        .map(|at| stack(&results.iter().map(|result| result[at].clone()).collect::<Vec<_>>()))
        .collect()
}

fn check_batch_of(name: &str, program: &Program, lanes: &[Vec<Tensor>], flags: &[bool]) {
    let dims: Vec<Option<usize>> = flags.iter().map(|flag| flag.then_some(0)).collect();
    let all = vec![Some(0); program.outputs.len()];
    let (batched, _) = batch(program, &Dim::Const(lanes.len()), &dims, None, OutDims::Force(&all)).unwrap();
    verify(&batched).unwrap();
    let inputs: Vec<Tensor> = (0..flags.len())
        .map(|at| {
            if !flags[at] {
                return lanes[0][at].clone();
            }
            stack(&lanes.iter().map(|lane| lane[at].clone()).collect::<Vec<_>>())
        })
        .collect();
    let want = one_by_one(program, lanes, flags);
    assert_same(&run(&batched, &inputs), &want, 1e-12, &format!("{name}: batch {flags:?}"), program);
    let optimised = optimise(&batched, Default::default()).unwrap();
    verify(&optimised).unwrap();
    let what = format!("{name}: optimised batch {flags:?}");
    assert_same(&run(&optimised, &inputs), &want, 1e-12, &what, &optimised);
}

/// Batches of the program and of its derivatives, and derivatives of its batch.
pub fn check_batches(case: &Case) {
    let Case { name, program, lanes, reverse } = case;
    let mut random = Random::new(5);
    for flags in subsets(program.inputs.len()) {
        check_batch_of(name, program, lanes, &flags);
    }
    let Some(nonzero) = directions(program).pop() else { return };
    let extended = |derivative: &Program, random: &mut Random| -> Vec<Vec<Tensor>> {
        let types: Vec<Type> = derivative.input_types().skip(program.inputs.len()).cloned().collect();
        lanes.iter().map(|lane| [lane.as_slice(), &random.tensors(&types)].concat()).collect()
    };
    let (forward, _) = jvp(program, &nonzero).unwrap();
    check_batch_of(name, &forward, &extended(&forward, &mut random), &vec![true; forward.inputs.len()]);
    if !reverse {
        return;
    }
    let given = floats_of(&program.output_types().collect::<Vec<_>>());
    let gradient = vjp_program(program, &nonzero, &given).unwrap();
    let lanes_of_gradient = extended(&gradient, &mut random);
    check_batch_of(name, &gradient, &lanes_of_gradient, &vec![true; gradient.inputs.len()]);

    // The derivative of a batch is the batch of derivatives.
    let dims = vec![Some(0); program.inputs.len()];
    let all = vec![Some(0); program.outputs.len()];
    let (batched, _) = batch(program, &Dim::Const(lanes.len()), &dims, None, OutDims::Force(&all)).unwrap();
    let of_batch = vjp_program(&batched, &nonzero, &given).unwrap();
    verify(&of_batch).unwrap();
    let inputs: Vec<Tensor> = (0..of_batch.inputs.len())
        .map(|at| stack(&lanes_of_gradient.iter().map(|lane| lane[at].clone()).collect::<Vec<_>>()))
        .collect();
    let want = one_by_one(&gradient, &lanes_of_gradient, &vec![true; gradient.inputs.len()]);
    assert_same(&run(&of_batch, &inputs), &want, 1e-10, &format!("{name}: gradient of a batch"), program);
}

/// Known and unknown halves, and programs without some outputs, and optimised ones.
pub fn check_parts(case: &Case) {
    let Case { name, program, lanes, .. } = case;
    for unknown in subsets(program.inputs.len()) {
        let parts = partial_eval(program, &unknown).unwrap();
        verify(&parts.known).unwrap();
        verify(&parts.unknown).unwrap();
        for inputs in lanes {
            let known: Vec<bool> = unknown.iter().map(|flag| !flag).collect();
            let mut first = run(&parts.known, &pick(inputs, &known));
            let early = parts.unknown_out.iter().filter(|flag| !**flag).count();
            let residuals = first.split_off(early);
            let late = run(&parts.unknown, &[residuals, pick(inputs, &unknown)].concat());
            let (mut first, mut late) = (first.into_iter(), late.into_iter());
            let found: Vec<Tensor> = parts
                .unknown_out
                .iter()
                .map(|&flag| if flag { late.next() } else { first.next() }.unwrap())
                .collect();
            assert_same(&found, &run(program, inputs), 1e-12, &format!("{name}: parts {unknown:?}"), program);
        }
    }
    for used in subsets(program.outputs.len()) {
        let (smaller, kept) = dce_with(program, &used).unwrap();
        verify(&smaller).unwrap();
        for inputs in lanes {
            let found = run(&smaller, &pick(inputs, &kept));
            let want = pick(&run(program, inputs), &used);
            assert_same(&found, &want, 0.0, &format!("{name}: without {used:?}"), program);
        }
    }
    let optimised = optimise(program, Default::default()).unwrap();
    verify(&optimised).unwrap();
    for inputs in lanes {
        assert_same(
            &run(&optimised, inputs),
            &run(program, inputs),
            0.0,
            &format!("{name}: optimised"),
            program,
        );
    }
}

/// Twice its operand, with an effect.
#[derive(Debug)]
struct Loud;

impl Row for Loud {
    fn name(&self) -> &str {
        "loud"
    }

    fn params(&self) -> Vec<(&'static str, Param)> {
        Vec::new()
    }

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        Ok(smallvec![inputs[0].clone()])
    }

    fn eval(&self, inputs: &[Tensor], _: &[Type]) -> Result<Vec<Tensor>> {
        Ok(vec![offset(&inputs[0], &inputs[0], 1.0)])
    }

    fn effects(&self) -> Effects {
        Effects::from([Effect::Unordered])
    }
}

impl Rules for Loud {
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<SmallVec<[Option<Atom>; 1]>> {
        eqn.tangents.iter().map(|tangent| tangent.map(|tangent| b.scale(tangent, 2.0)).transpose()).collect()
    }

    fn transpose(&self, _: &mut Builder, _: &Transpose<'_>) -> Result<SmallVec<[Option<Atom>; 3]>> {
        not_linear(self)
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        Ok(smallvec![(b.emit1(loud(), eqn.inputs)?, eqn.dims[0])])
    }

    fn lower(&self) -> Lowering {
        Lowering::Library
    }
}

pub fn loud() -> Op {
    Op::Extension(Extension(Arc::new(Loud)))
}

/// The program with every call of one named `loud` as an op that is.
pub fn with_effects(program: &Program) -> Program {
    let mut b = Builder::new(program.name.clone());
    let inputs: Vec<Atom> = program.input_types().map(|ty| b.input(ty.clone())).collect();
    let mut map: Vec<Option<Atom>> = vec![None; program.types.len()];
    for (var, &atom) in program.inputs.iter().zip(&inputs) {
        map[var.index()] = Some(atom);
    }
    let at = |map: &[Option<Atom>], atom: &Atom| atom.as_var().map_or(*atom, |var| map[var.index()].unwrap());
    for equation in &program.equations {
        let inputs: Vec<Atom> = equation.inputs.iter().map(|atom| at(&map, atom)).collect();
        let op = match &equation.op {
            Op::Call(Call { name, .. }) if &**name == "loud" => loud(),
            op => op.map_programs(|callee| Ok::<_, ()>(Arc::new(with_effects(callee)))).unwrap(),
        };
        for (var, new) in equation.outputs.iter().zip(b.emit(op, &inputs).unwrap()) {
            map[var.index()] = Some(Atom::Var(new));
        }
    }
    b.finish(program.outputs.iter().map(|atom| at(&map, atom)).collect::<Vec<_>>())
}

/// How many equations have effects, in sub-programs too; those that hold one in
/// a sub-program not counted.
pub fn effects(program: &Program) -> usize {
    let inside = |equation: &ferrax_ir::Equation| -> usize {
        let callees = equation.op.programs();
        if callees.is_empty() {
            return usize::from(!equation.op.effects().is_empty());
        }
        callees.iter().map(|callee| effects(callee)).sum()
    };
    program.equations.iter().map(inside).sum()
}

pub fn scalar() -> ArrayType {
    ArrayType::scalar(DType::F64)
}
