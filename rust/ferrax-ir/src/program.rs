//! Programs: typed, pure, single-assignment lists of equations.
//!
//! A variable is an index into `types` and is defined exactly once: by
//! `inputs`, by `constants` or by one equation, before its first use. The
//! verifier (`verify.rs`) lists all invariants.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock, RwLock};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::{ArrayType, Builder, Op, Result, Scalar, Tensor, Type, value_error};

/// A variable of one program.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Var(pub u32);

impl Var {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A 0-d constant written in place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Literal {
    pub value: Scalar,
    pub weak: bool,
}

impl Literal {
    pub fn array_type(&self) -> ArrayType {
        ArrayType::scalar(self.value.dtype()).with_weak(self.weak)
    }
}

/// An operand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Atom {
    Var(Var),
    Literal(Literal),
}

impl Atom {
    pub fn as_var(&self) -> Option<Var> {
        match self {
            Atom::Var(var) => Some(*var),
            Atom::Literal(_) => None,
        }
    }

    pub fn as_literal(&self) -> Option<Literal> {
        match self {
            Atom::Var(_) => None,
            Atom::Literal(literal) => Some(*literal),
        }
    }
}

impl From<Var> for Atom {
    fn from(var: Var) -> Self {
        Atom::Var(var)
    }
}

pub type Atoms = SmallVec<[Atom; 3]>;
pub type Vars = SmallVec<[Var; 1]>;

/// One application of an op.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Equation {
    pub op: Op,
    pub inputs: Atoms,
    pub outputs: Vars,
    pub source: Source,
}

/// What an equation does besides computing its outputs.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Effect {
    /// Happens once for each execution, in any order.
    Unordered,
    /// Happens in program order.
    Ordered,
    /// Depends on a mapped axis of this name.
    NamedAxis(Arc<str>),
    /// Reads or writes a mutable array.
    Memory,
}

pub type Effects = BTreeSet<Effect>;

/// A function in the IR.
#[derive(Clone, Debug)]
pub struct Program {
    /// What the user called it.
    pub name: Arc<str>,
    pub types: Vec<Type>,
    pub inputs: Vec<Var>,
    /// Arrays that the program captured.
    pub constants: Vec<(Var, Tensor)>,
    pub equations: Vec<Equation>,
    pub outputs: Vec<Atom>,
    pub effects: Effects,
}

impl Program {
    pub fn type_of(&self, atom: &Atom) -> Type {
        match atom {
            Atom::Var(var) => self.types[var.index()].clone(),
            Atom::Literal(literal) => literal.array_type().into(),
        }
    }

    pub fn input_types(&self) -> impl ExactSizeIterator<Item = &Type> {
        self.inputs.iter().map(|var| &self.types[var.index()])
    }

    pub fn output_types(&self) -> impl ExactSizeIterator<Item = Type> {
        self.outputs.iter().map(|atom| self.type_of(atom))
    }

    /// The number of equations, those of sub-programs included.
    pub fn size(&self) -> usize {
        self.equations
            .iter()
            .map(|equation| 1 + equation.op.programs().iter().map(|p| p.size()).sum::<usize>())
            .sum()
    }

    /// The same program where the last inputs are constants with these values.
    pub fn bind_constants(&self, values: &[Tensor]) -> Result<Program> {
        let kept = self.inputs.len().checked_sub(values.len()).ok_or_else(|| {
            value_error!(
                "{} values for '{}', which has {} inputs",
                values.len(),
                self.name,
                self.inputs.len()
            )
        })?;
        let mut b = Builder::new(self.name.clone());
        let mut arguments: Vec<Atom> = self.input_types().take(kept).map(|ty| b.input(ty.clone())).collect();
        for ((position, ty), value) in self.input_types().enumerate().skip(kept).zip(values) {
            let expected = ty.as_array().filter(|ty| value.array_type() == (*ty).clone().with_weak(false));
            let expected = expected.ok_or_else(|| {
                value_error!("input {position} of '{}' is {ty}, got {}", self.name, value.array_type())
            })?;
            arguments.push(b.constant(value.clone(), expected.weak));
        }
        let outputs = b.inline(self, &arguments)?;
        Ok(b.finish(outputs))
    }
}

/// Where in the user's program an equation was made. Small and `Copy`: an index
/// into a table of all places met so far. Equal to every other source in
/// comparisons of programs, for two equal programs may come from two places.
#[derive(Clone, Copy, Debug, Default)]
pub struct Source(u32);

impl PartialEq for Source {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Source {}

impl std::hash::Hash for Source {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}

/// A line of the user's program.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SourceLine {
    pub file: Arc<str>,
    pub line: u32,
    pub function: Arc<str>,
}

impl std::fmt::Display for SourceLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{} ({})", self.file, self.line, self.function)
    }
}

#[derive(Default)]
struct SourceTable {
    lines: Vec<SourceLine>,
    ids: FxHashMap<SourceLine, u32>,
}

static SOURCES: LazyLock<RwLock<SourceTable>> = LazyLock::new(Default::default);

impl Source {
    /// No place is known.
    pub const UNKNOWN: Source = Source(0);

    pub fn new(line: SourceLine) -> Source {
        let mut table = SOURCES.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(&id) = table.ids.get(&line) {
            return Source(id);
        }
        table.lines.push(line.clone());
        let Ok(id) = u32::try_from(table.lines.len()) else { return Source::UNKNOWN };
        table.ids.insert(line, id);
        Source(id)
    }

    pub fn line(self) -> Option<SourceLine> {
        let index = (self.0 as usize).checked_sub(1)?;
        let table = SOURCES.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        table.lines.get(index).cloned()
    }
}
