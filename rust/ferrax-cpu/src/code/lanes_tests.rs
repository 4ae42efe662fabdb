//! Chains within native programs against the interpreter, bit by bit: beside scalars that live across them, in loops, at
//! computed places, of one group of lanes and of many.

use ferrax_compile::native::{Address, Code, GROUP, Id, Lane, Native, interpret};
use ferrax_ir::Result;
use ferrax_ir::scalar::{ScalarOp, ScalarType};

use super::Function;
use super::chain_tests::{element, is_nan, random_chain};
use super::tests::Random;

/// Lanes of a block in memory, and steps of the loop, each of which has blocks of its own.
const LANES: usize = 48;
const STEPS: usize = 3;

/// A program while it is made, and its memories: what is read, and what is written.
#[derive(Default)]
struct Draft {
    native: Native,
    read: Vec<u8>,
    written: usize,
    /// What is written: a type, a place, and how many elements.
    results: Vec<(ScalarType, usize, usize)>,
}

impl Draft {
    fn value(&mut self, ty: ScalarType) -> Id {
        self.native.types.push(ty);
        Id(self.native.types.len() as u32 - 1)
    }

    fn push(&mut self, op: ScalarOp, ty: ScalarType, args: &[Id]) -> Id {
        let to = self.value(ty);
        self.native.code.push(Code::Compute { to, op, args: args.iter().copied().collect() });
        to
    }

    /// Values to be read, where they begin.
    fn values(&mut self, random: &mut Random, ty: ScalarType, count: usize) -> i32 {
        let at = self.read.len() as i32;
        (0..count).for_each(|_| self.read.extend(&random.value(ty).to_le_bytes()[..ty.size()]));
        at
    }

    fn load(&mut self, random: &mut Random, ty: ScalarType) -> Id {
        let offset = self.values(random, ty, 1);
        let to = self.value(ty);
        self.native.code.push(Code::Load { to, from: Address { pointer: 0, bytes: None, offset } });
        to
    }

    fn result(&mut self, ty: ScalarType, count: usize) -> i32 {
        let at = self.written;
        self.written += ty.size() * count;
        self.results.push((ty, at, count));
        at as i32
    }

    fn store(&mut self, from: Id) {
        let offset = self.result(self.native.type_of(from), 1);
        self.native.code.push(Code::Store { from, to: Address { pointer: 1, bytes: None, offset } });
    }

    fn check(mut self, what: &str) -> Result<()> {
        self.native.verify()?;
        self.read.resize(self.read.len() + 64, 0);
        let mut expected = vec![self.read.clone(), vec![0; self.written]];
        interpret(&self.native, &mut expected)?;
        let Some(function) = Function::new(&self.native, 2)? else { return Ok(()) };
        let mut written = vec![0; self.written];
        let table = [self.read.as_mut_ptr(), written.as_mut_ptr()];
        // SAFETY: the program was interpreted over memories of these sizes.
        assert!(unsafe { function.run(&table)? }, "{what}");
        for (ty, at, count) in self.results {
            for lane in 0..count {
                let of = |memory: &[u8]| element(ty, &memory[at..], lane);
                let (found, expected) = (of(&written), of(&expected[1]));
                assert!(
                    found.bits() == expected.bits() || (is_nan(found) && is_nan(expected)),
                    "{what}: lane {lane}: {found:?} for {expected:?} in {:#?}",
                    self.native
                );
            }
        }
        Ok(())
    }
}

#[test]
fn chains_beside_scalars() -> Result<()> {
    for seed in 0..200 {
        let mut random = Random(seed);
        let mut draft = Draft::default();
        let chain = random_chain(&mut random, 40);
        let count = GROUP * (1 + random.below(LANES / GROUP));
        // More floats than registers keep, and integers, that are needed behind the chain.
        let kept: Vec<Id> = (0..random.below(20))
            .map(|number| {
                let ty = [ScalarType::F64, ScalarType::F32, ScalarType::I64, ScalarType::I32][number % 4];
                draft.load(&mut random, ty)
            })
            .collect();
        let [zero, one, steps] =
            [0, 1, STEPS as u64].map(|bits| draft.push(ScalarOp::Const { bits }, ScalarType::I64, &[]));
        let [index, left] = [zero, steps].map(|from| {
            let to = draft.value(ScalarType::I64);
            draft.native.code.push(Code::Set { to, from });
            to
        });
        let each: Vec<Option<Id>> =
            chain.inputs.iter().map(|&(ty, uniform)| uniform.then(|| draft.load(&mut random, ty))).collect();
        draft.native.code.push(Code::Loop);
        // Some blocks move with the loop.
        let place = |draft: &mut Draft, moves: bool, size: usize, pointer: u32, offset: i32| {
            let bytes = moves.then(|| {
                let step = (LANES * size) as u64;
                let step = draft.push(ScalarOp::Const { bits: step }, ScalarType::I64, &[]);
                draft.push(ScalarOp::Mul, ScalarType::I64, &[index, step])
            });
            Address { pointer, bytes, offset }
        };
        let inputs = chain
            .inputs
            .iter()
            .zip(each)
            .map(|(&(ty, _), each)| match each {
                Some(id) => Lane::Each(id),
                None => {
                    let offset = draft.values(&mut random, ty, STEPS * LANES);
                    let moves = random.below(2) == 0;
                    Lane::Block(place(&mut draft, moves, ty.size(), 0, offset))
                }
            })
            .collect();
        let outputs = chain
            .outputs
            .iter()
            .map(|&reg| {
                let ty = chain.body.type_of(reg);
                let offset = draft.result(ty, STEPS * LANES);
                let moves = random.below(2) == 0;
                place(&mut draft, moves, ty.size(), 1, offset)
            })
            .collect();
        draft.native.chains.push(chain);
        draft.native.code.push(Code::Lanes { chain: 0, inputs, outputs, count: count as u32 });
        let next = draft.push(ScalarOp::Add, ScalarType::I64, &[index, one]);
        draft.native.code.push(Code::Set { to: index, from: next });
        draft.native.code.push(Code::Again { count: left });
        kept.into_iter().for_each(|id| draft.store(id));
        draft.check(&format!("seed {seed}"))?;
    }
    Ok(())
}

/// What is written may be where it is read from, if it is the only block that is written.
#[test]
fn a_block_over_itself() -> Result<()> {
    for count in (GROUP..=LANES).step_by(GROUP) {
        let mut random = Random(count as u64);
        let mut draft = Draft::default();
        let ty = ScalarType::F32;
        let mut chain = ferrax_compile::chain::Chain::default();
        let (a, b) = (chain.input(ty, false), chain.input(ty, false));
        let product = chain.push(ScalarOp::Mul, ty, &[a, b])?;
        let sum = chain.push(ScalarOp::Add, ty, &[product, a])?;
        chain.outputs.push(sum);
        let offset = draft.values(&mut random, ty, LANES);
        let from = Address { pointer: 0, bytes: None, offset };
        let to = Address { pointer: 1, bytes: None, offset: draft.result(ty, LANES) };
        let lanes = |inputs: [Address; 2]| Code::Lanes {
            chain: 0,
            inputs: inputs.into_iter().map(Lane::Block).collect(),
            outputs: [to].into_iter().collect(),
            count: count as u32,
        };
        draft.native.chains.push(chain);
        draft.native.code.extend([lanes([from, from]), lanes([to, from]), lanes([from, to])]);
        draft.check(&format!("{count} lanes"))?;
    }
    Ok(())
}
