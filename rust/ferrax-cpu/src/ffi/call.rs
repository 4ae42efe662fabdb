//! The op that calls a handler, and its kernel.
//!
//! What derivatives and batches of a call are is the business of who makes it; here it is a leaf of
//! programs. It is never computed beforehand. An array that is to lie in another order of its axes is given with its
//! axes in that order, row by row: the handler sees the sizes of the array itself. Arrays are handed over aligned to 64 bytes, as XLA's are:
//! others are copied. An output that an input is given as begins as that input, and both are one memory.
//!
//! Cost: of a run, a lock that nobody waits for and the handler.

use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use ferrax_compile::Argument;
use ferrax_ffi::abi::{Attributes, Stage};
use ferrax_ir::rules::{Batch, Batched, Jvp, Lowering, Row, Rules, Transpose, Types};
use ferrax_ir::{
    ArrayType, Atom, Builder, Effect, Effects, Param, Result, Tensor, Type, device_error, unsupported,
};
use smallvec::SmallVec;

use super::context::{Context, Future, States, take_error};
use super::frame::{Attribute, Frame, Listed, Operand};
use super::registry::{self, Handlers};
use crate::call::{Call, Kernel};

/// A call of a registered handler.
#[derive(Clone, Debug)]
pub struct FfiCall {
    target: String,
    handlers: Arc<Handlers>,
    outputs: Types,
    attributes: Arc<Vec<(String, Attribute)>>,
    /// Pairs of an input and of the output that begins as it.
    aliases: Vec<(usize, usize)>,
    has_side_effect: bool,
    input_orders: Vec<Order>,
    output_orders: Vec<Order>,
}

/// Of an array that does not lie row by row, its axes from the largest steps to the smallest.
pub type Order = Option<Vec<usize>>;

impl FfiCall {
    /// # Errors
    /// `NOT_FOUND` for a target that is not registered.
    pub fn new(
        target: &str,
        platform: &str,
        outputs: Vec<ArrayType>,
        attributes: Vec<(String, Attribute)>,
        aliases: Vec<(usize, usize)>,
        has_side_effect: bool,
    ) -> Result<FfiCall> {
        Ok(FfiCall {
            target: target.to_owned(),
            handlers: registry::find(target, platform)?,
            outputs: outputs.into_iter().map(Type::from).collect(),
            attributes: Arc::new(attributes),
            aliases,
            has_side_effect,
            input_orders: Vec::new(),
            output_orders: Vec::new(),
        })
    }

    /// The call with inputs and outputs that lie in other orders; what is not said lies row by row.
    #[must_use]
    pub fn with_orders(self, input_orders: Vec<Order>, output_orders: Vec<Order>) -> FfiCall {
        FfiCall { input_orders, output_orders, ..self }
    }
}

impl Row for FfiCall {
    fn name(&self) -> &str {
        "ffi_call"
    }

    fn params(&self) -> Vec<(&'static str, Param)> {
        vec![("target_name", Param::Str(self.target.as_str().into()))]
    }

    fn infer(&self, _: &[Type]) -> Result<Types> {
        Ok(self.outputs.clone())
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        let argument = |ty: &Type| -> Result<Operand> {
            let array = ty.as_array().and_then(|array| Some((array.dtype, array.sizes()?)));
            let (dtype, sizes) = array.ok_or_else(|| unsupported!("ffi_call gives arrays, not {ty}"))?;
            Ok(Operand { dtype, sizes: sizes.to_vec() })
        };
        let given: Vec<Operand> = inputs
            .iter()
            .map(|tensor| Operand { dtype: tensor.dtype(), sizes: tensor.sizes().to_vec() })
            .collect();
        let wanted = outputs.iter().map(argument).collect::<Result<Vec<_>>>()?;
        let kernel = FfiKernel::new(self, given, wanted.clone())?;
        let mut bytes: Vec<Vec<u8>> = wanted.iter().map(|x| vec![0; x.bytes()]).collect();
        let sources: Vec<*const u8> = inputs.iter().map(|x| x.bytes().as_ptr()).collect();
        let targets: Vec<*mut u8> = bytes.iter_mut().map(|x| x.as_mut_ptr()).collect();
        // SAFETY: the operands have the types that the kernel was made for, and no memory in common.
        unsafe {
            kernel.run(&Call { inputs: &sources, outputs: &targets, scratch: std::ptr::null_mut() })?;
        }
        wanted.into_iter().zip(bytes).map(|(x, bytes)| Tensor::from_bytes(x.dtype, x.sizes, &bytes)).collect()
    }

    fn effects(&self) -> Effects {
        if self.has_side_effect { [Effect::Unordered].into_iter().collect() } else { Effects::new() }
    }

    fn as_any(&self) -> Option<&dyn std::any::Any> {
        Some(self)
    }
}

impl Rules for FfiCall {
    fn jvp(&self, _: &mut Builder, _: &Jvp<'_>) -> Result<SmallVec<[Option<Atom>; 1]>> {
        Err(unsupported!("ffi_call of {} has no derivative", self.target))
    }

    fn transpose(&self, _: &mut Builder, _: &Transpose<'_>) -> Result<SmallVec<[Option<Atom>; 3]>> {
        Err(unsupported!("ffi_call of {} has no derivative", self.target))
    }

    fn batch(&self, _: &mut Builder, _: &Batch<'_>) -> Result<Batched> {
        Err(unsupported!("ffi_call of {} is not mapped once it is compiled", self.target))
    }

    fn lower(&self) -> Lowering {
        Lowering::Library
    }
}

/// The operands as the handler sees them: with the sizes of their own axes.
fn shown(mut operands: Vec<Operand>, orders: &[Order]) -> Vec<Operand> {
    for (operand, order) in operands.iter_mut().zip(orders) {
        let Some(order) = order else { continue };
        let given = std::mem::take(&mut operand.sizes);
        operand.sizes.clone_from(&given);
        for (&axis, size) in order.iter().zip(given) {
            operand.sizes[axis] = size;
        }
    }
    operands
}

/// The kernel of a call.
pub fn kernel(call: &FfiCall, inputs: &[Argument], outputs: &[Argument]) -> Result<Box<dyn Kernel>> {
    let operand = |argument: &Argument| Operand { dtype: argument.dtype, sizes: argument.sizes.to_vec() };
    Ok(Box::new(FfiKernel::new(
        call,
        inputs.iter().map(operand).collect(),
        outputs.iter().map(operand).collect(),
    )?))
}

struct FfiKernel {
    call: FfiCall,
    inputs: Vec<Operand>,
    outputs: Vec<Operand>,
    attributes: Attributes,
    // What `attributes` points into, and to what `call` owns.
    _listed: Listed,
    /// Those that no run has: as many as there were runs at once.
    frames: Mutex<Vec<Frame>>,
    states: States,
}

// SAFETY: the attributes point to memory that nobody changes; the rest is `Send` and `Sync`.
unsafe impl Send for FfiKernel {}
// SAFETY: as above.
unsafe impl Sync for FfiKernel {}

impl std::fmt::Debug for FfiKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ffi_call of {}", self.call.target)
    }
}

impl FfiKernel {
    /// The states that the handler makes for an executable are made here.
    fn new(call: &FfiCall, inputs: Vec<Operand>, outputs: Vec<Operand>) -> Result<FfiKernel> {
        let call = call.clone();
        let (inputs, outputs) = (shown(inputs, &call.input_orders), shown(outputs, &call.output_orders));
        let mut listed = Listed::new(&call.attributes)?;
        let kernel = FfiKernel {
            attributes: listed.attributes(),
            _listed: listed,
            frames: Mutex::new(vec![Frame::new(&inputs, &outputs)?]),
            states: States::default(),
            call,
            inputs,
            outputs,
        };
        let context = Context::new(&kernel.states);
        kernel.stage(Stage::Instantiate, &mut Frame::new(&[], &[])?, &context)?;
        drop(context);
        Ok(kernel)
    }

    /// Calls the handler of a stage, if there is one.
    fn stage(&self, stage: Stage, frame: &mut Frame, context: &Context<'_>) -> Result<()> {
        let Some(handler) = self.call.handlers.of(stage) else { return Ok(()) };
        // SAFETY: a bitwise copy of pointers into what this owns.
        let attributes = unsafe { std::ptr::read(&raw const self.attributes) };
        let context: *const Context<'_> = context;
        let mut frame = frame.frame(stage, attributes, context.cast_mut().cast());
        // SAFETY: the frame, its operands and the context live until the handler has returned, and until its tasks
        // and its future are done.
        let error = unsafe { handler(&raw mut frame) };
        // SAFETY: what a handler gives is null or an error of ours.
        if let Some(error) = unsafe { take_error(error) } {
            return Err(device_error!("{error}"));
        }
        if !frame.future.is_null() {
            let future: *mut Future = frame.future.cast();
            // SAFETY: the future is one of ours; once it is settled the handler has given it up.
            unsafe {
                let done = (*future).wait();
                drop(Box::from_raw(future));
                done.map_err(|error| device_error!("{error}"))?;
            }
        }
        Ok(())
    }

    fn run_in(&self, frame: &mut Frame, call: &Call<'_>) -> Result<()> {
        let context = Context::new(&self.states);
        let aligned = |pointer: *mut u8, bytes: usize| -> Result<*mut u8> {
            if (pointer as usize).is_multiple_of(64) {
                return Ok(pointer);
            }
            let copy: *mut u8 = context.allocate(bytes, 64).cast();
            if copy.is_null() {
                return Err(ferrax_ir::memory_error!("{bytes} bytes for an aligned copy"));
            }
            Ok(copy)
        };
        let mut back: SmallVec<[(usize, *mut u8); 2]> = SmallVec::new();
        for (index, (&pointer, argument)) in call.outputs.iter().zip(&self.outputs).enumerate() {
            let place = aligned(pointer, argument.bytes())?;
            if place != pointer {
                back.push((index, place));
            }
            frame.set_output(index, place.cast::<c_void>());
        }
        for (index, (&pointer, argument)) in call.inputs.iter().zip(&self.inputs).enumerate() {
            let shared = self.call.aliases.iter().find(|(input, _)| *input == index);
            let place = match shared {
                Some(&(_, output)) => {
                    let own = back.iter().find(|(place, _)| *place == output);
                    own.map_or(call.outputs[output], |(_, place)| *place)
                }
                None => aligned(pointer.cast_mut(), argument.bytes())?,
            };
            if !std::ptr::eq(place, pointer) {
                // SAFETY: both have the argument's bytes; they are the same memory or none in common.
                unsafe { std::ptr::copy(pointer, place, argument.bytes()) };
            }
            frame.set_input(index, place.cast::<c_void>());
        }
        let result = [Stage::Prepare, Stage::Initialize, Stage::Execute]
            .into_iter()
            .try_for_each(|stage| self.stage(stage, frame, &context));
        context.finish();
        result?;
        for (index, place) in back {
            // SAFETY: the output has so many bytes, and the copy is this run's own.
            unsafe { std::ptr::copy_nonoverlapping(place, call.outputs[index], self.outputs[index].bytes()) };
        }
        Ok(())
    }
}

impl Kernel for FfiKernel {
    unsafe fn run(&self, call: &Call<'_>) -> Result<()> {
        // Nobody waits here: who finds the frames in use makes one.
        let free = self.frames.try_lock().ok().and_then(|mut frames| frames.pop());
        let mut frame = match free {
            Some(frame) => frame,
            None => Frame::new(&self.inputs, &self.outputs)?,
        };
        let result = self.run_in(&mut frame, call);
        if let Ok(mut frames) = self.frames.try_lock() {
            frames.push(frame);
        }
        result
    }
}
