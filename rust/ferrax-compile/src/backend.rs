//! Machines that programs run on, and how a program is made ready for one.
//!
//! [`compile`] is the same for all: `expand → legalise → optimise → group → place`, then the machine binds the plan.
//! What a [`Backend`] adds are its numbers ([`Target`]), the ops that its library has, code for kernels, and memory.
//! Nothing above it looks into that memory: bytes go there by `upload` and come back by `download`.
//!
//! Cost: linear in the size of the program for each pass; sub-programs are compiled once each.

use std::sync::Arc;

use ferrax_ir::{DType, Equation, Error, Program, Result, Sizes, Type, unsupported};
use ferrax_transform::{Options, optimise};
use rustc_hash::FxHashMap;

use crate::compile::plan;
use crate::expand;
use crate::legalise::legalise;
use crate::memory_plan::MemoryPlan;
use crate::plan::Plan;
use crate::profile::{Kind, Level, Span, What};
pub use crate::tuning::Target;

/// A machine that runs plans.
pub trait Backend: Send + Sync {
    /// Memory of the machine.
    type Buffer: Send + Sync;
    /// A plan that is ready to run.
    type Executable: Send + Sync;

    fn target(&self) -> Target;

    /// What is planned of a program: what [`prepare`] makes of it, wherever that is kept.
    fn prepared(&self, program: &Program) -> Result<Program> {
        prepare(program)
    }

    /// Changes the plan of a branch or of the body of a loop before it is bound.
    fn adapt_body(&self, _plan: &mut Plan) {}

    /// Makes a plan ready. Executables of its sub-programs are those that `nested` gives.
    fn bind(&self, plan: Plan, nested: &mut Nested<'_, Self>) -> Result<Self::Executable>;

    fn upload(&self, bytes: &[u8]) -> Result<Self::Buffer>;

    /// Copies all of a buffer, which has as many bytes as `to`.
    fn download(&self, buffer: &Self::Buffer, to: &mut [u8]) -> Result<()>;

    /// Bytes that are kept for later arrays.
    fn kept(&self) -> usize {
        0
    }

    /// Gives them back to the system.
    fn trim(&self) {}

    /// Whether kernels can compute with a dtype.
    fn has(&self, _dtype: DType) -> bool {
        true
    }

    /// From now on the times of kernels are noted. Errors: unsupported where there is no clock.
    fn begin_profile(&self) -> Result<()> {
        Err(unsupported!("profiles: only GPUs tell the times of kernels"))
    }

    /// What was noted since then, when all of it is done.
    fn end_profile(&self) -> Result<Vec<Event>> {
        Err(unsupported!("profiles: only GPUs tell the times of kernels"))
    }

    /// The outputs for these inputs, which have the dtypes and sizes of the program's.
    fn run(
        &self,
        executable: &Self::Executable,
        inputs: &[&Self::Buffer],
    ) -> Result<Vec<Output<Self::Buffer>>>;
}

/// A kernel, or a library call, that ran: nanoseconds from the first kernel, or from when the profile began if it was the
/// host's.
#[derive(Clone, PartialEq, Debug)]
pub struct Event {
    pub name: String,
    pub begin: f64,
    pub end: f64,
    pub host: bool,
}

/// An array on a machine.
#[derive(Debug)]
pub struct Output<B> {
    pub buffer: B,
    pub dtype: DType,
    pub sizes: Sizes,
}

/// The sub-programs of a program that is compiled, each made ready once.
pub struct Nested<'a, B: Backend + ?Sized> {
    backend: &'a B,
    /// By identity; kept alive, so that addresses stay theirs.
    done: FxHashMap<usize, (Arc<Program>, Arc<B::Executable>)>,
    times: f64,
}

impl<'a, B: Backend + ?Sized> Nested<'a, B> {
    fn new(backend: &'a B) -> Self {
        Nested { backend, done: FxHashMap::default(), times: 1.0 }
    }

    /// How often what is made ready now runs in a run of the program, about: loops run their bodies often.
    pub fn times(&self) -> f64 {
        self.times
    }

    /// Makes ready what runs so many times in each run of what is made ready now.
    pub fn repeated<T>(&mut self, times: f64, make: impl FnOnce(&mut Self) -> T) -> T {
        let outer = self.times;
        self.times = outer * times.max(1.0);
        let made = make(self);
        self.times = outer;
        made
    }

    /// The machine that they are made ready for.
    pub fn backend(&self) -> &'a B {
        self.backend
    }

    /// The executable of a sub-program, which came through the passes with its program.
    pub fn executable(&mut self, program: &Arc<Program>) -> Result<Arc<B::Executable>> {
        if let Some((_, known)) = self.done.get(&Arc::as_ptr(program).addr()) {
            return Ok(known.clone());
        }
        let mut body = plan(program, &self.backend.target())?;
        self.backend.adapt_body(&mut body);
        let executable = Arc::new(bind(self.backend, body, self)?);
        self.done.insert(Arc::as_ptr(program).addr(), (program.clone(), executable.clone()));
        Ok(executable)
    }
}

/// What is planned: the program without calls, products in the dtypes that they are computed in, optimised.
pub fn prepare(program: &Program) -> Result<Program> {
    optimised(expand(program)?)
}

/// The same of a program that is without calls.
pub fn optimised(flat: Program) -> Result<Program> {
    let _span = Span::begin(Level::Runs, || What::named(Kind::Compile, "optimise"));
    optimise(&legalise(flat)?, Options::default())
}

/// The plan of a program whose dimensions are all constant.
pub fn plan_for<B: Backend + ?Sized>(backend: &B, program: &Program) -> Result<Plan> {
    plan(&prepare(program)?, &backend.target())
}

/// What a run of the program does with memory.
pub fn memory_plan<B: Backend + ?Sized>(backend: &B, program: &Program) -> Result<MemoryPlan> {
    let (flat, target) = (prepare(program)?, backend.target());
    plan(&flat, &target)?.memory_plan(&flat, &target)
}

/// Compiles a program whose dimensions are all constant.
pub fn compile<B: Backend + ?Sized>(backend: &B, program: &Program) -> Result<B::Executable> {
    let prepared = backend.prepared(program)?;
    compile_prepared(backend, &prepared).map_err(|error| explained(backend, &prepared, error))
}

/// An error, with the op at which a dtype appears that the machine lacks, and the user's line.
fn explained<B: Backend + ?Sized>(backend: &B, program: &Program, error: Error) -> Error {
    let Error::Unsupported(message) = &error else { return error };
    let lacked = |program: &Program, equation: &Equation| {
        let results = equation.outputs.iter().map(|var| &program.types[var.index()]);
        let operands = equation.inputs.iter().map(|atom| program.type_of(atom));
        let dtype = |ty: &Type| ty.as_array().map(|array| array.dtype);
        let mut dtypes = results.map(dtype).chain(operands.map(|ty| dtype(&ty))).flatten();
        dtypes.find(|&dtype| !backend.has(dtype))
    };
    let mut programs = vec![program];
    while let Some(program) = programs.pop() {
        for equation in &program.equations {
            programs.extend(equation.op.programs().into_iter().map(|inner| &**inner));
            if let Some(dtype) = lacked(program, equation) {
                let at = equation.source.line().map(|line| format!("\n  at {line}")).unwrap_or_default();
                return unsupported!("{message}: '{}' is of {dtype}{at}", equation.op.name());
            }
        }
    }
    error
}

/// Compiles what [`prepare`] gave.
pub fn compile_prepared<B: Backend + ?Sized>(backend: &B, program: &Program) -> Result<B::Executable> {
    bind(backend, plan(program, &backend.target())?, &mut Nested::new(backend))
}

fn bind<B: Backend + ?Sized>(backend: &B, plan: Plan, nested: &mut Nested<'_, B>) -> Result<B::Executable> {
    let _span = Span::begin(Level::Runs, || What::named(Kind::Compile, "bind"));
    backend.bind(plan, nested)
}
