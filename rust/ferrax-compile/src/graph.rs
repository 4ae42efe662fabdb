//! What the fuser knows about a flat program: who defines and uses each
//! variable, how each equation lowers, and which variables must be in memory.
//!
//! A *root* is a variable that a kernel computes as such; other fusable
//! variables are *virtual*: their code is repeated in each kernel that needs
//! them. Roots whose users are all in their own kernel are never stored.

use ferrax_ir::ops::ReduceKind;
use ferrax_ir::rules::Lowering;
use ferrax_ir::tensor::byte_size;
use ferrax_ir::{
    Atom, DType, Equation, Op, Program, Result, Sizes, Type, Var, View, internal_error, unsupported,
};

/// How an equation is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Scalar code.
    Elementwise,
    /// An index map.
    Movement,
    /// The same bytes in the same order.
    Alias,
    Reduce,
    /// Written to memory window by window.
    Pieces,
    Library,
}

/// Work above which a value with several users is stored rather than
/// recomputed: eight additions, or anything transcendental.
const RECOMPUTE_COST: u32 = 8;
/// Work above which a value is stored before it is broadcast.
const BROADCAST_COST: u32 = 3;
/// Equations under a movement op above which its operand is stored: two views
/// of one value double the code below them.
const VIEW_WEIGHT: u32 = 48;
/// Equations above which a value becomes a root, which bounds recursion.
const CHAIN_WEIGHT: u32 = 256;
/// How many times the memory of a value its operands must take for it to be
/// stored so that they need not be kept until it is used.
const HELD_RATIO: usize = 4;
/// Memory below which that is not worth a kernel: a first-level cache.
const HELD_BYTES: usize = 1 << 15;

pub struct Graph<'a> {
    pub program: &'a Program,
    pub sizes: Vec<Sizes>,
    pub dtypes: Vec<DType>,
    pub counts: Vec<usize>,
    /// The equation that defines a variable.
    pub definition: Vec<Option<usize>>,
    pub classes: Vec<Class>,
    pub root: Vec<bool>,
    /// Whose memory holds a variable: its own, or that of the leaf it is an
    /// alias of. `None` for virtual variables.
    pub base: Vec<Option<Var>>,
    /// Roots that share their kernel with no other root before them.
    pub solo: Vec<bool>,
}

impl<'a> Graph<'a> {
    pub fn new(program: &'a Program) -> Result<Graph<'a>> {
        let mut sizes = Vec::with_capacity(program.types.len());
        let mut dtypes = Vec::with_capacity(program.types.len());
        for ty in &program.types {
            match ty {
                Type::Array(array) => {
                    sizes.push(array.sizes().ok_or_else(|| {
                        unsupported!(
                            "'{}' has a value of type {array}; only constant dimensions compile",
                            program.name
                        )
                    })?);
                    dtypes.push(array.dtype);
                }
                other => {
                    return Err(unsupported!(
                        "'{}' has a value of type {other}, which the CPU cannot hold",
                        program.name
                    ));
                }
            }
        }
        let counts: Vec<usize> = sizes
            .iter()
            .zip(&dtypes)
            .map(|(sizes, &dtype)| Ok(byte_size(sizes, dtype)?.checked_div(dtype.size()).unwrap_or(0)))
            .collect::<Result<_>>()?;
        let mut definition = vec![None; program.types.len()];
        for (index, equation) in program.equations.iter().enumerate() {
            for var in &equation.outputs {
                definition[var.index()] = Some(index);
            }
        }
        let n = program.types.len();
        let mut graph = Graph {
            program,
            sizes,
            dtypes,
            counts,
            definition,
            classes: Vec::with_capacity(program.equations.len()),
            root: vec![false; n],
            base: vec![None; n],
            solo: vec![false; n],
        };
        for equation in &program.equations {
            let class = graph.classify(equation)?;
            graph.classes.push(class);
        }
        Ok(graph)
    }

    pub fn atom_sizes(&self, atom: &Atom) -> &[usize] {
        match atom {
            Atom::Var(var) => &self.sizes[var.index()],
            Atom::Literal(_) => &[],
        }
    }

    pub fn atom_dtype(&self, atom: &Atom) -> DType {
        match atom {
            Atom::Var(var) => self.dtypes[var.index()],
            Atom::Literal(literal) => literal.value.dtype(),
        }
    }

    pub fn atom_count(&self, atom: &Atom) -> usize {
        match atom {
            Atom::Var(var) => self.counts[var.index()],
            Atom::Literal(_) => 1,
        }
    }

    /// The number of elements of an equation's first operand.
    pub fn atom_count_of(&self, equation: &Equation) -> usize {
        equation.inputs.first().map_or(0, |atom| self.atom_count(atom))
    }

    pub fn equation_of(&self, var: Var) -> Option<(&'a Equation, Class)> {
        let index = self.definition[var.index()]?;
        Some((&self.program.equations[index], self.classes[index]))
    }

    fn classify(&self, equation: &Equation) -> Result<Class> {
        let rules = match equation.op.view() {
            View::Leaf(rules) => rules,
            View::Cond(_) | View::While(_) | View::Sweeps(_) | View::Scan(_) => return Ok(Class::Library),
            _ => return Err(internal_error!("{} reached the fuser", equation.op.name())),
        };
        let Some(output) = equation.outputs.first() else { return Ok(Class::Library) };
        // What has effects is one step, once: never repeated in kernels, never dropped.
        if matches!(equation.op, Op::Extension(_)) && !equation.op.effects().is_empty() {
            return Ok(Class::Library);
        }
        let output = output.index();
        let input_dtype = equation.inputs.first().map(|atom| self.atom_dtype(atom));
        let same_bytes = |condition: bool| if condition { Class::Alias } else { Class::Movement };
        let no_literals = equation.inputs.iter().all(|atom| atom.as_var().is_some());
        Ok(match &equation.op {
            Op::Copy(_) | Op::StopGradient(_) | Op::OptimizationBarrier(_) | Op::Name(_) if no_literals => {
                Class::Alias
            }
            Op::RandomWrap(_) | Op::RandomUnwrap(_) if no_literals => Class::Alias,
            Op::ConvertElementType(op) if no_literals && Some(op.new_dtype) == input_dtype => Class::Alias,
            Op::BitcastConvertType(op) if bitcast_in_memory(input_dtype, op.new_dtype) => {
                let whole = |dtype: DType| dtype.bits() == dtype.size() * 8;
                let dense = input_dtype.is_some_and(whole) && whole(op.new_dtype);
                if no_literals && dense { Class::Alias } else { Class::Library }
            }
            Op::Reshape(op) => same_bytes(no_literals && op.dimensions.is_none()),
            Op::Squeeze(_) => same_bytes(no_literals),
            Op::BroadcastInDim(op) => same_bytes(
                no_literals
                    && self.counts[output] == self.atom_count(&equation.inputs[0])
                    && op.broadcast_dimensions.is_sorted(),
            ),
            Op::Transpose(op) => {
                let moved: Vec<usize> = op
                    .permutation
                    .iter()
                    .copied()
                    .filter(|&axis| self.atom_sizes(&equation.inputs[0])[axis] != 1)
                    .collect();
                same_bytes(no_literals && moved.is_sorted())
            }
            Op::Concatenate(_) => Class::Pieces,
            Op::Pad(op) if op.padding_config.iter().any(|&(_, _, interior)| interior > 0) => Class::Pieces,
            Op::Reduce(op) => {
                let complex = input_dtype.is_some_and(|dtype| dtype.is_complex());
                let sizes = self.atom_sizes(&equation.inputs[0]);
                if op.axes.iter().all(|&axis| sizes[axis] == 1) {
                    same_bytes(no_literals)
                } else if self.atom_count(&equation.inputs[0]) == 0 {
                    Class::Movement
                } else if complex && op.kind != ReduceKind::Sum {
                    Class::Library
                } else {
                    Class::Reduce
                }
            }
            Op::ArgReduce(op) => {
                let sizes = self.atom_sizes(&equation.inputs[0]);
                if op.axes.iter().all(|&axis| sizes[axis] == 1) { Class::Movement } else { Class::Reduce }
            }
            op => match rules.lower() {
                Lowering::Elementwise => Class::Elementwise,
                Lowering::Library => Class::Library,
                Lowering::Movement if matches!(op, Op::Slice(_) | Op::Rev(_) | Op::Pad(_) | Op::Iota(_)) => {
                    Class::Movement
                }
                other => {
                    return Err(internal_error!(
                        "{} lowers to {other:?}, which the fuser does not know",
                        op.name()
                    ));
                }
            },
        })
    }

    fn bytes(&self, var: usize) -> usize {
        self.counts[var] * self.dtypes[var].size()
    }

    /// Whether a variable that is no root has no memory of its own.
    fn is_virtual(&self, var: usize) -> bool {
        self.definition[var].is_some_and(|index| {
            matches!(self.classes[index], Class::Elementwise | Class::Movement | Class::Alias)
        })
    }

    /// Whether an alias reads its operand's memory as another dtype.
    fn reinterprets(&self, equation: &Equation) -> bool {
        matches!(equation.op, Op::RandomWrap(_) | Op::RandomUnwrap(_))
            || matches!(&equation.op, Op::BitcastConvertType(op)
                if bitcast_in_memory(equation.inputs.first().map(|atom| self.atom_dtype(atom)), op.new_dtype))
    }

    /// Fills `base`.
    fn find_bases(&mut self) {
        for (index, var) in (0..self.program.types.len() as u32).map(Var).enumerate() {
            self.base[index] = self.definition[index].is_none().then_some(var);
        }
        for (equation, class) in self.program.equations.iter().zip(&self.classes) {
            for &var in &equation.outputs {
                let own = match class {
                    Class::Library | Class::Pieces | Class::Reduce => Some(var),
                    Class::Elementwise | Class::Movement => self.root[var.index()].then_some(var),
                    Class::Alias => equation.inputs[0]
                        .as_var()
                        .and_then(|input| self.base[input.index()])
                        .or(self.root[var.index()].then_some(var)),
                };
                self.base[var.index()] = own;
            }
        }
    }

    /// Per variable, the last equation that reads it, if that ends its life.
    fn last_uses(&self) -> Vec<Option<usize>> {
        let mut last = vec![None; self.program.types.len()];
        for (index, equation) in self.program.equations.iter().enumerate() {
            for var in equation.inputs.iter().filter_map(Atom::as_var) {
                last[var.index()] = Some(index);
            }
        }
        // Inputs and constants live as long as the program, outputs longer.
        for var in self.program.outputs.iter().filter_map(Atom::as_var) {
            last[var.index()] = None;
        }
        for (var, last) in last.iter_mut().enumerate() {
            if self.definition[var].is_none() {
                *last = None;
            }
        }
        last
    }

    /// Decides which variables are roots; those that are already stay so.
    ///
    /// Virtual code reads its operands where its value is used: what would have
    /// died at its own place lives until then. A sum of the results of many
    /// library calls would keep them all, so a value is stored if steps follow
    /// before it is used, and what its code would keep is [`HELD_RATIO`] times
    /// its size.
    pub fn choose_roots(&mut self) {
        let n = self.program.types.len();
        for var in self.program.outputs.iter().filter_map(Atom::as_var) {
            self.root[var.index()] = true;
        }
        let mut uses = vec![0u32; n];
        for equation in &self.program.equations {
            for var in equation.inputs.iter().filter_map(Atom::as_var) {
                uses[var.index()] += 1;
            }
        }
        // Work and number of equations in the virtual code of each variable.
        let mut cost = vec![0u32; n];
        let mut weight = vec![0u32; n];
        // Bytes that the virtual code of each variable keeps from dying before it.
        let mut held = vec![0usize; n];
        let last = self.last_uses();
        // Library steps before each equation.
        let steps: Vec<u32> = self
            .classes
            .iter()
            .scan(0, |count, class| {
                Some(std::mem::replace(count, *count + u32::from(*class == Class::Library)))
            })
            .collect();
        for (index, equation) in self.program.equations.iter().enumerate() {
            let class = self.classes[index];
            if class == Class::Library || self.reinterprets(equation) {
                for var in equation.inputs.iter().filter_map(Atom::as_var) {
                    self.root[var.index()] = true;
                }
            }
            let [output] = equation.outputs.as_slice() else { continue };
            let output = output.index();
            if class == Class::Movement {
                for var in equation.inputs.iter().filter_map(Atom::as_var) {
                    let v = var.index();
                    let repeats =
                        matches!(equation.op, Op::BroadcastInDim(_)) && self.counts[output] > self.counts[v];
                    let repeated = repeats && self.counts[v] > 1 && cost[v] > BROADCAST_COST;
                    let shared = uses[v] > 1 && cost[v] > RECOMPUTE_COST;
                    if repeated || shared || weight[v] > VIEW_WEIGHT {
                        self.root[v] = true;
                    }
                }
            }
            if matches!(class, Class::Elementwise | Class::Movement | Class::Alias) {
                let inputs = equation.inputs.iter().filter_map(Atom::as_var).map(Var::index);
                let (mut total_cost, mut total_weight) = (op_cost(&equation.op, self.dtypes[output]), 1);
                for input in inputs.filter(|&input| !self.root[input]) {
                    total_cost = cost[input].saturating_add(total_cost);
                    total_weight = weight[input].saturating_add(total_weight);
                }
                let mut kept = 0usize;
                for (position, input) in equation.inputs.iter().enumerate() {
                    let Some(input) = input.as_var().map(Var::index) else { continue };
                    let again = equation.inputs[..position].contains(&equation.inputs[position]);
                    if last[input] == Some(index) && !again {
                        let stored = self.root[input] || !self.is_virtual(input);
                        kept = kept.saturating_add(if stored { self.bytes(input) } else { held[input] });
                    }
                }
                let own = self.bytes(output);
                let waits = last[output].is_some_and(|user| steps[user] > steps[index]);
                let keeps = waits && kept >= own.saturating_mul(HELD_RATIO) && kept - own >= HELD_BYTES;
                if (class == Class::Elementwise
                    && (keeps || (uses[output] > 1 && total_cost > RECOMPUTE_COST)))
                    || total_weight > CHAIN_WEIGHT
                {
                    self.root[output] = true;
                }
                if self.root[output] {
                    (total_cost, total_weight, kept) = (0, 0, 0);
                }
                (cost[output], weight[output], held[output]) = (total_cost, total_weight, kept);
            }
        }
        self.find_bases();
    }
}

/// Whether registers cannot hold both sides of a bitcast: other widths, or
/// formats that exist in memory alone.
fn bitcast_in_memory(from: Option<DType>, to: DType) -> bool {
    from.is_none_or(|from| {
        let stored = |dtype: DType| dtype.is_narrow() || dtype.is_key();
        from.bits() != to.bits() || (from != to && (stored(from) || stored(to)))
    })
}

/// The work of one element, in additions.
fn op_cost(op: &Op, dtype: DType) -> u32 {
    match op {
        Op::Unary(op) => op.row().cost,
        Op::Binary(op) => op.row().cost_of(dtype),
        Op::IntegerPow(op) => 2 * op.y.unsigned_abs().max(1).ilog2() + if op.y < 0 { 4 } else { 0 },
        Op::Iota(_) => 2,
        Op::Extension(_) => 20,
        Op::BroadcastInDim(_)
        | Op::Reshape(_)
        | Op::Transpose(_)
        | Op::Squeeze(_)
        | Op::Slice(_)
        | Op::Rev(_)
        | Op::Copy(_)
        | Op::OptimizationBarrier(_)
        | Op::Name(_)
        | Op::StopGradient(_) => 0,
        _ => 1,
    }
}
