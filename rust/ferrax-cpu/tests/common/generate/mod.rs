//! Random well-typed programs, and how close compiled results have to be to interpreted ones.
//!
//! What a program is made of is decided by [`Choices`]: random numbers in tests, bytes when
//! fuzzing. Each value has a [`Bound`] that follows from its operands' bounds: with error 0 the
//! results are the same bits; else they differ by at most the error. Operations that are not
//! continuous, and bodies of loops and branches, only take values without error, and a step whose
//! error would say nothing is not taken. So a comparison neither fails for a rounding nor lets a
//! wrong element pass. Results of functions with poles, which have no bound beforehand, are only outputs.
//!
//! | file | steps |
//! |---|---|
//! | `elementwise`, `functions` | elements of elements: alike by both, or by polynomials |
//! | `arrays` | sums, order, other shapes |
//! | `products` | products and convolutions |
//! | `picks`, `scatters` | elements at computed places, read and written |
//! | `matrices`, `transforms` | decompositions; Fourier transforms, random bits |
//! | `nested`, `rules` | calls, branches, loops; calls with rules of their own |
//! | `derivatives`, `turns` | programs of another kind: derivatives of programs whose sums and products are exact |

mod arrays;
mod bound;
mod derivatives;
mod elementwise;
mod functions;
mod inputs;
mod matrices;
mod nested;
mod picks;
mod products;
mod rules;
mod scatters;
mod transforms;
mod turns;

use ferrax_ir::ops::Binary;
use ferrax_ir::{Atom, Builder, DType, Dim, Literal, Op, Program, Scalar, Tensor, interpret};

use super::{Choices, on_each_tuning, remote, run_on};
use bound::{Bound, EXACT, SIGN_OF_ZERO, difference};
use inputs::any_type;

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

    /// Whether no element is infinite or NaN, and they are the same by both.
    fn is_finite(self) -> bool {
        self.is_exact() && self.bound.magnitude < 1e4
    }
}

/// What a step begins with: a value, its shape, and one of its axes (0 if there is none).
struct Site {
    x: Value,
    sizes: Vec<usize>,
    axis: usize,
    dtype: DType,
}

impl Site {
    fn rank(&self) -> usize {
        self.sizes.len()
    }

    fn count(&self) -> usize {
        self.sizes.iter().product()
    }
}

/// What a step gives, if it fits.
type Made = Option<Vec<Value>>;

/// A kind of step.
type Kind<M> = fn(&mut M, &Site) -> Made;

fn dims(sizes: &[usize]) -> Vec<Dim> {
    sizes.iter().map(|&size| Dim::Const(size)).collect()
}

/// A program under construction.
struct Maker<'c, C> {
    b: Builder,
    choices: &'c mut C,
    values: Vec<Value>,
    /// Values that nothing is computed of.
    ends: Vec<Value>,
    /// How many programs it is in.
    depth: usize,
}

impl<'c, C: Choices> Maker<'c, C> {
    fn new(b: Builder, choices: &'c mut C, values: Vec<Value>, depth: usize) -> Self {
        Maker { b, choices, values, ends: Vec::new(), depth }
    }

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

    fn site(&mut self, x: Value) -> Site {
        let sizes = self.sizes(x);
        let axis = self.choices.below(sizes.len());
        Site { x, sizes, axis, dtype: self.dtype(x) }
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

    /// An exact number of an integer type, in bounds of an axis or not.
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

    /// A constant with the dtype of a value, and its bound.
    fn constant(&mut self, dtype: DType) -> (Atom, Bound) {
        let number = self.choices.below(7) as i64;
        if dtype.is_storage_only() {
            return (self.b.scalar(dtype, 1.0), EXACT);
        }
        if dtype.is_inexact() {
            let number = number as f64 / 4.0 - 0.5;
            return (self.b.scalar(dtype, number), Bound { unit: 0.25, ..Bound::exact(number.abs()) });
        }
        let number = if dtype.is_bool() { number & 1 } else { number };
        (Atom::Literal(Literal { value: Scalar::from_i64(dtype, number), weak: false }), EXACT)
    }

    fn emit(&mut self, op: impl Into<Op>, inputs: &[Atom], bound: Bound) -> Made {
        let atoms = self.b.emit(op, inputs).ok()?;
        Some(atoms.into_iter().map(|var| Value { atom: Atom::Var(var), bound }).collect())
    }

    /// The same elements, or some of them, elsewhere.
    fn moved(&mut self, op: impl Into<Op>, x: Value) -> Made {
        self.emit(op, &[x.atom], x.bound)
    }

    /// Elements computed of exact ones, alike by both.
    fn exactly(&mut self, op: impl Into<Op>, inputs: &[Value]) -> Made {
        if !inputs.iter().all(|x| x.is_exact()) {
            return None;
        }
        let atoms: Vec<Atom> = inputs.iter().map(|x| x.atom).collect();
        self.emit(op, &atoms, EXACT)
    }

    /// A result that is only an output.
    fn ended(&mut self, op: impl Into<Op>, inputs: &[Atom], bound: Bound) -> Made {
        let made = self.emit(op, inputs, bound)?;
        self.ends.extend(made);
        Some(Vec::new())
    }

    /// Exact sums with one zero for both signs, so that anything may follow.
    fn settled(&mut self, made: Made) -> Made {
        made?
            .into_iter()
            .map(|value| {
                let dtype = self.dtype(value);
                if value.bound.error != SIGN_OF_ZERO || value.bound.unit == 0.0 || dtype.is_complex() {
                    return Some(value);
                }
                let zero = self.b.scalar(dtype, 0.0);
                let bound = Bound { error: 0.0, ..value.bound };
                self.emit(Binary::Add, &[value.atom, zero], bound).map(|made| made[0])
            })
            .collect()
    }

    /// The kinds of steps and how often each is tried. One that does not fit its value gives nothing.
    fn kinds() -> [(usize, Kind<Self>); 36] {
        [
            (8, Self::binary),
            (3, Self::bits),
            (5, Self::unary),
            (3, Self::function),
            (2, Self::complex_function),
            (1, Self::power),
            (3, Self::convert),
            (1, Self::bitcast),
            (2, Self::rounded),
            (2, Self::identity),
            (3, Self::select),
            (1, Self::clamp),
            (3, Self::compare),
            (2, Self::parts),
            (3, Self::broadcast),
            (5, Self::reduce),
            (4, Self::cumulate),
            (5, Self::product),
            (3, Self::convolution),
            (8, Self::rearrange),
            (3, Self::pad),
            (2, Self::iota),
            (5, Self::order),
            (3, Self::window),
            (6, Self::picks),
            (7, Self::scatter),
            (2, Self::fourier),
            (3, Self::random),
            (2, Self::factors),
            (2, Self::spectrum),
            (2, Self::system),
            (2, Self::call),
            (2, Self::branches),
            (3, Self::scan),
            (3, Self::while_loop),
            (3, Self::ruled),
        ]
    }

    /// Values derived from others by a random op; `None` if it does not fit.
    fn step(&mut self) -> Made {
        let x = self.any(|_, _| true)?;
        let site = self.site(x);
        let kinds = Self::kinds();
        let mut at = self.choices.below(kinds.iter().map(|(weight, _)| weight).sum());
        let (_, kind) = kinds.iter().find(|(weight, _)| {
            let here = at < *weight;
            at = at.saturating_sub(*weight);
            here
        })?;
        let made = kind(self, &site)?;
        let fits = |value: &Value| {
            value.bound.is_useful(self.dtype(*value))
                && self.sizes(*value).iter().product::<usize>() <= 4 * MOST
        };
        made.iter().all(fits).then_some(made)
    }
}

/// A program with arguments, and how close its results have to be.
pub struct Case {
    pub program: Program,
    pub inputs: Vec<Tensor>,
    bounds: Vec<Bound>,
    /// The ops of what it is a derivative of.
    made: Vec<String>,
}

impl Case {
    pub fn new(name: &str, choices: &mut impl Choices) -> Case {
        if choices.below(8) == 7
            && let Some(case) = derivatives::derivative(name, choices)
        {
            return case;
        }
        let mut b = Builder::new(name);
        let mut values: Vec<Value> = Vec::new();
        let mut elements = Vec::new();
        for _ in 0..1 + choices.below(4) {
            let (ty, of) = any_type(choices);
            values.push(Value { atom: b.input(ty.clone()), bound: of.bound(ty.dtype) });
            elements.push((ty, of));
        }
        let wanted = values.len() + 3 + choices.below(22);
        let mut maker = Maker::new(b, choices, values, 0);
        for _ in 0..200 {
            if maker.values.len() >= wanted {
                break;
            }
            let made = maker.step().unwrap_or_default();
            maker.values.extend(made);
        }
        // The last one, and others, be they inputs or the same again.
        let mut outputs: Vec<Value> = maker.values.last().copied().into_iter().collect();
        for _ in 0..maker.choices.below(4) {
            outputs.extend(maker.any(|_, _| true));
        }
        if maker.choices.below(8) == 0 {
            outputs.push(outputs[0]);
            let (atom, bound) = maker.constant(DType::F32);
            outputs.push(Value { atom, bound });
        }
        outputs.append(&mut maker.ends);
        let seed = maker.choices.below(1 << 16) as u64;
        let program = maker.b.finish(outputs.iter().map(|value| value.atom));
        let inputs = elements.iter().zip(0..).map(|((ty, of), at)| of.make(ty, seed + at * 77)).collect();
        Case { program, inputs, bounds: outputs.iter().map(|value| value.bound).collect(), made: Vec::new() }
    }

    /// Compiled, the program gives what it gives interpreted, whatever the thresholds are, on one thread and on
    /// several, and again when its arguments are donated.
    pub fn check(&self) {
        let program = &self.program;
        let fail = |error| -> ! { panic!("{error}\n{program}") };
        let got = on_each_tuning(program, &self.inputs);
        let remote = run_on(remote(), program, &self.inputs).unwrap_or_else(|error| fail(error));
        self.compare(&[&got, &remote]);
    }

    /// Each of these is what the interpreter gives, up to the bounds of the values.
    pub fn compare(&self, results: &[&[Tensor]]) {
        let program = &self.program;
        let want = interpret::run(program, &self.inputs).unwrap_or_else(|error| panic!("{error}\n{program}"));
        for (index, (want, bound)) in want.iter().zip(&self.bounds).enumerate() {
            for got in results.iter().map(|got| &got[index]) {
                assert_eq!((got.dtype(), got.sizes()), (want.dtype(), want.sizes()), "{program}");
                if let Some((at, got, want)) = difference(got, want, *bound) {
                    panic!("output {index}, part {at}: got {got}, want {want}, {bound:?}\n{program:#}");
                }
            }
        }
    }

    /// How many outputs there are with elements, for how many of them only repeatability is asked, and in how many
    /// a wrong element would be seen.
    pub fn sharpness(&self) -> [usize; 3] {
        let want = interpret::run(&self.program, &self.inputs).unwrap();
        let mut counts = [0; 3];
        for (want, bound) in want.iter().zip(&self.bounds).filter(|(want, _)| !want.is_empty()) {
            let mut wrong = Tensor::from_bytes(want.dtype(), want.sizes(), want.bytes()).unwrap();
            let size = want.dtype().real().size();
            wrong.bytes_mut().unwrap()[size - 1] ^= 0x42;
            counts[0] += 1;
            counts[1] += usize::from(bound.error.is_infinite());
            counts[2] += usize::from(difference(&wrong, want, *bound).is_some());
        }
        counts
    }

    /// The names of all ops that the program has, with those in bodies, and of the one that it is a derivative of.
    pub fn ops(&self) -> Vec<String> {
        let mut names = ops_of(&self.program);
        names.extend_from_slice(&self.made);
        names
    }
}

fn ops_of(program: &Program) -> Vec<String> {
    let inner = |op: &Op| op.programs().iter().flat_map(|program| ops_of(program)).collect::<Vec<_>>();
    program
        .equations
        .iter()
        .flat_map(|equation| [vec![equation.op.name().to_owned()], inner(&equation.op)].concat())
        .collect()
}
