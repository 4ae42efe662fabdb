//! Checkpointed calls have the derivatives of plain ones, and keep what their
//! policies say.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use crate::common::*;
use ferrax_ir::ops::{Call, Checkpoint, DotGeneral, Name, Policy, PolicyHandle, Saveable, Scan, Unary};
use ferrax_ir::rules::{Batch, Batched, Jvp, Lowering, Operand, Row, Rules, Transpose, Types};
use ferrax_ir::serial::{Interface, from_bytes, to_bytes};
use ferrax_ir::verify::verify;
use ferrax_ir::{
    ArrayType, Atom, Axes, Builder, DType, Dim, Effect, Effects, Extension, Op, Param, Program, Result,
    Tensor, Type,
};
use ferrax_transform::{
    Linearized, OutDims, batch, cse, dce_with, jvp, linearize, optimise, partial_eval, transpose, vjp_program,
};
use smallvec::{SmallVec, smallvec};

fn handle(policy: impl Policy + 'static) -> PolicyHandle {
    PolicyHandle::new(policy)
}

fn policies() -> Vec<PolicyHandle> {
    vec![PolicyHandle::default(), handle(Saveable::Nothing), handle(Saveable::Everything), handle(Tanh)]
}

/// Saves hyperbolic tangents: some of what the random programs have.
#[derive(Debug)]
struct Tanh;

impl Policy for Tanh {
    fn name(&self) -> String {
        "tanh".to_owned()
    }

    fn saves(&self, op: &Op, _: &[Type]) -> Result<bool> {
        Ok(op.name() == "tanh")
    }
}

fn checkpoint(program: Arc<Program>, policy: PolicyHandle) -> Op {
    Checkpoint { differentiated: false, jaxpr: program, policy, prevent_cse: true }.into()
}

fn call(program: Arc<Program>) -> Op {
    Call { name: program.name.clone(), program, inline: false }.into()
}

/// The sines of what `op` gives for the sines of the inputs.
fn within(op: Op, types: &[Type]) -> Program {
    let mut b = Builder::new("outer");
    let inputs: Vec<Atom> = types.iter().map(|ty| b.input(ty.clone())).collect();
    let sines: Vec<Atom> = inputs.iter().map(|&x| b.unary(Unary::Sin, x).unwrap()).collect();
    let outputs = b.emit(op, &sines).unwrap();
    let outputs: Vec<Atom> =
        outputs.into_iter().map(|var| b.unary(Unary::Sin, Atom::Var(var)).unwrap()).collect();
    let program = b.finish(outputs);
    verify(&program).unwrap();
    program
}

/// A random program, called plainly and as a checkpoint under each policy.
fn pairs(seed: u64, size: usize) -> (Program, Vec<Program>) {
    let inner = Arc::new(random_program(seed, size, 2));
    let types: Vec<Type> = inner.input_types().cloned().collect();
    let plain = within(call(inner.clone()), &types);
    (plain, policies().into_iter().map(|policy| within(checkpoint(inner.clone(), policy), &types)).collect())
}

fn reverse(program: &Program) -> Program {
    let reversed =
        vjp_program(program, &vec![true; program.inputs.len()], &vec![true; program.outputs.len()]);
    reversed.unwrap_or_else(|error| panic!("{error}\n{program}"))
}

fn forward(program: &Program) -> Program {
    let (result, _) = jvp(program, &vec![true; program.inputs.len()]).unwrap();
    verify(&result).unwrap();
    result
}

fn same(checked: &Program, plain: &Program, seed: u64) {
    let mut random = Random::new(seed + 7);
    let inputs = random.tensors(plain.input_types());
    let optimised = optimise(checked, Default::default()).unwrap();
    verify(&optimised).unwrap();
    let want = run(plain, &inputs);
    assert_close(&run(checked, &inputs), &want, 1e-11, checked);
    assert_close(&run(&optimised, &inputs), &want, 1e-11, &optimised);
}

#[test]
fn derivatives_are_those_of_a_call() {
    for seed in 0..30 {
        let (plain, checked) = pairs(seed, 8);
        for checked in checked {
            same(&checked, &plain, seed);
            same(&forward(&checked), &forward(&plain), seed);
            same(&reverse(&checked), &reverse(&plain), seed);
        }
    }
}

#[test]
fn derivatives_of_derivatives_are_those_of_a_call() {
    for seed in 0..8 {
        let (plain, checked) = pairs(seed, 5);
        for checked in checked {
            same(&reverse(&reverse(&checked)), &reverse(&reverse(&plain)), seed);
            same(&forward(&reverse(&checked)), &forward(&reverse(&plain)), seed);
            same(&reverse(&forward(&checked)), &reverse(&forward(&plain)), seed);
        }
    }
}

#[test]
fn batches_are_those_of_a_call() {
    for seed in 0..20 {
        let (plain, checked) = pairs(seed, 8);
        let dims: Vec<Option<usize>> = (0..plain.inputs.len()).map(|i| (i % 2 == 0).then_some(0)).collect();
        let over = |program: &Program| {
            let (batched, out) = batch(program, &Dim::Const(3), &dims, None, OutDims::Front).unwrap();
            verify(&batched).unwrap();
            (batched, out)
        };
        let (plain_batched, out) = over(&plain);
        for checked in checked {
            let (batched, checked_out) = over(&checked);
            assert_eq!(checked_out, out);
            same(&batched, &plain_batched, seed);
            same(&reverse(&batched), &reverse(&plain_batched), seed);
            let (plain, checked) = (over(&plain).0, over(&checked).0);
            same(&checked, &plain, seed);
        }
    }
}

#[test]
fn partly_known_checkpoints_are_split() {
    for seed in 0..20 {
        let inner = Arc::new(random_program(seed, 8, 1));
        if inner.inputs.len() < 2 {
            continue;
        }
        let types: Vec<Type> = inner.input_types().cloned().collect();
        let unknown: Vec<bool> = (0..types.len()).map(|i| i > 0).collect();
        for policy in policies() {
            let program = within(checkpoint(inner.clone(), policy), &types);
            let parts = partial_eval(&program, &unknown).unwrap();
            verify(&parts.known).unwrap();
            verify(&parts.unknown).unwrap();
            let inputs = Random::new(seed).tensors(&types);
            let known = run(&parts.known, &inputs[..1]);
            let (outputs, residuals) = known.split_at(known.len() - parts.residuals);
            let late: Vec<Tensor> = residuals.iter().chain(&inputs[1..]).cloned().collect();
            let (mut outputs, mut late) = (outputs.iter(), run(&parts.unknown, &late).into_iter());
            let joined: Vec<Tensor> = parts
                .unknown_out
                .iter()
                .map(|&flag| if flag { late.next().unwrap() } else { outputs.next().unwrap().clone() })
                .collect();
            assert_close(&joined, &run(&program, &inputs), 1e-12, &program);
        }
    }
}

fn matrix(rows: usize, columns: usize) -> ArrayType {
    ArrayType::of_sizes(&[rows, columns], DType::F64)
}

fn product() -> DotGeneral {
    DotGeneral {
        lhs_contracting: Axes::from_slice(&[1]),
        rhs_contracting: Axes::from_slice(&[0]),
        lhs_batch: Axes::new(),
        rhs_batch: Axes::new(),
        precision: None,
        preferred_element_type: None,
    }
}

/// `sin(name(tanh(x @ w)))`, with the product's shape unlike those of the inputs.
fn layer() -> Arc<Program> {
    let mut b = Builder::new("layer");
    let x = b.input(matrix(2, 3));
    let w = b.input(matrix(3, 5));
    let y = b.emit1(product(), &[x, w]).unwrap();
    let y = b.unary(Unary::Tanh, y).unwrap();
    let y = b.emit1(Name { name: "hidden".into() }, &[y]).unwrap();
    let y = b.unary(Unary::Sin, y).unwrap();
    Arc::new(b.finish([y]))
}

/// What is kept of a program that is one op: input numbers, or the op inside that made it.
fn kept(op: Op) -> Vec<String> {
    let mut b = Builder::new("outer");
    let types: Vec<Type> = op.programs()[0].input_types().cloned().collect();
    let inputs: Vec<Atom> = types.into_iter().map(|ty| b.input(ty)).collect();
    let outputs: Vec<Atom> = b.emit(op, &inputs).unwrap().into_iter().map(Atom::Var).collect();
    let program = b.finish(outputs);
    let linearized = linearize(&program, &[true, true]).unwrap();
    let Linearized { primal, residuals, .. } = &linearized;
    primal.outputs[primal.outputs.len() - residuals..].iter().map(|atom| origin(primal, atom)).collect()
}

fn origin(program: &Program, atom: &Atom) -> String {
    let var = atom.as_var().unwrap();
    if let Some(position) = program.inputs.iter().position(|&input| input == var) {
        return format!("input {position}");
    }
    let equation = program.equations.iter().find(|equation| equation.outputs.contains(&var)).unwrap();
    let position = equation.outputs.iter().position(|&output| output == var).unwrap();
    match equation.op.programs().first() {
        Some(inner) => origin(inner, &inner.outputs[position]),
        None => equation.op.name().to_owned(),
    }
}

#[test]
fn policies_say_what_is_kept() {
    let names = |names: &[&str]| names.iter().map(|&name| Arc::from(name)).collect();
    let kept = |policy| kept(checkpoint(layer(), policy));
    assert_eq!(kept(PolicyHandle::default()), ["input 0", "input 1"]);
    assert_eq!(kept(handle(Saveable::Nothing)), ["input 0", "input 1"]);
    assert_eq!(kept(handle(Saveable::Dots)), ["input 0", "input 1", "dot_general"]);
    assert_eq!(kept(handle(Saveable::DotsWithoutBatch)), ["input 0", "input 1", "dot_general"]);
    assert_eq!(kept(handle(Tanh)), ["input 0", "input 1", "tanh"]);
    assert_eq!(kept(handle(Saveable::Names(names(&["hidden"])))), ["input 0", "input 1", "name"]);
    assert_eq!(kept(handle(Saveable::Names(names(&["other"])))), ["input 0", "input 1"]);
    assert_eq!(kept(handle(Saveable::OtherNames(names(&["other"])))), ["input 0", "input 1", "name"]);
    assert_eq!(kept(handle(Saveable::OtherNames(names(&["hidden"])))), ["input 0", "input 1"]);
    let either = Saveable::Either(handle(Saveable::Dots), handle(Tanh));
    // Its result saved, nobody asks for what tanh was applied to.
    assert_eq!(kept(handle(either)), ["input 0", "input 1", "tanh"]);
    let everything = kept(handle(Saveable::Everything));
    assert!(everything.contains(&"cos".to_owned()), "{everything:?}");
    assert!(!everything.contains(&"dot_general".to_owned()), "{everything:?}");
}

#[test]
fn policies_see_through_calls_and_into_nested_checkpoints() {
    let within = |op: Op| {
        let mut b = Builder::new("outer");
        let (x, w) = (b.input(matrix(2, 3)), b.input(matrix(3, 5)));
        let y = Atom::Var(b.emit(op, &[x, w]).unwrap()[0]);
        let y = b.unary(Unary::Exp, y).unwrap();
        Arc::new(b.finish([y]))
    };
    let dots = || handle(Saveable::Dots);
    let called = checkpoint(within(call(layer())), dots());
    assert_eq!(kept(called), ["input 0", "input 1", "dot_general"]);
    // The inner one computes its product again, so nobody keeps it.
    let nested = checkpoint(within(checkpoint(layer(), PolicyHandle::default())), dots());
    assert_eq!(kept(nested), ["input 0", "input 1"]);
    let both = checkpoint(within(checkpoint(layer(), dots())), dots());
    assert_eq!(kept(both), ["input 0", "input 1", "dot_general"]);
}

#[test]
fn policies_that_are_data_survive_texts_and_files() {
    let names = |names: &[&str]| names.iter().map(|&name| Arc::from(name)).collect();
    for policy in [
        Saveable::Everything,
        Saveable::Nothing,
        Saveable::Dots,
        Saveable::DotsWithoutBatch,
        Saveable::Names(names(&[])),
        Saveable::Names(names(&["hidden"])),
        Saveable::OtherNames(names(&["None", "two words", "x, y)"])),
        Saveable::Either(handle(Saveable::Dots), handle(Saveable::Names(names(&["hidden"])))),
        Saveable::Either(PolicyHandle::default(), handle(Saveable::Dots)),
    ] {
        let program =
            within(checkpoint(layer(), handle(policy)), &[matrix(2, 3).into(), matrix(3, 5).into()]);
        let text = format!("{program:#}");
        assert_eq!(Program::parse(&text).unwrap(), program.canonical(), "{text}");
        let bytes = to_bytes(&program, &Interface::default()).unwrap();
        assert_eq!(from_bytes(&bytes).unwrap().0.canonical(), program.canonical());
        let linear = linearize(&program, &[true, true]).unwrap().linear;
        assert_eq!(Program::parse(&format!("{linear:#}")).unwrap(), linear.canonical());
    }
    let program = within(checkpoint(layer(), handle(Tanh)), &[matrix(2, 3).into(), matrix(3, 5).into()]);
    assert!(to_bytes(&program, &Interface::default()).is_err());
}

/// `h = tanh(h @ w + x)` over the rows of `x`, and all of these.
fn recurrence() -> Arc<Program> {
    let mut b = Builder::new("body");
    let (w, h, x) = (b.input(matrix(3, 3)), b.input(matrix(2, 3)), b.input(matrix(2, 3)));
    let product = b.emit1(product(), &[h, w]).unwrap();
    let sum = b.add(product, x).unwrap();
    let next = b.unary(Unary::Tanh, sum).unwrap();
    let jaxpr = Arc::new(b.finish([next, next]));
    let mut b = Builder::new("recurrence");
    let inputs =
        [b.input(matrix(3, 3)), b.input(matrix(2, 3)), b.input(ArrayType::of_sizes(&[4, 2, 3], DType::F64))];
    let op = Scan { jaxpr, length: Dim::Const(4), num_carry: 1, num_consts: 1, reverse: false, unroll: 1 };
    let outputs = b.emit(op, &inputs).unwrap();
    Arc::new(b.finish(outputs.into_iter().map(Atom::Var)))
}

#[test]
fn scans_take_what_was_kept_of_their_steps() {
    let inner = recurrence();
    let types: Vec<Type> = inner.input_types().cloned().collect();
    let plain = within(call(inner.clone()), &types);
    for policy in
        [PolicyHandle::default(), handle(Saveable::Dots), handle(Saveable::Everything), handle(Tanh)]
    {
        let checked = within(checkpoint(inner.clone(), policy), &types);
        same(&reverse(&checked), &reverse(&plain), 1);
        same(&reverse(&reverse(&checked)), &reverse(&reverse(&plain)), 2);
    }
    let again = |policy| {
        let linear =
            linearize(&within(checkpoint(inner.clone(), policy), &types), &[true; 3]).unwrap().linear;
        let found = linear.equations.iter().find(|equation| equation.op.name() == "remat2").unwrap();
        let scan =
            found.op.programs()[0].equations.iter().find(|equation| equation.op.name() == "scan").unwrap();
        let body = scan.op.programs()[0].clone();
        body.equations.iter().map(|equation| equation.op.name().to_owned()).collect::<Vec<_>>()
    };
    assert!(again(PolicyHandle::default()).contains(&"dot_general".to_owned()));
    let with_dots = again(handle(Saveable::Dots));
    assert!(
        !with_dots.contains(&"dot_general".to_owned()) && with_dots.contains(&"tanh".to_owned()),
        "{with_dots:?}"
    );
}

/// Remembers what it was asked.
#[derive(Clone, Debug, Default)]
struct Asked(Arc<Mutex<Vec<String>>>);

impl Policy for Asked {
    fn name(&self) -> String {
        "asked".to_owned()
    }

    fn saves(&self, op: &Op, inputs: &[Type]) -> Result<bool> {
        let types: Vec<String> = inputs.iter().map(Type::to_string).collect();
        self.0.lock().unwrap().push(format!("{}({})", op.name(), types.join(", ")));
        Ok(false)
    }
}

#[test]
fn policies_are_asked_for_each_known_equation_in_order() {
    let asked = Asked::default();
    kept(checkpoint(layer(), handle(asked.clone())));
    let asked = asked.0.lock().unwrap();
    assert_eq!(&asked[..2], ["dot_general(f64[2,3], f64[3,5])", "tanh(f64[2,5])"]);
    assert!(asked.contains(&"name(f64[2,5])".to_owned()), "{asked:?}");
    let count = |name: &str| asked.iter().filter(|line| line.starts_with(name)).count();
    assert_eq!((count("dot_general"), count("tanh"), count("sin")), (1, 1, 1));
}

#[test]
fn unused_outputs_and_their_inputs_go() {
    let mut b = Builder::new("two");
    let (x, y) = (b.input(matrix(2, 2)), b.input(matrix(3, 3)));
    let (s, t) = (b.unary(Unary::Sin, x).unwrap(), b.unary(Unary::Tanh, y).unwrap());
    let inner = Arc::new(b.finish([s, t]));
    let mut b = Builder::new("outer");
    let (x, y) = (b.input(matrix(2, 2)), b.input(matrix(3, 3)));
    let outputs = b.emit(checkpoint(inner, PolicyHandle::default()), &[x, y]).unwrap();
    let program = b.finish(outputs.into_iter().map(Atom::Var));
    let (smaller, used) = dce_with(&program, &[false, true]).unwrap();
    assert_eq!(used, [false, true]);
    let inside = smaller.equations[0].op.programs()[0].clone();
    assert_eq!(inside.equations.iter().map(|e| e.op.name()).collect::<Vec<_>>(), ["tanh"]);
}

#[test]
fn barriers_stay_apart() {
    let mut b = Builder::new("f");
    let x = b.input(matrix(2, 2));
    let ends: Vec<Atom> = (0..2)
        .map(|_| {
            let inside = b.emit1(ferrax_ir::ops::OptimizationBarrier {}, &[x]).unwrap();
            b.unary(Unary::Sin, inside).unwrap()
        })
        .collect();
    assert_eq!(cse(&b.finish(ends)).unwrap().equations.len(), 4);
}

/// The identity, which has an effect.
#[derive(Debug)]
struct Say;

impl Row for Say {
    fn name(&self) -> &str {
        "say"
    }

    fn params(&self) -> Vec<(&'static str, Param)> {
        Vec::new()
    }

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        Ok(smallvec![inputs[0].clone()])
    }

    fn eval(&self, inputs: &[Tensor], _: &[Type]) -> Result<Vec<Tensor>> {
        Ok(inputs.to_vec())
    }

    fn effects(&self) -> Effects {
        Effects::from([Effect::Unordered])
    }
}

impl Rules for Say {
    fn jvp(&self, _: &mut Builder, eqn: &Jvp<'_>) -> Result<SmallVec<[Option<Atom>; 1]>> {
        Ok(smallvec![eqn.tangents[0]])
    }

    fn transpose(&self, _: &mut Builder, eqn: &Transpose<'_>) -> Result<SmallVec<[Option<Atom>; 3]>> {
        assert!(matches!(eqn.inputs[0], Operand::Linear(_)));
        Ok(smallvec![eqn.cotangents[0]])
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        let op = Op::Extension(Extension(Arc::new(Say)));
        Ok(smallvec![(b.emit1(op, eqn.inputs)?, eqn.dims[0])])
    }

    fn lower(&self) -> Lowering {
        Lowering::Library
    }
}

fn said(program: &Program) -> usize {
    let of = |op: &Op| match op.programs().as_slice() {
        [] => usize::from(op.name() == "say"),
        inner => inner.iter().map(|program| said(program)).sum(),
    };
    program.equations.iter().map(|equation| of(&equation.op)).sum()
}

#[test]
fn effects_happen_again() {
    let mut b = Builder::new("loud");
    let x = b.input(matrix(2, 2));
    let y = b.unary(Unary::Sin, x).unwrap();
    b.emit1(Op::Extension(Extension(Arc::new(Say))), &[y]).unwrap();
    let z = b.unary(Unary::Sin, y).unwrap();
    let inner = Arc::new(b.finish([z]));
    let program = within(checkpoint(inner, PolicyHandle::default()), &[matrix(2, 2).into()]);
    let linearized = linearize(&program, &[true]).unwrap();
    assert_eq!((said(&linearized.primal), said(&linearized.linear)), (1, 1));
    let linear: Vec<bool> =
        (0..linearized.linear.inputs.len()).map(|index| index >= linearized.residuals).collect();
    let (backward, _) = transpose(&linearized.linear, &linear, &[true]).unwrap();
    assert_eq!(said(&backward), 1);
    assert_eq!(said(&linearize(&program, &[false]).unwrap().linear), 0);
}

/// `f(f(x))` of checkpoints of checkpoints, `depth` deep.
fn doubled(depth: usize) -> Program {
    let scalar = || ArrayType::scalar(DType::F64);
    let mut b = Builder::new("leaf");
    let x = b.input(scalar());
    let y = b.unary(Unary::Sin, x).unwrap();
    let mut current = Arc::new(b.finish([y]));
    for _ in 0..depth {
        let mut b = Builder::new("twice");
        let x = b.input(scalar());
        let y = Atom::Var(b.emit(checkpoint(current.clone(), PolicyHandle::default()), &[x]).unwrap()[0]);
        let z = Atom::Var(b.emit(checkpoint(current, PolicyHandle::default()), &[y]).unwrap()[0]);
        current = Arc::new(b.finish([z]));
    }
    Program::clone(&current)
}

/// How many equations there are, where each sub-program counts once.
fn equations(program: &Program, seen: &mut HashSet<*const Program>) -> usize {
    let inner = program.equations.iter().flat_map(|equation| equation.op.programs());
    program.equations.len()
        + inner
            .map(|inner| if seen.insert(Arc::as_ptr(inner)) { equations(inner, seen) } else { 0 })
            .sum::<usize>()
}

#[test]
fn shared_programs_are_treated_once() {
    // 2^40 calls of the sine: a pass that went through each would not end.
    let reversed = reverse(&doubled(40));
    let mut seen = HashSet::new();
    let equations = equations(&reversed, &mut seen);
    assert!(equations < 100 * 40, "{equations}");
    let value = 0.3f64;
    let want = (0..16).fold((value, 1.0), |(x, slope), _| (x.sin(), slope * x.cos()));
    let inputs = [value, 1.0].map(|x| Tensor::from_elements(Vec::new(), &[x]).unwrap());
    let got = run(&reverse(&doubled(4)), &inputs);
    assert!((floats(&got[0])[0] - want.0).abs() < 1e-12 && (floats(&got[1])[0] - want.1).abs() < 1e-12);
}
