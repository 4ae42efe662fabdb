//! Steps that are calls, branches and loops.

use std::sync::Arc;

use ferrax_ir::ops::{Call, Clamp, Compare, Cond, Reshape, Scan, While};
use ferrax_ir::{ArrayType, Builder, DType, Dim, Program};

use super::bound::EXACT;
use super::{DEEPEST, Made, Maker, Site, Value, dims};
use crate::common::Choices;

impl<C: Choices> Maker<'_, C> {
    /// A program over inputs of these types, all exact, that gives outputs of the types wanted:
    /// each a computed value, or else an input. Those need to have such types, then.
    pub(super) fn body(&mut self, inputs: &[ArrayType], wanted: &[ArrayType]) -> Option<Arc<Program>> {
        let mut b = Builder::new("body");
        let values = inputs.iter().map(|ty| Value { atom: b.input(ty.clone()), bound: EXACT }).collect();
        let mut inner = Maker::new(b, &mut *self.choices, values, self.depth + 1);
        let steps = 1 + inner.choices.below(5);
        for _ in 0..steps {
            for value in inner.step().unwrap_or_default() {
                if value.is_exact() {
                    inner.values.push(value);
                }
            }
        }
        let mut outputs = Vec::new();
        for ty in wanted {
            let fits = |value: &&Value| inner.b.array_type(value.atom).is_ok_and(|found| found == *ty);
            outputs.push(inner.values.iter().rev().find(fits)?.atom);
        }
        Some(Arc::new(inner.b.finish(outputs)))
    }

    /// The value, another one and their types, if there may be a body over them.
    pub(super) fn pair(&mut self, x: Value) -> Option<(Value, ArrayType, ArrayType)> {
        if self.depth == DEEPEST || !x.is_exact() {
            return None;
        }
        let y = self.any(|_, value| value.is_exact())?;
        Some((y, self.b.array_type(x.atom).ok()?, self.b.array_type(y.atom).ok()?))
    }

    pub(super) fn call(&mut self, site: &Site) -> Made {
        let x = site.x;
        let (y, tx, ty) = self.pair(x)?;
        let program = self.body(&[tx.clone(), ty.clone()], &[tx, ty])?;
        self.exactly(Call { name: "body".into(), program, inline: false }, &[x, y])
    }

    pub(super) fn branches(&mut self, site: &Site) -> Made {
        let x = site.x;
        let (y, tx, ty) = self.pair(x)?;
        let count = 1 + self.choices.below(3);
        // Several results at times, of which the last may be the other operand.
        let wanted: &[ArrayType] =
            if self.flip() { &[tx.clone(), ty.clone()] } else { std::slice::from_ref(&tx) };
        let branches =
            (0..count).map(|_| self.body(&[tx.clone(), ty.clone()], wanted)).collect::<Option<Vec<_>>>()?;
        let index = self.index();
        self.emit(Cond { branches }, &[index, x.atom, y.atom], EXACT)
    }

    /// A value is carried along the first axis of `x`, beside a constant of its type, and along other arrays.
    pub(super) fn scan(&mut self, site: &Site) -> Made {
        let x = site.x;
        let (y, tx, ty) = self.pair(x)?;
        let length = *site.sizes.first()?;
        if length > 40 {
            return None;
        }
        let element = ArrayType::of_sizes(&site.sizes[1..], tx.dtype);
        let other =
            self.any(|maker, value| value.is_exact() && maker.sizes(value).first() == Some(&length))?;
        let with = ArrayType::of_sizes(&self.sizes(other)[1..], self.dtype(other));
        let num_consts = self.choices.below(2);
        let mut inputs = vec![ty.clone(); num_consts];
        inputs.extend([ty.clone(), element.clone(), with.clone()]);
        let mut wanted = vec![ty];
        for ty in [element, with] {
            if self.choices.below(4) > 0 {
                wanted.push(ty);
            }
        }
        let jaxpr = self.body(&inputs, &wanted)?;
        let op = Scan {
            jaxpr,
            length: Dim::Const(length),
            num_carry: 1,
            num_consts,
            reverse: self.flip(),
            unroll: 1 + self.choices.below(2),
        };
        let mut operands = Vec::new();
        for _ in 0..num_consts {
            operands.push(self.exact_like(y)?);
        }
        operands.extend([y, x, other]);
        self.exactly(op, &operands)
    }

    /// `x` is carried for a few steps, which a counter counts up to a limit, which is known or computed.
    pub(super) fn while_loop(&mut self, site: &Site) -> Made {
        let x = site.x;
        let (y, tx, ty) = self.pair(x)?;
        let counter = ArrayType::of_sizes(&[], DType::I32);
        let limit = self.steps()?;
        let mut b = Builder::new("cond");
        let last = b.input(counter.clone());
        let i = b.input(counter.clone());
        b.input(tx.clone());
        let goes_on = b.compare(Compare::Lt, i, last).ok()?;
        let cond_jaxpr = Arc::new(b.finish([goes_on]));
        let inner = self.body(&[counter.clone(), ty.clone(), tx.clone()], std::slice::from_ref(&tx))?;
        let mut b = Builder::new("body");
        let (constant, i, carried) = (b.input(ty), b.input(counter), b.input(tx));
        let one = b.int_scalar(DType::I32, 1);
        let next = b.add(i, one).ok()?;
        let call = Call { name: "body".into(), program: inner, inline: false };
        let carried = b.emit1(call, &[i, constant, carried]).ok()?;
        let op = While {
            body_jaxpr: Arc::new(b.finish([next, carried])),
            body_nconsts: 1,
            checkpoints: None,
            cond_jaxpr,
            cond_nconsts: 1,
            max_steps: if self.flip() { Some(9) } else { None },
        };
        let zero = self.b.int_scalar(DType::I32, 0);
        self.emit(op, &[limit.atom, y.atom, zero, x.atom], EXACT)
    }

    /// A number of steps.
    fn steps(&mut self) -> Option<Value> {
        let known = self.choices.below(6) as i64;
        let found = self.any(|maker, value| {
            value.is_exact()
                && maker.dtype(value) == DType::I32
                && maker.sizes(value).iter().product::<usize>() == 1
        });
        let Some(value) = found else {
            return Some(Value { atom: self.b.int_scalar(DType::I32, known), bound: EXACT });
        };
        let number = self.exactly(Reshape { new_sizes: dims(&[]).into(), dimensions: None }, &[value])?[0];
        let [zero, most] = [0, known].map(|number| self.b.int_scalar(DType::I32, number));
        self.emit(Clamp {}, &[zero, number.atom, most], EXACT).map(|made| made[0])
    }
}
