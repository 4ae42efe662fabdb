//! Reads programs from their text form.
//!
//! What [`crate::print`] writes with `{:#}` reads back to the same program, its
//! variables numbered in order ([`Program::canonical`]). What `{}` writes reads
//! too if no arrays are captured, with all types strong. Text is untrusted:
//! whatever it holds, the result is a program that verifies or an
//! [`Error::Parse`] that names line and column; nesting is bounded, and nothing
//! is allocated that the text does not pay for.
//!
//! ```text
//! text     := ("let" name "=" program "in")* program
//! program  := "{" "lambda" [string] declared* ";" declared* "." "let" equation* "in" "(" atoms ")" "}"
//! equation := declared* "=" op ["[" (name "=" value)* "]"] atom*
//! declared := name ":" type ["=" "#" hex]
//! atom     := name | value ":" type
//! ```

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::convert::{Wide, store};
use crate::ops::Call;
use crate::print::{RESERVED, complex_scalar};
use crate::verify::debug_verify;
use crate::{
    ArrayType, Atom, Builder, DType, Dim, Error, Kind, Literal, Op, Param, Program, Result, Scalar, Shape,
    Tensor, Type, parse_error,
};

/// How deep programs and tuples may nest.
const MAX_DEPTH: usize = 100;

/// The longest text of one dimension: arithmetic on polynomials is costly.
const MAX_DIM_TEXT: usize = 200;

impl Program {
    /// Reads a program from its text; see the module.
    pub fn parse(text: &str) -> Result<Program> {
        let mut parser = Parser { text, position: 0, depth: 0, named: FxHashMap::default() };
        let result = parser.file().map_err(|error| parser.locate(error))?;
        debug_verify(&result, "parsing").map_err(|error| parse_error!("{error}"))?;
        Ok(result)
    }
}

impl std::str::FromStr for Program {
    type Err = Error;

    fn from_str(text: &str) -> Result<Program> {
        Program::parse(text)
    }
}

struct Parser<'a> {
    text: &'a str,
    position: usize,
    depth: usize,
    /// Programs that were given a name in front.
    named: FxHashMap<&'a str, Arc<Program>>,
}

/// One program as it is read.
struct Scope<'a> {
    builder: Builder,
    names: FxHashMap<&'a str, Atom>,
    /// Whether types say if they are weak.
    exact: bool,
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

impl<'a> Parser<'a> {
    fn locate(&self, error: Error) -> Error {
        let before = &self.text[..self.position];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |tail| tail.chars().count()) + 1;
        let text = match error {
            Error::Parse(text) => text,
            other => other.to_string(),
        };
        parse_error!("line {line}, column {column}: {text}")
    }

    // Characters.

    fn rest(&self) -> &'a str {
        &self.text[self.position..]
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.position += rest.len() - rest.trim_start().len();
    }

    fn peek(&mut self) -> Option<char> {
        self.skip_space();
        self.rest().chars().next()
    }

    fn eat(&mut self, token: &str) -> bool {
        self.skip_space();
        let found = self.rest().starts_with(token);
        if found {
            self.position += token.len();
        }
        found
    }

    fn expect(&mut self, token: &str) -> Result<()> {
        if self.eat(token) {
            return Ok(());
        }
        let got: String = self.rest().chars().take(20).collect();
        Err(parse_error!("expected '{token}', got '{got}'"))
    }

    fn peek_name(&mut self) -> &'a str {
        self.skip_space();
        let rest = self.rest();
        &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())]
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let found = self.peek_name() == word;
        if found {
            self.position += word.len();
        }
        found
    }

    fn expect_word(&mut self, word: &str) -> Result<()> {
        if self.eat_word(word) {
            Ok(())
        } else {
            self.expect(word).and(Err(parse_error!("expected '{word}'")))
        }
    }

    fn take_name(&mut self) -> Result<&'a str> {
        let name = self.peek_name();
        if name.is_empty() {
            let got: String = self.rest().chars().take(20).collect();
            return Err(parse_error!("expected a name, got '{got}'"));
        }
        self.position += name.len();
        Ok(name)
    }

    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth >= MAX_DEPTH {
            return Err(parse_error!("nested more than {MAX_DEPTH} deep"));
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    fn string(&mut self) -> Result<String> {
        self.expect("\"")?;
        let mut result = String::new();
        let mut escaped = false;
        for (offset, c) in self.rest().char_indices() {
            match (escaped, c) {
                (false, '"') => {
                    self.position += offset + 1;
                    return Ok(result);
                }
                (false, '\\') => escaped = true,
                (true, 'n') => {
                    result.push('\n');
                    escaped = false;
                }
                (_, c) => {
                    result.push(c);
                    escaped = false;
                }
            }
        }
        Err(parse_error!("a string does not end"))
    }

    // Programs.

    fn file(&mut self) -> Result<Program> {
        while self.eat_word("let") {
            let name = self.take_name()?;
            self.expect("=")?;
            let program = self.program()?;
            self.expect_word("in")?;
            if self.named.insert(name, Arc::new(program)).is_some() {
                return Err(parse_error!("the name '{name}' is given twice"));
            }
        }
        let program = self.program()?;
        if self.peek().is_some() {
            return Err(parse_error!("unexpected text after the program"));
        }
        Ok(program)
    }

    fn program(&mut self) -> Result<Program> {
        self.deeper(Self::program_body)
    }

    fn program_body(&mut self) -> Result<Program> {
        self.expect("{")?;
        self.expect_word("lambda")?;
        let exact = self.peek() == Some('"');
        let name = if exact { self.string()? } else { String::new() };
        let mut scope = Scope { builder: Builder::new(name), names: FxHashMap::default(), exact };
        while !self.eat(";") {
            self.constant(&mut scope)?;
        }
        while !self.eat(".") {
            let (name, ty) = self.declared()?;
            let atom = scope.builder.input(ty);
            scope.bind(name, atom)?;
        }
        self.expect_word("let")?;
        loop {
            while self.eat(";") {}
            // `in` cannot name a variable.
            if self.eat_word("in") {
                break;
            }
            self.equation(&mut scope)?;
        }
        self.expect("(")?;
        let mut outputs = Vec::new();
        while !self.eat(")") {
            outputs.push(self.atom(&scope)?);
            if !self.eat(",") && self.peek() != Some(')') {
                return Err(parse_error!("expected ',' or ')' between outputs"));
            }
        }
        self.expect("}")?;
        Ok(scope.builder.finish(outputs))
    }

    fn declared(&mut self) -> Result<(&'a str, Type)> {
        let name = self.take_name()?;
        self.expect(":")?;
        Ok((name, self.ty()?))
    }

    fn constant(&mut self, scope: &mut Scope<'a>) -> Result<()> {
        let (name, ty) = self.declared()?;
        if !self.eat("=") {
            return Err(parse_error!(
                "the value of the captured array '{name}' is not given; print with '{{:#}}' to keep values"
            ));
        }
        self.expect("#")?;
        let digits = self.peek_name();
        self.position += digits.len();
        let bytes: Option<Vec<u8>> = digits
            .as_bytes()
            .chunks(2)
            .map(|pair| match pair {
                [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
                _ => None,
            })
            .collect();
        let bytes = bytes.ok_or_else(|| parse_error!("the value of '{name}' is not in hexadecimal"))?;
        let (array, sizes) = match &ty {
            Type::Array(array) => (array, array.sizes()),
            _ => return Err(parse_error!("the captured '{name}' is not an array")),
        };
        let sizes = sizes.ok_or_else(|| parse_error!("the captured '{name}' has no constant shape"))?;
        let wanted = crate::tensor::byte_size(&sizes, array.dtype)?;
        if wanted != bytes.len() {
            return Err(parse_error!("'{name}' takes {wanted} bytes, got {}", bytes.len()));
        }
        if !crate::tensor::are_normal(array.dtype, &bytes) {
            return Err(parse_error!("the boolean '{name}' has elements other than 0 and 1"));
        }
        let tensor = Tensor::from_bytes(array.dtype, sizes, &bytes)?;
        let atom = scope.builder.constant(tensor, array.weak);
        scope.bind(name, atom)
    }

    fn equation(&mut self, scope: &mut Scope<'a>) -> Result<()> {
        let mut declared = Vec::new();
        while !self.eat("=") {
            declared.push(self.declared()?);
        }
        self.skip_space();
        let rest = self.rest();
        let end = rest.find(|c: char| !is_name(c) && c != '-').unwrap_or(rest.len());
        let op_name = &rest[..end];
        self.position += end;
        let mut params = Vec::new();
        // A bracket belongs to the op only if it follows at once.
        if self.rest().starts_with('[') {
            self.position += 1;
            while !self.eat("]") {
                let name = self.take_name()?;
                self.expect("=")?;
                let programs = name.contains("jaxpr") || name == "branches";
                params.push((Arc::from(name), self.value(true, programs)?));
            }
        }
        let mut inputs = Vec::new();
        while !self.at_end_of_equation() {
            inputs.push(self.atom(scope)?);
        }
        imply(op_name, &mut params, declared.first().map(|(_, ty)| ty));
        let op = Op::from_params(op_name, params)?;
        let outputs = scope.builder.emit(op, &inputs)?;
        if outputs.len() != declared.len() {
            return Err(parse_error!("{op_name} has {} outputs, got {}", outputs.len(), declared.len()));
        }
        for ((name, declared), var) in declared.into_iter().zip(outputs) {
            let found = scope.builder.type_of(Atom::Var(var));
            let same = if scope.exact { found == declared } else { strong(&found) == declared };
            if !same {
                return Err(parse_error!("'{name}' is declared {declared:#} but {op_name} gives {found:#}"));
            }
            if name != "_" {
                scope.bind(name, Atom::Var(var))?;
            }
        }
        Ok(())
    }

    /// Whether the next thing is no operand: `in`, `;`, `=` or a declaration.
    fn at_end_of_equation(&mut self) -> bool {
        match self.peek() {
            None | Some(';' | '=' | '}') => return true,
            _ => {}
        }
        let name = self.peek_name();
        if name == "in" {
            return true;
        }
        let is_value = name.is_empty()
            || name.starts_with(|c: char| c.is_ascii_digit())
            || ["True", "False", "nan", "inf"].contains(&name);
        !is_value && self.rest()[name.len()..].starts_with(':')
    }

    fn atom(&mut self, scope: &Scope<'a>) -> Result<Atom> {
        let name = self.peek_name();
        if name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_') && !["nan", "inf"].contains(&name) {
            self.position += name.len();
            return scope
                .names
                .get(name)
                .copied()
                .ok_or_else(|| parse_error!("there is no variable '{name}' here"));
        }
        let rest = self.rest();
        let end = rest.find(':').ok_or_else(|| parse_error!("expected an operand"))?;
        let value = &rest[..end];
        if value.len() > 200 || value.contains('\n') {
            return Err(parse_error!("expected an operand"));
        }
        self.position += end + 1;
        match self.ty()? {
            Type::Array(ty) if ty.rank() == 0 => literal(value, &ty).map(Atom::Literal),
            other => Err(parse_error!("a literal of type {other}")),
        }
    }

    // Types.

    fn ty(&mut self) -> Result<Type> {
        if self.eat("Token[]") {
            return Ok(Type::Token);
        }
        if self.eat("Ref{") {
            let inner = self.array_type()?;
            self.expect("}")?;
            return Ok(Type::Ref(inner));
        }
        self.array_type().map(Type::Array)
    }

    fn array_type(&mut self) -> Result<ArrayType> {
        let weak = self.eat("~");
        self.skip_space();
        let rest = self.rest();
        let end = rest.find('[').filter(|&end| end <= 20).ok_or_else(|| parse_error!("expected a type"))?;
        let dtype = DType::parse(&rest[..end])?;
        let inside = &rest[end + 1..];
        let close = inside.find(']').ok_or_else(|| parse_error!("a type does not end"))?;
        self.position += end + 1 + close + 1;
        let shape = split_at_commas(&inside[..close]).into_iter().map(dim).collect::<Result<Shape>>()?;
        Ok(ArrayType::new(shape, dtype).with_weak(weak))
    }

    // Parameters.

    /// `top`: not inside a tuple; `programs`: names mean programs.
    fn value(&mut self, top: bool, programs: bool) -> Result<Param> {
        match self.peek() {
            Some('(') if !self.is_complex() => self.tuple('(', ")", programs),
            Some('[') => self.tuple('[', "]", programs),
            Some('"') => Ok(Param::Str(self.string()?.into())),
            Some('{') => self.program().map(|program| Param::Program(Arc::new(program))),
            _ => self.bare_value(top, programs),
        }
    }

    /// Whether the parenthesis that comes next opens a complex literal.
    fn is_complex(&self) -> bool {
        self.rest()
            .split_once(')')
            .is_some_and(|(inside, after)| inside.ends_with('j') && after.starts_with(':'))
    }

    fn tuple(&mut self, open: char, close: &str, programs: bool) -> Result<Param> {
        self.position += open.len_utf8();
        let mut items = Vec::new();
        while !self.eat(close) {
            items.push(self.deeper(|parser| parser.value(false, programs))?);
            if !self.eat(",") && !self.rest().trim_start().starts_with(close) {
                return Err(parse_error!("expected ',' or '{close}' in a tuple"));
            }
        }
        Ok(Param::List(items))
    }

    /// A value without delimiters: it ends at a comma or closing bracket, at the
    /// top also at a space.
    fn bare_value(&mut self, top: bool, programs: bool) -> Result<Param> {
        self.skip_space();
        let rest = self.rest();
        let mut depth = 0usize;
        let mut end = rest.len();
        for (offset, c) in rest.char_indices() {
            let stop = match c {
                '(' | '[' => {
                    depth += 1;
                    false
                }
                ')' | ']' if depth > 0 => {
                    depth -= 1;
                    false
                }
                ')' | ']' => true,
                ',' => depth == 0,
                c if c.is_whitespace() => depth == 0 && top,
                _ => false,
            };
            if stop || offset > MAX_DIM_TEXT {
                end = offset;
                break;
            }
        }
        let text = rest[..end].trim();
        self.position += end;
        match text {
            "None" => return Ok(Param::None),
            "True" => return Ok(Param::Bool(true)),
            "False" => return Ok(Param::Bool(false)),
            "" => return Err(parse_error!("a parameter has no value")),
            _ => {}
        }
        if let Ok(number) = text.parse::<i64>() {
            return Ok(Param::Int(number));
        }
        if let Some((value, ty)) = text.rsplit_once(':') {
            let dtype = ty.strip_suffix("[]").ok_or_else(|| parse_error!("'{ty}' is not a scalar type"))?;
            let ty = ArrayType::scalar(DType::parse(dtype)?);
            return literal(value, &ty).map(|literal| Param::Scalar(literal.value));
        }
        if let Some(program) = self.named.get(text).filter(|_| programs) {
            return Ok(Param::Program(program.clone()));
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || "_<>-.".contains(c);
        if text.chars().all(plain) && !text.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
            return Ok(Param::Str(text.into()));
        }
        dim(text).map(|dim| crate::ToParam::to_param(&dim))
    }
}

impl<'a> Scope<'a> {
    fn bind(&mut self, name: &'a str, atom: Atom) -> Result<()> {
        let valid =
            name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_') && !RESERVED.contains(&name);
        if !valid {
            return Err(parse_error!("'{name}' cannot name a variable"));
        }
        if self.names.insert(name, atom).is_some() {
            return Err(parse_error!("the variable '{name}' is defined twice"));
        }
        Ok(())
    }
}

fn digit(c: u8) -> Option<u8> {
    char::from(c).to_digit(16).map(|value| value as u8)
}

fn strong(ty: &Type) -> Type {
    match ty {
        Type::Array(array) => Type::Array(array.clone().with_weak(false)),
        other => other.clone(),
    }
}

fn dim(text: &str) -> Result<Dim> {
    if text.len() > MAX_DIM_TEXT {
        return Err(parse_error!("a dimension is longer than {MAX_DIM_TEXT} characters"));
    }
    Dim::parse(text.trim()).map_err(|error| parse_error!("{error}"))
}

/// The parts between commas that are in no parentheses; none of an empty text.
fn split_at_commas(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0usize, 0);
    for (offset, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..offset]);
                start = offset + 1;
            }
            _ => {}
        }
    }
    if !text.trim().is_empty() {
        parts.push(&text[start..]);
    }
    parts
}

/// Adds parameters that the text may leave out, and gives a call's theirs the
/// names of its fields.
fn imply(op: &str, params: &mut Vec<(Arc<str>, Param)>, output: Option<&Type>) {
    let has = |params: &[(Arc<str>, Param)], name: &str| params.iter().any(|(key, _)| &**key == name);
    if op == Call::NAME {
        for (name, _) in params.iter_mut().filter(|(name, _)| &**name == "jaxpr") {
            *name = "program".into();
        }
        if !has(params, "inline") {
            params.push(("inline".into(), Param::Bool(false)));
        }
    }
    if op == "broadcast_in_dim" {
        if let (false, Some(Type::Array(ty))) = (has(params, "shape"), output) {
            params.push(("shape".into(), crate::ToParam::to_param(&ty.shape)));
        }
        if !has(params, "broadcast_dimensions") {
            params.push(("broadcast_dimensions".into(), Param::List(Vec::new())));
        }
    }
}

/// A literal from what stands before and after its colon.
fn literal(text: &str, ty: &ArrayType) -> Result<Literal> {
    let dtype = ty.dtype;
    let wrong = || parse_error!("'{text}' is not a value of dtype {dtype}");
    let value = if let Some(digits) = text.strip_prefix("0x") {
        let bits = u128::from_str_radix(digits, 16).map_err(|_| wrong())?;
        let value = Scalar::from_bits(dtype, bits);
        (value.bits() == bits).then_some(value).ok_or_else(wrong)?
    } else {
        match dtype.kind() {
            Kind::Bool => match text {
                "True" => Scalar::bool(true),
                "False" => Scalar::bool(false),
                _ => return Err(wrong()),
            },
            Kind::Signed | Kind::Unsigned => {
                let number: i128 = text.parse().map_err(|_| wrong())?;
                let value = store(dtype, Wide::Int(number)).ok_or_else(wrong)?;
                (value.to_i128() == Some(number)).then_some(value).ok_or_else(wrong)?
            }
            Kind::Float => float(text, dtype).ok_or_else(wrong)?,
            Kind::Complex => complex(text, dtype).ok_or_else(wrong)?,
            Kind::Key | Kind::Float0 => return Err(parse_error!("there are no literals of dtype {dtype}")),
        }
    };
    if dtype.is_key() || dtype == DType::Float0 {
        return Err(parse_error!("there are no literals of dtype {dtype}"));
    }
    Ok(Literal { value, weak: ty.weak })
}

/// Digits are rounded once: to the dtype's own precision where Rust can.
fn float(text: &str, dtype: DType) -> Option<Scalar> {
    if dtype == DType::F64 {
        return text.parse().ok().map(|value| Scalar::from_f64(dtype, value));
    }
    let value: f32 = text.parse().ok()?;
    Some(Scalar::from_f64(dtype, f64::from(value)))
}

/// `(1+2j)`.
fn complex(text: &str, dtype: DType) -> Option<Scalar> {
    let inside = text.strip_prefix('(')?.strip_suffix("j)")?;
    let bytes = inside.as_bytes();
    let split = (1..bytes.len())
        .rev()
        .find(|&at| matches!(bytes[at], b'+' | b'-') && !matches!(bytes[at - 1], b'e' | b'E'))?;
    let (re, im) = inside.split_at_checked(split)?;
    let part = |text: &str| float(text.strip_prefix('+').unwrap_or(text), dtype.real())?.to_f64();
    Some(complex_scalar(dtype, part(re)?, part(im)?))
}
