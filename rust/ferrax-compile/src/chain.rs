//! Operations on the elements of blocks, one after the other, as one function: the program of an emitter of vector code.
//!
//! A [`Chain`] is a [`Body`] whose inputs are blocks, or single elements that serve all lanes, and some of whose results are
//! stored to blocks. It knows no sizes, strides or places: equal work is an equal chain, of which one function is made.
//! Functions of floats are written out, so that only operations are left that take few instructions; constants of the
//! kernel are among them, its parameters are inputs. The interpreter of bodies (`scalar::reference`) is its oracle.
//!
//! Cost: linear in the instructions.

use ferrax_ir::scalar::{Body, Narrow, Reg, ScalarOp, ScalarType};
use ferrax_ir::{Result, internal_error, math};
use smallvec::SmallVec;

/// See the head of this file.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct Chain {
    pub body: Body,
    /// Of each input: its type, and whether it is one element for all lanes.
    pub inputs: SmallVec<[(ScalarType, bool); 8]>,
    pub outputs: SmallVec<[Reg; 4]>,
}

/// Functions whose code is long, or that have a shorter form for most arguments: block functions of theirs compute them.
pub(crate) fn is_long(function: math::MathFn) -> bool {
    use math::MathFn;
    matches!(
        function,
        MathFn::Sin
            | MathFn::Cos
            | MathFn::Tan
            | MathFn::Lgamma
            | MathFn::Digamma
            | MathFn::ErfInv
            | MathFn::Pow
            | MathFn::Erfc
    )
}

/// How many arguments an operation has; none of those that only kernels have.
pub(crate) fn arguments(op: ScalarOp) -> Option<usize> {
    Some(match op {
        ScalarOp::Input { .. } | ScalarOp::Index { .. } | ScalarOp::Param { .. } => return None,
        ScalarOp::Const { .. } => 0,
        ScalarOp::Neg
        | ScalarOp::Abs
        | ScalarOp::Sqrt
        | ScalarOp::Floor
        | ScalarOp::Ceil
        | ScalarOp::Trunc
        | ScalarOp::RoundEven
        | ScalarOp::Not
        | ScalarOp::PopCount
        | ScalarOp::Clz
        | ScalarOp::Convert
        | ScalarOp::Bitcast
        | ScalarOp::RoundTo(_) => 1,
        ScalarOp::Fma | ScalarOp::Select => 3,
        ScalarOp::Math(math::MathFn::Pow | math::MathFn::Atan2) => 2,
        ScalarOp::Math(_) => 1,
        _ => 2,
    })
}

/// Whether a chain may have an operation, from elements of this type to those of that: emitters compute these.
pub fn computes(op: ScalarOp, to: ScalarType, from: ScalarType) -> bool {
    let word = |ty: ScalarType| ty.size() >= 4;
    let (float, long) = (to.is_float(), to.size() == 8);
    match op {
        ScalarOp::Add | ScalarOp::Sub | ScalarOp::Neg => word(to),
        ScalarOp::Mul => word(to) && (float || !long),
        ScalarOp::Min | ScalarOp::Max | ScalarOp::Abs => word(to) && (float || !long),
        ScalarOp::Div
        | ScalarOp::Fma
        | ScalarOp::Sqrt
        | ScalarOp::Floor
        | ScalarOp::Ceil
        | ScalarOp::Trunc
        | ScalarOp::RoundEven => float,
        ScalarOp::And | ScalarOp::Or | ScalarOp::Xor | ScalarOp::Not => {
            to == ScalarType::Bool || (word(to) && !float)
        }
        ScalarOp::Shl | ScalarOp::ShrLogical => word(to) && !float,
        ScalarOp::ShrArithmetic => to == ScalarType::I32,
        ScalarOp::Eq | ScalarOp::Ne | ScalarOp::Lt | ScalarOp::Le => word(from),
        ScalarOp::Select => to == from && (word(to) || to == ScalarType::Bool),
        ScalarOp::Bitcast => word(to) && to.size() == from.size(),
        ScalarOp::Convert => converts(to, from),
        ScalarOp::RoundTo(Narrow::BF16) => true,
        ScalarOp::Math(function) => !is_long(function),
        _ => false,
    }
}

fn converts(to: ScalarType, from: ScalarType) -> bool {
    use ScalarType::{Bool, F32, F64, I32, I64, U32, U64};
    match (to, from) {
        (_, Bool) | (Bool, _) => to.size() >= 4 || (to == Bool && from.size() >= 4),
        (F32, F64 | I32) | (F64, F32 | I32) | (I32, F32) => true,
        (I32 | U32 | I64 | U64, I32 | U32 | I64 | U64) => true,
        _ => false,
    }
}

impl Chain {
    /// An input of this type.
    pub fn input(&mut self, ty: ScalarType, uniform: bool) -> Reg {
        let operand = self.inputs.len() as u32;
        self.inputs.push((ty, uniform));
        self.body.push(ScalarOp::Input { operand, part: 0 }, ty, &[])
    }

    /// An operation that [`computes`] allows.
    pub fn push(&mut self, op: ScalarOp, ty: ScalarType, args: &[Reg]) -> Result<Reg> {
        match op {
            ScalarOp::Math(function) => math::expand(&mut self.body, function, args),
            ScalarOp::RoundTo(Narrow::BF16) => Ok(self.rounded_to_bf16(args[0])),
            op => Ok(self.body.push(op, ty, args)),
        }
    }

    /// Half of the last place is added, or a little less where that place is even; what is below it is cut off. NaN keeps
    /// its upper bits and becomes quiet.
    fn rounded_to_bf16(&mut self, x: Reg) -> Reg {
        let (int, body) = (ScalarType::U32, &mut self.body);
        let bits = body.bitcast(x, int);
        let [sixteen, one, half, upper, quiet] =
            [16, 1, 0x7fff, 0xffff_0000, 0x40_0000].map(|value| body.int(int, value));
        let last = body.op(ScalarOp::ShrLogical, &[bits, sixteen]);
        let odd = body.op(ScalarOp::And, &[last, one]);
        let more = body.op(ScalarOp::Add, &[odd, half]);
        let rounded = body.op(ScalarOp::Add, &[bits, more]);
        let nan = body.op(ScalarOp::Or, &[bits, quiet]);
        let is_nan = body.compare(ScalarOp::Ne, x, x);
        let chosen = body.select(is_nan, nan, rounded);
        let cut = body.op(ScalarOp::And, &[chosen, upper]);
        body.bitcast(cut, ScalarType::F32)
    }

    /// Checks what an emitter relies on: inputs are those that are declared, operations are such as chains have, and what
    /// is stored is there.
    pub fn verify(&self) -> Result<()> {
        let instructions = self.body.instructions();
        for (number, instruction) in instructions.iter().enumerate() {
            let wrong = |what: &str| internal_error!("chain instruction {number} ({instruction:?}) {what}");
            if instruction.args.iter().any(|arg| arg.0 as usize >= number) {
                return Err(wrong("reads what comes later"));
            }
            let args: SmallVec<[ScalarType; 3]> =
                instruction.args.iter().map(|&arg| self.body.type_of(arg)).collect();
            let known = match instruction.op {
                ScalarOp::Input { operand, part: 0 } => {
                    self.inputs.get(operand as usize).map(|input| input.0) == Some(instruction.ty)
                }
                ScalarOp::Const { .. } => true,
                ScalarOp::Math(_) | ScalarOp::RoundTo(_) => false,
                op => {
                    let (holds, of) = args.split_at(usize::from(op == ScalarOp::Select));
                    arguments(op) == Some(args.len())
                        && holds.iter().all(|&ty| ty == ScalarType::Bool)
                        && of.iter().all(|&ty| ty == of[0] && computes(op, instruction.ty, ty))
                }
            };
            if !known {
                return Err(wrong("is none of a chain"));
            }
        }
        let loads =
            |&(ty, uniform): &(ScalarType, bool)| ty.size() >= 4 || (ty == ScalarType::Bool && !uniform);
        if !self.inputs.iter().all(loads) {
            return Err(internal_error!("a chain reads {:?}", self.inputs));
        }
        if self.outputs.iter().any(|output| output.0 as usize >= instructions.len()) {
            return Err(internal_error!("a chain stores what it has not"));
        }
        Ok(())
    }
}
