//! Steps that are calls, branches and loops.

use std::sync::Arc;

use ferrax_ir::ops::{Call, Compare, Cond, Scan, While};
use ferrax_ir::{ArrayType, Builder, DType, Dim, Program};

use super::bound::EXACT;
use super::{DEEPEST, Maker, Value};
use crate::common::Choices;

impl<C: Choices> Maker<'_, C> {
    /// A program over inputs of these types, all exact, that gives outputs of the types wanted:
    /// each a computed value, or else an input. Those need to have such types, then.
    fn body(&mut self, inputs: &[ArrayType], wanted: &[ArrayType]) -> Option<Arc<Program>> {
        let mut b = Builder::new("body");
        let values = inputs.iter().map(|ty| Value { atom: b.input(ty.clone()), bound: EXACT }).collect();
        let mut inner = Maker { b, choices: &mut *self.choices, values, depth: self.depth + 1 };
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

    /// Calls, branches and loops.
    pub(super) fn nested(&mut self, x: Value, sizes: &[usize]) -> Option<Vec<Value>> {
        if self.depth == DEEPEST || !x.is_exact() {
            return None;
        }
        let array = |maker: &Self, value: Value| maker.b.array_type(value.atom).ok();
        let y = self.any(|_, value| value.is_exact())?;
        let (tx, ty) = (array(self, x)?, array(self, y)?);
        let counter = ArrayType::of_sizes(&[], DType::I32);
        match self.choices.below(4) {
            0 => {
                let program = self.body(&[tx.clone(), ty.clone()], &[tx, ty])?;
                self.exactly(Call { name: "body".into(), program, inline: false }, &[x, y])
            }
            1 => {
                let count = 2 + self.choices.below(2);
                let branches = (0..count)
                    .map(|_| self.body(&[tx.clone(), ty.clone()], std::slice::from_ref(&tx)))
                    .collect::<Option<Vec<_>>>()?;
                let index = self.index();
                self.emit(Cond { branches }, &[index, x.atom, y.atom], EXACT)
            }
            2 if !sizes.is_empty() => {
                // `y` is carried along the first axis of `x`, beside a constant of its type.
                let element = ArrayType::of_sizes(&sizes[1..], tx.dtype);
                let jaxpr = self.body(&[ty.clone(), ty.clone(), element.clone()], &[ty.clone(), element])?;
                let op = Scan {
                    jaxpr,
                    length: Dim::Const(sizes[0]),
                    num_carry: 1,
                    num_consts: 1,
                    reverse: self.flip(),
                    unroll: 1,
                };
                let constant = self.exact_like(y)?;
                self.exactly(op, &[constant, y, x])
            }
            _ => {
                // `x` is carried for a few steps, which a counter counts.
                let steps = self.choices.below(6);
                let mut b = Builder::new("cond");
                let i = b.input(counter.clone());
                b.input(tx.clone());
                let last = b.int_scalar(DType::I32, steps as i64);
                let goes_on = b.compare(Compare::Lt, i, last).ok()?;
                let cond_jaxpr = Arc::new(b.finish([goes_on]));
                let inner =
                    self.body(&[counter.clone(), ty.clone(), tx.clone()], std::slice::from_ref(&tx))?;
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
                    cond_nconsts: 0,
                    max_steps: None,
                };
                let zero = self.b.int_scalar(DType::I32, 0);
                self.emit(op, &[y.atom, zero, x.atom], EXACT)
            }
        }
    }
}
