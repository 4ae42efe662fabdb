//! Random programs and values for property tests.
//!
//! Programs are smooth almost everywhere and their values stay of order one, so
//! that finite differences can judge derivatives. Everything is in `f64` and
//! comes from the seed alone.

pub mod loops;
pub mod passes;

use std::sync::Arc;

use ferrax_ir::ops::{
    Binary, Call, Compare, Concatenate, Cumulative, CumulativeKind, IntegerPow, ReduceKind, Rev, Unary,
};
use ferrax_ir::verify::verify;
use ferrax_ir::{ArrayType, Atom, Axes, Builder, DType, Dim, Program, Tensor, Type, interpret};

/// A small generator (Marsaglia's xorshift).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 11) as usize % limit
    }

    pub fn flag(&mut self) -> bool {
        self.below(2) == 1
    }

    /// Between -1 and 1.
    pub fn float(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    pub fn tensor(&mut self, ty: &ArrayType) -> Tensor {
        let sizes = ty.sizes().unwrap();
        let count = sizes.iter().product();
        let values: Vec<f64> = (0..count).map(|_| self.float()).collect();
        Tensor::from_elements(sizes, &values).unwrap()
    }

    pub fn tensors<'a>(&mut self, types: impl IntoIterator<Item = &'a Type>) -> Vec<Tensor> {
        types.into_iter().map(|ty| self.tensor(ty.as_array().unwrap())).collect()
    }
}

const SHAPES: &[&[usize]] = &[&[], &[3], &[2, 3]];

/// A random program of about `size` equations that may call others, `depth` deep.
pub fn random_program(seed: u64, size: usize, depth: usize) -> Program {
    let mut random = Random::new(seed);
    let program = generate(&mut random, size, depth, &mut Vec::new());
    verify(&program).unwrap();
    program
}

fn generate(random: &mut Random, size: usize, depth: usize, callees: &mut Vec<Arc<Program>>) -> Program {
    let mut b = Builder::new(format!("f{depth}"));
    let mut pool: Vec<Atom> = Vec::new();
    for _ in 0..1 + random.below(3) {
        let sizes = random.pick(SHAPES);
        pool.push(b.input(ArrayType::of_sizes(sizes, DType::F64)));
    }
    if random.flag() {
        let ty = ArrayType::of_sizes(&[3], DType::F64);
        let value = random.tensor(&ty);
        pool.push(b.constant(value, false));
    }
    for _ in 0..size {
        // Late values are picked more often, so that programs are deep.
        let recent = pool.len().min(3);
        let x = if random.flag() { pool[pool.len() - 1 - random.below(recent)] } else { random.pick(&pool) };
        let result = match random.below(if depth > 0 { 16 } else { 14 }) {
            0 => b.unary(Unary::Sin, x).unwrap(),
            1 => b.unary(Unary::Tanh, x).unwrap(),
            2 => {
                let bounded = b.unary(Unary::Tanh, x).unwrap();
                b.unary(Unary::Exp, bounded).unwrap()
            }
            3 => b.neg(x).unwrap(),
            4..=6 => {
                let y = same_shape(random, &mut b, &pool, x);
                let op = random.pick(&[Binary::Add, Binary::Sub, Binary::Mul]);
                let mixed = b.binary(op, x, y).unwrap();
                b.unary(Unary::Sin, mixed).unwrap()
            }
            7 => {
                let y = same_shape(random, &mut b, &pool, x);
                let threshold = b.scalar(DType::F64, 0.123);
                let which = b.compare(Compare::Gt, x, threshold).unwrap();
                let y = if b.rank(y) == b.rank(x) { y } else { b.broadcast_scalar(y, &b.shape(x)).unwrap() };
                b.select(which, x, y).unwrap()
            }
            8 if b.rank(x) > 0 => {
                let axis = random.below(b.rank(x));
                b.reduce(random.pick(&[ReduceKind::Sum, ReduceKind::Max]), x, &[axis]).unwrap()
            }
            9 if b.rank(x) == 2 => b.transpose(x, &[1, 0]).unwrap(),
            10 if b.rank(x) > 0 => {
                let joined = b.emit1(Concatenate { dimension: 0 }, &[x, x]).unwrap();
                let limit = b.shape(x)[0].as_const().unwrap();
                b.slice_axis(joined, 0, 1, limit + 1).unwrap()
            }
            11 => {
                let count = Dim::product(&b.shape(x)).unwrap();
                let flat = b.reshape(x, &[count]).unwrap();
                let reversed = b.emit1(Rev { dimensions: Axes::from_slice(&[0]) }, &[flat]).unwrap();
                b.reshape(reversed, &b.shape(x)).unwrap()
            }
            12 if b.rank(x) > 0 => b
                .emit1(Cumulative { kind: CumulativeKind::Sum, axis: 0, reverse: random.flag() }, &[x])
                .unwrap(),
            13 => {
                let power = b.emit1(IntegerPow { y: 2 }, &[x]).unwrap();
                b.unary(Unary::Tanh, power).unwrap()
            }
            14 | 15 => {
                let callee = if callees.is_empty() || random.flag() {
                    let callee = Arc::new(generate(random, 2 + size / 4, depth - 1, &mut Vec::new()));
                    callees.push(callee.clone());
                    callee
                } else {
                    callees[random.below(callees.len())].clone()
                };
                let types: Vec<Type> = callee.input_types().cloned().collect();
                let arguments: Vec<Atom> =
                    types.iter().map(|ty| reshaped(random, &mut b, &pool, ty.as_array().unwrap())).collect();
                let call = Call { name: callee.name.clone(), program: callee, inline: random.below(4) == 0 };
                let outputs = b.emit(call, &arguments).unwrap();
                pool.extend(outputs.iter().map(|&var| Atom::Var(var)));
                continue;
            }
            _ => b.unary(Unary::Logistic, x).unwrap(),
        };
        pool.push(result);
    }
    let mut outputs = vec![*pool.last().unwrap(), pool[pool.len() / 2]];
    for _ in 0..random.below(3) {
        outputs.push(random.pick(&pool));
    }
    if random.below(4) == 0 {
        outputs.push(b.scalar(DType::F64, 0.25));
    }
    b.finish(outputs)
}

/// A value of the shape of `x`, or a scalar.
fn same_shape(random: &mut Random, b: &mut Builder, pool: &[Atom], x: Atom) -> Atom {
    if random.below(5) == 0 {
        return b.scalar(DType::F64, 0.5);
    }
    let shape = b.shape(x);
    let fitting: Vec<Atom> =
        pool.iter().copied().filter(|&atom| b.rank(atom) == 0 || b.shape(atom) == shape).collect();
    if fitting.is_empty() { x } else { random.pick(&fitting) }
}

/// A value of type `ty` made from something in the pool.
fn reshaped(random: &mut Random, b: &mut Builder, pool: &[Atom], ty: &ArrayType) -> Atom {
    let x = random.pick(pool);
    if b.shape(x) == ty.shape {
        return x;
    }
    let axes: Vec<usize> = (0..b.rank(x)).collect();
    let sum = b.reduce_sum(x, &axes).unwrap();
    let bounded = b.unary(Unary::Tanh, sum).unwrap();
    b.broadcast_scalar(bounded, &ty.shape).unwrap()
}

pub fn run(program: &Program, inputs: &[Tensor]) -> Vec<Tensor> {
    interpret::run(program, inputs).unwrap_or_else(|error| panic!("{error}\n{program}"))
}

pub fn floats(tensor: &Tensor) -> &[f64] {
    tensor.elements().unwrap()
}

pub fn dot(a: &Tensor, b: &Tensor) -> f64 {
    floats(a).iter().zip(floats(b)).map(|(a, b)| a * b).sum()
}

/// `a + scale * b`.
pub fn offset(a: &Tensor, b: &Tensor, scale: f64) -> Tensor {
    let values: Vec<f64> = floats(a).iter().zip(floats(b)).map(|(a, b)| a + scale * b).collect();
    Tensor::from_elements(a.sizes(), &values).unwrap()
}

pub fn assert_close(got: &[Tensor], want: &[Tensor], tolerance: f64, program: &Program) {
    assert_eq!(got.len(), want.len(), "{program}");
    for (got, want) in got.iter().zip(want) {
        assert_eq!(got.sizes(), want.sizes(), "{program}");
        for (&x, &y) in floats(got).iter().zip(floats(want)) {
            assert!((x - y).abs() <= tolerance * (1.0 + y.abs()), "{x} is not {y}\n{program}");
        }
    }
}

/// Which inputs to differentiate in: at least one.
pub fn flags(random: &mut Random, count: usize) -> Vec<bool> {
    let mut flags: Vec<bool> = (0..count).map(|_| random.flag()).collect();
    let chosen = random.below(count);
    flags[chosen] = true;
    flags
}

pub fn chosen<T: Clone>(items: &[T], flags: &[bool]) -> Vec<T> {
    items.iter().zip(flags).filter(|(_, flag)| **flag).map(|(item, _)| item.clone()).collect()
}
