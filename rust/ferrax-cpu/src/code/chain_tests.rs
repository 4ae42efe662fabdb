//! Functions of chains against the interpreter of bodies, bit by bit: all operations of all types over special values, random
//! chains with more values than registers, all numbers of lanes.

use ferrax_compile::chain::{Chain, computes};
use ferrax_ir::Scalar;
use ferrax_ir::math::MathFn;
use ferrax_ir::scalar::reference::{Inputs, evaluate};
use ferrax_ir::scalar::{Narrow, Reg, ScalarOp, ScalarType, Value};

use super::Isa;
use super::chains::ChainFunction;
use super::tests::{Random, TYPES, operations};

/// The instructions that this machine has.
fn isas() -> Vec<Isa> {
    match super::best() {
        None => Vec::new(),
        Some(Isa::Avx2) => vec![Isa::Avx2],
        Some(Isa::Avx512) => vec![Isa::Avx2, Isa::Avx512],
    }
}

fn bytes_of(ty: ScalarType, bits: &[u64]) -> Vec<u8> {
    bits.iter().flat_map(|bits| bits.to_le_bytes()[..ty.size()].to_vec()).collect()
}

pub(super) fn element(ty: ScalarType, bytes: &[u8], lane: usize) -> Scalar {
    let mut bits = [0; 8];
    bits[..ty.size()].copy_from_slice(&bytes[lane * ty.size()..(lane + 1) * ty.size()]);
    Scalar::from_bits(ty.dtype(), u64::from_le_bytes(bits).into())
}

pub(super) fn is_nan(value: Scalar) -> bool {
    value.to_f64().is_some_and(f64::is_nan)
}

/// Runs a chain over these lanes of special values, and compares all of them.
fn check(chain: &Chain, random: &mut Random, lanes: usize) {
    let blocks: Vec<Vec<u8>> = chain
        .inputs
        .iter()
        .map(|&(ty, uniform)| {
            let count = if uniform { 1 } else { lanes };
            bytes_of(ty, &(0..count).map(|_| random.value(ty)).collect::<Vec<u64>>())
        })
        .collect();
    let outputs: Vec<ScalarType> = chain.outputs.iter().map(|&reg| chain.body.type_of(reg)).collect();
    for isa in isas() {
        let function = ChainFunction::made(chain.clone(), isa).unwrap().unwrap();
        // Nothing is written beyond the lanes.
        let mut results: Vec<Vec<u8>> = outputs.iter().map(|ty| vec![0xa5; lanes * ty.size() + 64]).collect();
        let pointers: Vec<*mut u8> = blocks
            .iter()
            .map(|block| block.as_ptr().cast_mut())
            .chain(results.iter_mut().map(|block| block.as_mut_ptr()))
            .collect();
        // SAFETY: the blocks have so many lanes, and are apart.
        unsafe { function.run(&pointers, lanes) };
        for lane in 0..lanes {
            let operands: Vec<Scalar> = chain
                .inputs
                .iter()
                .zip(&blocks)
                .map(|(&(ty, uniform), block)| element(ty, block, if uniform { 0 } else { lane }))
                .collect();
            let values: Vec<Value> = chain.outputs.iter().map(|&reg| Value::Real(reg)).collect();
            let inputs = Inputs { operands: &operands, ..Inputs::default() };
            let expected = evaluate(&chain.body, &inputs, &values).unwrap();
            for ((result, &ty), expected) in results.iter().zip(&outputs).zip(expected) {
                let (found, expected) = (element(ty, result, lane), expected[0]);
                assert!(
                    found.bits() == expected.bits() || (is_nan(found) && is_nan(expected)),
                    "{isa:?}, lane {lane} of {lanes}: {found:?} for {expected:?} of {operands:?} by {chain:#?}"
                );
            }
        }
        for (result, ty) in results.iter().zip(&outputs) {
            assert!(result[lanes * ty.size()..].iter().all(|&byte| byte == 0xa5), "{isa:?}: {chain:?}");
        }
    }
}

/// What chains may have: operations, the types of their results, and of their arguments.
fn of_chains() -> Vec<(ScalarOp, ScalarType, Vec<ScalarType>)> {
    let mut all = operations();
    for ty in [ScalarType::F32, ScalarType::F64] {
        all.extend(MathFn::ALL.iter().map(|&function| {
            let two = matches!(function, MathFn::Pow | MathFn::Atan2);
            (ScalarOp::Math(function), ty, vec![ty; if two { 2 } else { 1 }])
        }));
    }
    all.push((ScalarOp::RoundTo(Narrow::BF16), ScalarType::F32, vec![ScalarType::F32]));
    all.retain(|(op, to, from)| computes(*op, *to, from[if *op == ScalarOp::Select { 1 } else { 0 }]));
    all
}

#[test]
fn operations_give_the_bits_of_the_interpreter() {
    let mut random = Random(11);
    let all = of_chains();
    assert!(all.len() > 150, "{}", all.len());
    for (op, ty, from) in all {
        // Each argument is a block, then one is a single element or a constant.
        for special in 0..=2 * from.len() {
            let mut chain = Chain::default();
            let args: Vec<Reg> = (0..)
                .zip(&from)
                .map(|(number, &ty)| match special {
                    _ if special == 2 * number + 1 && ty != ScalarType::Bool => chain.input(ty, true),
                    _ if special == 2 * number + 2 => {
                        let bits = random.value(ty);
                        chain.body.push(ScalarOp::Const { bits }, ty, &[])
                    }
                    _ => chain.input(ty, false),
                })
                .collect();
            let result = chain.push(op, ty, &args).unwrap();
            chain.outputs.push(result);
            check(&chain, &mut random, 83);
        }
    }
}

/// A chain of some operations over all types, with inputs of either kind.
pub(super) fn random_chain(random: &mut Random, most: usize) -> Chain {
    let mut all = of_chains();
    // The bits of NaN are nobody's.
    all.retain(|(op, ty, from)| *op != ScalarOp::Bitcast || !from[0].is_float() || ty.is_float());
    let mut chain = Chain::default();
    let mut known: Vec<Reg> = Vec::new();
    for ty in TYPES.into_iter().filter(|ty| ty.size() >= 4 || *ty == ScalarType::Bool) {
        for number in 0..3 {
            let uniform = number == 2 && ty != ScalarType::Bool;
            known.push(chain.input(ty, uniform));
        }
        let bits = random.value(ty);
        known.push(chain.body.push(ScalarOp::Const { bits }, ty, &[]));
    }
    for _ in 0..random.below(most) {
        let (op, ty, from) = &all[random.below(all.len())];
        let args: Vec<Reg> = from
            .iter()
            .map(|&ty| {
                let fit: Vec<Reg> =
                    known.iter().copied().filter(|&reg| chain.body.type_of(reg) == ty).collect();
                fit[random.below(fit.len())]
            })
            .collect();
        known.push(chain.push(*op, *ty, &args).unwrap());
    }
    for _ in 0..1 + random.below(9) {
        chain.outputs.push(known[random.below(known.len())]);
    }
    chain
}

#[test]
fn random_chains() {
    for seed in 0..400 {
        let mut random = Random(seed);
        let chain = random_chain(&mut random, 90);
        let lanes = 1 + random.below(70);
        check(&chain, &mut random, lanes);
    }
}

/// Of one type, so that registers are full: operands are in memory, and their places are taken when they are needed no more.
#[test]
fn chains_of_many_values() {
    let operations =
        [ScalarOp::Add, ScalarOp::Mul, ScalarOp::Sub, ScalarOp::Fma, ScalarOp::Select, ScalarOp::Lt];
    for seed in 0..300 {
        let mut random = Random(seed);
        let ty = if seed % 2 == 0 { ScalarType::F64 } else { ScalarType::F32 };
        let mut chain = Chain::default();
        let mut known: Vec<Reg> = (0..20).map(|number| chain.input(ty, number % 5 == 4)).collect();
        let mut truths = vec![chain.input(ScalarType::Bool, false)];
        for _ in 0..150 {
            let op = operations[random.below(operations.len())];
            let [a, b, c] = [0; 3].map(|_| known[random.below(known.len())]);
            match op {
                ScalarOp::Lt => truths.push(chain.push(op, ScalarType::Bool, &[a, b]).unwrap()),
                ScalarOp::Select => {
                    let truth = truths[random.below(truths.len())];
                    known.push(chain.push(op, ty, &[truth, a, b]).unwrap());
                }
                ScalarOp::Fma => known.push(chain.push(op, ty, &[a, b, c]).unwrap()),
                op => known.push(chain.push(op, ty, &[a, b]).unwrap()),
            }
        }
        for _ in 0..30 {
            chain.outputs.push(known[random.below(known.len())]);
        }
        check(&chain, &mut random, 1 + seed as usize % 70);
    }
}

#[test]
fn all_numbers_of_lanes() {
    let mut chain = Chain::default();
    let inputs = [ScalarType::F32, ScalarType::F64, ScalarType::Bool].map(|ty| chain.input(ty, false));
    let [narrow, wide, truth] = inputs;
    let converted = chain.push(ScalarOp::Convert, ScalarType::F64, &[narrow]).unwrap();
    let sum = chain.push(ScalarOp::Add, ScalarType::F64, &[converted, wide]).unwrap();
    let chosen = chain.push(ScalarOp::Select, ScalarType::F64, &[truth, sum, wide]).unwrap();
    let less = chain.push(ScalarOp::Lt, ScalarType::Bool, &[chosen, sum]).unwrap();
    chain.outputs.extend([chosen, less]);
    for lanes in 1..100 {
        check(&chain, &mut Random(lanes as u64), lanes);
    }
}

#[test]
fn equal_chains_are_one_function() {
    let chain = |constant: u64| {
        let mut chain = Chain::default();
        let x = chain.input(ScalarType::F32, false);
        let constant = chain.body.push(ScalarOp::Const { bits: constant }, ScalarType::F32, &[]);
        let product = chain.push(ScalarOp::Mul, ScalarType::F32, &[x, constant]).unwrap();
        chain.outputs.push(product);
        chain
    };
    let of = |constant: u64| ChainFunction::of(chain(constant)).unwrap();
    let same = |a: Option<_>, b: Option<_>| match (a, b) {
        (Some(a), Some(b)) => Some(std::sync::Arc::ptr_eq(&a, &b)),
        _ => None,
    };
    let wanted = super::wanted().unwrap().is_some();
    assert_eq!(same(of(77), of(77)), wanted.then_some(true));
    assert_eq!(same(of(77), of(78)), wanted.then_some(false));
}

#[cfg(target_arch = "x86_64")]
#[test]
fn what_no_chain_has_is_an_error() {
    let mut chain = Chain::default();
    let x = chain.input(ScalarType::U8, false);
    let sum = chain.body.push(ScalarOp::Add, ScalarType::U8, &[x, x]);
    chain.outputs.push(sum);
    assert!(ChainFunction::made(chain, Isa::Avx2).is_err());
    let chain = Chain { outputs: [Reg(3)].into_iter().collect(), ..Chain::default() };
    assert!(ChainFunction::made(chain, Isa::Avx2).is_err());
}
