//! Kernels that products of matrices and convolutions take in: what is computed of an operand while it is read, and
//! what is computed of the result before it is written.
//!
//! In: a plan. Out: the plan without those kernels, whose products have other operands and results, and for each step
//! what its product took in. A product of halves, which is a product of floats between conversions, reads and writes
//! halves so.
//!
//! A kernel is taken in where each of its indices is an element of the operand or of the result and nobody else needs
//! that array. It is the same arithmetic on the same elements, and so are its results, bit for bit. A result's kernel
//! computes once for each element. An operand's does whenever the element is read, so that it has to be cheap
//! (`Launches::taken_cost`). The product runs where its result's kernel was, the last of its steps: what it reads
//! must still be what it was. Cost: linear in the number of accesses, for each product times the steps between it and
//! its kernels.

use ferrax_ir::scalar::{Body, Reg, ScalarType, Value};
use ferrax_ir::{DType, Op};

use super::elementwise::{DIVISION, Kernel, cost, digits, is_element, is_whole, joined, renumbered};
use super::machine::Machine;
use crate::kernel::{Accumulator, AccumulatorKind, Jumps, Launch, Load, Operand, Stage};
use crate::plan::{Argument, BufferId, Plan, Step, run_at};

/// Where elements of a product's operand come from.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Origin<K> {
    /// This operand of the step.
    Operand(u32),
    Kernel(Box<K>),
}

impl<K> Origin<K> {
    pub fn kernel(&self) -> Option<&K> {
        match self {
            Origin::Operand(_) => None,
            Origin::Kernel(kernel) => Some(kernel),
        }
    }
}

/// A kernel that was taken in. Its operands are those of the product.
#[derive(Clone, PartialEq, Debug)]
pub struct Taken {
    /// Of an operand's kernel without stores; of a result's kernel the result is its accumulator, of complex numbers
    /// two.
    pub launch: Launch,
    /// Its loops, from that which moves the element in the array most.
    pub order: Vec<usize>,
    /// What becomes of an operand's element; of a result's kernel its stores say that.
    pub value: Value,
}

/// A product with what it took in.
#[derive(Clone, PartialEq, Debug)]
pub struct Fusion {
    /// Left, right and result, as the op has them.
    pub arguments: [Argument; 3],
    pub from: [Origin<Taken>; 2],
    pub then: Option<Box<Taken>>,
    /// Inputs of the step, then its outputs.
    pub operands: Vec<Operand>,
    /// The bytes of its outputs.
    pub results: Vec<usize>,
}

impl Fusion {
    /// A product that took nothing in.
    pub fn plain([lhs, rhs, out]: [&Argument; 3]) -> Fusion {
        let operand = |argument: &Argument, written| Operand { dtype: argument.dtype, written };
        Fusion {
            arguments: [lhs, rhs, out].map(Argument::clone),
            from: [Origin::Operand(0), Origin::Operand(1)],
            then: None,
            operands: vec![operand(lhs, false), operand(rhs, false), operand(out, true)],
            results: vec![out.bytes()],
        }
    }

    /// The kernels: of left, of right and of the result.
    pub fn taken(&self) -> impl Iterator<Item = &Taken> {
        let [left, right] = self.from.each_ref().map(Origin::kernel);
        [left, right, self.then.as_deref()].into_iter().flatten()
    }
}

/// A plan whose products took in what they can, and for each step what that is, if anything. A step has at most so many
/// operands as the machine says. Steps of the plan's runs stay as they are.
pub fn fuse(mut plan: Plan, machine: &dyn Machine) -> (Plan, Vec<Option<Fusion>>) {
    let mut search = Search::new(&plan, machine);
    let is_product = |step: &Step| match step {
        Step::Library { op, inputs, outputs, .. } => machine.takes_kernels(op, inputs, outputs),
        Step::Kernel { .. } => false,
    };
    let is_free = |step: usize| run_at(&plan.runs, step).is_none() && is_product(&plan.steps[step]);
    let products: Vec<usize> = (0..plan.steps.len()).filter(|&step| is_free(step)).collect();
    let mut found: Vec<Option<(usize, Step, Fusion)>> = plan.steps.iter().map(|_| None).collect();
    let then: Vec<Option<usize>> = products.iter().map(|&product| search.result_kernel(product)).collect();
    for (&product, then) in products.iter().zip(then) {
        match (search.fused(product, then), then) {
            (Some((step, fusion)), _) => found[then.unwrap_or(product)] = Some((product, step, fusion)),
            (None, Some(step)) => search.taken[step] = false,
            (None, None) => {}
        }
    }
    let Search { taken, .. } = search;
    let mut gone = taken;
    found.iter().flatten().for_each(|(product, ..)| gone[*product] = true);
    let stays: Vec<bool> = found.iter().zip(&gone).map(|(found, gone)| found.is_some() || !gone).collect();
    let (mut steps, mut fusions) = (Vec::new(), Vec::new());
    for (number, (step, found)) in plan.steps.into_iter().zip(found).enumerate() {
        match found {
            Some((_, step, fusion)) => {
                steps.push(step);
                fusions.push(Some(fusion));
            }
            None if gone[number] => {}
            None => {
                steps.push(step);
                fusions.push(None);
            }
        }
    }
    // How many steps are left before each.
    let mut before = vec![0];
    before.extend(stays.iter().scan(0, |count, &stays| {
        *count += usize::from(stays);
        Some(*count)
    }));
    for run in &mut plan.runs {
        run.steps = before[run.steps.start]..before[run.steps.end];
    }
    plan.steps = steps;
    (plan, fusions)
}

struct Search<'a> {
    plan: &'a Plan,
    machine: &'a dyn Machine,
    /// Operands of a step, at most.
    most: usize,
    /// The steps that use each buffer, and those that write it.
    uses: Vec<Vec<usize>>,
    writes: Vec<Vec<usize>>,
    is_output: Vec<bool>,
    /// Kernels that are taken in.
    taken: Vec<bool>,
}

impl<'a> Search<'a> {
    fn new(plan: &'a Plan, machine: &'a dyn Machine) -> Search<'a> {
        let mut uses = vec![Vec::new(); plan.buffers.len()];
        let mut writes = uses.clone();
        let note = |list: &mut Vec<Vec<usize>>, id: BufferId, step: usize| {
            let list = &mut list[id.0 as usize];
            if list.last() != Some(&step) {
                list.push(step);
            }
        };
        for (number, step) in plan.steps.iter().enumerate() {
            match step {
                Step::Kernel { launch, operands } => {
                    for (operand, &id) in launch.kernel.operands.iter().zip(operands) {
                        note(&mut uses, id, number);
                        if operand.written {
                            note(&mut writes, id, number);
                        }
                    }
                }
                Step::Library { inputs, outputs, .. } => {
                    inputs.iter().for_each(|input| note(&mut uses, input.buffer, number));
                    for output in outputs {
                        note(&mut uses, output.buffer, number);
                        note(&mut writes, output.buffer, number);
                    }
                }
            }
        }
        let mut is_output = vec![false; plan.buffers.len()];
        plan.outputs.iter().for_each(|output| is_output[output.buffer.0 as usize] = true);
        let most = machine.limits().target.operands;
        Search { plan, machine, most, uses, writes, is_output, taken: vec![false; plan.steps.len()] }
    }

    fn kernel(&self, step: usize) -> Option<Kernel<'a>> {
        match &self.plan.steps[step] {
            Step::Kernel { .. } if run_at(&self.plan.runs, step).is_some() => None,
            Step::Kernel { launch, operands } => {
                Some(Kernel { launch: joined(launch), buffers: operands }).filter(Kernel::is_elementwise)
            }
            Step::Library { .. } => None,
        }
    }

    fn product(&self, step: usize) -> Option<(&'a Op, [&'a Argument; 3])> {
        match &self.plan.steps[step] {
            Step::Library { op, inputs, outputs, .. } => match (inputs.as_slice(), outputs.as_slice()) {
                ([lhs, rhs], [out]) => Some((op, [lhs, rhs, out])),
                _ => None,
            },
            Step::Kernel { .. } => None,
        }
    }

    /// Whether a step after one and before another writes any of these.
    fn changes(&self, buffers: impl IntoIterator<Item = BufferId>, after: usize, before: usize) -> bool {
        let mut written = buffers.into_iter().flat_map(|id| &self.writes[id.0 as usize]);
        written.any(|&step| after < step && step < before)
    }

    /// The step whose kernel makes something of a product's result that alone is needed.
    fn result_kernel(&mut self, number: usize) -> Option<usize> {
        let (op, [lhs, rhs, out]) = self.product(number)?;
        if !self.machine.takes_result_kernel(op, [lhs, rhs, out]) {
            return None;
        }
        let id = out.buffer;
        let mut later = self.uses[id.0 as usize].iter().copied().filter(|&step| step > number);
        let (step, more) = (later.next()?, later.next().is_some());
        let kernel = self.kernel(step)?;
        let over = self.writes[id.0 as usize].contains(&step);
        if !over && (more || self.is_output[id.0 as usize]) {
            return None;
        }
        if self.taken[step] || self.changes([lhs.buffer, rhs.buffer], number, step) {
            return None;
        }
        let Launch { kernel: code, extents, .. } = &kernel.launch;
        let mut view = None;
        for ((load, of_load), jumps) in code.loads.iter().zip(&kernel.launch.loads).zip(&kernel.launch.jumps)
        {
            if kernel.buffers[load.operand as usize] == id {
                let same = code.operands[load.operand as usize].dtype == out.dtype && jumps.is_empty();
                if !same || view.is_some_and(|view| view != of_load) {
                    return None;
                }
                view = Some(of_load);
            }
        }
        digits(view?, extents)?;
        let elements = kernel.launch.iterations();
        if elements != out.bytes() / out.dtype.size() {
            return None;
        }
        // Each result is written as a whole, by one store.
        let mut targets: Vec<BufferId> = Vec::new();
        for store in &code.stores {
            let target = kernel.buffers[store.operand as usize];
            let width = code.operands[store.operand as usize].dtype.size();
            if targets.contains(&target) || elements * width != self.plan.buffers[target.0 as usize].bytes {
                return None;
            }
            targets.push(target);
        }
        let inputs = 2 + kernel.reads().filter(|&read| read != id).count();
        if inputs + targets.len() > self.most {
            return None;
        }
        self.taken[step] = true;
        Some(step)
    }

    /// The step whose kernel makes operand `which` of a product that runs at `at`, for it alone, and is cheap.
    fn operand_kernel(&self, number: usize, at: usize, which: usize) -> Option<(usize, Taken)> {
        let (op, arguments) = self.product(number)?;
        let operand = arguments[which];
        let id = operand.buffer;
        if arguments[1 - which].buffer == id || self.is_output[id.0 as usize] {
            return None;
        }
        let step = self.writes[id.0 as usize].iter().copied().rfind(|&step| step < number)?;
        let others = self.uses[id.0 as usize].iter().any(|&user| user > step && user != number);
        let kernel = self.kernel(step)?;
        if self.taken[step] || others || self.changes(kernel.reads(), step, at) {
            return None;
        }
        let launch = &kernel.launch;
        let ([store], [stored]) = (launch.kernel.stores.as_slice(), launch.stores.as_slice()) else {
            return None;
        };
        if launch.kernel.operands[store.operand as usize].dtype != operand.dtype
            || launch.iterations() * operand.dtype.size() != operand.bytes()
            || launch.kernel.loads.is_empty()
        {
            return None;
        }
        let whole = launch.loads.iter().all(|view| is_whole(view, &launch.extents));
        if !whole || launch.jumps.iter().any(|jumps| !jumps.is_empty()) {
            return None;
        }
        if !is_element(&launch.kernel.body, store.value, operand.dtype) {
            return None;
        }
        let order = digits(stored, &launch.extents)?;
        let loops = DIVISION * order.len().saturating_sub(1);
        let cost = cost(&launch.kernel.body, store.value) + loops;
        if cost * self.machine.reads(op, arguments, which) > self.machine.limits().thresholds.taken_cost {
            return None;
        }
        Some((step, Taken { launch: launch.clone(), order, value: store.value }))
    }

    /// A product as a step with what it takes in, if it takes anything.
    fn fused(&mut self, number: usize, then: Option<usize>) -> Option<(Step, Fusion)> {
        let (op, arguments) = self.product(number)?;
        let at = then.unwrap_or(number);
        let mut operands = Operands::default();
        let result = then.and_then(|step| self.kernel(step));
        let outputs = result.as_ref().map_or(1, |kernel| kernel.launch.kernel.stores.len());
        let reads = result.iter().flat_map(|kernel| {
            let operands = &kernel.launch.kernel.operands;
            let loads = kernel.launch.kernel.loads.iter();
            loads.map(move |load| {
                (kernel.buffers[load.operand as usize], operands[load.operand as usize].dtype)
            })
        });
        for (id, dtype) in reads.filter(|(id, _)| *id != arguments[2].buffer) {
            self.input(&mut operands, id, dtype);
        }
        let mut kernels = [None, None];
        for which in 0..2 {
            let known = operands.clone();
            kernels[which] = self.operand_kernel(number, at, which);
            if let Some((step, taken)) = &kernels[which] {
                let kernel = self.kernel(*step)?;
                for load in &taken.launch.kernel.loads {
                    let dtype = taken.launch.kernel.operands[load.operand as usize].dtype;
                    self.input(&mut operands, kernel.buffers[load.operand as usize], dtype);
                }
                let others = usize::from(which == 0 || kernels[0].is_none());
                if operands.0.len() + others + outputs > self.most {
                    operands = known;
                    kernels[which] = None;
                }
            }
        }
        if then.is_none() && kernels.iter().all(Option::is_none) {
            return None;
        }
        let mut from = [Origin::Operand(0), Origin::Operand(0)];
        let mut steps = Vec::new();
        for (which, from) in from.iter_mut().enumerate() {
            *from = match kernels[which].take() {
                // Apart from what kernels read, though it may be the same: it may be read in another way.
                None => {
                    operands.0.push(arguments[which].clone());
                    Origin::Operand(operands.0.len() as u32 - 1)
                }
                Some((step, taken)) => {
                    steps.push(step);
                    Origin::Kernel(Box::new(operands.of_operand(&self.kernel(step)?, taken)?))
                }
            };
        }
        let inputs = operands.0.clone();
        let (results, then) = match result {
            None => (vec![arguments[2].clone()], None),
            Some(kernel) => {
                let (results, taken) = operands.of_result(&kernel, arguments[2])?;
                (results, Some(Box::new(taken)))
            }
        };
        let mut list: Vec<Operand> = Vec::with_capacity(inputs.len() + results.len());
        list.extend(inputs.iter().map(|input| Operand { dtype: input.dtype, written: false }));
        list.extend(results.iter().map(|output| Operand { dtype: output.dtype, written: true }));
        let bytes = results.iter().map(Argument::bytes).collect();
        let mut fusion =
            Fusion { arguments: arguments.map(Argument::clone), from, then, operands: list, results: bytes };
        fusion.name_operands();
        steps.into_iter().for_each(|step| self.taken[step] = true);
        let label = self.plan.steps[number].label().clone();
        Some((Step::Library { op: op.clone(), inputs, outputs: results, label }, fusion))
    }

    fn input(&self, operands: &mut Operands, id: BufferId, dtype: DType) {
        operands.add(id, dtype, self.plan.buffers[id.0 as usize].bytes);
    }
}

impl Fusion {
    /// All kernels have the operands of the product.
    fn name_operands(&mut self) {
        let all = &self.operands;
        for from in &mut self.from {
            if let Origin::Kernel(taken) = from {
                taken.launch.kernel.operands.clone_from(all);
            }
        }
        if let Some(taken) = &mut self.then {
            taken.launch.kernel.operands.clone_from(all);
        }
    }
}

/// The inputs of a step: buffers as elements of a dtype.
#[derive(Clone, Default)]
struct Operands(Vec<Argument>);

impl Operands {
    fn number(&self, id: BufferId, dtype: DType) -> Option<u32> {
        let found = self.0.iter().position(|argument| argument.buffer == id && argument.dtype == dtype);
        found.map(|number| number as u32)
    }

    fn add(&mut self, id: BufferId, dtype: DType, bytes: usize) {
        if self.number(id, dtype).is_none() {
            let sizes = [bytes / dtype.size()].as_slice().into();
            self.0.push(Argument { buffer: id, dtype, sizes });
        }
    }

    fn load(&self, kernel: &Kernel<'_>, load: &Load) -> Option<Load> {
        let dtype = kernel.launch.kernel.operands[load.operand as usize].dtype;
        Some(Load { operand: self.number(kernel.buffers[load.operand as usize], dtype)?, fill: load.fill })
    }

    /// An operand's kernel over these.
    fn of_operand(&self, kernel: &Kernel<'_>, mut taken: Taken) -> Option<Taken> {
        let loads = kernel.launch.kernel.loads.iter();
        taken.launch.kernel.loads = loads.map(|load| self.load(kernel, load)).collect::<Option<_>>()?;
        taken.launch.kernel.stores.clear();
        taken.launch.stores.clear();
        Some(taken)
    }

    /// The results of a result's kernel, and the kernel over these: loads of the product's result are accumulators.
    fn of_result(&self, kernel: &Kernel<'_>, out: &Argument) -> Option<(Vec<Argument>, Taken)> {
        let Launch { kernel: code, extents, .. } = &kernel.launch;
        let is_result = |load: &Load| kernel.buffers[load.operand as usize] == out.buffer;
        let view = code.loads.iter().zip(&kernel.launch.loads).find(|(load, _)| is_result(load))?.1;
        let order = digits(view, extents)?;
        let mut launch = kernel.launch.clone();
        let kept: Vec<bool> = code.loads.iter().map(|load| !is_result(load)).collect();
        let keep = |number: &usize| kept[*number];
        let numbers: Vec<usize> = (0..kept.len()).filter(keep).collect();
        let loads = numbers.iter().map(|&number| self.load(kernel, &code.loads[number]));
        launch.kernel.loads = loads.collect::<Option<_>>()?;
        launch.loads = numbers.iter().map(|&number| kernel.launch.loads[number].clone()).collect();
        launch.jumps =
            numbers.iter().map(|&number| -> Jumps { kernel.launch.jumps[number].clone() }).collect();
        let (body, map) = renumbered(&code.body, &kept, numbers.len() as u32);
        let moved = |reg: Reg| map[reg.0 as usize];
        let mut results = Vec::with_capacity(code.stores.len());
        for (number, store) in launch.kernel.stores.iter_mut().enumerate() {
            let (id, dtype) =
                (kernel.buffers[store.operand as usize], code.operands[store.operand as usize].dtype);
            let sizes = [kernel.launch.iterations()].as_slice().into();
            results.push(Argument { buffer: id, dtype, sizes });
            store.operand = (self.0.len() + number) as u32;
            store.stage = Stage::Epilogue;
            store.value = match store.value {
                Value::Real(reg) => Value::Real(moved(reg)),
                Value::Complex(re, im) => Value::Complex(moved(re), moved(im)),
            };
        }
        let ty = ScalarType::of(out.dtype.real()).ok()?;
        let accumulator = Accumulator { kind: AccumulatorKind::Sum, ty, arg: Reg(0) };
        launch.kernel.accumulators = vec![accumulator; out.dtype.parts()];
        launch.kernel.body = Body::default();
        launch.kernel.epilogue = body;
        Some((results, Taken { launch, order, value: Value::Real(Reg(0)) }))
    }
}
