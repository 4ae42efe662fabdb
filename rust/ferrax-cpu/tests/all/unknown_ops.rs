//! Ops that the compiler has never heard of: what their rows say of them is all that it takes to fuse them.

use std::sync::Arc;

use crate::common::{check, f32s};
use ferrax_compile::{Step, Target, plan};
use ferrax_ir::ops::Unary;
use ferrax_ir::rules::{
    AccumulatorKind, Batch, Batched, Extents, Follow, IndexMap, Jvp, Lowering, Reduction, Row, Rules,
    Transpose, Types,
};
use ferrax_ir::{Atom, Axes, Builder, Extension, Op, Param, Result, Tensor, Type, type_error, unsupported};
use smallvec::{SmallVec, smallvec};

#[derive(Debug)]
enum Unknown {
    /// The diagonal of a square matrix: both axes of the operand follow the one of the result.
    Diagonal,
    /// The largest element of each row.
    RowMax,
}

impl Unknown {
    fn op(self) -> Op {
        Op::Extension(Extension(Arc::new(self)))
    }
}

impl Row for Unknown {
    fn name(&self) -> &str {
        match self {
            Unknown::Diagonal => "diagonal",
            Unknown::RowMax => "row_max",
        }
    }

    fn params(&self) -> Vec<(&'static str, Param)> {
        Vec::new()
    }

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        match inputs {
            [Type::Array(x)] if x.rank() == 2 => Ok(smallvec![x.with_shape(x.shape[..1].into()).into()]),
            _ => Err(type_error!("{} takes a matrix", self.name())),
        }
    }

    fn eval(&self, inputs: &[Tensor], _: &[Type]) -> Result<Vec<Tensor>> {
        let (x, width): (&[f32], usize) = (inputs[0].elements()?, inputs[0].sizes()[1]);
        let rows = x.chunks(width);
        let values: Vec<f32> = match self {
            Unknown::Diagonal => rows.enumerate().map(|(number, row)| row[number]).collect(),
            Unknown::RowMax => rows.map(|row| row.iter().copied().fold(f32::MIN, f32::max)).collect(),
        };
        Ok(vec![Tensor::from_elements(vec![values.len()], &values)?])
    }
}

impl Rules for Unknown {
    fn jvp(&self, _: &mut Builder, _: &Jvp<'_>) -> Result<SmallVec<[Option<Atom>; 1]>> {
        Err(unsupported!("{} has no derivative", self.name()))
    }

    fn transpose(&self, _: &mut Builder, _: &Transpose<'_>) -> Result<SmallVec<[Option<Atom>; 3]>> {
        Err(unsupported!("{} has no transpose", self.name()))
    }

    fn batch(&self, _: &mut Builder, _: &Batch<'_>) -> Result<Batched> {
        Err(unsupported!("{} has no batch", self.name()))
    }

    fn lower(&self) -> Lowering {
        match self {
            Unknown::Diagonal => Lowering::Movement,
            Unknown::RowMax => Lowering::Reduction,
        }
    }

    fn index_map(&self, _: &[Extents<'_>], _: Extents<'_>) -> Result<Option<IndexMap>> {
        Ok(match self {
            Unknown::Diagonal => Some(IndexMap::Along(smallvec![Follow::axis(0); 2])),
            Unknown::RowMax => None,
        })
    }

    fn reduction(&self, _: Extents<'_>) -> Result<Option<Reduction>> {
        Ok(match self {
            Unknown::Diagonal => None,
            Unknown::RowMax => Some(Reduction { kind: AccumulatorKind::Max, axes: Axes::from_slice(&[1]) }),
        })
    }
}

/// `sin(diagonal(exp x) - row_max(x))` is two kernels: the first folds rows, and nothing is moved.
#[test]
fn unknown_ops_are_fused_by_what_their_rows_say() {
    for size in [1, 2, 7, 64] {
        let mut b = Builder::new("unknown");
        let x = b.input(f32s(&[size, size]));
        let powers = b.unary(Unary::Exp, x).unwrap();
        let diagonal = b.emit1(Unknown::Diagonal.op(), &[powers]).unwrap();
        let most = b.emit1(Unknown::RowMax.op(), &[x]).unwrap();
        let difference = b.sub(diagonal, most).unwrap();
        let result = b.unary(Unary::Sin, difference).unwrap();
        let program = b.finish([result]);
        check(&program, 64);
        let plan = plan(&program, &Target::CPU).unwrap();
        let calls = plan.steps.iter().filter(|step| matches!(step, Step::Library { .. })).count();
        assert_eq!((calls, plan.steps.len() <= 2), (0, true), "{plan}");
    }
}
