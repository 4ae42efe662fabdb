//! The reference interpreter of kernel IR: index after index, scalar after scalar. Slow, obvious, and the
//! oracle of every emitter.
//!
//! In: a launch, and the bytes of its operands. Out: what it wrote to them. Float sums and products are the trees
//! that [`tree`] says, over the terms in row-major order of the reduction axes.

use ferrax_ir::convert::{load, store};
use ferrax_ir::lowering::AccumulatorKind;
use ferrax_ir::scalar::reference::{Inputs, evaluate};
use ferrax_ir::scalar::{Body, ScalarOp, ScalarType, Value};
use ferrax_ir::{DType, Result, Scalar, internal_error};

use crate::index::View;
use crate::kernel::{Accumulator, AxisKind, Jump, Launch, Stage};

/// Lanes of a block of terms of a float sum or product, and the terms of a block.
pub const LANES: usize = 16;
pub const BLOCK: usize = 256;
/// So many terms are combined in order, as everybody expects who writes them down.
pub const FEW: usize = 7;

/// Runs a launch on these operands.
pub fn interpret(launch: &Launch, operands: &mut [Vec<u8>]) -> Result<()> {
    let kernel = &launch.kernel;
    let over = |kind: AxisKind| -> Vec<usize> {
        (0..kernel.axes.len()).filter(|&axis| kernel.axes[axis] == kind).collect()
    };
    let (parallel, reduced) = (over(AxisKind::Parallel), over(AxisKind::Reduction));
    // Everything is read before anything is written: a buffer may be both, element by element.
    let before = operands.to_vec();
    for outer in launch.indices(&parallel, &vec![0; kernel.axes.len()]) {
        let mut terms: Vec<Vec<Scalar>> = vec![Vec::new(); kernel.accumulators.len()];
        for index in launch.indices(&reduced, &outer) {
            let elements = elements(launch, &before, &index)?;
            let picked = |load, indices: &[i64]| element_of(launch, &before, &index, load, indices);
            let inputs =
                Inputs { operands: &elements, picked: Some(&picked), index: &index, params: &launch.params };
            let wanted: Vec<Value> = kernel.accumulators.iter().map(|a| Value::Real(a.arg)).collect();
            for (terms, value) in terms.iter_mut().zip(evaluate(&kernel.body, &inputs, &wanted)?) {
                terms.extend(value);
            }
            write(launch, Stage::Main, &inputs, operands)?;
        }
        if kernel.stores.iter().any(|store| store.stage == Stage::Epilogue) {
            let mut elements = elements(launch, &before, &outer)?;
            for (accumulator, terms) in kernel.accumulators.iter().zip(terms) {
                elements.push(fold(accumulator, terms)?);
            }
            let picked = |load, indices: &[i64]| element_of(launch, &before, &outer, load, indices);
            let inputs =
                Inputs { operands: &elements, picked: Some(&picked), index: &outer, params: &launch.params };
            write(launch, Stage::Epilogue, &inputs, operands)?;
        }
    }
    Ok(())
}

/// Where a view is at an index, as a byte offset; `None` outside of its guards.
fn position(view: &View, index: &[i64], dtype: DType) -> Result<Option<usize>> {
    let Some(at) = view.element(index) else { return Ok(None) };
    match usize::try_from(at) {
        Ok(at) => Ok(Some(at * dtype.size())),
        Err(_) => Err(internal_error!("element {at} of an operand")),
    }
}

/// What each load reads; of those that jump, at the first index of each jump.
fn elements(launch: &Launch, operands: &[Vec<u8>], index: &[i64]) -> Result<Vec<Scalar>> {
    let first = |load: usize| vec![0; launch.jumps[load].len()];
    (0..launch.loads.len()).map(|load| element_of(launch, operands, index, load, &first(load))).collect()
}

/// What a load reads where its jumps have these indices.
fn element_of(
    launch: &Launch,
    operands: &[Vec<u8>],
    index: &[i64],
    number: usize,
    indices: &[i64],
) -> Result<Scalar> {
    let (load, jumps): (_, &[Jump]) = (launch.kernel.loads[number], &launch.jumps[number]);
    let dtype = launch.kernel.operands[load.operand as usize].dtype;
    if jumps.len() != indices.len() {
        return Err(internal_error!("load {number} jumps by {} indices of {}", indices.len(), jumps.len()));
    }
    let mut view = launch.loads[number].clone();
    view.offset += jumps.iter().zip(indices).map(|(jump, &index)| jump.offset(index)).sum::<i64>();
    let Some(at) = position(&view, index, dtype)? else {
        return Ok(load.fill.unwrap_or(Scalar::zero(dtype)));
    };
    operands
        .get(load.operand as usize)
        .and_then(|bytes| bytes.get(at..at + dtype.size()))
        .and_then(|bytes| Scalar::from_bytes(dtype, bytes))
        .ok_or_else(|| internal_error!("byte {at} of operand {} is outside of it", load.operand))
}

/// The stores of a stage.
fn write(launch: &Launch, stage: Stage, inputs: &Inputs<'_>, operands: &mut [Vec<u8>]) -> Result<()> {
    let kernel = &launch.kernel;
    for (what, view) in kernel.stores.iter().zip(&launch.stores).filter(|(store, _)| store.stage == stage) {
        let dtype = kernel.operands[what.operand as usize].dtype;
        let parts = evaluate(kernel.body_of(stage), inputs, &[what.value])?;
        let element = element(dtype, &parts[0])?;
        let Some(at) = position(view, inputs.index, dtype)? else {
            return Err(internal_error!("a store outside of its guards"));
        };
        operands
            .get_mut(what.operand as usize)
            .and_then(|bytes| bytes.get_mut(at..at + dtype.size()))
            .ok_or_else(|| internal_error!("byte {at} of operand {} is outside of it", what.operand))?
            .copy_from_slice(&element.bytes());
    }
    Ok(())
}

/// Registers as an element of this dtype.
fn element(dtype: DType, parts: &[Scalar]) -> Result<Scalar> {
    let as_part = |part: &Scalar, dtype: DType| {
        let wide = load(part.dtype(), &part.bytes());
        wide.and_then(|wide| store(dtype, wide)).ok_or_else(|| internal_error!("no element of {dtype}"))
    };
    match parts {
        [re, im] => {
            let half = dtype.size() as u32 * 4;
            let [re, im] = [re, im].map(|part| as_part(part, dtype.real()));
            Ok(Scalar::from_bits(dtype, re?.bits() | im?.bits() << half))
        }
        [only] if dtype.is_key() => Ok(Scalar::from_bits(dtype, only.bits())),
        [only] => as_part(only, dtype),
        _ => Err(internal_error!("{} parts of an element", parts.len())),
    }
}

/// Two scalars through one instruction.
struct Pair {
    body: Body,
    result: Value,
}

impl Pair {
    fn new(op: ScalarOp, ty: ScalarType) -> Pair {
        let mut body = Body::default();
        let args = [0, 1].map(|operand| body.push(ScalarOp::Input { operand, part: 0 }, ty, &[]));
        let result = match op {
            ScalarOp::Lt => body.compare(op, args[0], args[1]),
            op => body.op(op, &args),
        };
        Pair { body, result: Value::Real(result) }
    }

    fn of(&self, a: Scalar, b: Scalar) -> Result<Scalar> {
        let inputs = Inputs { operands: &[a, b], ..Inputs::default() };
        Ok(evaluate(&self.body, &inputs, &[self.result])?[0][0])
    }
}

/// The operation of an accumulator, and what a tree of it begins with; none of those that number their terms.
pub fn operation(kind: AccumulatorKind) -> Option<(ScalarOp, Option<f64>)> {
    Some(match kind {
        AccumulatorKind::Sum => (ScalarOp::Add, Some(0.0)),
        AccumulatorKind::Prod => (ScalarOp::Mul, Some(1.0)),
        AccumulatorKind::Max => (ScalarOp::Max, None),
        AccumulatorKind::Min => (ScalarOp::Min, None),
        AccumulatorKind::And => (ScalarOp::And, None),
        AccumulatorKind::Or => (ScalarOp::Or, None),
        AccumulatorKind::Xor => (ScalarOp::Xor, None),
        AccumulatorKind::ArgMax | AccumulatorKind::ArgMin => return None,
    })
}

fn fold(accumulator: &Accumulator, terms: Vec<Scalar>) -> Result<Scalar> {
    let ty = accumulator.ty;
    let Some((op, identity)) = operation(accumulator.kind) else { return first(accumulator, &terms) };
    let pair = Pair::new(op, ty);
    if let Some(identity) = identity {
        return tree(&terms, Scalar::from_f64(ty.dtype(), identity), &|a, b| pair.of(a, b));
    }
    let mut terms = terms.into_iter();
    let start = terms.next().ok_or_else(|| internal_error!("{:?} of nothing", accumulator.kind))?;
    terms.try_fold(start, |a, b| pair.of(a, b))
}

/// The index of the first extremum; NaN counts as extreme.
fn first(accumulator: &Accumulator, terms: &[Scalar]) -> Result<Scalar> {
    let less = Pair::new(ScalarOp::Lt, accumulator.ty);
    let is_nan = |x: Scalar| accumulator.ty.is_float() && x.to_f64().is_some_and(f64::is_nan);
    let mut best = 0;
    for (place, &term) in terms.iter().enumerate() {
        let (a, b) = if accumulator.kind == AccumulatorKind::ArgMax {
            (terms[best], term)
        } else {
            (term, terms[best])
        };
        if !is_nan(terms[best]) && (is_nan(term) || !less.of(a, b)?.is_zero()) {
            best = place;
        }
    }
    Ok(Scalar::from_i64(DType::I64, best as i64))
}

/// The tree of a float sum or product, which the number of its terms determines.
///
/// [`BLOCK`] terms make a block: term t goes to lane t mod [`LANES`], where terms are combined in order, and the
/// lanes are combined in halves, or one after the other in a block of at most [`FEW`] terms. Blocks are combined as a binary counter counts: two blocks, two pairs of
/// blocks, and so on; what is left at the end, from the latest to the first.
pub fn tree<T: Copy>(terms: &[T], identity: T, combine: &dyn Fn(T, T) -> Result<T>) -> Result<T> {
    let mut blocks = Vec::new();
    for block in terms.chunks(BLOCK) {
        let mut lanes: Vec<T> = Vec::with_capacity(LANES);
        for (place, &term) in block.iter().enumerate() {
            match lanes.get(place % LANES).copied() {
                Some(lane) => lanes[place % LANES] = combine(lane, term)?,
                None => lanes.push(combine(identity, term)?),
            }
        }
        if block.len() <= FEW {
            let in_order = lanes.iter().skip(1).try_fold(lanes[0], |value, &lane| combine(value, lane))?;
            lanes = vec![in_order];
        }
        let mut half = LANES / 2;
        while half > 0 {
            for lane in 0..half {
                if let Some(&high) = lanes.get(lane + half) {
                    lanes[lane] = combine(lanes[lane], high)?;
                }
            }
            lanes.truncate(half);
            half /= 2;
        }
        blocks.push(lanes[0]);
    }
    counted(blocks, identity, combine)
}

/// Blocks of a tree as one.
pub fn counted<T: Copy>(blocks: Vec<T>, identity: T, combine: &dyn Fn(T, T) -> Result<T>) -> Result<T> {
    let mut counter: Vec<Option<T>> = Vec::new();
    for mut value in blocks {
        let mut level = 0;
        while let Some(earlier) = counter.get_mut(level).and_then(Option::take) {
            value = combine(earlier, value)?;
            level += 1;
        }
        if level == counter.len() {
            counter.push(None);
        }
        counter[level] = Some(value);
    }
    let mut left = counter.into_iter().flatten();
    let Some(latest) = left.next() else { return Ok(identity) };
    left.try_fold(latest, |value, earlier| combine(earlier, value))
}
