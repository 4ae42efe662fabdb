//! The CPU as a machine that programs are compiled for.

use std::sync::Arc;

use ferrax_compile::backend::{self, Backend, Output, Target};
use ferrax_compile::{MemoryPlan, Plan, plan_for};
use ferrax_ir::{Program, Result, Storage, Tensor};

use crate::bind::bind;
use crate::code;
use crate::executable::{Executable, copied};
use crate::machine::{Cpu, Nested};
use crate::persistent;

impl Backend for Cpu {
    type Buffer = Arc<dyn Storage>;
    type Executable = Executable;

    fn target(&self) -> Target {
        self.tuning().plan
    }

    fn adapt_body(&self, plan: &mut Plan) {
        let (fresh, least) = (&plan.fresh, self.tuning().loops.in_place);
        plan.donations.retain(|&(_, output)| fresh[output] >= least);
    }

    fn bind(&self, plan: Plan, nested: &mut Nested<'_>) -> Result<Executable> {
        bind(plan, nested)
    }

    fn upload(&self, bytes: &[u8]) -> Result<Arc<dyn Storage>> {
        copied(bytes, &self.tuning().threads)
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
    backend::compile(&Cpu::of_process()?, program)
}

/// As [`compile`]; the program's optimised form may come from a file (see [`crate::persistent`]).
pub fn compile_kept(program: &Program) -> Result<Executable> {
    backend::compile_prepared(&Cpu::of_process()?, &persistent::prepared(program)?)
}

/// The machine code that [`compile`] makes: none where there is none on this machine, or where it does not pay.
pub fn machine_code(program: &Program) -> Result<Vec<code::Listing>> {
    let (compiled, listing) = code::listed(|| compile(program));
    compiled.map(|_| listing)
}

/// What [`compile`] makes ready.
pub fn plan(program: &Program) -> Result<Plan> {
    plan_for(&Cpu::of_process()?, program)
}

/// What a run of the program does with memory.
pub fn memory_plan(program: &Program) -> Result<MemoryPlan> {
    backend::memory_plan(&Cpu::of_process()?, program)
}
