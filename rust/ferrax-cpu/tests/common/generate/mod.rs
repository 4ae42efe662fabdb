//! Random well-typed programs, and how close compiled results have to be to interpreted ones.
//!
//! What a program is made of is decided by [`Choices`]: random numbers in tests, bytes when
//! fuzzing. Each value has a [`Bound`] that follows from its operands' bounds: with error 0 the
//! results are the same bits; else they differ by at most the error. Operations that are not
//! continuous, and bodies of loops and branches, only take values without error, and a step whose
//! error would say nothing is not taken. So a comparison neither fails for a rounding nor lets a
//! wrong element pass.

mod arrays;
mod bound;
mod elementwise;
mod nested;
mod picks;

use ferrax_cpu::compile;
use ferrax_ir::{ArrayType, Atom, Builder, DType, Dim, Literal, Op, Program, Scalar, Tensor, interpret};

use super::{Choices, arguments, remote, run_on};
use bound::{Bound, EXACT, difference, limit};

/// The most elements of a value.
const MOST: usize = 4000;
/// How deep bodies nest.
const DEEPEST: usize = 2;

#[derive(Clone, Copy)]
struct Value {
    atom: Atom,
    bound: Bound,
}

impl Value {
    fn is_exact(self) -> bool {
        self.bound.error == 0.0
    }
}

fn dims(sizes: &[usize]) -> Vec<Dim> {
    sizes.iter().map(|&size| Dim::Const(size)).collect()
}

/// A program under construction.
struct Maker<'c, C> {
    b: Builder,
    choices: &'c mut C,
    values: Vec<Value>,
    /// How many programs it is in.
    depth: usize,
}

impl<C: Choices> Maker<'_, C> {
    fn pick<T: Copy>(&mut self, among: &[T]) -> T {
        among[self.choices.below(among.len())]
    }

    fn flip(&mut self) -> bool {
        self.choices.below(2) == 1
    }

    fn sizes(&self, value: Value) -> Vec<usize> {
        self.b.shape(value.atom).iter().map(|dim| dim.as_const().unwrap()).collect()
    }

    fn dtype(&self, value: Value) -> DType {
        self.b.dtype(value.atom)
    }

    /// One of the values that have a property.
    fn any(&mut self, fits: impl Fn(&Self, Value) -> bool) -> Option<Value> {
        let fitting: Vec<Value> = self.values.iter().copied().filter(|&value| fits(self, value)).collect();
        (!fitting.is_empty()).then(|| self.pick(&fitting))
    }

    /// A value of the same type; there is one, `x`.
    fn like(&mut self, x: Value) -> Value {
        let ty = self.b.type_of(x.atom);
        self.any(|maker, y| maker.b.type_of(y.atom) == ty).unwrap_or(x)
    }

    fn exact_like(&mut self, x: Value) -> Option<Value> {
        let ty = self.b.type_of(x.atom);
        self.any(|maker, y| y.is_exact() && maker.b.type_of(y.atom) == ty)
    }

    /// An exact number of type `i32`, in bounds of an axis or not.
    fn index(&mut self) -> Atom {
        match self.any(|maker, value| {
            value.is_exact() && maker.dtype(value) == DType::I32 && maker.sizes(value).is_empty()
        }) {
            Some(value) if self.flip() => value.atom,
            _ => {
                let index = self.choices.below(9) as i64 - 2;
                self.b.int_scalar(DType::I32, index)
            }
        }
    }

    /// A constant with the dtype of a value, and its magnitude.
    fn constant(&mut self, dtype: DType) -> (Atom, f64) {
        let number = self.choices.below(7) as i64;
        if dtype.is_inexact() {
            let number = number as f64 / 4.0 - 0.5;
            return (self.b.scalar(dtype, number), number.abs());
        }
        let number = if dtype.is_bool() { number & 1 } else { number };
        (Atom::Literal(Literal { value: Scalar::from_i64(dtype, number), weak: false }), 6.0)
    }

    fn emit(&mut self, op: impl Into<Op>, inputs: &[Atom], bound: Bound) -> Option<Vec<Value>> {
        let atoms = self.b.emit(op, inputs).ok()?;
        Some(atoms.into_iter().map(|var| Value { atom: Atom::Var(var), bound }).collect())
    }

    /// The same elements, or some of them, elsewhere.
    fn moved(&mut self, op: impl Into<Op>, x: Value) -> Option<Vec<Value>> {
        self.emit(op, &[x.atom], x.bound)
    }

    /// Elements computed of exact ones, alike by both.
    fn exactly(&mut self, op: impl Into<Op>, inputs: &[Value]) -> Option<Vec<Value>> {
        if !inputs.iter().all(|x| x.is_exact()) {
            return None;
        }
        let atoms: Vec<Atom> = inputs.iter().map(|x| x.atom).collect();
        self.emit(op, &atoms, EXACT)
    }

    /// Values derived from others by a random op; `None` if it does not fit.
    fn step(&mut self) -> Option<Vec<Value>> {
        let x = self.any(|_, _| true)?;
        let sizes = self.sizes(x);
        let (rank, count) = (sizes.len(), sizes.iter().product::<usize>());
        let axis = self.choices.below(rank);
        let made = match self.choices.below(26) {
            0..=2 => self.binary(x),
            3 => self.smooth(x),
            4 | 5 => self.unary(x),
            6 if rank < 4 && count < MOST => self.broadcast(x, &sizes),
            7 => self.convert(x),
            8 => self.select(x),
            9 => self.compare(x),
            10 | 11 => self.nested(x, &sizes),
            _ if rank == 0 => None,
            12 | 13 => self.reduce(x, &sizes, axis),
            14 => self.cumulate(x, &sizes, axis),
            15 => self.product(x, &sizes, axis),
            16..=18 if count < MOST => self.rearrange(x, &sizes, axis),
            19 if count < MOST => self.pad(x, rank, axis),
            20 => self.iota(&sizes, axis),
            21 => self.order(x, &sizes, axis),
            22 => self.window(x, &sizes),
            23 => self.rows(x, &sizes),
            24 | 25 => self.picks(x, &sizes),
            _ => None,
        }?;
        made.iter().all(|value| value.bound.is_useful(self.dtype(*value))).then_some(made)
    }
}

const DTYPES: &[DType] = &[
    DType::F32,
    DType::I32,
    DType::F64,
    DType::BF16,
    DType::F16,
    DType::Bool,
    DType::U8,
    DType::I8,
    DType::U32,
    DType::I64,
    DType::C64,
];

/// A program with arguments, and how close its results have to be.
pub struct Case {
    pub program: Program,
    pub inputs: Vec<Tensor>,
    bounds: Vec<Bound>,
}

impl Case {
    pub fn new(name: &str, choices: &mut impl Choices) -> Case {
        let mut b = Builder::new(name);
        let shapes: [&[usize]; 8] = [&[7], &[], &[4, 6], &[3, 1, 5], &[2, 3, 4], &[130, 3], &[0, 3], &[6]];
        let mut values: Vec<Value> = Vec::new();
        for _ in 0..1 + choices.below(4) {
            let sizes = shapes[choices.below(shapes.len())];
            // Half of them of the first dtype, so that they meet.
            let dtype = DTYPES[choices.below(2 * DTYPES.len()).saturating_sub(DTYPES.len())];
            // What `fill` gives; complex numbers have two such parts.
            let magnitude = if dtype.is_complex() { 6.0 } else { limit(dtype).min(24.0) };
            let atom = b.input(ArrayType::of_sizes(sizes, dtype));
            values.push(Value { atom, bound: Bound { magnitude, error: 0.0 } });
        }
        let wanted = values.len() + 3 + choices.below(22);
        let mut maker = Maker { b, choices, values, depth: 0 };
        for _ in 0..200 {
            if maker.values.len() >= wanted {
                break;
            }
            let made = maker.step().unwrap_or_default();
            maker.values.extend(made);
        }
        let mut outputs: Vec<Value> = maker.values.last().copied().into_iter().collect();
        for _ in 0..maker.choices.below(3) {
            outputs.extend(maker.any(|_, _| true));
        }
        let seed = maker.choices.below(1 << 16) as u64;
        let program = maker.b.finish(outputs.iter().map(|value| value.atom));
        let inputs = arguments(&program, seed);
        Case { program, inputs, bounds: outputs.iter().map(|value| value.bound).collect() }
    }

    /// Compiled, the program gives what it gives interpreted, and again when its arguments are donated.
    pub fn check(&self) {
        let program = &self.program;
        let fail = |error| -> ! { panic!("{error}\n{program}") };
        let executable = compile(program).unwrap_or_else(|error| fail(error));
        let got = executable.run(&self.inputs).unwrap_or_else(|error| fail(error));
        let remote = run_on(remote(), program, &self.inputs).unwrap_or_else(|error| fail(error));
        self.compare(&[&got, &remote]);
        let copies: Vec<Tensor> = self
            .inputs
            .iter()
            .map(|t| Tensor::from_bytes(t.dtype(), t.sizes(), t.bytes()).unwrap())
            .collect();
        let donate = vec![true; copies.len()];
        let donated = executable.run_donating(copies, &donate).unwrap_or_else(|error| fail(error));
        assert_eq!(donated, got, "with donation\n{program:#}");
    }

    /// Each of these is what the interpreter gives, up to the bounds of the values.
    pub fn compare(&self, results: &[&[Tensor]]) {
        let program = &self.program;
        let want = interpret::run(program, &self.inputs).unwrap_or_else(|error| panic!("{error}\n{program}"));
        for (index, (want, bound)) in want.iter().zip(&self.bounds).enumerate() {
            for got in results.iter().map(|got| &got[index]) {
                assert_eq!((got.dtype(), got.sizes()), (want.dtype(), want.sizes()), "{program}");
                if let Some((at, got, want)) = difference(got, want, *bound) {
                    panic!("output {index}, element {at}: got {got}, want {want}, {bound:?}\n{program:#}");
                }
            }
        }
    }
}
