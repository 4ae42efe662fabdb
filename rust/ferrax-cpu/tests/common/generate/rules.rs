//! Steps that call programs which have rules of their own for derivatives, transposes, solutions or batches.

use std::sync::Arc;

use ferrax_ir::ops::{
    Checkpoint, CustomJvp, CustomVjp, CustomVmap, JvpHandle, LinearCall, LinearSolve, PolicyHandle, SavedJvp,
    SavedVjp, VjpHandle,
};
use ferrax_ir::{Builder, Program};

use super::bound::EXACT;
use super::{Made, Maker, Site};
use crate::common::Choices;

impl<C: Choices> Maker<'_, C> {
    /// A call of a program over `x` and another value, by one of the ops that have rules. They are called
    /// as other programs are; the rules are those of derivatives that were not saved.
    pub(super) fn ruled(&mut self, site: &Site) -> Made {
        let x = site.x;
        let (y, tx, ty) = self.pair(x)?;
        let name = Arc::<str>::from("rule");
        if self.choices.below(6) == 0 && site.dtype.is_float() && !site.dtype.is_storage_only() {
            return self.solved(site);
        }
        let program = self.body(&[tx.clone(), ty.clone()], std::slice::from_ref(&tx))?;
        let operands = [x, y];
        match self.choices.below(5) {
            0 => {
                let op = Checkpoint {
                    differentiated: self.flip(),
                    jaxpr: program,
                    policy: PolicyHandle::default(),
                    prevent_cse: self.flip(),
                };
                self.exactly(op, &operands)
            }
            1 => {
                let (nonzero, flags) = (vec![true; 2], vec![true]);
                let rule = JvpHandle(Arc::new(SavedJvp { name, nonzero, flags, program: None }));
                let op = CustomJvp {
                    call_jaxpr: program,
                    jvp_jaxpr_fun: rule,
                    num_consts: 0,
                    symbolic_zeros: false,
                };
                self.exactly(op, &operands)
            }
            2 => {
                let (perturbed, flags) = (vec![true; 2], vec![true; 2]);
                let saved = SavedVjp { name, perturbed, flags, programs: None, optimize_remat: false };
                let rule = VjpHandle(Arc::new(saved));
                let op = CustomVjp { call_jaxpr: program, num_consts: 0, rule, symbolic_zeros: false };
                self.exactly(op, &operands)
            }
            3 => self.exactly(LinearCall { callee: program, name, num_res: 2, transpose: None }, &operands),
            _ => self.exactly(CustomVmap { call: program, name, sequential: true }, &operands),
        }
    }

    /// The solution of a diagonal system.
    fn solved(&mut self, site: &Site) -> Made {
        let y = self.exact_like(site.x)?;
        let ty = self.b.array_type(site.x.atom).ok()?;
        let program = |solve: bool| -> Option<Arc<Program>> {
            let mut b = Builder::new("system");
            let (d, v) = (b.input(ty.clone()), b.input(ty.clone()));
            let made = if solve { b.div(v, d) } else { b.mul(d, v) }.ok()?;
            Some(Arc::new(b.finish([made])))
        };
        let op = LinearSolve {
            matvec: program(false)?,
            num_params: 1,
            solve: program(true)?,
            transpose_solve: None,
            vecmat: None,
        };
        site.x.is_exact().then(|| self.emit(op, &[site.x.atom, y.atom], EXACT))?
    }
}
