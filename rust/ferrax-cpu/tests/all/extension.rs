//! An op of a user's own: one row of rules goes through every transformation and the backend.

use std::sync::Arc;

use ferrax_ir::ArrayType;
use ferrax_ir::ops::{Scan, Unary};
use ferrax_ir::rules::{Batch, Batched, Jvp, Lowering, Row, Rules, Transpose, Types, not_linear};
use ferrax_ir::{
    Atom, Builder, DType, Dim, Extension, Op, Param, Program, Result, Tensor, Type, interpret, type_error,
};
use ferrax_transform::{OutDims, batch, vjp_program};
use smallvec::{SmallVec, smallvec};

/// `x / (1 + |x|)`, or the derivative `1 / (1 + |x|)²` times a second operand, which is linear.
#[derive(Debug)]
enum Softsign {
    Value,
    Slope,
}

impl Softsign {
    fn op(self) -> Op {
        Op::Extension(Extension(Arc::new(self)))
    }
}

impl Row for Softsign {
    fn name(&self) -> &str {
        match self {
            Softsign::Value => "softsign",
            Softsign::Slope => "softsign_slope",
        }
    }

    fn params(&self) -> Vec<(&'static str, Param)> {
        Vec::new()
    }

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        match (self, inputs) {
            (Softsign::Value, [x]) => Ok(smallvec![x.clone()]),
            (Softsign::Slope, [x, y]) if x == y => Ok(smallvec![x.clone()]),
            _ => Err(type_error!("{} takes floats of one type", self.name())),
        }
    }

    fn eval(&self, inputs: &[Tensor], _: &[Type]) -> Result<Vec<Tensor>> {
        let x: &[f64] = inputs[0].elements()?;
        let values: Vec<f64> = match self {
            Softsign::Value => x.iter().map(|x| x / (1.0 + x.abs())).collect(),
            Softsign::Slope => {
                let t: &[f64] = inputs[1].elements()?;
                x.iter().zip(t).map(|(x, t)| t / (1.0 + x.abs()).powi(2)).collect()
            }
        };
        Ok(vec![Tensor::from_elements(inputs[0].sizes().to_vec(), &values)?])
    }
}

impl Rules for Softsign {
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<SmallVec<[Option<Atom>; 1]>> {
        let tangent = match (self, eqn.tangents) {
            (Softsign::Value, [Some(t)]) => Some(b.emit1(Softsign::Slope.op(), &[eqn.inputs[0], *t])?),
            (Softsign::Slope, [None, Some(t)]) => Some(b.emit1(Softsign::Slope.op(), &[eqn.inputs[0], *t])?),
            (_, tangents) if tangents.iter().all(Option::is_none) => None,
            _ => return Err(type_error!("{} has derivatives of order one", self.name())),
        };
        Ok(smallvec![tangent])
    }

    fn transpose(&self, b: &mut Builder, eqn: &Transpose<'_>) -> Result<SmallVec<[Option<Atom>; 3]>> {
        match (self, eqn.inputs.first().and_then(|x| x.known()), eqn.cotangents[0]) {
            (Softsign::Slope, Some(x), Some(cotangent)) => {
                Ok(smallvec![None, Some(b.emit1(Softsign::Slope.op(), &[x, cotangent])?)])
            }
            (Softsign::Slope, Some(_), None) => Ok(smallvec![None, None]),
            _ => not_linear(self),
        }
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        let op = match self {
            Softsign::Value => Softsign::Value,
            Softsign::Slope => Softsign::Slope,
        };
        let mut inputs: SmallVec<[Atom; 2]> = SmallVec::new();
        for (&x, dim) in eqn.inputs.iter().zip(eqn.dims) {
            inputs.push(match dim {
                Some(axis) => b.move_axis(x, *axis, 0)?,
                None => b.broadcast_batch(x, eqn.size, 0)?,
            });
        }
        Ok(smallvec![(b.emit1(op.op(), &inputs)?, Some(0))])
    }

    fn lower(&self) -> Lowering {
        Lowering::Expand
    }

    fn expand(&self, b: &mut Builder, inputs: &[Atom]) -> Result<SmallVec<[Atom; 1]>> {
        let one = b.full_like(inputs[0], 1.0)?;
        let magnitude = b.unary(Unary::Abs, inputs[0])?;
        let denominator = b.add(one, magnitude)?;
        Ok(smallvec![match self {
            Softsign::Value => b.div(inputs[0], denominator)?,
            Softsign::Slope => {
                let once = b.div(inputs[1], denominator)?;
                b.div(once, denominator)?
            }
        }])
    }
}

const X: [f64; 3] = [-1.5, 0.25, 2.0];

fn vector() -> ArrayType {
    ArrayType::of_sizes(&[3], DType::F64)
}

/// Softsign three times, as the body of a loop.
fn looped() -> Program {
    let mut b = Builder::new("body");
    let x = b.input(vector());
    let y = b.emit1(Softsign::Value.op(), &[x]).unwrap();
    let jaxpr = Arc::new(b.finish([y]));
    let mut b = Builder::new("looped");
    let x = b.input(vector());
    let scan = Scan { jaxpr, length: Dim::Const(3), num_carry: 1, num_consts: 0, reverse: false, unroll: 1 };
    let y = b.emit(scan, &[x]).unwrap();
    b.finish(y.into_iter().map(Atom::Var))
}

fn run(program: &Program, inputs: &[Tensor]) -> Vec<Vec<f64>> {
    let compiled = ferrax_cpu::compile(program).unwrap().run(inputs).unwrap();
    let reference = interpret::run(program, inputs).unwrap();
    let floats = |tensor: &Tensor| tensor.elements::<f64>().unwrap().to_vec();
    for (a, b) in compiled.iter().zip(&reference) {
        assert!(floats(a).iter().zip(floats(b)).all(|(a, b)| (a - b).abs() < 1e-14), "{a:?} {b:?}");
    }
    compiled.iter().map(floats).collect()
}

fn tensor(sizes: &[usize], values: &[f64]) -> Tensor {
    Tensor::from_elements(sizes.to_vec(), values).unwrap()
}

#[test]
fn values_and_gradients_in_a_loop() {
    let both = vjp_program(&looped(), &[true], &[true]).unwrap();
    let found = run(&both, &[tensor(&[3], &X), tensor(&[3], &[1.0; 3])]);
    for (index, x) in X.into_iter().enumerate() {
        // softsign three times is x / (1 + 3 |x|)
        let denominator = 1.0 + 3.0 * x.abs();
        assert!((found[0][index] - x / denominator).abs() < 1e-14);
        assert!((found[1][index] - denominator.powi(-2)).abs() < 1e-14);
    }
}

#[test]
fn batches_of_gradients() {
    let both = vjp_program(&looped(), &[true], &[true]).unwrap();
    let (batched, _) = batch(&both, &Dim::Const(2), &[Some(1), None], None, OutDims::Front).unwrap();
    let columns: Vec<f64> = X.iter().flat_map(|&x| [x, -2.0 * x]).collect();
    let found = run(&batched, &[tensor(&[3, 2], &columns), tensor(&[3], &[1.0; 3])]);
    let one = |scale: f64| {
        let inputs = [tensor(&[3], &X.map(|x| scale * x)), tensor(&[3], &[1.0; 3])];
        run(&both, &inputs)
    };
    let (first, second) = (one(1.0), one(-2.0));
    for output in 0..2 {
        assert_eq!(found[output][..3], first[output]);
        assert_eq!(found[output][3..], second[output]);
    }
}
