//! A kernel while it is put together.
//!
//! Its bodies read *sources*, `Input { operand: n }` being source n: loads and
//! accumulators in the order in which they were first asked for. Only at the end
//! is known which of them, and which instructions, the stores need; the rest is
//! dropped then, and sources become the numbers that [`Kernel`] speaks of.

use ferrax_ir::scalar::{Body, Reg, ScalarOp, ScalarType, Value};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::index::{PerLoop, View};
use crate::kernel::{Accumulator, AxisKind, Jumps, Kernel, Launch, Load, Operand, Stage, Store, registers};

/// What an `Input` of a draft reads.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all are loads; a box each would cost more")]
pub enum Source {
    Load(Load, View, Jumps),
    /// The complete value of an accumulator; in the epilogue alone.
    Accumulator(Accumulator),
}

/// See the head of this file.
#[derive(Default)]
pub struct Draft {
    pub axes: PerLoop<AxisKind>,
    pub extents: PerLoop<usize>,
    pub operands: Vec<Operand>,
    pub sources: Vec<Source>,
    /// The source of each accumulator.
    accumulators: FxHashMap<Accumulator, u32>,
    pub body: Body,
    pub epilogue: Body,
    pub stores: Vec<(Store, View)>,
    /// Types and bits of the parameters.
    params: Vec<(ScalarType, u64)>,
}

impl Draft {
    /// Loops without a body.
    pub fn new(axes: PerLoop<AxisKind>, extents: PerLoop<usize>) -> Draft {
        Draft { axes, extents, ..Draft::default() }
    }

    pub fn body_of(&mut self, stage: Stage) -> &mut Body {
        match stage {
            Stage::Main => &mut self.body,
            Stage::Epilogue => &mut self.epilogue,
        }
    }

    /// A number of this launch alone, in a body of this stage; of the low bits as many as the type has.
    pub fn param(&mut self, stage: Stage, ty: ScalarType, value: i64) -> Reg {
        let param = (ty, value.cast_unsigned() & (u64::MAX >> (64 - 8 * ty.size())));
        let index = self.params.iter().position(|known| *known == param).unwrap_or_else(|| {
            self.params.push(param);
            self.params.len() - 1
        });
        self.body_of(stage).push(ScalarOp::Param { index: index as u32 }, param.0, &[])
    }

    /// A new source.
    pub fn source(&mut self, source: Source) -> u32 {
        self.sources.push(source);
        self.sources.len() as u32 - 1
    }

    /// The value of part `part` of a source, at these indices, in a body of this stage.
    pub fn input(&mut self, stage: Stage, source: u32, part: u8, ty: ScalarType, indices: &[Reg]) -> Reg {
        self.body_of(stage).push(ScalarOp::Input { operand: source, part }, ty, indices)
    }

    /// The register of an accumulator's value in the epilogue; one accumulator serves all that ask for it.
    pub fn accumulate(&mut self, accumulator: Accumulator) -> Reg {
        let sources = &mut self.sources;
        let source = *self.accumulators.entry(accumulator).or_insert_with(|| {
            sources.push(Source::Accumulator(accumulator));
            sources.len() as u32 - 1
        });
        self.input(Stage::Epilogue, source, 0, accumulator.result(), &[])
    }

    /// The kernel, if it stores anything. Linear in the sizes of its bodies.
    pub fn finish(self) -> Option<Launch> {
        if self.stores.is_empty() {
            return None;
        }
        let stored = |stage: Stage| {
            self.stores
                .iter()
                .filter(move |(store, _)| store.stage == stage)
                .flat_map(|(store, _)| registers(store.value))
        };
        let epilogue_live = live(&self.epilogue, stored(Stage::Epilogue));
        let mut used = vec![false; self.sources.len()];
        mark_inputs(&self.epilogue, &epilogue_live, &mut used);
        let accumulated = self.sources.iter().zip(&used).filter(|(_, used)| **used);
        let accumulated = accumulated.filter_map(|(source, _)| match source {
            Source::Accumulator(accumulator) => Some(accumulator.arg),
            Source::Load(..) => None,
        });
        let main_live = live(&self.body, stored(Stage::Main).chain(accumulated));
        mark_inputs(&self.body, &main_live, &mut used);

        // Loads are numbered in the order in which they are read, accumulators after them.
        let mut launch = Launch { extents: self.extents, ..Launch::default() };
        let mut number = vec![0; self.sources.len()];
        // Those that are read, in that order.
        let mut params: Vec<u32> = Vec::new();
        let mut known = vec![false; self.sources.len()];
        for (body, live) in [(&self.body, &main_live), (&self.epilogue, &epilogue_live)] {
            for source in inputs(body, live) {
                if let Source::Load(load, view, jumps) = &self.sources[source]
                    && !std::mem::replace(&mut known[source], true)
                {
                    number[source] = launch.loads.len() as u32;
                    launch.kernel.loads.push(*load);
                    launch.loads.push(view.clone());
                    launch.jumps.push(jumps.clone());
                }
            }
        }
        let loads = launch.loads.len() as u32;
        for (source, _) in used.iter().enumerate().filter(|(_, used)| **used) {
            if let Source::Accumulator(accumulator) = &self.sources[source] {
                number[source] = loads + launch.kernel.accumulators.len() as u32;
                launch.kernel.accumulators.push(*accumulator);
            }
        }
        let mut rebuild = |body: &Body, live: &[bool]| rebuild(body, live, &number, &mut params);
        let (body, main) = rebuild(&self.body, &main_live);
        let (epilogue, after) = rebuild(&self.epilogue, &epilogue_live);
        for (ty, bits) in params.into_iter().map(|index| self.params[index as usize]) {
            launch.kernel.params.push(ty);
            launch.params.push(bits);
        }
        for accumulator in &mut launch.kernel.accumulators {
            accumulator.arg = main[accumulator.arg.0 as usize];
        }
        for (mut store, view) in self.stores {
            let map = if store.stage == Stage::Main { &main } else { &after };
            store.value = match store.value {
                Value::Real(reg) => Value::Real(map[reg.0 as usize]),
                Value::Complex(re, im) => Value::Complex(map[re.0 as usize], map[im.0 as usize]),
            };
            launch.kernel.stores.push(store);
            launch.stores.push(view);
        }
        launch.kernel = Kernel { axes: self.axes, operands: self.operands, body, epilogue, ..launch.kernel };
        Some(launch)
    }
}

/// Which instructions the roots need.
fn live(body: &Body, roots: impl Iterator<Item = Reg>) -> Vec<bool> {
    let mut live = vec![false; body.instructions().len()];
    for root in roots {
        live[root.0 as usize] = true;
    }
    for (index, instruction) in body.instructions().iter().enumerate().rev() {
        if live[index] {
            for arg in &instruction.args {
                live[arg.0 as usize] = true;
            }
        }
    }
    live
}

/// The sources that live instructions read, in order.
fn inputs<'a>(body: &'a Body, live: &'a [bool]) -> impl Iterator<Item = usize> + 'a {
    let live = body.instructions().iter().zip(live).filter(|(_, live)| **live);
    live.filter_map(|(instruction, _)| match instruction.op {
        ScalarOp::Input { operand, .. } => Some(operand as usize),
        _ => None,
    })
}

fn mark_inputs(body: &Body, live: &[bool], used: &mut [bool]) {
    for source in inputs(body, live) {
        used[source] = true;
    }
}

/// The live instructions, with sources and parameters by their numbers; and the new register of each old one.
fn rebuild(body: &Body, live: &[bool], number: &[u32], params: &mut Vec<u32>) -> (Body, Vec<Reg>) {
    let mut result = Body::default();
    let mut map = vec![Reg(0); live.len()];
    for (index, instruction) in body.instructions().iter().enumerate().filter(|(index, _)| live[*index]) {
        let args: SmallVec<[Reg; 3]> = instruction.args.iter().map(|arg| map[arg.0 as usize]).collect();
        let op = match instruction.op {
            ScalarOp::Input { operand, part } => ScalarOp::Input { operand: number[operand as usize], part },
            ScalarOp::Param { index } => {
                let known = params.iter().position(|known| *known == index).unwrap_or_else(|| {
                    params.push(index);
                    params.len() - 1
                });
                ScalarOp::Param { index: known as u32 }
            }
            op => op,
        };
        map[index] = result.push(op, instruction.ty, &args);
    }
    (result, map)
}
