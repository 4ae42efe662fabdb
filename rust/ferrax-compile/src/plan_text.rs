//! The text form of plans: the buffers, the steps in order, what leaves.
//!
//! Buffers are numbered as in [`Plan::buffers`]; those that another took over
//! are left out. In a kernel's text `b0` is its first operand; the line above
//! says which buffer that is.

use std::collections::BTreeSet;
use std::fmt;

use ferrax_ir::ShowOp;

use crate::plan::{Argument, BufferId, Place, Plan, Step, run_at};

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Input(number) => write!(f, "input {number}"),
            Place::Constant(number) => write!(f, "constant {number}"),
            Place::Arena(offset) => write!(f, "arena at {offset}"),
            Place::Fresh(number) => write!(f, "fresh {number}"),
            Place::Rows(offset) => write!(f, "rows at {offset}"),
        }
    }
}

struct Arguments<'a>(&'a [Argument]);

impl fmt::Display for Arguments<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Argument { buffer, dtype, sizes }) in self.0.iter().enumerate() {
            let sizes: Vec<String> = sizes.iter().map(usize::to_string).collect();
            let space = if index > 0 { " " } else { "" };
            write!(f, "{space}{}:{}[{}]", buffer.0, dtype.short_name(), sizes.join(","))?;
        }
        Ok(())
    }
}

impl Plan {
    /// The buffers that a step or the caller touches.
    pub(crate) fn used(&self) -> BTreeSet<BufferId> {
        let mut used: BTreeSet<BufferId> = self.outputs.iter().map(|output| output.buffer).collect();
        for step in &self.steps {
            match step {
                Step::Kernel { operands, .. } => used.extend(operands),
                Step::Library { inputs, outputs, .. } => {
                    used.extend(inputs.iter().chain(outputs).map(|argument| argument.buffer));
                }
            }
        }
        used
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "plan of {:?}, {} bytes of arena", self.name, self.arena)?;
        for id in self.used() {
            if let Some(buffer) = self.buffers.get(id.0 as usize) {
                writeln!(f, "  buffer {}: {} bytes, {}", id.0, buffer.bytes, buffer.place)?;
            }
        }
        for (number, step) in self.steps.iter().enumerate() {
            let run = run_at(&self.runs, number).map(|run| &self.runs[run]);
            if let Some(run) = run.filter(|run| run.steps.start == number) {
                let (steps, loops) = (run.steps.len(), run.extents.as_slice());
                writeln!(f, "  {steps} steps by rows {loops:?}, {} bytes of their own", run.own_bytes)?;
            }
            match step {
                Step::Kernel { launch, operands } => {
                    f.write_str("  run on")?;
                    for (index, id) in operands.iter().enumerate() {
                        write!(f, " b{index}={}", id.0)?;
                    }
                    f.write_str("\n")?;
                    for line in launch.to_string().lines() {
                        writeln!(f, "    {line}")?;
                    }
                }
                Step::Library { op, inputs, outputs, .. } => {
                    writeln!(f, "  call {} {} -> {}", ShowOp(op), Arguments(inputs), Arguments(outputs))?;
                }
            }
        }
        for &(input, fresh) in &self.donations {
            writeln!(f, "  input {input}, if donated, is fresh {fresh}")?;
        }
        f.write_str("  return")?;
        for output in &self.outputs {
            write!(f, " {}", Arguments(std::slice::from_ref(output)))?;
        }
        Ok(())
    }
}
