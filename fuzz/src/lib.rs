//! What the targets share: what any program that was read has to hold, and what is too large to compile.

use std::sync::Arc;

use ferrax_ir::{Error, Program, verify};

/// The most bytes that all values of a program that is compiled may have together.
const MOST_BYTES: usize = 1 << 20;
/// The most equations of such a program, once calls are written out.
const MOST_EQUATIONS: usize = 1 << 10;

/// A program that was read verifies. If it is small it compiles, or is refused with a reason: that
/// the library contradicts itself is none.
pub fn check(program: &Program) {
    verify::verify(program).unwrap_or_else(|error| panic!("{error}\n{program}"));
    if is_small(program)
        && let Err(error @ Error::Internal(_)) = ferrax_cpu::compile(program)
    {
        panic!("{error}\n{program}");
    }
}

/// Whether all values fit into [`MOST_BYTES`]; those with symbolic dimensions count nothing.
fn is_small(program: &Program) -> bool {
    program.size() <= MOST_EQUATIONS
        && program.measure(&|program, of| {
            let own = program.types.iter().filter_map(|ty| ty.as_array()).map(|ty| {
                let sizes = ty.sizes().unwrap_or_default();
                sizes.iter().fold(ty.dtype.size(), |bytes, &size| bytes.saturating_mul(size))
            });
            let callees = program.equations.iter().flat_map(|equation| equation.op.programs());
            own.chain(callees.map(|callee: &Arc<Program>| of(callee))).fold(0, usize::saturating_add)
        }) <= MOST_BYTES
}
