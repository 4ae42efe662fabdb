//! Registers for values: one linear scan over their lifetimes.
//!
//! A value has one place while it lives, from its first assignment to its last use; what is assigned before a loop and used
//! in it lives until the loop ends. Where more values live than there are registers, those that are used least for their
//! length, counting uses in loops several times, are on the stack.
//!
//! Cost: values times registers. Source: Poletto and Sarkar, "Linear Scan Register Allocation", TOPLAS 21, 1999.

use ferrax_compile::native::{Code, Id, Native};
use ferrax_ir::scalar::ScalarOp;

use crate::encode::{Gpr, R8, R9, R10, R11, R12, R13, R14, RBX, RDI, RSI, Xmm};

/// Registers that values are in. `rax`, `rcx` and `rdx` serve single operations, `r15` counts steps.
pub const INTEGERS: [Gpr; 10] = [RBX, R12, R13, R14, RSI, RDI, R8, R9, R10, R11];
/// How many of these a called function keeps.
pub const KEPT: usize = 4;
/// Float registers from 0 on that values are in; those after them serve single operations.
pub const FLOATS: usize = 12;

/// Where a value is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Not at all: nothing uses it.
    Nowhere,
    Constant(u64),
    Integer(Gpr),
    Float(Xmm),
    /// So many words from the stack's top.
    Slot(u32),
}

/// From an instruction to another.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Lifetime {
    pub first: usize,
    pub last: usize,
    weight: f32,
}

#[derive(Debug)]
pub struct Allocation {
    /// Of values, then of pointers.
    pub places: Vec<Place>,
    pub lifetimes: Vec<Option<Lifetime>>,
    pub slots: u32,
}

/// The instructions at which each value is needed: comparisons whose result is only chosen by are made there.
pub struct Uses<'a> {
    pub native: &'a Native,
    /// Of values that are comparisons made at their uses, these.
    pub deferred: Vec<Option<usize>>,
    pub pointers: usize,
}

impl Uses<'_> {
    /// Shows the values, numbered with pointers behind them, that an instruction reads or assigns.
    fn each(&self, number: usize, show: &mut dyn FnMut(usize)) {
        let code = &self.native.code[number];
        if code.result().is_some_and(|to| self.deferred[to.0 as usize] == Some(number)) {
            return;
        }
        code.each_use(|id| match self.deferred[id.0 as usize] {
            Some(comparison) => self.native.code[comparison].each_use(|id| show(id.0 as usize)),
            None => show(id.0 as usize),
        });
        code.each_address(|address| show(self.native.types.len() + address.pointer as usize));
        if let Some(to) = code.result() {
            show(to.0 as usize);
        }
    }

    /// Where each loop ends, told by where it begins.
    fn loop_ends(&self) -> Vec<usize> {
        let mut ends = vec![0; self.native.code.len()];
        let mut open = Vec::new();
        for (number, code) in self.native.code.iter().enumerate() {
            match code {
                Code::Loop => open.push(number),
                Code::Again { .. } | Code::Forever => {
                    if let Some(begin) = open.pop() {
                        ends[begin] = number;
                    }
                }
                _ => {}
            }
        }
        ends
    }

    fn lifetimes(&self) -> Vec<Option<Lifetime>> {
        let values = self.native.types.len();
        let mut lifetimes: Vec<Option<Lifetime>> = vec![None; values + self.pointers];
        for pointer in &mut lifetimes[values..] {
            *pointer = Some(Lifetime { first: 0, last: 0, weight: 0.0 });
        }
        let ends = self.loop_ends();
        let mut open: Vec<usize> = Vec::new();
        for (number, code) in self.native.code.iter().enumerate() {
            if matches!(code, Code::Loop) {
                open.push(number);
            }
            let weight = 8f32.powi(open.len().min(5) as i32);
            self.each(number, &mut |value| {
                let first = Lifetime { first: number, last: number, weight: 0.0 };
                let lifetime = lifetimes[value].get_or_insert(first);
                // Pointers are there before the first instruction, which may be a loop.
                let carried = |&&begin: &&usize| begin > lifetime.first || value >= values;
                let end = open.iter().find(carried).map_or(number, |&begin| ends[begin]);
                lifetime.last = lifetime.last.max(end);
                lifetime.weight += weight;
            });
            if matches!(code, Code::Again { .. } | Code::Forever) {
                open.pop();
            }
        }
        lifetimes
    }
}

/// The registers of one kind.
struct Pool {
    /// The value in each.
    holders: Vec<Option<usize>>,
}

impl Pool {
    /// A register for a value; the value that goes to the stack for it.
    fn take(
        &mut self,
        value: usize,
        wanted: Option<usize>,
        lifetimes: &[Option<Lifetime>],
    ) -> (Option<usize>, Option<usize>) {
        let first = lifetimes[value].map_or(0, |lifetime| lifetime.first);
        for holder in &mut self.holders {
            // What ends where another begins is read before that is written; pointers begin before all else.
            let ended = |other: Lifetime| other.last <= first && other.first < first;
            if holder.is_some_and(|other| lifetimes[other].is_none_or(ended)) {
                *holder = None;
            }
        }
        let free = wanted
            .filter(|&register| self.holders[register].is_none())
            .or_else(|| self.holders.iter().position(Option::is_none));
        if let Some(register) = free {
            self.holders[register] = Some(value);
            return (Some(register), None);
        }
        let worth = |value: usize| {
            lifetimes[value]
                .map_or(0.0, |lifetime| lifetime.weight / (lifetime.last - lifetime.first + 1) as f32)
        };
        let least = (0..self.holders.len())
            .filter_map(|register| self.holders[register].map(|other| (register, other)))
            .min_by(|(_, a), (_, b)| worth(*a).total_cmp(&worth(*b)));
        match least {
            Some((register, other)) if worth(other) < worth(value) => {
                self.holders[register] = Some(value);
                (Some(register), Some(other))
            }
            _ => (None, None),
        }
    }
}

pub fn allocate(uses: &Uses<'_>) -> Allocation {
    let native = uses.native;
    let values = native.types.len();
    let lifetimes = uses.lifetimes();
    let mut places = vec![Place::Nowhere; lifetimes.len()];
    for code in &native.code {
        if let Code::Compute { to, op: ScalarOp::Const { bits }, .. } = code {
            places[to.0 as usize] = Place::Constant(*bits);
        }
    }
    let mut order: Vec<usize> = (0..lifetimes.len())
        .filter(|&value| lifetimes[value].is_some() && places[value] == Place::Nowhere)
        .collect();
    order.sort_by_key(|&value| (lifetimes[value].map(|lifetime| lifetime.first), value));
    let mut integers = Pool { holders: vec![None; INTEGERS.len()] };
    let mut floats = Pool { holders: vec![None; FLOATS] };
    let mut slots = 0;
    let mut slot = || {
        slots += 1;
        Place::Slot(slots - 1)
    };
    for value in order {
        let is_float = value < values && native.type_of(Id(value as u32)).is_float();
        let pool = if is_float { &mut floats } else { &mut integers };
        // Operations of two operands give their result in the place of the first.
        let first = lifetimes[value].map_or(0, |lifetime| lifetime.first);
        let wanted = match native.code.get(first) {
            Some(Code::Compute { to, args, .. }) if to.0 as usize == value => args.first().copied(),
            Some(Code::Set { to, from }) if to.0 as usize == value => Some(*from),
            _ => None,
        };
        let wanted = wanted.and_then(|id| match places[id.0 as usize] {
            Place::Integer(register) if !is_float => INTEGERS.iter().position(|&known| known == register),
            Place::Float(register) if is_float => Some(register.0 as usize),
            _ => None,
        });
        let (register, loser) = pool.take(value, wanted, &lifetimes);
        if let Some(loser) = loser {
            places[loser] = slot();
        }
        places[value] = match register {
            Some(register) if is_float => Place::Float(Xmm(register as u8)),
            Some(register) => Place::Integer(INTEGERS[register]),
            None => slot(),
        };
    }
    Allocation { places, lifetimes, slots }
}
