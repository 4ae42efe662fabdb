//! The CPU as a machine that programs are compiled for.

use std::sync::Arc;

use ferrax_compile::backend::{self, Backend, Output, Target};
use ferrax_compile::{MemoryPlan, Plan, plan_for};
use ferrax_ir::{Program, Result, Storage, Tensor};

use crate::executable::{Executable, bind, copied};
use crate::fork;
use crate::persistent;

/// Its numbers.
pub const TARGET: Target = Target::CPU;

/// Host memory, the vector VM and library kernels.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cpu;

/// The sub-programs of a program that is compiled for the CPU.
pub type Nested<'a> = backend::Nested<'a, Cpu>;

/// Bytes from which the body of a loop works on its carry in place.
const IN_PLACE: usize = 4 << 10;

impl Backend for Cpu {
    type Buffer = Arc<dyn Storage>;
    type Executable = Executable;

    fn target(&self) -> Target {
        TARGET
    }

    /// Two places that take turns are faster than one that is read and written.
    fn adapt_body(&self, plan: &mut Plan) {
        let fresh = &plan.fresh;
        plan.donations.retain(|&(_, output)| fresh[output] >= IN_PLACE);
    }

    fn bind(&self, plan: Plan, nested: &mut Nested<'_>) -> Result<Executable> {
        bind(plan, nested)
    }

    fn upload(&self, bytes: &[u8]) -> Result<Arc<dyn Storage>> {
        copied(bytes)
    }

    fn download(&self, buffer: &Arc<dyn Storage>, to: &mut [u8]) -> Result<()> {
        to.copy_from_slice(buffer.bytes());
        Ok(())
    }

    fn run(
        &self,
        executable: &Executable,
        inputs: &[&Arc<dyn Storage>],
    ) -> Result<Vec<Output<Arc<dyn Storage>>>> {
        let typed = inputs.iter().zip(executable.inputs());
        let inputs: Vec<Tensor> = typed
            .map(|(buffer, (dtype, sizes))| Tensor::from_storage(*dtype, sizes.clone(), Arc::clone(buffer)))
            .collect::<Result<_>>()?;
        let output = |tensor: Tensor| {
            let (dtype, sizes, buffer) = tensor.into_parts();
            Output { buffer, dtype, sizes }
        };
        Ok(executable.run(&inputs)?.into_iter().map(output).collect())
    }
}

/// Compiles a program whose dimensions are all constant.
pub fn compile(program: &Program) -> Result<Executable> {
    fork::protect();
    backend::compile(&Cpu, program)
}

/// As [`compile`]; the program's optimised form may come from a file (see [`crate::persistent`]).
pub fn compile_kept(program: &Program) -> Result<Executable> {
    fork::protect();
    backend::compile_prepared(&Cpu, &persistent::prepared(program)?)
}

/// What [`compile`] makes ready.
pub fn plan(program: &Program) -> Result<Plan> {
    plan_for(&Cpu, program)
}

/// What a run of the program does with memory.
pub fn memory_plan(program: &Program) -> Result<MemoryPlan> {
    backend::memory_plan(&Cpu, program)
}
