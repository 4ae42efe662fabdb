//! Terms that are products of what lies in memory: of two loads, each less a value that stands still along a line.
//!
//! Sums of squares, of squares of what is left of a mean, inner products. A machine that multiplies where it sums
//! needs no block of products between. In: a kernel whose accumulators all are trees, and the axis that its lines
//! are along. Out: the factors. Cost: linear in the kernel's body.

use ferrax_ir::scalar::{Instruction, Reg, ScalarOp, ScalarType};

use super::nest::{Map, Nest};
use crate::kernel::{Kernel, Load};

/// A factor of a term.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Factor {
    /// A load that is contiguous along lines.
    pub load: Reg,
    /// What is taken from it, the same along a line.
    pub less: Option<Reg>,
}

struct Terms<'a> {
    nest: &'a Nest,
    kernel: &'a Kernel,
    along: usize,
    /// Of each register: whether it stands still along lines.
    still: Vec<bool>,
}

/// The factors of the terms of each accumulator, `None` for those whose terms are loads, and whether what is taken
/// from factors are loads, too, so that there may be several lines at once. `None` if there are other terms.
pub fn products(nest: &Nest, kernel: &Kernel, along: usize) -> Option<(Vec<Option<[Factor; 2]>>, bool)> {
    let mut terms = Terms { nest, kernel, along, still: vec![] };
    for instruction in kernel.body.instructions() {
        let still = match instruction.op {
            ScalarOp::Const { .. } | ScalarOp::Param { .. } => true,
            ScalarOp::Index { .. } => false,
            ScalarOp::Input { .. } => terms.plain(instruction).is_some_and(|map| map.strides[along] == 0),
            _ => instruction.args.iter().all(|arg| terms.still[arg.0 as usize]),
        };
        terms.still.push(still);
    }
    let of = |reg: Reg| {
        if terms.moves(reg) { Some(None) } else { terms.factors(reg).map(Some) }
    };
    let found: Option<Vec<_>> = kernel.accumulators.iter().map(|accumulator| of(accumulator.arg)).collect();
    let found = found?;
    let is_load = |reg: Reg| matches!(terms.instruction(reg).op, ScalarOp::Input { .. });
    let many = found.iter().flatten().flatten().all(|factor| factor.less.is_none_or(is_load));
    Some((found, many))
}

impl Terms<'_> {
    fn instruction(&self, reg: Reg) -> &Instruction {
        &self.kernel.body.instructions()[reg.0 as usize]
    }

    /// The map of a load at no computed index that has no guards and needs no conversion.
    fn plain(&self, instruction: &Instruction) -> Option<&Map> {
        let ScalarOp::Input { operand, .. } = instruction.op else { return None };
        if !instruction.args.is_empty() {
            return None;
        }
        let (load, map): (&Load, &Map) =
            (self.kernel.loads.get(operand as usize)?, self.nest.loads.get(operand as usize)?);
        let dtype = self.kernel.operands[load.operand as usize].dtype;
        let native = ScalarType::of(dtype).is_ok_and(|ty| ty.dtype() == dtype);
        (native && map.guards.is_none()).then_some(map)
    }

    /// Whether this is a load that lines go along.
    fn moves(&self, reg: Reg) -> bool {
        self.plain(self.instruction(reg)).is_some_and(|map| map.strides[self.along] == 1)
    }

    fn factors(&self, reg: Reg) -> Option<[Factor; 2]> {
        let product = self.instruction(reg);
        if product.op != ScalarOp::Mul || !product.ty.is_float() {
            return None;
        }
        Some([self.factor(product.args[0])?, self.factor(product.args[1])?])
    }

    fn factor(&self, reg: Reg) -> Option<Factor> {
        if self.moves(reg) {
            return Some(Factor { load: reg, less: None });
        }
        let difference = self.instruction(reg);
        if difference.op != ScalarOp::Sub {
            return None;
        }
        let (load, less) = (difference.args[0], difference.args[1]);
        (self.moves(load) && self.still[less.0 as usize]).then_some(Factor { load, less: Some(less) })
    }
}
