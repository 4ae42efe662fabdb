//! Programs: typed, pure, single-assignment lists of equations.
//!
//! A variable is an index into `types` and is defined exactly once: by
//! `inputs`, by `constants` or by one equation, before its first use. The
//! verifier (`verify.rs`) lists all invariants.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use rustc_hash::{FxHashMap, FxHashSet};
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

impl Effect {
    /// Whether it is seen outside of the program. That a value depends on an axis is not.
    pub fn happens(&self) -> bool {
        !matches!(self, Effect::NamedAxis(_))
    }

    /// Whether it is that of a mapped axis of this name.
    pub fn names(&self, axis: &str) -> bool {
        matches!(self, Effect::NamedAxis(name) if &**name == axis)
    }
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
    /// Whether the caller that was traced gives each of the first inputs up (`jit(donate_argnums=...)`); empty for none. What is
    /// made of a program has no such callers.
    pub donated: Vec<bool>,
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
        self.measure(&|program, of| {
            let inside = |equation: &Equation| {
                equation.op.programs().into_iter().fold(1, |sum: usize, inner| sum.saturating_add(of(inner)))
            };
            program.equations.iter().map(inside).fold(0, usize::saturating_add)
        })
    }

    /// What it keeps in memory, about, with its sub-programs: what several equations share counts once.
    pub fn bytes(&self) -> usize {
        let total = Cell::new(0usize);
        let seen: RefCell<FxHashSet<*const u8>> = RefCell::default();
        self.measure(&|program, of: &dyn Fn(&Arc<Program>)| {
            let constants = program.constants.iter().map(|(_, tensor)| tensor);
            let constants = constants.filter(|tensor| seen.borrow_mut().insert(tensor.bytes().as_ptr()));
            let constants = constants.map(|tensor| tensor.bytes().len()).fold(0, usize::saturating_add);
            let mut own =
                size_of::<Program>() + size_of_val(&*program.types) + size_of_val(&*program.outputs);
            for equation in &program.equations {
                own +=
                    size_of::<Equation>() + size_of_val(&*equation.inputs) + size_of_val(&*equation.outputs);
                equation.op.programs().into_iter().for_each(of);
            }
            total.set(total.get().saturating_add(own).saturating_add(constants));
        });
        total.get()
    }

    /// What `of` makes of this program. Its second argument gives the same of a sub-program, which
    /// is computed once however many equations share it: time is linear in the distinct programs.
    pub fn measure<T: Copy>(&self, of: &Measure<'_, T>) -> T {
        measure(self, of, &RefCell::default())
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

/// Computes something of a program, given how it is computed of its sub-programs.
pub type Measure<'a, T> = dyn Fn(&Program, &dyn Fn(&Arc<Program>) -> T) -> T + 'a;

/// `known` holds results by address; all programs in it outlive the walk.
fn measure<T: Copy>(
    program: &Program,
    of: &Measure<'_, T>,
    known: &RefCell<FxHashMap<*const Program, T>>,
) -> T {
    of(program, &|inner| {
        let address = Arc::as_ptr(inner);
        if let Some(&result) = known.borrow().get(&address) {
            return result;
        }
        let result = measure(inner, of, known);
        known.borrow_mut().insert(address, result);
        result
    })
}

/// Where in the user's program an equation was made and, for an equation of a derivative, of which
/// operation there. Small and `Copy`: indices into tables of all places and names met so far. Equal
/// to every other source in comparisons of programs, for two equal programs may come from two
/// places.
#[derive(Clone, Copy, Debug, Default)]
pub struct Source {
    line: u32,
    primal: u32,
}

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
    /// The names that the user gave to what is made there (`named_scope`), outermost first and
    /// separated by `/`; relative to the program that the equation is in.
    pub scope: Arc<str>,
}

impl std::fmt::Display for SourceLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{} ({})", self.file, self.line, self.function)
    }
}

/// Things by number, from 1 on; 0 is none.
struct Table<T> {
    items: Vec<T>,
    numbers: FxHashMap<T, u32>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table { items: Vec::new(), numbers: FxHashMap::default() }
    }
}

impl<T: Clone + Eq + std::hash::Hash> Table<T> {
    fn get(&self, number: u32) -> Option<T> {
        self.items.get((number as usize).checked_sub(1)?).cloned()
    }

    fn number(&mut self, item: T) -> u32 {
        if let Some(&number) = self.numbers.get(&item) {
            return number;
        }
        let Ok(number) = u32::try_from(self.items.len() + 1) else { return 0 };
        self.items.push(item.clone());
        self.numbers.insert(item, number);
        number
    }
}

static LINES: LazyLock<RwLock<Table<SourceLine>>> = LazyLock::new(Default::default);
static PRIMALS: LazyLock<RwLock<Table<Arc<str>>>> = LazyLock::new(Default::default);

/// The locks of this crate, held by this thread until the value is dropped: for processes that fork,
/// whose children have only the thread that forked. Also makes what is made once.
pub fn hold_tables() -> Box<dyn std::any::Any> {
    crate::op::settle();
    let lines = LINES.write().unwrap_or_else(PoisonError::into_inner);
    Box::new((lines, PRIMALS.write().unwrap_or_else(PoisonError::into_inner)))
}

impl Source {
    /// No place is known.
    pub const UNKNOWN: Source = Source { line: 0, primal: 0 };

    pub fn new(line: SourceLine) -> Source {
        Source { line: LINES.write().unwrap_or_else(PoisonError::into_inner).number(line), primal: 0 }
    }

    /// The source of an equation that differentiates or transposes the op of this name, made here.
    /// What is a derivative already stays one of the first op.
    #[must_use]
    pub fn derivative_of(self, op: &str) -> Source {
        if self.primal != 0 {
            return self;
        }
        let known = PRIMALS.read().unwrap_or_else(PoisonError::into_inner).numbers.get(op).copied();
        let primal = known
            .unwrap_or_else(|| PRIMALS.write().unwrap_or_else(PoisonError::into_inner).number(op.into()));
        Source { primal, ..self }
    }

    /// The same where a line is known; else at the line of the call that it is in.
    #[must_use]
    pub fn within(self, call: Source) -> Source {
        if self.line == 0 { Source { line: call.line, ..self } } else { self }
    }

    /// Whether it has a line.
    pub fn is_known(self) -> bool {
        self.line != 0
    }

    pub fn line(self) -> Option<SourceLine> {
        LINES.read().unwrap_or_else(PoisonError::into_inner).get(self.line)
    }

    /// The name of the op that this is a derivative of.
    pub fn primal(self) -> Option<Arc<str>> {
        PRIMALS.read().unwrap_or_else(PoisonError::into_inner).get(self.primal)
    }
}
