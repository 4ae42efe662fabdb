//! Ops on two concrete operands, remembered by the operands' types: what
//! promotion, conversion and broadcasting come to is decided once, and the next
//! call goes from the lookup to the kernel.
//!
//! A known call has no side effect but its result: those that warn are not
//! remembered.

use std::cell::RefCell;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use ferrax_cpu::Executable;
use ferrax_cpu::generations::{Epoch, Generations};
use ferrax_ir::ops::{Binary, BroadcastInDim, Compare, ConvertElementType};
use ferrax_ir::{ArrayType, Builder, DType, Op, Shape, Sizes, Tensor, internal_error};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use rustc_hash::FxHasher;
use smallvec::SmallVec;

use crate::array::Array;
use crate::convert::{Operand, operand_tensor};
use crate::eager;
use crate::elementwise::{Promotion, aligned, convert_literal};
use crate::errors::{IntoPyResult, to_py};
use crate::promote::context;
use crate::{checks, nans, placement, profiler};

/// An op with two operands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Pairwise {
    Binary(Binary),
    Compare(Compare),
}

impl From<Binary> for Pairwise {
    fn from(op: Binary) -> Self {
        Pairwise::Binary(op)
    }
}

impl From<Compare> for Pairwise {
    fn from(op: Compare) -> Self {
        Pairwise::Compare(op)
    }
}

impl From<Pairwise> for Op {
    fn from(op: Pairwise) -> Self {
        match op {
            Pairwise::Binary(op) => op.into(),
            Pairwise::Compare(op) => op.into(),
        }
    }
}

/// The operands' common dtype and whether it is weak; `None` where they stay as they are.
pub type Target = Option<(DType, bool)>;

/// An operand's type; `S` are its sizes, borrowed or owned.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct OperandType<S> {
    dtype: DType,
    weak: bool,
    sizes: S,
    /// Literals are converted before the kernel sees them.
    literal: bool,
}

impl<'a> OperandType<&'a [usize]> {
    /// `None` for tracers.
    fn of(operand: &'a Operand<'_>) -> Option<Self> {
        Some(match operand {
            Operand::Literal(literal) => {
                OperandType { dtype: literal.value.dtype(), weak: literal.weak, sizes: &[], literal: true }
            }
            Operand::Array(array) => {
                let concrete = array.get().concrete()?;
                OperandType {
                    dtype: concrete.dtype,
                    weak: concrete.weak,
                    sizes: &concrete.sizes,
                    literal: false,
                }
            }
        })
    }
}

/// What a call is looked up by.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key<S> {
    op: Pairwise,
    promotion: Promotion,
    /// Of the settings.
    context: u64,
    operands: [OperandType<S>; 2],
}

impl<'a> Key<&'a [usize]> {
    fn of(op: Pairwise, promotion: Promotion, operands: &'a [Operand<'_>; 2]) -> Option<Self> {
        let [x, y] = operands;
        Some(Key {
            op,
            promotion,
            context: context().id,
            operands: [OperandType::of(x)?, OperandType::of(y)?],
        })
    }

    fn digest(&self) -> u64 {
        let mut hasher = FxHasher::default();
        self.hash(&mut hasher);
        hasher.finish()
    }

    fn owned(&self) -> Key<Sizes> {
        let own = |ty: OperandType<&[usize]>| OperandType {
            dtype: ty.dtype,
            weak: ty.weak,
            sizes: Sizes::from_slice(ty.sizes),
            literal: ty.literal,
        };
        let [x, y] = self.operands;
        Key { op: self.op, promotion: self.promotion, context: self.context, operands: [own(x), own(y)] }
    }
}

impl Key<Sizes> {
    fn is(&self, other: &Key<&[usize]>) -> bool {
        let same = |a: &OperandType<Sizes>, b: &OperandType<&[usize]>| {
            a.dtype == b.dtype && a.weak == b.weak && a.literal == b.literal && a.sizes.as_slice() == b.sizes
        };
        self.op == other.op
            && self.promotion == other.promotion
            && self.context == other.context
            && same(&self.operands[0], &other.operands[0])
            && same(&self.operands[1], &other.operands[1])
    }
}

/// How a call is run.
#[derive(Clone)]
struct Ready {
    executable: Arc<Executable>,
    target: Target,
    weak: bool,
}

/// Calls, and bytes of their executables, of a generation of a thread's table.
const KEPT: usize = 4096;
const KEPT_BYTES: usize = 64 << 20;

struct Known {
    calls: Generations<(Key<Sizes>, Ready)>,
    epoch: Epoch,
}

thread_local! {
    static KNOWN: RefCell<Known> =
        const { RefCell::new(Known { calls: Generations::new(KEPT, KEPT_BYTES), epoch: Epoch::FIRST }) };
}

/// Forgets the calls of this thread.
pub fn forget() {
    let old = KNOWN.with_borrow_mut(|known| known.calls.clear());
    drop(old);
}

/// The result of a call on concrete operands whose types were met before.
pub fn known(
    py: Python<'_>,
    op: Pairwise,
    promotion: Promotion,
    operands: &[Operand<'_>; 2],
) -> PyResult<Option<Py<Array>>> {
    let Some(key) = Key::of(op, promotion, operands) else { return Ok(None) };
    let hash = key.digest();
    // Cloned: while the kernel runs a signal handler may use the table.
    let ready = KNOWN.with_borrow(|known| {
        let found = known.calls.peek(hash, |(other, _)| other.is(&key))?;
        known.epoch.is_current().then(|| found.1.clone())
    });
    let ready = ready.or_else(|| found_again(hash, &key));
    ready.map(|ready| run(py, op, &ready, operands)).transpose()
}

/// A call that was not made lately.
#[cold]
fn found_again(hash: u64, key: &Key<&[usize]>) -> Option<Ready> {
    let (found, old) = KNOWN.with_borrow_mut(|known| {
        if known.epoch.renew() {
            return (None, known.calls.clear());
        }
        known.calls.find(hash, |(other, _)| other.is(key))
    });
    drop(old);
    found.map(|(_, ready)| ready)
}

/// Runs a call on concrete operands and remembers it. The op comes with what it means for operands
/// of the target's dtype; `shape` is what they are broadcast to, if they are.
pub fn first(
    py: Python<'_>,
    (op, meant): (Pairwise, Pairwise),
    promotion: Promotion,
    operands: &[Operand<'_>; 2],
    target: Target,
    shape: Option<Shape>,
) -> PyResult<Py<Array>> {
    let key = Key::of(op, promotion, operands)
        .ok_or_else(|| to_py(py, internal_error!("a tracer reached eager execution")))?;
    let types = key.operands.map(|ty| target_type(&ty, target));
    let converts = target.is_some_and(|(dtype, _)| types.iter().any(|ty| ty.dtype != dtype));
    let (executable, weak) = if converts || shape.is_some() {
        fuse(meant, &types, target, shape).py(py)?
    } else {
        // As ops alone are: shared by all threads.
        let inputs = tensors(py, target, operands)?;
        let executable = ferrax_cpu::eager::executable(&meant.into(), &inputs).py(py)?;
        (executable, matches!(meant, Pairwise::Binary(_)) && types.iter().all(|ty| ty.weak))
    };
    let ready = Ready { executable, target, weak };
    let bytes = ready.executable.bytes();
    let call = (key.owned(), ready.clone());
    let old = KNOWN.with_borrow_mut(|known| known.calls.insert(key.digest(), call, bytes));
    drop(old);
    run(py, op, &ready, operands)
}

/// The operands' elements; literals in the target's dtype.
fn tensors(py: Python<'_>, target: Target, operands: &[Operand<'_>; 2]) -> PyResult<SmallVec<[Tensor; 2]>> {
    let mut inputs = SmallVec::new();
    for operand in operands {
        inputs.push(match (operand, target) {
            (Operand::Literal(literal), Some((dtype, weak))) => {
                convert_literal(*literal, dtype, weak).value.to_tensor().py(py)?
            }
            _ => operand_tensor(py, operand)?
                .ok_or_else(|| to_py(py, internal_error!("a tracer reached eager execution")))?,
        });
    }
    Ok(inputs)
}

fn run(py: Python<'_>, op: Pairwise, ready: &Ready, operands: &[Operand<'_>; 2]) -> PyResult<Py<Array>> {
    let watched = checks::watched();
    if watched {
        checks::may_run(Op::from(op).name())?;
    }
    let _span = profiler::call(py, || Op::from(op).name().to_owned());
    let inputs = tensors(py, ready.target, operands)?;
    let results = eager::release_gil(py, ready.executable.work(), || ready.executable.run(&inputs)).py(py)?;
    if watched {
        nans::check_op(py, &op.into(), &inputs, &results)?;
    }
    match results.into_iter().next() {
        Some(tensor) => {
            let result = Array::new_concrete(py, tensor, ready.weak)?;
            if placement::any(operands) {
                placement::place_pair(py, operands, &result)?;
            }
            Ok(result)
        }
        None => Err(PyTypeError::new_err("the op has no output")),
    }
}

/// What the kernel is given for an operand.
fn target_type(ty: &OperandType<&[usize]>, target: Target) -> ArrayType {
    match target {
        Some((dtype, weak)) if ty.literal => ArrayType::scalar(dtype).with_weak(weak || ty.weak),
        _ => ArrayType::of_sizes(ty.sizes, ty.dtype).with_weak(ty.weak),
    }
}

/// Conversion, broadcast and op as one kernel, and whether its result is weak.
fn fuse(
    op: Pairwise,
    types: &[ArrayType; 2],
    target: Target,
    shape: Option<Shape>,
) -> ferrax_ir::Result<(Arc<Executable>, bool)> {
    let mut b = Builder::new("elementwise");
    let inputs = types.each_ref().map(|ty| b.input(ty.clone()));
    let mut ready: SmallVec<[_; 2]> = SmallVec::new();
    for mut atom in inputs {
        if let Some((dtype, weak)) = target
            && b.dtype(atom) != dtype
        {
            atom = b.emit1(ConvertElementType { new_dtype: dtype, weak_type: weak }, &[atom])?;
        }
        let rank = b.rank(atom);
        if let Some(shape) = &shape
            && rank > 0
        {
            let BroadcastInDim { shape, broadcast_dimensions } = aligned(rank, shape.clone());
            atom = b.broadcast_in_dim(atom, &shape, &broadcast_dimensions)?;
        }
        ready.push(atom);
    }
    let output = b.emit1(op, &ready)?;
    let weak = b.array_type(output)?.weak;
    Ok((Arc::new(ferrax_cpu::compile(&b.finish([output]))?), weak))
}
