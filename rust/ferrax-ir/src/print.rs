//! Programs as text, laid out like a jaxpr.
//!
//! `{}` is for reading: no weakness, no values of captured arrays, parameters
//! that follow from the types left out, `_` for results that nothing uses,
//! `scatter-add` for the op `scatter_add`. `{:#}` is exact: what [`crate::parse`]
//! reads back to the same program (up to the numbers of variables). Both name
//! variables a … z, ba, …, the words of the syntax excepted. A callee that is
//! called once shows the names of its caller; one that is called more often, or to read
//! has more than ten equations, is written once, in front: `let f = … in`; callees are
//! written before callers, but to read behind them. Source lines are not shown.

use std::fmt;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::pretty::Doc;
use crate::{Atom, DType, Equation, Kind, Literal, Op, Param, Program, Scalar, Tensor, Type, Var};

/// Words that cannot name variables.
pub(crate) const RESERVED: &[&str] = &["in", "let", "lambda", "nan", "inf"];

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ShowCaptured(self, 0).fmt(f)
    }
}

/// Prints a program whose last inputs stand for captured arrays: so many of them
/// are shown in front of the `;`, as a jaxpr shows its constants.
pub struct ShowCaptured<'a>(pub &'a Program, pub usize);

impl fmt::Display for ShowCaptured<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut printer = Printer::new(f.alternate());
        let mut shared = Vec::new();
        printer.find_shared(self.0, &mut shared);
        for program in &shared {
            let text = printer.hoisted[&Arc::as_ptr(program).addr()].clone();
            let body = printer.program(program, 0, Names::default());
            Doc::Concat(vec![Doc::text(format!("let {text} = ")), body, Doc::text(" in")]).write(f)?;
            f.write_str("\n")?;
        }
        printer.program(self.0, self.1, Names::default()).write(f)
    }
}

/// Prints an op as equations do: its name and its parameters in brackets.
pub struct ShowOp<'a>(pub &'a Op);

impl fmt::Display for ShowOp<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Printer::new(f.alternate()).op(self.0, Names::default()).group().write(f)
    }
}

/// The names of one program's variables.
type Names = FxHashMap<Var, Arc<str>>;

struct Printer {
    exact: bool,
    /// How many names were given out.
    names: usize,
    /// What callees that are written in front are called, by their address.
    hoisted: FxHashMap<usize, String>,
}

impl Printer {
    fn new(exact: bool) -> Self {
        Printer { exact, names: 0, hoisted: FxHashMap::default() }
    }

    fn fresh(&mut self) -> Arc<str> {
        loop {
            let mut number = self.names;
            self.names += 1;
            let mut letters = Vec::new();
            loop {
                letters.push(char::from(b'a' + (number % 26) as u8));
                number /= 26;
                if number == 0 {
                    break;
                }
            }
            let name: String = letters.into_iter().rev().collect();
            if !RESERVED.contains(&name.as_str()) {
                return name.into();
            }
        }
    }

    /// Finds sub-programs that are written in front, in their order.
    fn find_shared(&mut self, program: &Program, shared: &mut Vec<Arc<Program>>) {
        let mut uses = Uses { callers_first: !self.exact, ..Uses::default() };
        uses.count(program);
        let mut taken: FxHashSet<String> = FxHashSet::default();
        for callee in uses.order {
            let address = Arc::as_ptr(&callee).addr();
            let is_long = !self.exact && uses.called.contains(&address) && callee.equations.len() > LONG;
            if uses.counts[&address] < 2 && !is_long {
                continue;
            }
            let mut base: String =
                callee.name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            if base.is_empty() || base.starts_with(|c: char| c.is_ascii_digit()) {
                base.insert(0, 'f');
            }
            let mut name = base.clone();
            let mut number = 0;
            while taken.contains(&name) {
                number += 1;
                name = format!("{base}_{number}");
            }
            taken.insert(name.clone());
            self.hoisted.insert(address, name);
            shared.push(callee);
        }
    }

    fn name(&mut self, names: &mut Names, var: Var) -> Arc<str> {
        if let Some(name) = names.get(&var) {
            return name.clone();
        }
        let name = self.fresh();
        names.insert(var, name.clone());
        name
    }

    fn ty(&self, ty: &Type) -> String {
        if self.exact { format!("{ty:#}") } else { format!("{ty}") }
    }

    fn declaration(&mut self, program: &Program, names: &mut Names, var: Var) -> String {
        format!("{}:{}", self.name(names, var), self.ty(&program.types[var.index()]))
    }

    fn atom(&mut self, names: &mut Names, atom: &Atom) -> String {
        match atom {
            Atom::Var(var) => self.name(names, *var).to_string(),
            Atom::Literal(literal) => literal_text(literal, self.exact),
        }
    }

    fn program(&mut self, program: &Program, captured: usize, mut names: Names) -> Doc {
        let mut head = vec![Doc::text("{ lambda ")];
        if self.exact {
            head.push(Doc::text(format!("{} ", quoted(&program.name))));
        }
        let (arguments, captured) = program.inputs.split_at(program.inputs.len().saturating_sub(captured));
        let mut constants: Vec<Doc> = program
            .constants
            .iter()
            .map(|(var, tensor)| {
                let declared = self.declaration(program, &mut names, *var);
                Doc::text(if self.exact { format!("{declared}=#{}", hex(tensor)) } else { declared })
            })
            .collect();
        constants.extend(captured.iter().map(|&var| Doc::text(self.declaration(program, &mut names, var))));
        head.push(Doc::fill(constants).nest(4));
        head.push(Doc::text("; "));
        let inputs =
            arguments.iter().map(|&var| Doc::text(self.declaration(program, &mut names, var))).collect();
        head.push(Doc::fill(inputs).nest(4));
        head.push(Doc::text(". let"));
        if !self.exact {
            name_unused(program, &mut names);
        }
        let equations = program.equations.iter().map(|eqn| self.equation(program, &mut names, eqn)).collect();
        let body = Doc::Concat(vec![Doc::Break(" "), Doc::join(equations, "; ")]).nest(4);
        let outputs: Vec<String> = program.outputs.iter().map(|atom| self.atom(&mut names, atom)).collect();
        let end = Doc::Concat(vec![Doc::Break(" "), Doc::text(format!("in {} }}", tuple(&outputs)))]).nest(2);
        head.push(body);
        head.push(end);
        Doc::Concat(head).group()
    }

    fn equation(&mut self, program: &Program, names: &mut Names, equation: &Equation) -> Doc {
        let inner = match &equation.op {
            Op::Call(call) if !self.hoisted.contains_key(&Arc::as_ptr(&call.program).addr()) => {
                self.names_of_callee(&call.program, names, equation)
            }
            _ => Names::default(),
        };
        let mut parts = Vec::new();
        if !equation.outputs.is_empty() {
            let outputs: Vec<Doc> = equation
                .outputs
                .iter()
                .map(|&var| Doc::text(self.declaration(program, names, var)))
                .collect();
            parts.push(Doc::fill(outputs).nest(2));
            parts.push(Doc::text(" "));
        }
        // Ops from outside are not read back, so theirs is written as jaxprs have it.
        if !(equation.outputs.is_empty() && matches!(equation.op, Op::Extension(_))) {
            parts.push(Doc::text("= "));
        }
        parts.push(self.op(&equation.op, inner));
        let inputs: Vec<Doc> = equation.inputs.iter().map(|atom| Doc::text(self.atom(names, atom))).collect();
        parts.push(Doc::text(" "));
        parts.push(Doc::fill(inputs).nest(2));
        Doc::Concat(parts)
    }

    fn op(&mut self, op: &Op, inner: Names) -> Doc {
        let mut parts = vec![Doc::text(if self.exact { op.name().to_owned() } else { read_name(op.name()) })];
        let params = self.params(op, inner);
        if !params.is_empty() {
            let inside = Doc::Concat(vec![Doc::Break(""), Doc::join(params, " ")]).nest(2);
            parts.push(Doc::Concat(vec![Doc::text("["), inside, Doc::Break(""), Doc::text("]")]).group());
        }
        Doc::Concat(parts)
    }

    /// A callee's inputs and outputs have the names of what the caller puts
    /// there, save where two would be the same.
    fn names_of_callee(&mut self, callee: &Program, names: &mut Names, equation: &Equation) -> Names {
        let mut inner = Names::default();
        let mut used: FxHashSet<Arc<str>> = FxHashSet::default();
        let outer_inputs = equation.inputs.iter().map(Atom::as_var);
        let inputs = callee.inputs.iter().copied().zip(outer_inputs);
        let outputs = callee
            .outputs
            .iter()
            .zip(&equation.outputs)
            .filter_map(|(atom, &outer)| Some((atom.as_var()?, Some(outer))));
        for (var, outer) in inputs.chain(outputs) {
            let Some(outer) = outer else { continue };
            if inner.contains_key(&var) {
                continue;
            }
            let name = self.name(names, outer);
            if &*name == UNUSED || used.insert(name.clone()) {
                inner.insert(var, name);
            }
        }
        inner
    }

    fn params(&mut self, op: &Op, inner: Names) -> Vec<Doc> {
        if let Op::Call(call) = op {
            let body = match self.hoisted.get(&Arc::as_ptr(&call.program).addr()) {
                Some(name) => Doc::text(name.clone()),
                None => self.program(&call.program, 0, inner),
            };
            let mut params = vec![
                Doc::text(format!("name={}", word(&call.name))),
                Doc::Concat(vec![Doc::text("jaxpr="), body]),
            ];
            if call.inline {
                params.push(Doc::text("inline=True"));
            }
            return params;
        }
        let mut params = op.params();
        params.sort_by_key(|(name, _)| *name);
        params.retain(|(name, value)| self.exact || !is_implied(op.name(), name, value));
        params
            .into_iter()
            .map(|(name, value)| {
                let brackets = op.name() == "dot_general" && name == "dimension_numbers";
                Doc::Concat(vec![Doc::text(format!("{name}=")), self.param(&value, true, brackets)])
            })
            .collect()
    }

    fn param(&mut self, value: &Param, top: bool, brackets: bool) -> Doc {
        match value {
            Param::None => Doc::text("None"),
            Param::Bool(value) => Doc::text(if *value { "True" } else { "False" }),
            Param::Int(value) => Doc::text(value.to_string()),
            Param::Dim(dim) if top => Doc::text(quoted(&dim.to_string())),
            Param::Dim(dim) => Doc::text(dim.to_string()),
            Param::DType(dtype) => Doc::text(dtype.name()),
            // As Python shows names in a tuple.
            Param::Str(text) if !top && !self.exact => Doc::text(format!("'{text}'")),
            Param::Str(text) => Doc::text(word(text)),
            Param::Scalar(value) => {
                Doc::text(literal_text(&Literal { value: *value, weak: false }, self.exact))
            }
            Param::List(items)
                if !self.exact && items.iter().any(|item| matches!(item, Param::Program(_))) =>
            {
                let items = items.iter().map(|item| self.param(item, false, brackets)).collect();
                let inside = Doc::Concat(vec![Doc::Break(""), Doc::join(items, " ")]).nest(2);
                Doc::Concat(vec![Doc::text("("), inside, Doc::Break(""), Doc::text(")")]).group()
            }
            Param::List(items) => {
                // Pairs of axis lists read best as ([1], [0]).
                let axes = brackets && items.iter().all(|item| matches!(item, Param::Int(_)));
                let (open, close) = if axes { ("[", "]") } else { ("(", ")") };
                let last = if items.len() == 1 && !axes { "," } else { "" };
                let mut parts = vec![Doc::text(open)];
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        parts.push(Doc::text(", "));
                    }
                    parts.push(self.param(item, false, brackets));
                }
                parts.push(Doc::text(format!("{last}{close}")));
                Doc::Concat(parts)
            }
            Param::Jvp(rule) => Doc::text(quoted(&rule.0.name())),
            Param::Vjp(rule) => Doc::text(quoted(&rule.0.name())),
            Param::Policy(policy) => {
                Doc::text(policy.0.as_ref().map_or("None".to_owned(), |policy| quoted(&policy.name())))
            }
            Param::Program(program) => match self.hoisted.get(&Arc::as_ptr(program).addr()) {
                Some(name) => Doc::text(name.clone()),
                None => self.program(program, 0, Names::default()),
            },
        }
    }
}

/// What results are called that nothing uses.
const UNUSED: &str = "_";

/// Gives the outputs of equations that nothing uses their common name, save
/// those that have one.
fn name_unused(program: &Program, names: &mut Names) {
    let mut used = vec![false; program.types.len()];
    let uses = program.equations.iter().flat_map(|equation| &equation.inputs).chain(&program.outputs);
    for var in uses.filter_map(Atom::as_var) {
        used[var.index()] = true;
    }
    for &var in program.equations.iter().flat_map(|equation| &equation.outputs) {
        if !used[var.index()] {
            names.insert(var, UNUSED.into());
        }
    }
}

/// Callees of more equations are not written where they are called, to read.
const LONG: usize = 10;

/// How often sub-programs are used, and which of them are called; `order` has each once.
#[derive(Default)]
struct Uses {
    callers_first: bool,
    counts: FxHashMap<usize, usize>,
    called: FxHashSet<usize>,
    order: Vec<Arc<Program>>,
}

impl Uses {
    fn count(&mut self, program: &Program) {
        for equation in &program.equations {
            for callee in equation.op.programs() {
                let address = Arc::as_ptr(callee).addr();
                if matches!(equation.op, Op::Call(_)) {
                    self.called.insert(address);
                }
                let count = self.counts.entry(address).or_insert(0);
                *count += 1;
                if *count > 1 {
                    continue;
                }
                if self.callers_first {
                    self.order.push(callee.clone());
                }
                self.count(callee);
                if !self.callers_first {
                    self.order.push(callee.clone());
                }
            }
        }
    }
}

/// Parameters that the types of the operands and results say already.
fn is_implied(op: &str, name: &str, value: &Param) -> bool {
    match (op, name) {
        ("broadcast_in_dim", "shape") | ("all_to_all", "axis_size") => true,
        ("broadcast_in_dim", "broadcast_dimensions") => *value == Param::List(Vec::new()),
        ("dot_general", "precision" | "preferred_element_type")
        | ("while" | "sweeps", "checkpoints" | "max_steps") => *value == Param::None,
        _ => false,
    }
}

fn tuple(items: &[String]) -> String {
    match items {
        [only] => format!("({only},)"),
        _ => format!("({})", items.join(", ")),
    }
}

/// `text` as it is if that reads back as a string, else quoted.
fn word(text: &str) -> String {
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == '<')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_<>-.".contains(c))
        && !["None", "True", "False", "nan", "inf"].contains(&text);
    if plain { text.to_owned() } else { quoted(text) }
}

fn quoted(text: &str) -> String {
    let mut result = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => result.push_str("\\\""),
            '\\' => result.push_str("\\\\"),
            '\n' => result.push_str("\\n"),
            c => result.push(c),
        }
    }
    result.push('"');
    result
}

fn hex(tensor: &Tensor) -> String {
    use fmt::Write;
    let mut text = String::with_capacity(tensor.bytes().len() * 2);
    for byte in tensor.bytes() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The name of an op as readers of jaxprs know it.
fn read_name(name: &str) -> String {
    if name.starts_with("scatter_") { name.replace('_', "-") } else { name.to_owned() }
}

fn literal_text(literal: &Literal, exact: bool) -> String {
    let weak = if literal.weak && exact { "~" } else { "" };
    format!("{}:{weak}{}[]", scalar_text(literal.value, exact), literal.value.dtype().short_name())
}

/// The value as Python writes it.
impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&scalar_text(*self, false))
    }
}

/// A value as Python writes it. Floats have as few digits as tell them from
/// their neighbours; where even that is not exact (payloads of NaNs), and it
/// has to be, the bits.
pub(crate) fn scalar_text(value: Scalar, exact: bool) -> String {
    let dtype = value.dtype();
    let bits = || format!("0x{:x}", value.bits());
    match dtype.kind() {
        Kind::Bool if value.bits() <= 1 => (if value.bits() == 1 { "True" } else { "False" }).to_owned(),
        Kind::Signed | Kind::Unsigned => value.to_i128().map_or_else(bits, |value| value.to_string()),
        Kind::Float => {
            let Some(number) = value.to_f64() else { return bits() };
            if exact && Scalar::from_f64(dtype, plain(number)) != value {
                return bits();
            }
            float_text(dtype, number)
        }
        Kind::Complex => {
            let (re, im) = complex_parts(value);
            if exact && complex_scalar(dtype, plain(re), plain(im)) != value {
                return bits();
            }
            let short = |part: f64| {
                let text = float_text(dtype.real(), part);
                text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
            };
            let imaginary = short(im);
            let sign = if imaginary.starts_with('-') { "" } else { "+" };
            format!("({}{sign}{imaginary}j)", short(re))
        }
        _ => bits(),
    }
}

/// What the text of a number reads back to: of all NaNs the usual one.
fn plain(value: f64) -> f64 {
    if value.is_nan() { f64::NAN } else { value }
}

pub(crate) fn complex_parts(value: Scalar) -> (f64, f64) {
    let real = value.dtype().real();
    let width = real.size() * 8;
    let part = |bits: u128| Scalar::from_bits(real, bits).to_f64().unwrap_or(0.0);
    (part(value.bits()), part(value.bits() >> width))
}

pub(crate) fn complex_scalar(dtype: DType, re: f64, im: f64) -> Scalar {
    let real = dtype.real();
    let bits = Scalar::from_f64(real, re).bits() | (Scalar::from_f64(real, im).bits() << (real.size() * 8));
    Scalar::from_bits(dtype, bits)
}

/// The shortest digits that read back to the same number of this dtype, in the
/// notation of Python's `repr`.
fn float_text(dtype: DType, value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = if dtype == DType::F64 { format!("{value:e}") } else { format!("{:e}", value as f32) };
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = if dtype == DType::F64 { format!("{value}") } else { format!("{}", value as f32) };
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}
