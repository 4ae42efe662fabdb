//! Emitted code against the interpreter of native programs, bit by bit, over all operations, in random programs with loops,
//! choices and more values than registers.

use ferrax_compile::native::{Address, Code, Id, Native, interpret};
use ferrax_ir::math::MathFn;
use ferrax_ir::scalar::{ScalarOp, ScalarType};

use super::Function;

pub(super) const TYPES: [ScalarType; 11] = [
    ScalarType::Bool,
    ScalarType::I8,
    ScalarType::I16,
    ScalarType::I32,
    ScalarType::I64,
    ScalarType::U8,
    ScalarType::U16,
    ScalarType::U32,
    ScalarType::U64,
    ScalarType::F32,
    ScalarType::F64,
];

/// Numbers of a linear congruential generator (Knuth, MMIX).
pub(super) struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    /// The bits of a value that is often a special one.
    pub fn value(&mut self, ty: ScalarType) -> u64 {
        let float =
            |x: f64| if ty == ScalarType::F32 { u64::from((x as f32).to_bits()) } else { x.to_bits() };
        let special = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            2.5,
            -3.5,
            127.0,
            128.0,
            -129.0,
            255.5,
            65_536.0,
            2_147_483_648.0,
            -2_147_483_649.0,
            4_294_967_296.0,
            9.3e18,
            -9.4e18,
            1.9e19,
            1e-40,
            1e300,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
        ];
        let bits = match ty {
            ScalarType::Bool => self.below(2) as u64,
            ScalarType::F32 | ScalarType::F64 if self.below(2) == 0 => {
                float(special[self.below(special.len())])
            }
            ScalarType::F32 | ScalarType::F64 => float((self.below(4000) as f64 - 2000.0) / 64.0),
            _ => {
                let edges = [
                    0,
                    1,
                    2,
                    7,
                    8,
                    31,
                    32,
                    63,
                    64,
                    u64::MAX,
                    1 << (8 * ty.size() - 1),
                    (1 << (8 * ty.size() - 1)) - 1,
                ];
                match self.below(3) {
                    0 => edges[self.below(edges.len())],
                    1 => self.below(100) as u64,
                    _ => (self.below(1 << 30) as u64) << 34 | (self.below(1 << 30) as u64) << 4,
                }
            }
        };
        bits & (u64::MAX >> (64 - 8 * ty.size()))
    }
}

/// Operations, the types of their results, and of their arguments.
pub(super) fn operations() -> Vec<(ScalarOp, ScalarType, Vec<ScalarType>)> {
    use ScalarOp::{
        Abs, Add, And, Bitcast, Ceil, Clz, Convert, Div, Eq, Floor, Fma, Le, Lt, Max, Min, Mul, Ne, Neg, Not,
        Or, PopCount, Rem, RoundEven, Select, Shl, ShrArithmetic, ShrLogical, Sqrt, Sub, Trunc, Xor,
    };
    let mut all = Vec::new();
    for ty in TYPES {
        let bool = ty == ScalarType::Bool;
        let (mut unary, mut binary) = (Vec::new(), Vec::new());
        if ty.is_float() {
            unary.extend([
                Neg,
                Abs,
                Sqrt,
                Floor,
                Ceil,
                Trunc,
                RoundEven,
                ScalarOp::Math(MathFn::Exp),
                ScalarOp::Math(MathFn::Sin),
            ]);
            binary.extend([Add, Sub, Mul, Div, Rem, Min, Max, ScalarOp::Math(MathFn::Pow)]);
            all.push((Fma, ty, vec![ty; 3]));
        } else {
            unary.push(Not);
            binary.extend([And, Or, Xor]);
            if !bool {
                unary.extend([Neg, Abs, PopCount, Clz]);
                binary.extend([Add, Sub, Mul, Div, Rem, Min, Max, Shl, ShrArithmetic, ShrLogical]);
            }
        }
        all.extend(unary.into_iter().map(|op| (op, ty, vec![ty])));
        all.extend(binary.into_iter().map(|op| (op, ty, vec![ty; 2])));
        all.extend([Eq, Ne, Lt, Le].map(|op| (op, ScalarType::Bool, vec![ty; 2])));
        all.push((Select, ty, vec![ScalarType::Bool, ty, ty]));
        for other in TYPES.into_iter().filter(|&other| other != ty) {
            all.push((Convert, ty, vec![other]));
            if other.size() == ty.size() && !bool && other != ScalarType::Bool {
                all.push((Bitcast, ty, vec![other]));
            }
        }
    }
    all
}

/// A program while it is made: the values that may be read, by their types, in lists within each other.
#[derive(Default)]
struct Draft {
    native: Native,
    known: Vec<Vec<Id>>,
}

impl Draft {
    fn value(&mut self, ty: ScalarType) -> Id {
        self.native.types.push(ty);
        Id(self.native.types.len() as u32 - 1)
    }

    fn know(&mut self, id: Id) {
        if let Some(list) = self.known.last_mut() {
            list.push(id);
        }
    }

    fn pick(&self, random: &mut Random, ty: ScalarType) -> Id {
        let all: Vec<Id> =
            self.known.iter().flatten().copied().filter(|&id| self.native.type_of(id) == ty).collect();
        all[random.below(all.len())]
    }

    fn constant(&mut self, ty: ScalarType, bits: u64) -> Id {
        let to = self.value(ty);
        self.native.code.push(Code::Compute {
            to,
            op: ScalarOp::Const { bits },
            args: [].into_iter().collect(),
        });
        to
    }

    fn compute(&mut self, op: ScalarOp, ty: ScalarType, args: &[Id]) -> Id {
        let to = self.value(ty);
        self.native.code.push(Code::Compute { to, op, args: args.iter().copied().collect() });
        to
    }

    fn some(
        &mut self,
        random: &mut Random,
        operations: &[(ScalarOp, ScalarType, Vec<ScalarType>)],
        count: usize,
    ) {
        for _ in 0..count {
            let (op, ty, of) = &operations[random.below(operations.len())];
            let args: Vec<Id> = of.iter().map(|&ty| self.pick(random, ty)).collect();
            let to = self.compute(*op, *ty, &args);
            self.know(to);
        }
    }

    /// A loop or a choice that assigns variables.
    fn list(
        &mut self,
        random: &mut Random,
        operations: &[(ScalarOp, ScalarType, Vec<ScalarType>)],
        depth: usize,
    ) {
        let variables: Vec<Id> = (0..4)
            .map(|_| {
                let ty = TYPES[random.below(TYPES.len())];
                let from = self.pick(random, ty);
                let to = self.value(ty);
                self.native.code.push(Code::Set { to, from });
                to
            })
            .collect();
        let holds = self.pick(random, ScalarType::Bool);
        let count = self.constant(ScalarType::I64, 1 + random.below(4) as u64);
        let steps = self.value(ScalarType::I64);
        self.native.code.push(Code::Set { to: steps, from: count });
        let is_loop = random.below(3) > 0;
        for part in 0..if is_loop { 1 } else { 2 } {
            self.native.code.push(match (is_loop, part) {
                (true, _) => Code::Loop,
                (false, 0) => Code::If { holds },
                _ => Code::Else,
            });
            self.known.push(if is_loop { variables.clone() } else { Vec::new() });
            self.some(random, operations, 6);
            if depth > 0 {
                self.list(random, operations, depth - 1);
            }
            if is_loop && random.below(2) == 0 {
                let unless = self.pick(random, ScalarType::Bool);
                self.native.code.push(Code::Leave { unless });
            }
            for &to in &variables {
                let from = self.pick(random, self.native.type_of(to));
                self.native.code.push(Code::Set { to, from });
            }
            self.known.pop();
        }
        self.native.code.push(if is_loop { Code::Again { count: steps } } else { Code::End });
        variables.into_iter().for_each(|id| self.know(id));
    }
}

/// Runs both ways over the same memories; the second one is what is written.
fn check(native: &Native, memories: &[Vec<u8>], what: &str) {
    native.verify().unwrap();
    let mut expected = memories.to_vec();
    interpret(native, &mut expected).unwrap();
    let Some(function) = Function::new(native, memories.len()).unwrap() else { return };
    let mut got = memories.to_vec();
    let table: Vec<*mut u8> = got.iter_mut().map(|memory| memory.as_mut_ptr()).collect();
    // SAFETY: the program was interpreted over memories of the same sizes.
    assert!(unsafe { function.run(&table).unwrap() });
    drop(table);
    for code in &native.code {
        let Code::Store { from, to } = code else { continue };
        let (ty, at) = (native.type_of(*from), to.offset as usize);
        let bits = |memory: &[u8]| {
            let mut bytes = [0; 8];
            bytes[..ty.size()].copy_from_slice(&memory[at..at + ty.size()]);
            let bits = u64::from_le_bytes(bytes);
            let nan = match ty {
                ScalarType::F32 => f32::from_bits(bits as u32).is_nan(),
                ScalarType::F64 => f64::from_bits(bits).is_nan(),
                _ => false,
            };
            (!nan).then_some(bits)
        };
        assert_eq!(bits(&got[1]), bits(&expected[1]), "{what}: value {from:?} of {ty:?} in {native:?}");
    }
}

fn loads(draft: &mut Draft, random: &mut Random, each: usize) -> Vec<u8> {
    draft.known.push(Vec::new());
    let mut memory = Vec::new();
    for ty in TYPES {
        for _ in 0..each {
            let to = draft.value(ty);
            let from = Address { pointer: 0, bytes: None, offset: memory.len() as i32 };
            memory.extend(random.value(ty).to_le_bytes());
            draft.native.code.push(Code::Load { to, from });
            draft.know(to);
        }
    }
    memory
}

fn stores(draft: &mut Draft, ids: &[Id]) -> Vec<u8> {
    for (number, &from) in ids.iter().enumerate() {
        let to = Address { pointer: 1, bytes: None, offset: 8 * number as i32 };
        draft.native.code.push(Code::Store { from, to });
    }
    vec![0; 8 * ids.len()]
}

#[test]
fn each_operation_has_its_bits() {
    let mut random = Random(1);
    for (op, ty, of) in operations() {
        for _ in 0..40 {
            let mut draft = Draft::default();
            let memory = loads(&mut draft, &mut random, 2);
            let args: Vec<Id> = of.iter().map(|&ty| draft.pick(&mut random, ty)).collect();
            let value = draft.compute(op, ty, &args);
            let constants: Vec<Id> = of
                .iter()
                .map(|&ty| {
                    let bits = random.value(ty);
                    draft.constant(ty, bits)
                })
                .collect();
            let of_constants = draft.compute(op, ty, &constants);
            let mut mixed = args.clone();
            mixed[of.len() - 1] = constants[of.len() - 1];
            let of_both = draft.compute(op, ty, &mixed);
            let written = stores(&mut draft, &[value, of_constants, of_both]);
            check(&draft.native, &[memory, written], &format!("{op:?} of {of:?}"));
        }
    }
}

#[test]
fn random_programs_have_the_bits_of_the_interpreter() {
    // Functions that round otherwise than the interpreter's are tested alone.
    let operations: Vec<_> =
        operations().into_iter().filter(|(op, ..)| !matches!(op, ScalarOp::Math(_))).collect();
    for seed in 0..400 {
        let mut random = Random(seed);
        let mut draft = Draft::default();
        let each = 1 + random.below(4);
        let memory = loads(&mut draft, &mut random, each);
        draft.some(&mut random, &operations, 10);
        for _ in 0..3 {
            draft.list(&mut random, &operations, 2);
        }
        let ids: Vec<Id> = draft.known.iter().flatten().copied().collect();
        let written = stores(&mut draft, &ids);
        check(&draft.native, &[memory, written], &format!("seed {seed}"));
    }
}
