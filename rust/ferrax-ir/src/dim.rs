//! Dimensions: constants, or integer expressions over named unknowns.
//!
//! A symbolic expression is kept as a polynomial in normal form — a sorted map
//! from monomials to integer coefficients — so equality is structural and
//! arithmetic is linear in the number of terms. Quotients and remainders that
//! do not divide evenly become opaque factors.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::{Result, parse_error, value_error};

/// One dimension of a shape.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Dim {
    Const(usize),
    /// Never a constant: those normalise to `Const`.
    Symbolic(Arc<DimExpr>),
}

/// A polynomial with integer coefficients over dimension variables.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct DimExpr {
    terms: BTreeMap<Vec<(Factor, u32)>, i64>,
}

/// What a monomial multiplies: a variable, or a quotient, remainder, maximum or minimum that has
/// no polynomial form.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
enum Factor {
    Variable(Arc<str>),
    FloorDiv(DimExpr, DimExpr),
    Mod(DimExpr, DimExpr),
    Max(DimExpr, DimExpr),
    Min(DimExpr, DimExpr),
}

/// Bounds on expressions, so that arithmetic on them stays cheap whatever the
/// text they came from.
const MAX_TERMS: usize = 10_000;
const MAX_POWER: u32 = 64;

impl DimExpr {
    fn constant(value: i64) -> Self {
        let mut terms = BTreeMap::new();
        if value != 0 {
            terms.insert(Vec::new(), value);
        }
        DimExpr { terms }
    }

    fn factor(factor: Factor) -> Self {
        DimExpr { terms: BTreeMap::from([(vec![(factor, 1)], 1)]) }
    }

    fn as_constant(&self) -> Option<i64> {
        match self.terms.len() {
            0 => Some(0),
            1 => self.terms.get(&Vec::new()).copied(),
            _ => None,
        }
    }

    fn accumulate(&mut self, monomial: Vec<(Factor, u32)>, coefficient: i64) -> Result<()> {
        let entry = self.terms.entry(monomial.clone()).or_insert(0);
        *entry = entry.checked_add(coefficient).ok_or_else(overflow)?;
        if *entry == 0 {
            self.terms.remove(&monomial);
        }
        Ok(())
    }

    fn add(&self, other: &Self) -> Result<Self> {
        let mut sum = self.clone();
        for (monomial, &coefficient) in &other.terms {
            sum.accumulate(monomial.clone(), coefficient)?;
        }
        Ok(sum)
    }

    fn scale(&self, by: i64) -> Result<Self> {
        self.mul(&DimExpr::constant(by))
    }

    fn mul(&self, other: &Self) -> Result<Self> {
        if self.terms.len() * other.terms.len() > MAX_TERMS {
            return Err(value_error!("a symbolic dimension has more than {MAX_TERMS} terms"));
        }
        let mut product = DimExpr::default();
        for (left, &a) in &self.terms {
            for (right, &b) in &other.terms {
                let mut powers: BTreeMap<Factor, u32> = left.iter().cloned().collect();
                for (factor, power) in right {
                    let total = powers.entry(factor.clone()).or_insert(0);
                    *total = total.checked_add(*power).filter(|&n| n <= MAX_POWER).ok_or_else(overflow)?;
                }
                let coefficient = a.checked_mul(b).ok_or_else(overflow)?;
                product.accumulate(powers.into_iter().collect(), coefficient)?;
            }
        }
        Ok(product)
    }

    /// `self / other` if the division is exact for every value of the variables
    /// and `other` is a single term.
    fn div_exact(&self, other: &Self) -> Option<Self> {
        let (divisor, &by) = other.terms.iter().next()?;
        if other.terms.len() != 1 {
            return (self == other).then(|| DimExpr::constant(1));
        }
        let mut quotient = DimExpr::default();
        for (monomial, &coefficient) in &self.terms {
            if coefficient.checked_rem(by) != Some(0) {
                return None;
            }
            let mut powers: BTreeMap<Factor, u32> = monomial.iter().cloned().collect();
            for (factor, power) in divisor {
                let left = powers.get_mut(factor)?;
                *left = left.checked_sub(*power)?;
                if *left == 0 {
                    powers.remove(factor);
                }
            }
            quotient.accumulate(powers.into_iter().collect(), coefficient / by).ok()?;
        }
        Some(quotient)
    }

    fn evaluate(&self, lookup: &dyn Fn(&str) -> Option<usize>) -> Result<i64> {
        let mut total: i64 = 0;
        for (monomial, &coefficient) in &self.terms {
            let mut product = coefficient;
            for (factor, power) in monomial {
                let value = match factor {
                    Factor::Variable(name) => lookup(name)
                        .and_then(|n| i64::try_from(n).ok())
                        .ok_or_else(|| value_error!("dimension variable '{name}' has no value"))?,
                    Factor::FloorDiv(a, b) => nonzero(a, b, lookup)?.0,
                    Factor::Mod(a, b) => nonzero(a, b, lookup)?.1,
                    Factor::Max(a, b) => a.evaluate(lookup)?.max(b.evaluate(lookup)?),
                    Factor::Min(a, b) => a.evaluate(lookup)?.min(b.evaluate(lookup)?),
                };
                for _ in 0..*power {
                    product = product.checked_mul(value).ok_or_else(overflow)?;
                }
            }
            total = total.checked_add(product).ok_or_else(overflow)?;
        }
        Ok(total)
    }

    /// With what `lookup` gives in place of variables; others stay.
    fn substitute(&self, lookup: &dyn Fn(&str) -> Result<Option<DimExpr>>) -> Result<Self> {
        let mut total = DimExpr::default();
        for (monomial, &coefficient) in &self.terms {
            let mut product = DimExpr::constant(coefficient);
            for (factor, power) in monomial {
                let value = match factor {
                    Factor::Variable(name) => {
                        lookup(name)?.unwrap_or_else(|| DimExpr::factor(factor.clone()))
                    }
                    Factor::FloorDiv(a, b) => {
                        DimExpr::floor_div(a.substitute(lookup)?, b.substitute(lookup)?)?
                    }
                    Factor::Mod(a, b) => DimExpr::modulo(a.substitute(lookup)?, b.substitute(lookup)?)?,
                    Factor::Max(a, b) => DimExpr::largest(a.substitute(lookup)?, b.substitute(lookup)?),
                    Factor::Min(a, b) => DimExpr::smallest(a.substitute(lookup)?, b.substitute(lookup)?),
                };
                for _ in 0..*power {
                    product = product.mul(&value)?;
                }
            }
            total = total.add(&product)?;
        }
        Ok(total)
    }

    fn floor_div(a: Self, b: Self) -> Result<Self> {
        if let (Some(a), Some(b)) = (a.as_constant(), b.as_constant()) {
            return divide(a, b).map(|(quotient, _)| DimExpr::constant(quotient));
        }
        Ok(a.div_exact(&b).unwrap_or_else(|| DimExpr::factor(Factor::FloorDiv(a, b))))
    }

    fn modulo(a: Self, b: Self) -> Result<Self> {
        if let (Some(a), Some(b)) = (a.as_constant(), b.as_constant()) {
            return divide(a, b).map(|(_, remainder)| DimExpr::constant(remainder));
        }
        Ok(match a.div_exact(&b) {
            Some(_) => DimExpr::default(),
            None => DimExpr::factor(Factor::Mod(a, b)),
        })
    }

    fn largest(a: Self, b: Self) -> Self {
        match (a.as_constant(), b.as_constant()) {
            (Some(a), Some(b)) => DimExpr::constant(a.max(b)),
            _ if a == b => a,
            _ => DimExpr::factor(Factor::Max(a, b)),
        }
    }

    fn smallest(a: Self, b: Self) -> Self {
        match (a.as_constant(), b.as_constant()) {
            (Some(a), Some(b)) => DimExpr::constant(a.min(b)),
            _ if a == b => a,
            _ => DimExpr::factor(Factor::Min(a, b)),
        }
    }

    fn variables(&self, into: &mut Vec<Arc<str>>) {
        for factor in self.terms.keys().flatten().map(|(factor, _)| factor) {
            match factor {
                Factor::Variable(name) if !into.contains(name) => into.push(name.clone()),
                Factor::Variable(_) => {}
                Factor::FloorDiv(a, b) | Factor::Mod(a, b) | Factor::Max(a, b) | Factor::Min(a, b) => {
                    a.variables(into);
                    b.variables(into);
                }
            }
        }
    }
}

/// Floor quotient and remainder of two evaluated expressions.
fn nonzero(a: &DimExpr, b: &DimExpr, lookup: &dyn Fn(&str) -> Option<usize>) -> Result<(i64, i64)> {
    divide(a.evaluate(lookup)?, b.evaluate(lookup)?)
}

/// Floor quotient and remainder.
fn divide(a: i64, b: i64) -> Result<(i64, i64)> {
    if b == 0 {
        return Err(value_error!("division by zero in a symbolic dimension"));
    }
    let quotient = a.checked_div_euclid(b).ok_or_else(overflow)?;
    let remainder = a.rem_euclid(b);
    Ok(if b < 0 && remainder != 0 { (quotient - 1, remainder + b) } else { (quotient, remainder) })
}

fn overflow() -> crate::Error {
    value_error!("a dimension exceeds the range of 64-bit integers")
}

impl Dim {
    /// The variable `name`.
    pub fn variable(name: &str) -> Dim {
        Dim::Symbolic(Arc::new(DimExpr::factor(Factor::Variable(name.into()))))
    }

    pub fn as_const(&self) -> Option<usize> {
        match self {
            Dim::Const(size) => Some(*size),
            Dim::Symbolic(_) => None,
        }
    }

    /// Whether the two are different sizes whatever the variables, which are 1 or more, are: the difference is a sum of
    /// products of variables, all of one sign.
    pub fn surely_differs(&self, other: &Dim) -> Result<bool> {
        let difference = self.expr()?.add(&other.expr()?.scale(-1)?)?;
        let plain = |monomial: &Vec<(Factor, u32)>| {
            monomial.iter().all(|(factor, _)| matches!(factor, Factor::Variable(_)))
        };
        let mut signs = difference.terms.values().map(|count| count.signum());
        let Some(first) = signs.next() else { return Ok(false) };
        Ok(signs.all(|sign| sign == first) && difference.terms.keys().all(plain))
    }

    /// The constant size, or an error that names what needed one.
    pub fn require(&self, what: &str) -> Result<usize> {
        self.as_const()
            .ok_or_else(|| value_error!("{what} needs a constant dimension, got the symbolic '{self}'"))
    }

    fn expr(&self) -> Result<DimExpr> {
        match self {
            Dim::Const(size) => Ok(DimExpr::constant(i64::try_from(*size).map_err(|_| overflow())?)),
            Dim::Symbolic(expr) => Ok((**expr).clone()),
        }
    }

    fn from_expr(expr: DimExpr) -> Result<Dim> {
        match expr.as_constant() {
            Some(value) => usize::try_from(value)
                .map(Dim::Const)
                .map_err(|_| value_error!("a dimension would be negative: {value}")),
            None => Ok(Dim::Symbolic(Arc::new(expr))),
        }
    }

    pub fn add(&self, other: &Dim) -> Result<Dim> {
        if let (Dim::Const(a), Dim::Const(b)) = (self, other) {
            return a.checked_add(*b).map(Dim::Const).ok_or_else(overflow);
        }
        Dim::from_expr(self.expr()?.add(&other.expr()?)?)
    }

    pub fn sub(&self, other: &Dim) -> Result<Dim> {
        Dim::from_expr(self.expr()?.add(&other.expr()?.scale(-1)?)?)
    }

    /// `self + offset`, where `offset` may be negative.
    pub fn offset(&self, offset: i64) -> Result<Dim> {
        Dim::from_expr(self.expr()?.add(&DimExpr::constant(offset))?)
    }

    pub fn mul(&self, other: &Dim) -> Result<Dim> {
        if let (Dim::Const(a), Dim::Const(b)) = (self, other) {
            return a.checked_mul(*b).map(Dim::Const).ok_or_else(overflow);
        }
        Dim::from_expr(self.expr()?.mul(&other.expr()?)?)
    }

    /// `floor(self / other)`.
    pub fn floor_div(&self, other: &Dim) -> Result<Dim> {
        if *other == Dim::Const(0) {
            return Err(value_error!("a dimension is divided by zero"));
        }
        if let (Dim::Const(a), Dim::Const(b)) = (self, other) {
            return Ok(Dim::Const(a / b));
        }
        Dim::from_expr(DimExpr::floor_div(self.expr()?, other.expr()?)?)
    }

    /// `self - other * floor(self / other)`.
    pub fn modulo(&self, other: &Dim) -> Result<Dim> {
        if *other == Dim::Const(0) {
            return Err(value_error!("a dimension is divided by zero"));
        }
        if let (Dim::Const(a), Dim::Const(b)) = (self, other) {
            return Ok(Dim::Const(a % b));
        }
        Dim::from_expr(DimExpr::modulo(self.expr()?, other.expr()?)?)
    }

    /// The smaller one.
    pub fn min(&self, other: &Dim) -> Result<Dim> {
        if let (Dim::Const(a), Dim::Const(b)) = (self, other) {
            return Ok(Dim::Const(*a.min(b)));
        }
        Dim::from_expr(DimExpr::smallest(self.expr()?, other.expr()?))
    }

    /// The product of all dimensions: the number of elements. It is 0 if one of them is, whatever the
    /// others are.
    pub fn product<'a>(dims: impl IntoIterator<Item = &'a Dim>) -> Result<Dim> {
        let mut product = Ok(Dim::Const(1));
        for dim in dims {
            if *dim == Dim::Const(0) {
                return Ok(Dim::Const(0));
            }
            product = product.and_then(|product| product.mul(dim));
        }
        product
    }

    /// The size once the variables are known.
    pub fn evaluate(&self, lookup: &dyn Fn(&str) -> Option<usize>) -> Result<usize> {
        match self {
            Dim::Const(size) => Ok(*size),
            Dim::Symbolic(expr) => {
                let value = expr.evaluate(lookup)?;
                usize::try_from(value).map_err(|_| value_error!("dimension '{self}' evaluates to {value}"))
            }
        }
    }

    /// With what `lookup` gives in place of variables; others stay.
    pub fn substitute(&self, lookup: &dyn Fn(&str) -> Option<Dim>) -> Result<Dim> {
        match self {
            Dim::Const(_) => Ok(self.clone()),
            Dim::Symbolic(expr) => {
                let lookup = |name: &str| lookup(name).map(|dim| dim.expr()).transpose();
                Dim::from_expr(expr.substitute(&lookup)?)
            }
        }
    }

    /// The variables that occur, each once, in order of first use.
    pub fn variables(&self) -> Vec<Arc<str>> {
        let mut names = Vec::new();
        if let Dim::Symbolic(expr) = self {
            expr.variables(&mut names);
        }
        names
    }

    /// Parses what `Display` prints: sums of products of integers, names,
    /// powers `a^2`, `floordiv(a, b)`, `mod(a, b)`, `max(a, b)` and `min(a, b)`.
    pub fn parse(text: &str) -> Result<Dim> {
        let mut parser = Parser { rest: text.trim(), depth: 0 };
        let expr = parser.sum()?;
        if !parser.rest.is_empty() {
            return Err(parse_error!("unexpected '{}' in dimension '{text}'", parser.rest));
        }
        Dim::from_expr(expr)
    }
}

struct Parser<'a> {
    rest: &'a str,
    depth: usize,
}

impl Parser<'_> {
    fn eat(&mut self, token: char) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }

    fn take_while(&mut self, keep: impl Fn(char) -> bool) -> String {
        let end = self.rest.find(|c| !keep(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        taken.to_owned()
    }

    fn sum(&mut self) -> Result<DimExpr> {
        self.depth += 1;
        if self.depth > 32 {
            return Err(parse_error!("a dimension expression is nested too deep"));
        }
        let negative = self.eat('-');
        let mut total = self.product()?;
        if negative {
            total = total.scale(-1)?;
        }
        loop {
            if self.eat('+') {
                total = total.add(&self.product()?)?;
            } else if self.eat('-') {
                total = total.add(&self.product()?.scale(-1)?)?;
            } else {
                self.depth -= 1;
                return Ok(total);
            }
        }
    }

    fn product(&mut self) -> Result<DimExpr> {
        let mut total = self.power()?;
        while self.eat('*') {
            total = total.mul(&self.power()?)?;
        }
        Ok(total)
    }

    fn power(&mut self) -> Result<DimExpr> {
        let base = self.atom()?;
        if !self.eat('^') {
            return Ok(base);
        }
        let exponent: u32 = self.number()?;
        if exponent > 16 {
            return Err(parse_error!("the power {exponent} of a dimension is too large"));
        }
        (0..exponent).try_fold(DimExpr::constant(1), |product, _| product.mul(&base))
    }

    fn number<T: std::str::FromStr>(&mut self) -> Result<T> {
        let digits = self.take_while(|c| c.is_ascii_digit());
        digits
            .parse()
            .map_err(|_| parse_error!("expected a number in a dimension, got '{digits}{}'", self.rest))
    }

    fn atom(&mut self) -> Result<DimExpr> {
        if self.rest.starts_with(|c: char| c.is_ascii_digit()) {
            return Ok(DimExpr::constant(self.number()?));
        }
        if self.eat('(') {
            let inner = self.sum()?;
            return if self.eat(')') { Ok(inner) } else { Err(parse_error!("expected ')' in a dimension")) };
        }
        let name = self.take_while(|c| c.is_alphanumeric() || c == '_');
        if name.is_empty() {
            return Err(parse_error!("expected a name or a number in a dimension, got '{}'", self.rest));
        }
        let function: fn(DimExpr, DimExpr) -> Result<DimExpr> = match name.as_str() {
            "floordiv" => DimExpr::floor_div,
            "mod" => DimExpr::modulo,
            "max" => |a, b| Ok(DimExpr::largest(a, b)),
            "min" => |a, b| Ok(DimExpr::smallest(a, b)),
            _ => return Ok(DimExpr::factor(Factor::Variable(name.into()))),
        };
        let arguments = (self.eat('('), self.sum()?, self.eat(','), self.sum()?, self.eat(')'));
        match arguments {
            (true, a, true, b, true) => function(a, b),
            _ => Err(parse_error!("expected '{name}(a, b)' in a dimension")),
        }
    }
}

impl From<usize> for Dim {
    fn from(size: usize) -> Self {
        Dim::Const(size)
    }
}

impl PartialEq<usize> for Dim {
    fn eq(&self, other: &usize) -> bool {
        self.as_const() == Some(*other)
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Const(size) => write!(f, "{size}"),
            Dim::Symbolic(expr) => write!(f, "{expr}"),
        }
    }
}

impl fmt::Display for DimExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.terms.is_empty() {
            return f.write_str("0");
        }
        // Constants sort first in the map and read better last.
        let constant = self.terms.iter().filter(|(monomial, _)| monomial.is_empty());
        let others = self.terms.iter().filter(|(monomial, _)| !monomial.is_empty());
        for (index, (monomial, &coefficient)) in others.chain(constant).enumerate() {
            let sign = match (index, coefficient < 0) {
                (0, false) => "",
                (0, true) => "-",
                (_, false) => " + ",
                (_, true) => " - ",
            };
            f.write_str(sign)?;
            let magnitude = coefficient.unsigned_abs();
            if monomial.is_empty() {
                write!(f, "{magnitude}")?;
                continue;
            }
            if magnitude != 1 {
                write!(f, "{magnitude}*")?;
            }
            for (position, (factor, power)) in monomial.iter().enumerate() {
                if position > 0 {
                    f.write_str("*")?;
                }
                match factor {
                    Factor::Variable(name) => f.write_str(name)?,
                    Factor::FloorDiv(a, b) => write!(f, "floordiv({a}, {b})")?,
                    Factor::Mod(a, b) => write!(f, "mod({a}, {b})")?,
                    Factor::Max(a, b) => write!(f, "max({a}, {b})")?,
                    Factor::Min(a, b) => write!(f, "min({a}, {b})")?,
                }
                if *power > 1 {
                    write!(f, "^{power}")?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_normalises() {
        let (b, n) = (Dim::variable("b"), Dim::variable("n"));
        let left = b.add(&n).unwrap().mul(&Dim::Const(2)).unwrap();
        let right = n.mul(&Dim::Const(2)).unwrap().add(&b).unwrap().add(&b).unwrap();
        assert_eq!(left, right);
        assert_eq!(left.sub(&right).unwrap(), Dim::Const(0));
        assert_eq!(left.to_string(), "2*b + 2*n");
    }

    #[test]
    fn division_is_exact_where_it_can_be() {
        let product = Dim::variable("b").mul(&Dim::Const(6)).unwrap();
        assert_eq!(product.floor_div(&Dim::Const(3)).unwrap().to_string(), "2*b");
        let odd = product.floor_div(&Dim::Const(4)).unwrap();
        assert_eq!(odd.to_string(), "floordiv(6*b, 4)");
        assert_eq!(odd.evaluate(&|_| Some(3)).unwrap(), 4);
    }

    #[test]
    fn text_round_trips() {
        for text in ["b", "2*b + 1", "a*b^2 - 3", "floordiv(b + 1, 2)*mod(a, 3)", "max(a, 3) - min(b, -2)"] {
            let dim = Dim::parse(text).unwrap();
            assert_eq!(Dim::parse(&dim.to_string()).unwrap(), dim, "{text}");
        }
        assert!(Dim::parse("b +").is_err());
        assert!(Dim::parse(&"(".repeat(1000)).is_err());
    }

    #[test]
    fn sizes_that_surely_differ() {
        let of = |text| Dim::parse(text).unwrap();
        for (a, b, surely) in [
            ("6*b", "5*b", true),
            ("b + 1", "b", true),
            ("b", "b", false),
            ("a*b", "c", false),
            ("4*floordiv(b, 4)", "b", false),
            ("2*b", "b + 1", false),
        ] {
            assert_eq!(of(a).surely_differs(&of(b)).unwrap(), surely, "{a} {b}");
        }
    }

    #[test]
    fn negative_sizes_are_refused() {
        assert!(Dim::Const(2).sub(&Dim::Const(3)).is_err());
    }
}
