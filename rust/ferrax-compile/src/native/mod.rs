//! Small loops as one function: the program of an emitter of machine code.
//!
//! A [`Native`] is a list of instructions over values, each of a scalar type, with loops and choices between them. All
//! elements of small arrays are values of their own, so that nothing but what is gone through or stacked is in memory;
//! the emitter gives them registers. `build` writes such lists, `lower` (with `loops` and `updates`) makes them of the plans of loops' bodies,
//! `interpret` runs them: the oracle of emitters.
//!
//! # Semantics
//!
//! Instructions run in order. `Compute` is a [`ScalarOp`] other than `Input`, `Index` and `Param`; it neither traps nor
//! touches memory. A value is assigned once, but for those that a [`Code::Set`] assigns, which keep their last one.
//! `Loop` … `Again` repeats what is between, as often as the value of its count says (at least once), counting it down
//! to zero; `Loop` … `Forever` until a `Leave` in it (in no inner loop) finds its condition false. `If` … `Else` … `End`
//! runs one of two lists. `Lanes` runs a [`Chain`] over so many lanes, [`GROUP`] at a time or several of these: no block that
//! it writes overlaps another, unless it is one that is read, and the only one written.
//!
//! Addresses are of the function's table of pointers, at a distance in bytes that values and constants say.

mod arrays;
mod build;
mod course;
mod folds;
mod form;
mod interpret;
mod lanes;
mod loops;
mod lower;
#[cfg(test)]
mod tests;
mod updates;

use ferrax_ir::scalar::{ScalarOp, ScalarType};
use ferrax_ir::{Result, internal_error};
use smallvec::SmallVec;

use crate::chain::{Chain, arguments};

pub use self::arrays::Pointer;
pub use self::interpret::interpret;
pub use self::lower::{Function, scan, while_loop};

/// A value, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Id(pub u32);

/// A place in memory: this many bytes, the value's (an `I64`) and the constant, beyond a pointer of the table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Address {
    pub pointer: u32,
    pub bytes: Option<Id>,
    pub offset: i32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Code {
    Compute {
        to: Id,
        op: ScalarOp,
        args: SmallVec<[Id; 3]>,
    },
    Set {
        to: Id,
        from: Id,
    },
    Load {
        to: Id,
        from: Address,
    },
    Store {
        from: Id,
        to: Address,
    },
    Loop,
    Leave {
        unless: Id,
    },
    Again {
        count: Id,
    },
    Forever,
    If {
        holds: Id,
    },
    Else,
    End,
    /// The chain with this number over `count` lanes, a multiple of [`GROUP`].
    Lanes {
        chain: u32,
        inputs: SmallVec<[Lane; 4]>,
        outputs: SmallVec<[Address; 2]>,
        count: u32,
    },
}

/// What a lane of a chain reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lane {
    /// An element of its own, of those from here on.
    Block(Address),
    /// This value, as all others.
    Each(Id),
}

/// What lanes are a multiple of.
pub const GROUP: usize = 8;

/// A function over pointers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Native {
    /// The type of each value.
    pub types: Vec<ScalarType>,
    pub code: Vec<Code>,
    pub chains: Vec<Chain>,
}

impl Code {
    /// Shows each value that is read.
    pub fn each_use(&self, mut show: impl FnMut(Id)) {
        match self {
            Code::Compute { args, .. } => args.iter().for_each(|&id| show(id)),
            Code::Set { from, .. } => show(*from),
            Code::Load { from, .. } => from.bytes.into_iter().for_each(show),
            Code::Store { from, to } => [*from].into_iter().chain(to.bytes).for_each(show),
            Code::Leave { unless } => show(*unless),
            Code::Again { count } => show(*count),
            Code::If { holds } => show(*holds),
            Code::Lanes { inputs, outputs, .. } => {
                for input in inputs {
                    match input {
                        Lane::Block(address) => address.bytes.into_iter().for_each(&mut show),
                        Lane::Each(id) => show(*id),
                    }
                }
                outputs.iter().filter_map(|address| address.bytes).for_each(show);
            }
            Code::Loop | Code::Forever | Code::Else | Code::End => {}
        }
    }

    /// Shows each place in memory.
    pub fn each_address(&self, mut show: impl FnMut(&Address)) {
        match self {
            Code::Load { from: address, .. } | Code::Store { to: address, .. } => show(address),
            Code::Lanes { inputs, outputs, .. } => {
                for input in inputs {
                    if let Lane::Block(address) = input {
                        show(address);
                    }
                }
                outputs.iter().for_each(show);
            }
            _ => {}
        }
    }

    /// The value that is assigned.
    pub fn result(&self) -> Option<Id> {
        match self {
            Code::Compute { to, .. } | Code::Set { to, .. } | Code::Load { to, .. } => Some(*to),
            Code::Again { count } => Some(*count),
            _ => None,
        }
    }
}

impl Native {
    pub fn has_lanes(&self) -> bool {
        !self.chains.is_empty()
    }

    pub fn type_of(&self, id: Id) -> ScalarType {
        self.types[id.0 as usize]
    }

    /// Checks what an emitter relies on: values are of the program and assigned before they are read, loops and choices
    /// are nested, operations have as many arguments as they take, chains
    /// their blocks, conditions are `Bool`, counts and distances `I64`, and a copy is of its target's type.
    pub fn verify(&self) -> Result<()> {
        self.chains.iter().try_for_each(Chain::verify)?;
        #[derive(PartialEq)]
        enum Open {
            Loop,
            Then,
            Else,
        }
        let mut known = vec![false; self.types.len()];
        let mut open: Vec<Open> = Vec::new();
        for (number, code) in self.code.iter().enumerate() {
            let wrong = |what: &str| internal_error!("native instruction {number} ({code:?}) {what}");
            let mut sound = true;
            code.each_use(|id| sound &= known.get(id.0 as usize).copied().unwrap_or(false));
            if !sound {
                return Err(wrong("reads what has no value"));
            }
            let is = |id: Id, ty: ScalarType| self.types.get(id.0 as usize) == Some(&ty);
            let mut addressed = true;
            code.each_address(|address| {
                addressed &= address.bytes.is_none_or(|bytes| is(bytes, ScalarType::I64));
            });
            let typed = match code {
                _ if !addressed => false,
                Code::Set { to, from } => is(*to, self.type_of(*from)),
                Code::Leave { unless } => is(*unless, ScalarType::Bool),
                Code::If { holds } => is(*holds, ScalarType::Bool),
                Code::Again { count } => is(*count, ScalarType::I64),
                Code::Compute { op, args, .. } => arguments(*op) == Some(args.len()),
                Code::Lanes { chain, inputs, outputs, count } => {
                    let Some(chain) = self.chains.get(*chain as usize) else {
                        return Err(wrong("has no chain"));
                    };
                    let typed = |(input, &(ty, uniform)): (&Lane, &(ScalarType, bool))| match input {
                        Lane::Block(_) => !uniform,
                        Lane::Each(id) => uniform && is(*id, ty),
                    };
                    (inputs.len(), outputs.len()) == (chain.inputs.len(), chain.outputs.len())
                        && inputs.iter().zip(&chain.inputs).all(typed)
                        && *count > 0
                        && (*count as usize).is_multiple_of(GROUP)
                }
                _ => true,
            };
            if !typed {
                return Err(wrong("has other operands, or of other types"));
            }
            let nested = match code {
                Code::Loop => {
                    open.push(Open::Loop);
                    true
                }
                Code::If { .. } => {
                    open.push(Open::Then);
                    true
                }
                Code::Leave { .. } => open.contains(&Open::Loop),
                Code::Again { .. } | Code::Forever => open.pop() == Some(Open::Loop),
                Code::Else => {
                    let then = open.pop() == Some(Open::Then);
                    open.push(Open::Else);
                    then
                }
                Code::End => open.pop() == Some(Open::Else),
                _ => true,
            };
            if !nested {
                return Err(wrong("ends what did not begin"));
            }
            if let Some(to) = code.result() {
                match known.get_mut(to.0 as usize) {
                    Some(known) => *known = true,
                    None => return Err(wrong("assigns no value of the program")),
                }
            }
        }
        if open.is_empty() { Ok(()) } else { Err(internal_error!("a native loop does not end")) }
    }
}
