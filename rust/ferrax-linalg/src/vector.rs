//! Code that runs with the vector instructions that the machine has.

/// A closure that is called where it stands: `FnOnce` calls one that takes nothing away by an adapter of the
/// compiler, which is not inlined, and what is not inlined is made without vector instructions.
struct Body<F>(F);

impl<R, F: FnMut() -> R> pulp::NullaryFnOnce for Body<F> {
    type Output = R;

    #[inline(always)]
    fn call(mut self) -> R {
        (self.0)()
    }
}

/// Calls `body`, which, and what it calls, has to be `inline(always)` to become vector code.
#[inline(always)]
pub(crate) fn vectorised<R>(body: impl FnMut() -> R) -> R {
    pulp::Arch::new().dispatch(Body(body))
}
