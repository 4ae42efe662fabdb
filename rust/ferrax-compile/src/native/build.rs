//! Writes native programs: equal computations are shared, what does not change in a loop goes before it, and constants are
//! computed.
//!
//! Lists are nested as loops and choices are. An instruction goes to the outermost list whose values it needs, but not out
//! of a choice, since what is not chosen should cost nothing.

use ferrax_ir::scalar::reference::{Inputs, evaluate};
use ferrax_ir::scalar::{Body, Reg, ScalarOp, ScalarType, Value};
use ferrax_ir::{Result, internal_error, math};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::{Address, Code, GROUP, Id, Lane, Native};
use crate::chain::{Chain, is_long};

/// What a call takes, as a number of instructions: eight nanoseconds, its operands through memory.
const CALL: usize = 23;

type Key = (ScalarOp, ScalarType, SmallVec<[Id; 3]>);

#[derive(Default)]
struct List {
    code: Vec<Code>,
    known: FxHashMap<Key, Id>,
    loads: FxHashMap<(Address, ScalarType), Id>,
    /// Whether it is a part of a choice.
    chosen: bool,
}

/// See the head of this file.
pub(super) struct Builder {
    types: Vec<ScalarType>,
    /// The list that each value is of, counted from the outermost.
    levels: Vec<usize>,
    constants: FxHashMap<(ScalarType, u64), Id>,
    of_constants: FxHashMap<Id, u64>,
    constant_code: Vec<Code>,
    lists: Vec<List>,
    written: usize,
    steps: usize,
    chains: Vec<Chain>,
    of_chains: FxHashMap<Chain, u32>,
    /// Whether what is written now goes to the outermost list.
    pub outermost: bool,
}

impl Builder {
    pub fn new() -> Builder {
        Builder {
            types: Vec::new(),
            levels: Vec::new(),
            constants: FxHashMap::default(),
            of_constants: FxHashMap::default(),
            constant_code: Vec::new(),
            lists: vec![List::default()],
            written: 0,
            steps: 0,
            chains: Vec::new(),
            of_chains: FxHashMap::default(),
            outermost: false,
        }
    }

    /// Instructions so far.
    pub fn written(&self) -> usize {
        self.written
    }

    /// What they take, as a number of instructions: those of chains are repeated for each group of lanes.
    pub fn steps(&self) -> usize {
        self.steps
    }

    pub fn type_of(&self, id: Id) -> ScalarType {
        self.types[id.0 as usize]
    }

    fn here(&self) -> usize {
        if self.outermost { 0 } else { self.lists.len() - 1 }
    }

    fn value(&mut self, ty: ScalarType, level: usize) -> Id {
        self.types.push(ty);
        self.levels.push(level);
        Id(self.types.len() as u32 - 1)
    }

    fn write(&mut self, level: usize, code: Code) {
        self.written += 1;
        // Functions that are not written out are calls of their block functions, for one element.
        let calls = matches!(code, Code::Compute { op: ScalarOp::Math(_), .. });
        self.steps += if calls { CALL } else { 1 };
        self.lists[level].code.push(code);
    }

    pub fn constant(&mut self, ty: ScalarType, bits: u64) -> Id {
        let bits = bits & (u64::MAX >> (64 - 8 * ty.size()));
        if let Some(&id) = self.constants.get(&(ty, bits)) {
            return id;
        }
        let id = self.value(ty, 0);
        self.constants.insert((ty, bits), id);
        self.of_constants.insert(id, bits);
        self.constant_code.push(Code::Compute {
            to: id,
            op: ScalarOp::Const { bits },
            args: SmallVec::new(),
        });
        id
    }

    pub fn int(&mut self, value: i64) -> Id {
        self.constant(ScalarType::I64, value as u64)
    }

    /// The bits of a constant.
    pub fn known(&self, id: Id) -> Option<u64> {
        self.of_constants.get(&id).copied()
    }

    /// The list that what depends on these values may go to.
    fn level(&self, args: impl Iterator<Item = Id>) -> usize {
        let needed = args.map(|id| self.levels[id.0 as usize]).max().unwrap_or(0);
        let chosen = self.lists.iter().rposition(|list| list.chosen).unwrap_or(0);
        if self.outermost { needed } else { needed.max(chosen) }
    }

    pub fn compute(&mut self, op: ScalarOp, ty: ScalarType, args: &[Id]) -> Result<Id> {
        if let ScalarOp::Const { bits } = op {
            return Ok(self.constant(ty, bits));
        }
        if let Some(id) = self.simpler(op, ty, args)? {
            return Ok(id);
        }
        if let ScalarOp::Math(function) = op
            && !is_long(function)
        {
            return self.expanded(function, args);
        }
        let args: SmallVec<[Id; 3]> = SmallVec::from_slice(args);
        let level = self.level(args.iter().copied());
        let key = (op, ty, args);
        // Lists further out are searched too: what was computed there is known here.
        if let Some(id) = self.lists.iter().find_map(|list| list.known.get(&key)) {
            return Ok(*id);
        }
        let to = self.value(ty, level);
        self.write(level, Code::Compute { to, op, args: key.2.clone() });
        self.lists[level].known.insert(key, to);
        Ok(to)
    }

    /// Computed now: integers of constants alone, and choices and copies that are none.
    fn simpler(&mut self, op: ScalarOp, ty: ScalarType, args: &[Id]) -> Result<Option<Id>> {
        let bits: SmallVec<[Option<u64>; 3]> = args.iter().map(|&id| self.known(id)).collect();
        Ok(match (op, &*bits) {
            (ScalarOp::Select, [Some(holds), ..]) => Some(if *holds != 0 { args[1] } else { args[2] }),
            (ScalarOp::Select, _) if args[1] == args[2] => Some(args[1]),
            (ScalarOp::Convert | ScalarOp::Bitcast, _) if self.type_of(args[0]) == ty => Some(args[0]),
            (ScalarOp::Bitcast, [Some(bits)]) => Some(self.constant(ty, *bits)),
            (ScalarOp::Add | ScalarOp::Or | ScalarOp::Xor, [_, Some(0)]) if !ty.is_float() => Some(args[0]),
            (ScalarOp::Add | ScalarOp::Or | ScalarOp::Xor, [Some(0), _]) if !ty.is_float() => Some(args[1]),
            (ScalarOp::Mul, [_, Some(1)]) if !ty.is_float() => Some(args[0]),
            _ if !ty.is_float()
                && args.iter().all(|&id| !self.type_of(id).is_float())
                && bits.iter().all(Option::is_some) =>
            {
                let mut body = Body::default();
                let regs: SmallVec<[Reg; 3]> = args
                    .iter()
                    .zip(&bits)
                    .map(|(&id, bits)| {
                        body.push(ScalarOp::Const { bits: bits.unwrap_or(0) }, self.type_of(id), &[])
                    })
                    .collect();
                let result = body.push(op, ty, &regs);
                let value = evaluate(&body, &Inputs::default(), &[Value::Real(result)])?;
                Some(self.constant(ty, value[0][0].bits() as u64))
            }
            _ => None,
        })
    }

    /// A function as what it consists of.
    fn expanded(&mut self, function: math::MathFn, args: &[Id]) -> Result<Id> {
        let mut body = Body::default();
        let inputs: SmallVec<[Reg; 3]> = (0u32..)
            .zip(args)
            .map(|(operand, &id)| body.push(ScalarOp::Input { operand, part: 0 }, self.type_of(id), &[]))
            .collect();
        let result = math::expand(&mut body, function, &inputs)?;
        let mut ids: Vec<Id> = Vec::with_capacity(body.instructions().len());
        for instruction in body.instructions() {
            let id = match instruction.op {
                ScalarOp::Input { operand, .. } => args[operand as usize],
                op => {
                    let of: SmallVec<[Id; 3]> =
                        instruction.args.iter().map(|reg| ids[reg.0 as usize]).collect();
                    self.compute(op, instruction.ty, &of)?
                }
            };
            ids.push(id);
        }
        Ok(ids[result.0 as usize])
    }

    /// A load; of memory that nothing writes it may be made before.
    pub fn load(&mut self, ty: ScalarType, from: Address, constant: bool) -> Id {
        if !constant {
            let level = self.here();
            let to = self.value(ty, level);
            self.write(level, Code::Load { to, from });
            return to;
        }
        let level = self.level(from.bytes.into_iter());
        if let Some(id) = self.lists.iter().find_map(|list| list.loads.get(&(from, ty))) {
            return *id;
        }
        let to = self.value(ty, level);
        self.write(level, Code::Load { to, from });
        self.lists[level].loads.insert((from, ty), to);
        to
    }

    pub fn store(&mut self, from: Id, to: Address) {
        let level = self.here();
        self.write(level, Code::Store { from, to });
    }

    /// A chain over so many lanes, or some more that make groups of them.
    pub fn lanes(
        &mut self,
        chain: Chain,
        inputs: SmallVec<[Lane; 4]>,
        outputs: SmallVec<[Address; 2]>,
        count: usize,
    ) {
        let count = count.next_multiple_of(GROUP) as u32;
        let instructions = chain.body.instructions();
        let long = instructions.iter().any(|instruction| instruction.ty.size() == 8);
        let each =
            instructions.iter().filter(|instruction| !matches!(instruction.op, ScalarOp::Const { .. }));
        let each = each.count() * if long { 2 } else { 1 };
        self.written += each + inputs.len();
        // Those of vectors wait less for one another.
        self.steps += each * (count as usize / GROUP) / 2 + inputs.len();
        let next = self.chains.len() as u32;
        let number = *self.of_chains.entry(chain).or_insert_with_key(|chain| {
            self.chains.push(chain.clone());
            next
        });
        self.code(Code::Lanes { chain: number, inputs, outputs, count });
    }

    /// A value that may be assigned again in lists within the present one. It is of the inner list: what depends on it stays
    /// in the loop that changes it.
    pub fn variable(&mut self, from: Id) -> Id {
        let level = self.here();
        let to = self.value(self.type_of(from), level + 1);
        self.write(level, Code::Set { to, from });
        to
    }

    /// A value that lists of a choice within the present one assign.
    pub fn undefined(&mut self, ty: ScalarType) -> Id {
        let level = self.here();
        self.value(ty, level + 1)
    }

    /// From now on, in the list that a variable was made in, it does not change any more.
    pub fn settled(&mut self, variable: Id) {
        self.levels[variable.0 as usize] = self.here();
    }

    pub fn set(&mut self, to: Id, from: Id) {
        if to != from {
            let level = self.here();
            self.write(level, Code::Set { to, from });
        }
    }

    /// Assigns all at once.
    pub fn set_all(&mut self, to: &[Id], from: &[Id]) {
        let targets: FxHashSet<Id> = to.iter().copied().collect();
        let copies: Vec<Id> = from
            .iter()
            .zip(to)
            .map(|(&from, &to)| {
                if from != to && targets.contains(&from) {
                    let level = self.here();
                    let copy = self.value(self.type_of(from), level);
                    self.write(level, Code::Set { to: copy, from });
                    copy
                } else {
                    from
                }
            })
            .collect();
        for (&to, from) in to.iter().zip(copies) {
            self.set(to, from);
        }
    }

    pub fn code(&mut self, code: Code) {
        let level = self.here();
        self.write(level, code);
    }

    /// Begins a loop's list.
    pub fn begin_loop(&mut self) {
        self.lists.push(List::default());
    }

    /// Ends it.
    pub fn end_loop(&mut self, end: Code) -> Result<()> {
        self.end_list(Code::Loop)?;
        self.code(end);
        Ok(())
    }

    /// Begins a list of a choice.
    pub fn begin_if(&mut self) {
        self.lists.push(List { chosen: true, ..List::default() });
    }

    /// Ends a list: `first` is how it begins. Errors: none was begun.
    pub fn end_list(&mut self, first: Code) -> Result<()> {
        let list = if self.lists.len() > 1 { self.lists.pop() } else { None };
        let list = list.ok_or_else(|| internal_error!("{first:?} of no list"))?;
        self.code(first);
        let level = self.here();
        self.lists[level].code.extend(list.code);
        Ok(())
    }

    /// The program, without what nothing needs.
    pub fn finish(mut self) -> Native {
        let mut code = self.constant_code;
        code.extend(self.lists.drain(..).flat_map(|list| list.code));
        let mut needed = vec![false; self.types.len()];
        // A variable that a loop carries round may be needed by what is before it there: the pass is repeated while
        // it finds more, which is as often as loops are nested, at most.
        loop {
            let before = needed.iter().filter(|&&needed| needed).count();
            for code in code.iter().rev() {
                let kept = match code {
                    Code::Compute { to, .. } | Code::Set { to, .. } | Code::Load { to, .. } => {
                        needed[to.0 as usize]
                    }
                    _ => true,
                };
                if kept {
                    code.each_use(|id| needed[id.0 as usize] = true);
                }
            }
            if needed.iter().filter(|&&needed| needed).count() == before {
                break;
            }
        }
        code.retain(|code| match code {
            Code::Compute { to, .. } | Code::Set { to, .. } | Code::Load { to, .. } => needed[to.0 as usize],
            _ => true,
        });
        Native { types: self.types, code, chains: self.chains }
    }
}
