//! Programs of which the types say nothing of the axes of meshes.
//!
//! In goes a program, out comes the same without casts and with types that differ along no axis: what is run over whole
//! arrays. All sums over axes are those of devices, in adjacent pairs. Cost: linear; a sub-program that several equations share is copied once.

use std::sync::Arc;

use ferrax_ir::ops::{AxisReduce, AxisReduceKind};
use ferrax_ir::varying::Varying;
use ferrax_ir::{Op, Program, Result};
use rustc_hash::FxHashMap;

use crate::rewrite::Rewriter;

/// The program without axes in its types.
pub fn erase_varying(program: &Arc<Program>) -> Result<Arc<Program>> {
    Erasure::default().program(program)
}

#[derive(Default)]
struct Erasure(FxHashMap<*const Program, Arc<Program>>);

impl Erasure {
    fn program(&mut self, program: &Arc<Program>) -> Result<Arc<Program>> {
        if let Some(known) = self.0.get(&Arc::as_ptr(program)) {
            return Ok(known.clone());
        }
        let mut source = (**program).clone();
        source.types.iter_mut().for_each(|ty| ty.vary(Varying::NONE));
        let mut rewriter = Rewriter::with_inputs(&source);
        rewriter.constants(|_| true);
        for equation in &source.equations {
            let inputs = rewriter.atoms(&equation.inputs)?;
            match (&equation.op, equation.outputs.as_slice()) {
                (Op::Pvary(_) | Op::Preduced(_) | Op::ReducedVary(_) | Op::VaryUnreduced(_), [output]) => {
                    rewriter.set(*output, inputs[0])
                }
                // Over the axes of a mesh, of which this is the last that is known, sums are those of devices.
                (Op::AxisReduce(op), _)
                    if matches!(op.kind, AxisReduceKind::Sum | AxisReduceKind::SumUnreduced) =>
                {
                    let op = AxisReduce { kind: AxisReduceKind::SumInvariant, ..op.clone() };
                    rewriter.copy_as(equation, op.into(), &inputs)?;
                }
                (Op::AllGatherReduced(op), _) => {
                    rewriter.copy_as(equation, op.plain().into(), &inputs)?;
                }
                (Op::UnreducedReduceScatter(op), _) => {
                    rewriter.copy_as(equation, op.plain().into(), &inputs)?;
                }
                (op, _) => {
                    let op = op.map_programs(|program| self.program(program))?;
                    rewriter.copy_as(equation, op, &inputs)?;
                }
            }
        }
        let erased = Arc::new(rewriter.finish(&source.outputs)?);
        self.0.insert(Arc::as_ptr(program), erased.clone());
        Ok(erased)
    }
}
