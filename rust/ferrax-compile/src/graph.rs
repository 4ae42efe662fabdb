//! What the fuser knows about a flat program: who defines and uses each
//! variable, how each equation lowers, and which variables must be in memory.
//!
//! A *root* is a variable that a kernel computes as such; other fusable
//! variables are *virtual*: their code is repeated in each kernel that needs
//! them. Roots whose users are all in their own kernel are never stored.

use ferrax_ir::lowering::{Extents, IndexMap, Lowering, Reduction, Start};
use ferrax_ir::tensor::byte_size;
use ferrax_ir::{
    Atom, DType, Equation, Op, Program, Result, Sizes, Type, Var, View, internal_error, unsupported,
};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use crate::cost_model;
use crate::tuning::Target;
use crate::updates::updates;

/// How an equation is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Scalar code.
    Elementwise,
    /// An index map. What is joined is one where all readers read it at one place along that axis.
    Movement,
    /// The same bytes in the same order.
    Alias,
    Reduce,
    /// Written to memory window by window.
    Pieces,
    Library,
}

/// What an equation's row says of it.
struct Lowered {
    class: Class,
    map: Option<IndexMap>,
    reduction: Option<Reduction>,
}

impl Lowered {
    fn library() -> Lowered {
        Lowered { class: Class::Library, map: None, reduction: None }
    }
}

pub struct Graph<'a> {
    pub program: &'a Program,
    pub target: Target,
    pub sizes: Vec<Sizes>,
    pub dtypes: Vec<DType>,
    pub counts: Vec<usize>,
    /// The equation that defines a variable.
    pub definition: Vec<Option<usize>>,
    pub classes: Vec<Class>,
    /// Of each equation, where its elements come from, if it moves elements only.
    pub maps: Vec<Option<IndexMap>>,
    /// Of each equation of class `Reduce`.
    pub reductions: Vec<Option<Reduction>>,
    pub root: Vec<bool>,
    /// Whose memory holds a variable: its own, or that of the leaf it is an
    /// alias of. `None` for virtual variables.
    pub base: Vec<Option<Var>>,
    /// Roots that share their kernel with no other root before them.
    pub solo: Vec<bool>,
}

impl<'a> Graph<'a> {
    pub fn new(program: &'a Program, target: &Target) -> Result<Graph<'a>> {
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
            target: *target,
            sizes,
            dtypes,
            counts,
            definition,
            classes: Vec::with_capacity(program.equations.len()),
            maps: Vec::with_capacity(program.equations.len()),
            reductions: Vec::with_capacity(program.equations.len()),
            root: vec![false; n],
            base: vec![None; n],
            solo: vec![false; n],
        };
        for equation in &program.equations {
            let Lowered { class, map, reduction } = graph.classify(equation)?;
            graph.classes.push(class);
            graph.maps.push(map);
            graph.reductions.push(reduction);
        }
        graph.choose_picks();
        Ok(graph)
    }

    /// Decides which ops that pick elements at computed places are code of kernels, rather than library calls: those
    /// of single elements, whose places are computed with them, and others that are only computed with and
    /// [cheap](Graph::picks_cheaply). The library copies windows.
    fn choose_picks(&mut self) {
        // Of each variable: how many equations read it, and whether all of them compute with it.
        let mut readers: Vec<(usize, bool)> = vec![(0, true); self.program.types.len()];
        // Whether all readers pick at one place along this axis of it.
        let mut apart: Vec<Option<Option<usize>>> = vec![None; self.program.types.len()];
        for var in self.program.outputs.iter().filter_map(Atom::as_var) {
            readers[var.index()].1 = false;
            apart[var.index()] = Some(None);
        }
        // What later equations update in place: a read that came after that would keep it from being so.
        let first = self.first_names();
        let mut updated = vec![false; self.program.types.len()];
        // From the last one on, so that the readers of a result are known.
        for (index, equation) in self.program.equations.iter().enumerate().rev() {
            let output = equation.outputs.first().map(|var| var.index());
            let computed = |var: usize| readers[var].0 > 0 && readers[var].1;
            let picks = matches!(self.maps[index], Some(IndexMap::Picked(_)));
            let operand = equation.inputs.first().and_then(Atom::as_var).map(|var| first[var.index()]);
            let kept = operand.is_some_and(|operand| updated[operand]);
            for (operand, _) in updates(&equation.op, &self.target) {
                if let Some(var) = equation.inputs[operand].as_var() {
                    updated[first[var.index()]] = true;
                }
            }
            let computed_with = output.is_some_and(|output| computed(output) && self.picks_cheaply(index));
            if picks && (kept || !computed_with) {
                match output.filter(|_| self.picks_apart(index)) {
                    Some(output) => self.root[output] = true,
                    None => {
                        self.classes[index] = Class::Library;
                        self.maps[index] = None;
                    }
                }
            }
            if let (Some(IndexMap::Joined { axis }), Some(output)) = (&self.maps[index], output)
                && apart[output] == Some(Some(*axis))
            {
                self.classes[index] = Class::Movement;
            }
            let class = self.classes[index];
            let alone = output.is_some_and(|var| computed(var) && readers[var].0 == 1);
            for (position, var) in equation.inputs.iter().enumerate() {
                let Some(var) = var.as_var().map(Var::index) else { continue };
                let computes = match class {
                    Class::Elementwise | Class::Reduce | Class::Pieces => true,
                    // What is picked from must be in memory.
                    Class::Movement if picks => position > 0,
                    Class::Movement | Class::Alias => {
                        alone && output.is_some_and(|output| self.counts[output] <= self.counts[var])
                    }
                    Class::Library => false,
                };
                let again = equation.inputs[..position].contains(&equation.inputs[position]);
                readers[var].0 += usize::from(!again);
                readers[var].1 &= computes;
                let axis = self.picks_apart_along(index, position);
                apart[var] = Some(axis.filter(|_| apart[var].is_none_or(|before| before == axis)));
            }
        }
    }

    /// The axis of an operand along which a kernel that picks reads at a fixed index: where it has the parts of a place.
    fn picks_apart_along(&self, index: usize, position: usize) -> Option<usize> {
        let (Class::Movement, Some(IndexMap::Picked(picked))) = (self.classes[index], &self.maps[index])
        else {
            return None;
        };
        let atom = self.program.equations[index].inputs[position];
        let last = self.atom_sizes(&atom).len().checked_sub(1)?;
        let mut inputs = self.program.equations[index].inputs.iter().enumerate();
        let only = inputs.all(|(other, input)| other == position || *input != atom);
        let fixed = |start: &Start| start.operand != position || start.at[last].axis.is_none();
        (position > 0 && only && picked.starts.iter().all(fixed)).then_some(last)
    }

    /// Whether a kernel that uses what an equation picks computes no index more often than that takes: elements have
    /// places of their own, or many share one.
    fn picks_cheaply(&self, index: usize) -> bool {
        let Some(IndexMap::Picked(picked)) = &self.maps[index] else { return false };
        let [output] = self.program.equations[index].outputs.as_slice() else { return false };
        let sizes = &self.sizes[output.index()];
        let one = picked.starts.iter().flat_map(|start| &start.at).filter_map(|follow| follow.axis);
        let line = picked.within.last().and_then(|follow| follow.axis).filter(|axis| axis + 1 == sizes.len());
        self.picks_apart(index)
            || one.map(|axis| sizes[axis]).all(|size| size == 1)
            || line.is_some_and(|axis| sizes[axis] >= self.target.fusion.picked_line)
    }

    /// Whether an equation picks elements each at a place of its own, rather than windows of them.
    fn picks_apart(&self, index: usize) -> bool {
        let Some(IndexMap::Picked(picked)) = &self.maps[index] else { return false };
        let [output] = self.program.equations[index].outputs.as_slice() else { return false };
        let sizes = &self.sizes[output.index()];
        let placed = |axis: usize| {
            picked.starts.iter().any(|start| start.at.iter().any(|follow| follow.axis == Some(axis)))
        };
        let axes = picked.within.iter().filter_map(|follow| follow.axis);
        axes.filter(|&axis| sizes[axis] > 1).all(placed)
    }

    /// Of each variable the first one with the same bytes in the same order.
    fn first_names(&self) -> Vec<usize> {
        let mut first: Vec<usize> = (0..self.program.types.len()).collect();
        for (equation, class) in self.program.equations.iter().zip(&self.classes) {
            if let (Class::Alias, Some(from), [to]) =
                (class, equation.inputs.first().and_then(Atom::as_var), equation.outputs.as_slice())
            {
                first[to.index()] = first[from.index()];
            }
        }
        first
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

    pub fn equation_of(&self, var: Var) -> Option<(&'a Equation, Class)> {
        let index = self.definition[var.index()]?;
        Some((&self.program.equations[index], self.classes[index]))
    }

    /// Where the elements of a variable come from, if its equation moves elements only.
    pub fn map_of(&self, var: Var) -> Option<&IndexMap> {
        self.maps[self.definition[var.index()]?].as_ref()
    }

    /// The reduction that gives a variable.
    pub fn reduction_of(&self, var: Var) -> Result<&Reduction> {
        let reduction = self.definition[var.index()].and_then(|index| self.reductions[index].as_ref());
        reduction.ok_or_else(|| internal_error!("variable {} is not made by a reduction", var.0))
    }

    /// How an equation is computed, by its index map or its reduction where it has one.
    fn classify(&self, equation: &Equation) -> Result<Lowered> {
        let rules = match equation.op.view() {
            View::Leaf(rules) => rules,
            View::Cond(_) | View::While(_) | View::Sweeps(_) | View::Scan(_) => return Ok(Lowered::library()),
            _ => return Err(internal_error!("{} reached the fuser", equation.op.name())),
        };
        let Some(output) = equation.outputs.first() else { return Ok(Lowered::library()) };
        // What has effects is one step, once: never repeated in kernels, never dropped.
        if matches!(equation.op, Op::Extension(_)) && !equation.op.effects().is_empty() {
            return Ok(Lowered::library());
        }
        let inputs: SmallVec<[Extents<'_>; 4]> = equation
            .inputs
            .iter()
            .map(|atom| Extents { dtype: self.atom_dtype(atom), sizes: self.atom_sizes(atom) })
            .collect();
        let result = Extents { dtype: self.dtypes[output.index()], sizes: &self.sizes[output.index()] };
        // Literals have no memory that another value could have, too.
        let in_memory = equation.inputs.iter().all(|atom| atom.as_var().is_some());
        if let Some(map) = rules.index_map(&inputs, result)? {
            let dense = |dtype: DType| dtype.bits() == dtype.size() * 8;
            let class = match &map {
                IndexMap::Bytes if in_memory && dense(inputs[0].dtype) && dense(result.dtype) => Class::Alias,
                IndexMap::Bytes => Class::Library,
                IndexMap::Picked(_) if equation.inputs[0].as_var().is_none() => return Ok(Lowered::library()),
                IndexMap::InOrder | IndexMap::Along(_)
                    if in_memory && map.is_in_order(inputs[0].sizes, result.sizes) =>
                {
                    Class::Alias
                }
                IndexMap::Joined { .. } => Class::Pieces,
                IndexMap::Padded(kept) if kept.iter().any(|kept| kept.step > 1) => Class::Pieces,
                _ => Class::Movement,
            };
            return Ok(Lowered { class, map: Some(map), reduction: None });
        }
        if rules.lower() == Lowering::Reduction {
            let reduction = rules.reduction(inputs[0])?;
            let class = if reduction.is_some() { Class::Reduce } else { Class::Library };
            return Ok(Lowered { class, map: None, reduction });
        }
        match rules.lower() {
            Lowering::Elementwise => Ok(Lowered { class: Class::Elementwise, map: None, reduction: None }),
            Lowering::Library => Ok(Lowered::library()),
            other => Err(internal_error!(
                "{} lowers to {other:?}, which it does not say more of",
                equation.op.name()
            )),
        }
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

    /// Per variable, whether an equation needs it stored: all operands of library calls, what elements are picked of.
    fn needed_stored(&self) -> Vec<bool> {
        let mut needed = vec![false; self.program.types.len()];
        for (index, equation) in self.program.equations.iter().enumerate() {
            let count = match &self.maps[index] {
                _ if self.classes[index] == Class::Library => equation.inputs.len(),
                Some(IndexMap::Bytes) => equation.inputs.len(),
                Some(IndexMap::Picked(_)) => 1,
                _ => 0,
            };
            for var in equation.inputs.iter().take(count).filter_map(Atom::as_var) {
                needed[var.index()] = true;
            }
        }
        needed
    }

    /// How many variables the virtual code of an equation reads that are stored, or will be.
    fn stored_below(&self, equation: &Equation, arrays: &[bool]) -> usize {
        let inputs =
            |equation: &Equation| equation.inputs.iter().filter_map(Atom::as_var).collect::<Vec<Var>>();
        let (mut stack, mut seen, mut stored) = (inputs(equation), FxHashSet::default(), 0);
        while let Some(var) = stack.pop() {
            if !seen.insert(var) {
                continue;
            }
            match self.equation_of(var) {
                Some((equation, _))
                    if !self.root[var.index()] && self.is_virtual(var.index()) && !arrays[var.index()] =>
                {
                    stack.extend(inputs(equation));
                }
                _ => stored += 1,
            }
        }
        stored
    }

    /// Decides which variables are roots; those that are already stay so.
    ///
    /// Virtual code reads its operands where its value is used: what would have
    /// died at its own place lives until then. A sum of the results of many
    /// library calls would keep them all, so a value is stored if steps follow
    /// before it is used, and what its code would keep is [`Fusion::held_ratio`](crate::tuning::Fusion) times
    /// its size.
    pub fn choose_roots(&mut self) {
        let (n, fusion) = (self.program.types.len(), self.target.fusion);
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
        // At least as many arrays as the virtual code of each variable reads. One that reads none (numbers, counts)
        // is an array itself if it is needed stored by an equation after its readers, or may be since it is work.
        let mut reads = vec![1usize; n];
        let mut arrays = self.needed_stored();
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
            if class == Class::Library || self.maps[index] == Some(IndexMap::Bytes) {
                for var in equation.inputs.iter().filter_map(Atom::as_var) {
                    self.root[var.index()] = true;
                }
            }
            let [output] = equation.outputs.as_slice() else { continue };
            let output = output.index();
            let picks = matches!(self.maps[index], Some(IndexMap::Picked(_)));
            if class == Class::Movement {
                if let (true, Some(var)) = (picks, equation.inputs.first().and_then(Atom::as_var)) {
                    self.root[var.index()] = true;
                }
                for var in equation.inputs.iter().filter_map(Atom::as_var) {
                    let v = var.index();
                    let repeats = (picks || matches!(self.maps[index], Some(IndexMap::Along(_))))
                        && self.counts[output] > self.counts[v];
                    let repeated = repeats && self.counts[v] > 1 && cost[v] > fusion.broadcast;
                    let shared = uses[v] > 1 && cost[v] > fusion.recompute;
                    if repeated || shared || weight[v] > cost_model::VIEW_WEIGHT {
                        self.root[v] = true;
                    }
                }
            }
            if matches!(class, Class::Elementwise | Class::Movement | Class::Alias) {
                let inputs = equation.inputs.iter().filter_map(Atom::as_var).map(Var::index);
                let (mut total_cost, mut total_weight) =
                    (cost_model::of_element(equation, self.dtypes[output]), 1);
                for input in inputs.filter(|&input| !self.root[input]) {
                    total_cost = cost[input].saturating_add(total_cost);
                    total_weight = weight[input].saturating_add(total_weight);
                }
                let operands = || equation.inputs.iter().filter_map(Atom::as_var).map(Var::index);
                reads[output] = operands().map(|input| reads[input]).fold(0, usize::saturating_add);
                if reads[output] >= self.target.operands {
                    reads[output] = self.stored_below(equation, &arrays);
                }
                if reads[output] == 0 && (arrays[output] || total_cost > 0) {
                    (reads[output], arrays[output]) = (1, true);
                }
                if reads[output] >= self.target.operands {
                    operands().for_each(|input| self.root[input] |= reads[input] > 1);
                    operands().for_each(|input| reads[input] = 1);
                    reads[output] = operands().count();
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
                let keeps = waits
                    && kept >= own.saturating_mul(fusion.held_ratio)
                    && kept - own >= self.target.near_bytes;
                // No register has these formats: what writes an element to memory rounds it.
                let rounded_in_memory = class == Class::Elementwise && self.dtypes[output].is_storage_only();
                if rounded_in_memory
                    || ((class == Class::Elementwise || picks)
                        && (keeps || (uses[output] > 1 && total_cost > fusion.recompute)))
                    || total_weight > cost_model::CHAIN_WEIGHT
                {
                    self.root[output] = true;
                }
                if self.root[output] {
                    (total_cost, total_weight, kept) = (0, 0, 0);
                    reads[output] = 1;
                }
                (cost[output], weight[output], held[output]) = (total_cost, total_weight, kept);
            }
        }
        // What is joined has an index map only where it is read at one place along the axis.
        for (index, equation) in self.program.equations.iter().enumerate() {
            let joined = matches!(self.maps[index], Some(IndexMap::Joined { .. }));
            if joined && equation.outputs.iter().any(|var| self.root[var.index()]) {
                self.classes[index] = Class::Pieces;
            }
        }
        self.find_bases();
    }
}
