//! Running reductions: launches of [`crate::wgsl::cumulative`].
//!
//! Where lines are many, or short, an invocation has a line. Else lines are cut into chunks, whose totals are lines of
//! their own (Blelloch, Prefix Sums and Their Applications, 1990). Cost: linear; `2 log n` launches, to base [`CHUNK`].

use ferrax_compile::Argument;
use ferrax_ir::ops::{Cumulative, CumulativeKind};
use ferrax_ir::tensor::element_count;
use ferrax_ir::{DType, Result};

use crate::gpu::{Gpu, Prepared};
use crate::library::Library;
use crate::memory::Memory;
use crate::pipelines::Source;
use crate::sort::word;
use crate::wgsl::cumulative::{CumulativeForm, Way, total};
use crate::wgsl::{WORKGROUP, types};

/// Elements of a chunk; and how many lines are enough for a GPU.
const CHUNK: usize = 64;
const ENOUGH: usize = 1 << 14;

/// One level: with totals, if lines are cut.
#[derive(Debug)]
struct Running {
    /// What gives totals, their bytes, and their running reduction.
    totals: Option<(Prepared, usize, Box<Running>)>,
    write: Prepared,
    bytes: usize,
}

/// Lines of an array along one axis.
#[derive(Clone, Copy)]
struct Lines {
    lines: usize,
    length: usize,
    inner: usize,
    reverse: bool,
}

/// What runs, unless it is complex numbers that it orders.
pub fn bind(gpu: &Gpu, op: &Cumulative, inputs: &[Argument]) -> Result<Option<Box<dyn Library>>> {
    let Argument { dtype, sizes, .. } = &inputs[0];
    let linear = matches!(op.kind, CumulativeKind::Sum | CumulativeKind::Prod);
    if types::storage(*dtype).is_err() || sizes.contains(&0) || (dtype.is_complex() && !linear) {
        return Ok(None);
    }
    let length = sizes[op.axis];
    let lines = element_count(sizes) / length;
    let inner = element_count(&sizes[op.axis + 1..]);
    let running = Running::new(gpu, op.kind, *dtype, Lines { lines, length, inner, reverse: op.reverse })?;
    Ok(Some(Box::new(running)))
}

impl Running {
    fn new(gpu: &Gpu, kind: CumulativeKind, dtype: DType, of: Lines) -> Result<Running> {
        let cut = of.length > CHUNK && (of.lines < ENOUGH || of.length > gpu.patience().0);
        let chunk = if cut { CHUNK } else { of.length };
        let chunks = of.length.div_ceil(chunk);
        let (first, step) = match of.reverse {
            true => (word((of.length - 1) * of.inner)?, word(of.inner)?.wrapping_neg()),
            false => (0, word(of.inner)?),
        };
        let launch = |way: Way| -> Result<Prepared> {
            let [all, length, inner, chunks, chunk] =
                [of.lines * chunks, of.length, of.inner, chunks, chunk].map(word);
            let numbers = [0, all?, length?, inner?, first, step, chunks?, chunk?];
            let source = Source::Cumulative(CumulativeForm { kind, dtype, way });
            gpu.prepared(source, &numbers, numbers[1].div_ceil(WORKGROUP))
        };
        let totals = match cut {
            true => {
                let lines = Lines { lines: of.lines, length: chunks, inner: 1, reverse: false };
                let dtype = total(dtype);
                let bytes = of.lines * chunks * dtype.size();
                Some((launch(Way::Totals)?, bytes, Box::new(Running::new(gpu, kind, dtype, lines)?)))
            }
            false => None,
        };
        let bytes = of.lines * of.length * dtype.size();
        Ok(Running { totals, write: launch(Way::Write { prefixed: cut })?, bytes })
    }

    fn record(&self, gpu: &Gpu, operand: &Memory) -> Result<Memory> {
        let result = gpu.allocate(self.bytes)?;
        let Some((totals, bytes, running)) = &self.totals else {
            gpu.launch(&self.write, [operand, &result])?;
            return Ok(result);
        };
        let of_chunks = gpu.allocate(*bytes)?;
        gpu.launch(totals, [operand, &of_chunks])?;
        let before = running.record(gpu, &of_chunks)?;
        gpu.launch(&self.write, [operand, &result, &before])?;
        Ok(result)
    }
}

impl Library for Running {
    fn run(&self, gpu: &Gpu, inputs: &[Memory]) -> Result<Vec<Memory>> {
        Ok(vec![self.record(gpu, &inputs[0])?])
    }
}
