//! Derivatives of random programs, by the compiler and by the interpreter.
//!
//! A program is made of whole numbers by sums and products, so that it is a polynomial on each piece. With each
//! value go two numbers: `size`, which the sum of the absolute values of its terms does not exceed, and `slope`, the
//! same of its tangent where tangents are no larger than the inputs. All that a derivative adds up is then of this
//! size, times the elements of the outputs; while that is less than what the dtype counts, in quarters (equal extrema
//! share a derivative), no sum rounds, and results are the same bits. With functions in it, in `f64`, results
//! are within what roundings of such terms amount to.

use std::sync::Arc;

use ferrax_ir::ops::{
    AllGather, AllToAll, AxisIndex, AxisReduce, AxisReduceKind, Binary, BroadcastInDim, Clamp, Compare,
    Concatenate, ConvDims, ConvGeneralDilated, ConvertElementType, Cumulative, CumulativeKind, DotGeneral,
    DynamicSlice, DynamicUpdateSlice, Gather, GatherMode, IntegerPow, Pad, Pbroadcast, Ppermute, Reduce,
    ReduceKind, ReduceScatter, Reshape, Rev, ScatterKind, SelectN, Slice, Sort, StopGradient, TopK,
    Transpose, Unary,
};
use ferrax_ir::{ArrayType, Atom, Builder, DType, Dim, Error, Op, Program, Scalar, Tensor, Type};
use ferrax_transform::{OutDims, batch, jvp_with, vjp_program};

use super::bound::{Bound, EXACT, SIGN_OF_ZERO, counted};
use super::inputs::Elements;
use super::scatters::scatter_of;
use super::{Case, dims, ops_of};
use crate::common::{Choices, fill};

const SHAPES: &[&[usize]] = &[&[3], &[], &[2, 3], &[3, 3], &[2, 2, 3], &[1, 4]];
/// The lanes of the axis that some programs are batched over.
const LANES: usize = 2;
const AXIS: &str = "i";

#[derive(Clone, Copy)]
pub(super) struct Term {
    pub atom: Atom,
    pub size: f64,
    pub slope: f64,
}

impl Term {
    pub fn of(self, atom: Atom) -> Term {
        Term { atom, ..self }
    }

    /// So many such, added.
    pub fn times(self, count: usize) -> Term {
        Term { atom: self.atom, size: self.size * count as f64, slope: self.slope * count as f64 }
    }

    pub fn plus(self, other: Term) -> Term {
        Term { atom: self.atom, size: self.size + other.size, slope: self.slope + other.slope }
    }

    pub fn product(self, other: Term) -> Term {
        let slope = self.size * other.slope + self.slope * other.size;
        Term { atom: self.atom, size: self.size * other.size, slope }
    }
}

/// A program that is going to be differentiated.
pub(super) struct Polynomial<'c, C> {
    pub b: Builder,
    pub choices: &'c mut C,
    pub terms: Vec<Term>,
    /// Places, of which derivatives are zero.
    pub places: Atom,
    pub dtype: DType,
    /// Whether there may be functions.
    pub smooth: bool,
    /// Whether it is a lane of an axis.
    pub lanes: bool,
    /// Whether functions may have a forward derivative alone, or a reverse one alone.
    pub forward: bool,
    pub reverse: bool,
}

impl<C: Choices> Polynomial<'_, C> {
    pub fn pick<T: Copy>(&mut self, among: &[T]) -> T {
        among[self.choices.below(among.len())]
    }

    pub fn sizes(&self, term: Term) -> Vec<usize> {
        self.b.shape(term.atom).iter().map(|dim| dim.as_const().unwrap()).collect()
    }

    pub fn like(&mut self, x: Term) -> Term {
        let shape = self.b.shape(x.atom);
        let fitting: Vec<Term> =
            self.terms.iter().copied().filter(|y| self.b.shape(y.atom) == shape).collect();
        if fitting.is_empty() { x } else { self.pick(&fitting) }
    }

    pub fn emit(&mut self, op: impl Into<Op>, inputs: &[Atom], of: Term) -> Option<Term> {
        Some(of.of(Atom::Var(*self.b.emit(op, inputs).ok()?.first()?)))
    }

    fn step(&mut self) -> Option<Term> {
        let all = self.terms.clone();
        let x = self.pick(&all);
        let sizes = self.sizes(x);
        let axis = self.choices.below(sizes.len());
        match self.choices.below(if self.lanes { 22 } else { 20 }) {
            0 | 1 => self.element(x),
            2 => self.piece(x),
            3 | 4 => self.called(x),
            5 | 6 => self.looped(x),
            7 => self.function(x),
            8 => self.converted(x),
            20 | 21 => self.collected(x, &sizes),
            _ if sizes.is_empty() => None,
            9 => self.sum(x, &sizes, axis),
            10 | 11 => self.contracted(x, &sizes, axis),
            12 => self.convolved(x, &sizes),
            13..=15 => self.moved(x, &sizes, axis),
            16 => self.read(x, &sizes),
            17 => self.written(x, &sizes),
            18 => self.ordered(x, axis),
            _ => self.window(x, &sizes),
        }
    }

    fn element(&mut self, x: Term) -> Option<Term> {
        let y = self.like(x);
        match self.choices.below(6) {
            0 => self.emit(Binary::Add, &[x.atom, y.atom], x.plus(y)),
            1 => self.emit(Binary::Sub, &[x.atom, y.atom], x.plus(y)),
            2 => self.emit(Binary::Mul, &[x.atom, y.atom], x.product(y)),
            3 => self.emit(Unary::Square, &[x.atom], x.product(x)),
            4 => {
                let y = 2 + self.choices.below(2) as i64;
                let power = if y == 2 { x.product(x) } else { x.product(x).product(x) };
                self.emit(IntegerPow { y }, &[x.atom], power)
            }
            _ => self.emit(Unary::Neg, &[x.atom], x),
        }
    }

    /// Another polynomial on each piece. Where roundings differ, so may pieces.
    fn piece(&mut self, x: Term) -> Option<Term> {
        let y = self.like(x);
        if self.smooth {
            return self.emit(StopGradient {}, &[x.atom], x);
        }
        let both = Term { atom: x.atom, size: x.size.max(y.size), slope: x.slope.max(y.slope) };
        match self.choices.below(6) {
            0 => self.emit(Binary::Max, &[x.atom, y.atom], both),
            1 => self.emit(Binary::Min, &[x.atom, y.atom], both),
            2 => self.emit(Unary::Abs, &[x.atom], x),
            3 => {
                let [low, high] = [-1.5, 2.5].map(|limit| self.b.scalar(self.dtype, limit));
                self.emit(Clamp {}, &[low, x.atom, high], x)
            }
            4 => self.emit(StopGradient {}, &[x.atom], x),
            _ => {
                let op = self.pick(Compare::ALL);
                let limit = self.b.scalar(self.dtype, 0.5);
                let which = self.b.compare(op, x.atom, limit).ok()?;
                self.emit(SelectN {}, &[which, x.atom, y.atom], both)
            }
        }
    }

    fn function(&mut self, x: Term) -> Option<Term> {
        if !self.smooth {
            return None;
        }
        let op = self.pick(&[Unary::Sin, Unary::Cos, Unary::Tanh, Unary::Logistic, Unary::Atan, Unary::Erf]);
        let slope = x.slope * 1.13;
        self.emit(op, &[x.atom], Term { atom: x.atom, size: 1.6, slope })
    }

    /// To a wider dtype and back.
    fn converted(&mut self, x: Term) -> Option<Term> {
        let wide = self.b.convert(x.atom, DType::F64).ok()?;
        let twice = self.b.add(wide, wide).ok()?;
        self.emit(ConvertElementType { new_dtype: self.dtype, weak_type: false }, &[twice], x.times(2))
    }

    fn sum(&mut self, x: Term, sizes: &[usize], axis: usize) -> Option<Term> {
        let reverse = self.choices.below(2) == 1;
        let all = x.times(sizes[axis]);
        match self.choices.below(2) {
            0 => self.emit(Reduce { kind: ReduceKind::Sum, axes: [axis][..].into() }, &[x.atom], all),
            _ => self.emit(Cumulative { kind: CumulativeKind::Sum, axis, reverse }, &[x.atom], all),
        }
    }

    fn contracted(&mut self, x: Term, sizes: &[usize], axis: usize) -> Option<Term> {
        let all = self.terms.clone();
        let y = self.pick(&all);
        let others = self.sizes(y);
        let with = others.iter().position(|&size| size == sizes[axis])?;
        let pair = (0..sizes.len())
            .flat_map(|left| (0..others.len()).map(move |right| (left, right)))
            .find(|&(left, right)| left != axis && right != with && sizes[left] == others[right]);
        let batch = if self.choices.below(2) == 1 { pair } else { None };
        let op = DotGeneral {
            lhs_contracting: [axis][..].into(),
            rhs_contracting: [with][..].into(),
            lhs_batch: batch.iter().map(|pair| pair.0).collect(),
            rhs_batch: batch.iter().map(|pair| pair.1).collect(),
            precision: None,
            preferred_element_type: None,
        };
        self.emit(op, &[x.atom, y.atom], x.product(y).times(sizes[axis]))
    }

    fn convolved(&mut self, x: Term, sizes: &[usize]) -> Option<Term> {
        let rank = sizes.len();
        if rank < 2 {
            return None;
        }
        let with: Vec<Term> = self.terms.iter().copied().filter(|y| self.b.rank(y.atom) == rank).collect();
        let y = self.pick(&with);
        let others = self.sizes(y);
        let spatial = rank - 2;
        let mut numbers =
            |from: i64| -> Vec<i64> { (0..spatial).map(|_| from + self.choices.below(2) as i64).collect() };
        let axes: Vec<usize> = (0..rank).collect();
        let mut turned = axes.clone();
        turned.swap(0, 1);
        let op = ConvGeneralDilated {
            window_strides: numbers(1).iter().map(|&stride| stride as usize).collect(),
            padding: numbers(0).into_iter().zip(numbers(1)).collect(),
            lhs_dilation: numbers(1).iter().map(|&dilation| dilation as usize).collect(),
            rhs_dilation: numbers(1).iter().map(|&dilation| dilation as usize).collect(),
            dims: ConvDims {
                lhs: axes[..].into(),
                rhs: if others[1] == sizes[1] { axes[..].into() } else { turned[..].into() },
                out: axes[..].into(),
            },
            feature_group_count: 1,
            batch_group_count: 1,
            precision: None,
            preferred_element_type: None,
        };
        let terms = others.iter().product();
        self.emit(op, &[x.atom, y.atom], x.product(y).times(terms))
    }

    fn moved(&mut self, x: Term, sizes: &[usize], axis: usize) -> Option<Term> {
        let rank = sizes.len();
        let y = self.like(x);
        let both = Term { atom: x.atom, size: x.size.max(y.size), slope: x.slope.max(y.slope) };
        match self.choices.below(7) {
            0 => {
                let mut permutation: Vec<usize> = (0..rank).collect();
                permutation.rotate_left(axis);
                self.emit(Transpose { permutation: permutation[..].into() }, &[x.atom], x)
            }
            1 => self.emit(Rev { dimensions: [axis][..].into() }, &[x.atom], x),
            2 => {
                let mut strides = vec![1; rank];
                strides[axis] = 2;
                let op = Slice {
                    start_indices: dims(&vec![0; rank]).into(),
                    limit_indices: dims(sizes).into(),
                    strides: Some(strides[..].into()),
                };
                self.emit(op, &[x.atom], x)
            }
            3 => self.emit(Concatenate { dimension: axis }, &[x.atom, y.atom], both),
            4 => {
                let mut padding_config = vec![(0, 0, 0); rank];
                padding_config[axis] = (self.choices.below(3) as i64 - 1, 1, self.choices.below(2) as i64);
                let zero = self.b.scalar(self.dtype, 1.0);
                self.emit(Pad { padding_config }, &[x.atom, zero], x)
            }
            5 => {
                let count = sizes.iter().product();
                self.emit(Reshape { new_sizes: dims(&[count]).into(), dimensions: None }, &[x.atom], x)
            }
            _ => {
                let mut shape = sizes.to_vec();
                shape.insert(axis, 2);
                let kept: Vec<usize> = (0..=rank).filter(|&at| at != axis).collect();
                let op = BroadcastInDim { shape: dims(&shape).into(), broadcast_dimensions: kept[..].into() };
                self.emit(op, &[x.atom], x)
            }
        }
    }

    /// Lines of the first axis, in bounds or not.
    fn rows(&mut self, sizes: &[usize]) -> Option<(Gather, Atom)> {
        let mut window = sizes.to_vec();
        window[0] = 1;
        let op = Gather {
            offset_dims: (1..sizes.len()).collect(),
            collapsed_slice_dims: [0][..].into(),
            start_index_map: [0][..].into(),
            operand_batching_dims: [][..].into(),
            start_indices_batching_dims: [][..].into(),
            slice_sizes: dims(&window).into(),
            mode: self.pick(GatherMode::ALL),
            fill_value: Some(Scalar::from_i64(self.dtype, 1)),
            unique_indices: false,
            indices_are_sorted: false,
        };
        let column = self.b.reshape(self.places, &dims(&[3, 1])).ok()?;
        Some((op, column))
    }

    fn read(&mut self, x: Term, sizes: &[usize]) -> Option<Term> {
        let (op, places) = self.rows(sizes)?;
        self.emit(op, &[x.atom, places], x)
    }

    fn written(&mut self, x: Term, sizes: &[usize]) -> Option<Term> {
        let (op, places) = self.rows(sizes)?;
        let y = self.like(x);
        let updates = self.emit(op.clone(), &[y.atom, places], y)?;
        let kind = self.pick(&[ScatterKind::Add, ScatterKind::Sub, ScatterKind::Set]);
        let scatter = scatter_of(&op, kind);
        self.emit(scatter, &[x.atom, places, updates.atom], x.plus(updates.times(3)))
    }

    fn ordered(&mut self, x: Term, axis: usize) -> Option<Term> {
        let y = self.like(x);
        if self.smooth {
            return None;
        }
        match self.choices.below(3) {
            0 => self.emit(Sort { dimension: axis, is_stable: true, num_keys: 1 }, &[x.atom], x),
            1 => {
                let both = Term { atom: x.atom, size: x.size.max(y.size), slope: x.slope.max(y.slope) };
                let found =
                    self.b.emit(Sort { dimension: axis, is_stable: true, num_keys: 1 }, &[x.atom, y.atom]);
                Some(both.of(Atom::Var(found.ok()?[1])))
            }
            _ => self.emit(TopK { axis, k: 1 }, &[x.atom], x),
        }
    }

    fn window(&mut self, x: Term, sizes: &[usize]) -> Option<Term> {
        let at = self.choices.below(3);
        let place = self.b.slice_axis(self.places, 0, at, at + 1).ok()?;
        let place = self.b.reshape(place, &[]).ok()?;
        let mut inner = sizes.to_vec();
        inner[0] = inner[0].min(2);
        let mut operands = vec![x.atom];
        let slice = DynamicSlice { slice_sizes: dims(&inner).into() };
        operands.extend(vec![place; sizes.len()]);
        if self.choices.below(2) == 0 {
            return self.emit(slice, &operands, x);
        }
        let y = self.like(x);
        operands[0] = y.atom;
        let update = self.b.emit1(slice, &operands).ok()?;
        operands[0] = x.atom;
        operands.insert(1, update);
        let both = Term { atom: x.atom, size: x.size.max(y.size), slope: x.slope.max(y.slope) };
        self.emit(DynamicUpdateSlice {}, &operands, both)
    }

    /// What is made of the values of all lanes.
    fn collected(&mut self, x: Term, sizes: &[usize]) -> Option<Term> {
        let name: Arc<str> = AXIS.into();
        let (axis_name, axis_size) = (vec![name.clone()], Dim::Const(LANES));
        let even = sizes.iter().position(|size| size.is_multiple_of(LANES));
        let all = x.times(LANES);
        let tiled = self.choices.below(2) == 1;
        match self.choices.below(10) {
            0 => {
                let kind = AxisReduceKind::Sum;
                self.emit(AxisReduce { kind, axes: axis_name, axis_index_groups: None }, &[x.atom], all)
            }
            1 | 8 | 9 => {
                let kind = self.pick(&[AxisReduceKind::Max, AxisReduceKind::Min]);
                let still = self.b.emit1(StopGradient {}, &[x.atom]).ok()?;
                let op = AxisReduce { kind, axes: axis_name, axis_index_groups: None };
                if self.smooth { None } else { self.emit(op, &[still], x) }
            }
            2 => self.emit(Ppermute { axis_name, perm: vec![(0, 1), (1, 0)] }, &[x.atom], all),
            3 => self.emit(Pbroadcast { axis_name: name, source: 1 }, &[x.atom], all),
            4 => {
                let lane = self.b.emit1(AxisIndex { axis_name: name }, &[]).ok()?;
                let lane = self.b.convert(lane, self.dtype).ok()?;
                let shape = self.b.shape(x.atom);
                let lane = self.b.broadcast_scalar(lane, &shape).ok()?;
                self.emit(Binary::Mul, &[x.atom, lane], x)
            }
            5 => {
                let op = AllGather {
                    all_gather_dimension: 0,
                    axis_index_groups: None,
                    axis_name,
                    axis_size,
                    tiled: false,
                };
                self.emit(op, &[x.atom], all)
            }
            6 => {
                let op = ReduceScatter {
                    axis_index_groups: None,
                    axis_name,
                    axis_size,
                    scatter_dimension: even?,
                    tiled: tiled || sizes[even?] != LANES,
                };
                self.emit(op, &[x.atom], all)
            }
            _ => {
                let op = AllToAll {
                    axis_index_groups: None,
                    axis_name: name,
                    axis_size,
                    concat_axis: 0,
                    split_axis: even?,
                    tiled: true,
                };
                self.emit(op, &[x.atom], all)
            }
        }
    }
}

/// What becomes of a program.
#[derive(Clone, Copy)]
enum Derivative {
    Forward,
    Reverse,
    ForwardOfReverse,
}

/// A derivative of a random program, over a batch at times.
pub(super) fn derivative(name: &str, choices: &mut impl Choices) -> Option<Case> {
    let smooth = choices.below(4) == 0;
    let dtype = if smooth { DType::F64 } else { [DType::F32, DType::F32, DType::F64][choices.below(3)] };
    let lanes = choices.below(3) == 0;
    let mut b = Builder::new(name);
    let places = b.input(ArrayType::of_sizes(&[3], DType::I32));
    let mut terms = Vec::new();
    for _ in 0..1 + choices.below(3) {
        let atom = b.input(ArrayType::of_sizes(SHAPES[choices.below(SHAPES.len())], dtype));
        terms.push(Term { atom, size: 2.0, slope: 2.0 });
    }
    let inputs = terms.len();
    // Cotangents and tangents are whole numbers up to 2, and equal extrema halve.
    let most = if smooth { 1e3 } else { counted(dtype).min(2f64.powi(40)) / 16.0 };
    let kind = match choices.below(4) {
        0 => Derivative::Forward,
        1 if dtype == DType::F64 => Derivative::ForwardOfReverse,
        _ => Derivative::Reverse,
    };
    let (forward, reverse) = (matches!(kind, Derivative::Forward), matches!(kind, Derivative::Reverse));
    let mut maker = Polynomial { b, choices, terms, places, dtype, smooth, lanes, forward, reverse };
    let wanted = inputs + 2 + maker.choices.below(8);
    for _ in 0..60 {
        if maker.terms.len() >= wanted {
            break;
        }
        if let Some(made) = maker.step() {
            let count = maker.sizes(made).iter().product::<usize>();
            if count <= 100 && 2.0 * made.size.max(made.slope) * (count.max(1) as f64) <= most {
                maker.terms.push(made);
            }
        }
    }
    let mut outputs = vec![*maker.terms.last()?];
    if maker.choices.below(2) == 0 {
        let all = maker.terms.clone();
        outputs.push(maker.pick(&all));
    }
    let seed = maker.choices.below(1 << 16) as u64;
    let total: f64 = outputs
        .iter()
        .map(|&term| {
            2.0 * term.size.max(term.slope) * maker.sizes(term).iter().product::<usize>().max(1) as f64
        })
        .sum();
    let program = maker.b.finish(outputs.iter().map(|term| term.atom));
    let fail = |error: Error| -> ! { panic!("{error}\n{program}") };
    let mut nonzero = vec![true; inputs + 1];
    nonzero[0] = false;
    let given = vec![true; outputs.len()];
    let tangents = |program: &Program, nonzero: &[bool]| {
        let flags: Vec<bool> =
            program.output_types().map(|ty| ty.as_array().is_some_and(|ty| ty.dtype.is_inexact())).collect();
        jvp_with(program, nonzero, &flags).unwrap_or_else(|error| fail(error)).0
    };
    let cotangents = || vjp_program(&program, &nonzero, &given).unwrap_or_else(|error| fail(error));
    let derived = match kind {
        Derivative::Forward => tangents(&program, &nonzero),
        Derivative::ForwardOfReverse => {
            let reverse = cotangents();
            let mut nonzero = vec![true; reverse.inputs.len()];
            nonzero[0] = false;
            tangents(&reverse, &nonzero)
        }
        Derivative::Reverse => cotangents(),
    };
    let batched = lanes.then(|| {
        let dims = vec![Some(0); derived.inputs.len()];
        batch(&derived, &Dim::Const(LANES), &dims, Some(AXIS), OutDims::Front)
            .unwrap_or_else(|error| fail(error))
            .0
    });
    let made = ops_of(&program);
    let program = batched.unwrap_or(derived);
    let error = if smooth { 1e-13 * total * total } else { SIGN_OF_ZERO };
    let bounds = program.output_types().map(|ty| match ty.as_array() {
        Some(ty) if ty.dtype.is_inexact() => Bound::new(total, error),
        _ => EXACT,
    });
    let argument = |(ty, at): (&Type, u64)| -> Tensor {
        let ty = ty.as_array().unwrap();
        let seed = seed + at * 77;
        if ty.dtype.is_inexact() {
            Elements::Whole.make(ty, seed)
        } else {
            fill(ty.dtype, &ty.sizes().unwrap(), seed)
        }
    };
    let inputs = program.input_types().zip(0..).map(argument).collect();
    Some(Case { bounds: bounds.collect(), inputs, program, made })
}
