//! Loops of machine code: all steps in one call (`ferrax_compile::native`).

use ferrax_compile::Argument;
use ferrax_compile::native::{self, Pointer};
use ferrax_ir::paths::Path;
use ferrax_ir::{Op, Result, Tensor};
use smallvec::SmallVec;

use crate::call::{Call, Kernel};
use crate::code::{self, Function};
use crate::pool;
use crate::tuning::Tuning;

#[derive(Debug)]
struct NativeLoop {
    function: Function,
    pointers: Vec<Pointer>,
    constants: Vec<Tensor>,
    scratch: usize,
    /// Operands that are copied to results, with their bytes: before the function runs, and after it.
    before: Vec<(usize, usize, usize)>,
    after: Vec<(usize, usize, usize)>,
}

/// A loop of machine code, if it is one that pays.
pub fn bind(
    op: &Op,
    inputs: &[Argument],
    outputs: &[Argument],
    tuning: &Tuning,
) -> Result<Option<Box<dyn Kernel>>> {
    let least = tuning.loops.native;
    let pays = match op {
        Op::Scan(op) => op.length.as_const().is_some_and(|length| length >= least),
        Op::While(_) => least < usize::MAX,
        _ => false,
    };
    if !pays || code::wanted()?.is_none() {
        return Ok(None);
    }
    let lowered = match op {
        Op::Scan(op) => native::scan(op, inputs, outputs, &tuning.plan)?,
        Op::While(op) => native::while_loop(op, inputs, outputs, &tuning.plan)?,
        _ => None,
    };
    let Some(native::Function { native, pointers, constants, scratch, before, after }) = lowered else {
        return Ok(None);
    };
    let Some(function) = Function::new(&native, pointers.len())? else { return Ok(None) };
    Path::Native.take();
    Path::NativeLanes.take_if(native.has_lanes());
    Ok(Some(Box::new(NativeLoop { function, pointers, constants, scratch, before, after })))
}

impl Kernel for NativeLoop {
    fn scratch(&self) -> usize {
        self.scratch
    }

    fn bytes(&self) -> usize {
        let constants: usize = self.constants.iter().map(|constant| constant.bytes().len()).sum();
        size_of_val(self) + self.function.bytes() + constants + size_of_val(&*self.pointers)
    }

    unsafe fn run(&self, call: &Call<'_>) -> Result<()> {
        let table: SmallVec<[*mut u8; 16]> = self
            .pointers
            .iter()
            .map(|pointer| match *pointer {
                Pointer::Input(input) => call.inputs[input].cast_mut(),
                Pointer::Output(output) => call.outputs[output],
                Pointer::Constant(constant) => self.constants[constant].bytes().as_ptr().cast_mut(),
                Pointer::Scratch => call.scratch,
            })
            .collect();
        let copy = |copies: &[(usize, usize, usize)]| {
            for &(input, output, bytes) in copies {
                let (from, to) = (call.inputs[input], call.outputs[output]);
                if from != to.cast_const() {
                    // SAFETY: both have so many bytes; a result overlaps no operand but its own, and that as a whole.
                    unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
                }
            }
        };
        copy(&self.before);
        // SAFETY: operands are valid for the types that the loop was bound with, for which the function was made; it
        // reads initial carries before it writes results, which overlap nothing else, and of scratch memory it uses what
        // it asks for.
        if !unsafe { self.function.run(&table)? } {
            return Err(pool::stopped());
        }
        copy(&self.after);
        Ok(())
    }
}
