//! Dtype promotion with weak types: the least upper bound in JAX's lattice
//! (<https://docs.jax.dev/en/latest/type_promotion.html>).

use std::cell::Cell;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use ferrax_ir::{DType, Kind};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::errors::raise;

/// Settings of this thread that tracing depends on.
#[derive(Clone, Copy, Default)]
pub struct Context {
    /// Whether 64-bit types exist.
    pub x64: bool,
    /// Whether arrays of them may be there without that: what is asked for by name or in NumPy arrays.
    pub explicit_x64: bool,
    /// Only equal dtypes and weak scalars promote.
    pub strict: bool,
    /// What numpy functions do on operands of different rank: 0 allow, 1 warn, 2 raise.
    pub rank_promotion: u8,
    /// Jitted functions call the Python function.
    pub disable_jit: bool,
    /// Equal for equal settings: part of every compilation key.
    pub id: u64,
}

thread_local! {
    /// This thread's own settings, if it has any.
    static OWN: Cell<Option<Context>> = const { Cell::new(None) };
}

/// Settings of threads without their own, as [`Context::pack`] writes them.
static SHARED: AtomicU64 = AtomicU64::new(0);

impl Context {
    fn pack(self) -> u64 {
        u64::from(self.x64)
            | u64::from(self.strict) << 1
            | u64::from(self.disable_jit) << 2
            | u64::from(self.rank_promotion) << 3
            | u64::from(self.explicit_x64) << 5
            | self.id << 8
    }

    /// Whether what is computed of this dtype may have 64 bits.
    pub fn wide_beside(self, dtype: DType) -> bool {
        self.x64 || (self.explicit_x64 && canonicalize(dtype, false) != dtype)
    }

    /// The dtype of an array of Python's with this dtype.
    pub fn of_foreign(self, dtype: DType) -> DType {
        canonicalize(dtype, self.x64 || self.explicit_x64)
    }

    fn unpack(bits: u64) -> Context {
        Context {
            x64: bits & 1 != 0,
            strict: bits & 2 != 0,
            disable_jit: bits & 4 != 0,
            rank_promotion: (bits >> 3 & 3) as u8,
            explicit_x64: bits & 32 != 0,
            id: bits >> 8,
        }
    }
}

thread_local! {
    /// The number of the named axes that are mapped over on this thread; 0 if there are none.
    static AXES: Cell<u32> = const { Cell::new(0) };
}

/// Says which named axes are mapped over on this thread, by a number that is the same for the same.
#[pyfunction]
pub fn set_axes(number: u32) {
    AXES.set(number);
}

/// What compiled functions depend on beside their arguments: the settings' number and, from bit 32
/// on, that of the named axes.
#[pyfunction]
pub fn compilation_context() -> u64 {
    context().id | u64::from(AXES.get()) << 32
}

/// The settings that hold on this thread.
pub fn context() -> Context {
    OWN.get().unwrap_or_else(|| Context::unpack(SHARED.load(Ordering::Relaxed)))
}

/// Sets the trace context of this thread or, with `shared`, of all threads without their own.
#[pyfunction]
pub fn set_trace_context(
    x64: bool,
    strict: bool,
    rank_promotion: u8,
    disable_jit: bool,
    explicit_x64: bool,
    id: u64,
    shared: bool,
) {
    let context = Context { x64, explicit_x64, strict, rank_promotion, disable_jit, id };
    if shared {
        SHARED.store(context.pack(), Ordering::Relaxed);
    } else {
        OWN.set(Some(context));
    }
}

/// This thread follows the shared settings again.
#[pyfunction]
pub fn clear_trace_context() {
    OWN.set(None);
}

/// Weak ints, floats and complex are nodes of their own, after all dtypes.
const WEAK_INT: usize = DType::ALL.len();
const WEAK_FLOAT: usize = WEAK_INT + 1;
const WEAK_COMPLEX: usize = WEAK_INT + 2;
const NODES: usize = WEAK_INT + 3;

fn node(dtype: DType) -> Option<usize> {
    DType::ALL.iter().position(|&other| other == dtype)
}

/// `bounds[a][b]` is the least upper bound, or `None`.
static BOUNDS: LazyLock<Vec<[Option<u8>; NODES]>> = LazyLock::new(|| {
    let of = |dtype: DType| node(dtype).unwrap_or(0);
    use DType::*;
    let mut above: Vec<Vec<usize>> = vec![Vec::new(); NODES];
    let mut edge = |from: usize, to: &[usize]| above[from].extend_from_slice(to);
    edge(of(Bool), &[WEAK_INT]);
    let small_ints = [U2, U4, I2, I4].map(of);
    edge(WEAK_INT, &[of(U8), of(I8)]);
    edge(WEAK_INT, &small_ints);
    edge(of(U8), &[of(I16), of(U16)]);
    edge(of(U16), &[of(I32), of(U32)]);
    edge(of(U32), &[of(I64), of(U64)]);
    edge(of(U64), &[WEAK_FLOAT]);
    edge(of(I8), &[of(I16)]);
    edge(of(I16), &[of(I32)]);
    edge(of(I32), &[of(I64)]);
    edge(of(I64), &[WEAK_FLOAT]);
    let small_floats = [
        F4E2M1FN,
        F8E3M4,
        F8E4M3,
        F8E4M3B11FNUZ,
        F8E4M3FN,
        F8E4M3FNUZ,
        F8E5M2,
        F8E5M2FNUZ,
        F8E8M0FNU,
        BF16,
        F16,
    ];
    edge(WEAK_FLOAT, &small_floats.map(of));
    edge(WEAK_FLOAT, &[WEAK_COMPLEX]);
    edge(of(BF16), &[of(F32)]);
    edge(of(F16), &[of(F32)]);
    edge(of(F32), &[of(F64), of(C64)]);
    edge(of(F64), &[of(C128)]);
    edge(WEAK_COMPLEX, &[of(C64)]);
    edge(of(C64), &[of(C128)]);
    let reach: Vec<u64> = (0..NODES)
        .map(|start| {
            let (mut seen, mut stack) = (1u64 << start, vec![start]);
            while let Some(at) = stack.pop() {
                for &next in &above[at] {
                    if seen & (1 << next) == 0 {
                        seen |= 1 << next;
                        stack.push(next);
                    }
                }
            }
            seen
        })
        .collect();
    (0..NODES)
        .map(|a| {
            std::array::from_fn(|b| {
                let common = reach[a] & reach[b];
                // The least is the common bound from which all others are reached.
                (0..NODES).find(|&c| common & (1 << c) != 0 && reach[c] == common).map(|c| c as u8)
            })
        })
        .collect()
});

/// The 32-bit counterpart of a 64-bit dtype unless 64-bit types are enabled.
pub fn canonicalize(dtype: DType, x64: bool) -> DType {
    match dtype {
        _ if x64 => dtype,
        DType::I64 => DType::I32,
        DType::U64 => DType::U32,
        DType::F64 => DType::F32,
        DType::C128 => DType::C64,
        other => other,
    }
}

/// The dtype of Python numbers of this kind.
pub fn default_dtype(kind: Kind, x64: bool) -> DType {
    let wide = match kind {
        Kind::Bool => DType::Bool,
        Kind::Float => DType::F64,
        Kind::Complex => DType::C128,
        _ => DType::I64,
    };
    canonicalize(wide, x64)
}

fn weak_node(dtype: DType) -> Option<usize> {
    match dtype.kind() {
        Kind::Bool => node(DType::Bool),
        Kind::Signed | Kind::Unsigned => Some(WEAK_INT),
        Kind::Float => Some(WEAK_FLOAT),
        Kind::Complex => Some(WEAK_COMPLEX),
        Kind::Key | Kind::Float0 => None,
    }
}

/// The promoted dtype of these dtypes with their weakness, and whether it is weak.
pub fn result_type(py: Python<'_>, operands: &[(DType, bool)]) -> PyResult<(DType, bool)> {
    let Some(&(first, first_weak)) = operands.first() else {
        return Err(raise(py, "TypePromotionError", ("at least one dtype is needed",)));
    };
    let Context { x64, explicit_x64, strict, .. } = context();
    if operands.iter().all(|&(dtype, weak)| dtype == first && weak == first_weak) {
        return Ok((first, first_weak && first != DType::Bool));
    }
    let all_weak = operands.iter().all(|&(_, weak)| weak);
    // One operand of 64 bits that is not weak asks for them, for a result that is not weak.
    let wide = |&(dtype, weak): &(DType, bool)| !weak && canonicalize(dtype, false) != dtype;
    let asked = explicit_x64 && operands.iter().any(wide);
    let strong = || operands.iter().filter(|(_, weak)| !weak).map(|&(dtype, _)| dtype);
    let refused = || {
        let names: Vec<String> = operands
            .iter()
            .map(|(dtype, weak)| format!("{}{dtype}", if *weak { "weak " } else { "" }))
            .collect();
        if let Some((dtype, _)) = operands.iter().find(|(dtype, _)| dtype.kind() == Kind::Key) {
            return PyTypeError::new_err(format!(
                "{dtype} does not promote: keys do not take part in arithmetic. ferrax.random.bits(key) draws numbers, and \
                 ferrax.random.key_data(key) has the words of keys"
            ));
        }
        let mode =
            if strict { "strict dtype promotion is on" } else { "the types have no implicit promotion" };
        raise(
            py,
            "TypePromotionError",
            (format!(
                "Input dtypes ({}) have no available implicit dtype promotion path: {mode}. Convert explicitly, \
                 for instance with x.astype(dtype).",
                names.join(", ")
            ),),
        )
    };
    if strict {
        let mut dtypes = strong();
        if let Some(dtype) = dtypes.next()
            && dtypes.any(|other| other != dtype)
        {
            return Err(refused());
        }
    }
    let mut bound: Option<usize> = None;
    for &(dtype, weak) in operands {
        let next = if weak && !all_weak { weak_node(dtype) } else { node(dtype) };
        let next = next.ok_or_else(refused)?;
        bound = Some(match bound {
            None => next,
            Some(current) => usize::from(BOUNDS[current][next].ok_or_else(refused)?),
        });
    }
    let (dtype, weak) = match bound {
        Some(WEAK_INT) => (DType::I64, true),
        Some(WEAK_FLOAT) => (DType::F64, true),
        Some(WEAK_COMPLEX) => (DType::C128, true),
        Some(index) => (DType::ALL[index], all_weak),
        None => (first, all_weak),
    };
    let result = canonicalize(dtype, x64 || (asked && !weak));
    if strict && strong().next().is_some_and(|only| only != result) {
        return Err(refused());
    }
    Ok((result, weak && dtype != DType::Bool))
}
