//! Builds programs equation by equation, inferring and checking types.
//!
//! The arithmetic methods are what op rules are written with. They fold what is
//! free to fold (adding a literal zero of an unrelated shape is not) and follow
//! the ops' own conventions: operands share a dtype; a 0-d operand goes with
//! any shape.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use crate::ops::*;
use crate::program::{Atoms, Vars};
use crate::varying;
use crate::{
    ArrayType, Atom, Axes, DType, Dim, Equation, Literal, Op, Program, Result, Scalar, Shape, Source, Tensor,
    Type, Var, View, internal_error,
};

/// A program under construction.
#[derive(Debug)]
pub struct Builder {
    program: Program,
    /// Given to every equation emitted from now on.
    pub source: Source,
}

impl Builder {
    pub fn new(name: impl Into<Arc<str>>) -> Builder {
        Builder {
            program: Program {
                name: name.into(),
                types: Vec::new(),
                inputs: Vec::new(),
                constants: Vec::new(),
                equations: Vec::new(),
                outputs: Vec::new(),
                effects: Default::default(),
                donated: Vec::new(),
            },
            source: Source::UNKNOWN,
        }
    }

    /// What has been built so far.
    pub fn program(&self) -> &Program {
        &self.program
    }

    fn fresh(&mut self, ty: Type) -> Var {
        let var = Var(self.program.types.len() as u32);
        self.program.types.push(ty);
        var
    }

    pub fn input(&mut self, ty: impl Into<Type>) -> Atom {
        let var = self.fresh(ty.into());
        self.program.inputs.push(var);
        Atom::Var(var)
    }

    /// A captured array; scalars become literals.
    pub fn constant(&mut self, value: Tensor, weak: bool) -> Atom {
        if value.rank() == 0
            && let Some(value) = value.to_scalar().filter(|value| !value.dtype().is_key())
        {
            return Atom::Literal(Literal { value, weak });
        }
        let var = self.fresh(value.array_type().with_weak(weak).into());
        self.program.constants.push((var, value));
        Atom::Var(var)
    }

    pub fn type_of(&self, atom: Atom) -> Type {
        self.program.type_of(&atom)
    }

    /// The type of an array-typed atom.
    pub fn array_type(&self, atom: Atom) -> Result<ArrayType> {
        match self.type_of(atom) {
            Type::Array(array) => Ok(array),
            other => Err(internal_error!("expected an array, got {other}")),
        }
    }

    pub fn shape(&self, atom: Atom) -> Shape {
        match atom {
            Atom::Var(var) => {
                self.program.types[var.index()].as_array().map(|ty| ty.shape.clone()).unwrap_or_default()
            }
            Atom::Literal(_) => Shape::new(),
        }
    }

    pub fn rank(&self, atom: Atom) -> usize {
        match atom {
            Atom::Var(var) => self.program.types[var.index()].as_array().map_or(0, ArrayType::rank),
            Atom::Literal(_) => 0,
        }
    }

    pub fn dtype(&self, atom: Atom) -> DType {
        match atom {
            Atom::Var(var) => self.program.types[var.index()].as_array().map_or(DType::Float0, |ty| ty.dtype),
            Atom::Literal(literal) => literal.value.dtype(),
        }
    }

    /// Appends an equation after checking its types. Operands that are the same on more devices than the op takes
    /// them to be are taken as differing ([`varying::matched`]).
    pub fn emit(&mut self, op: impl Into<Op>, inputs: &[Atom]) -> Result<Vars> {
        let op = op.into();
        let types: SmallVec<[Type; 3]> = inputs.iter().map(|&atom| self.type_of(atom)).collect();
        if matches!(op.view(), View::Leaf(_)) && types.iter().all(|ty| ty.varying().is_empty()) {
            let outputs = op.infer(&types)?;
            return Ok(self.emit_typed(op, inputs, outputs));
        }
        let op = varying::fitting(op, &types)?;
        let inputs = varying::matched(self, &op, inputs)?;
        let types: SmallVec<[Type; 3]> = inputs.iter().map(|&atom| self.type_of(atom)).collect();
        let outputs = op.infer(&types)?;
        Ok(self.emit_typed(op, &inputs, outputs))
    }

    /// Appends an equation whose outputs have these types, save for the axes along which they differ.
    pub fn emit_as(&mut self, op: Op, inputs: &[Atom], types: &[Type]) -> Result<Vars> {
        if !matches!(op.view(), View::Leaf(_)) {
            return self.emit(op, inputs);
        }
        let inputs = varying::matched(self, &op, inputs)?;
        let given: SmallVec<[Type; 3]> = inputs.iter().map(|&atom| self.type_of(atom)).collect();
        let mut types: SmallVec<[Type; 1]> = types.into();
        varying::settle(&op, &given, &mut types)?;
        Ok(self.emit_typed(op, &inputs, types))
    }

    /// Appends an equation whose output types are known to be these.
    pub fn emit_typed(&mut self, op: Op, inputs: &[Atom], types: impl IntoIterator<Item = Type>) -> Vars {
        self.program.effects.extend(op.effects());
        let outputs: Vars = types.into_iter().map(|ty| self.fresh(ty)).collect();
        let equation =
            Equation { op, inputs: Atoms::from_slice(inputs), outputs: outputs.clone(), source: self.source };
        self.program.equations.push(equation);
        outputs
    }

    /// Appends an equation with one output.
    pub fn emit1(&mut self, op: impl Into<Op>, inputs: &[Atom]) -> Result<Atom> {
        let outputs = self.emit(op, inputs)?;
        match outputs.as_slice() {
            [only] => Ok(Atom::Var(*only)),
            _ => Err(internal_error!("expected one output, got {}", outputs.len())),
        }
    }

    /// Appends all equations of `program` applied to `arguments`, which take the
    /// weakness that it was typed with. The source lines stay those of the inlined
    /// equations, where they have any. Linear in its size.
    pub fn inline(&mut self, program: &Program, arguments: &[Atom]) -> Result<SmallVec<[Atom; 1]>> {
        if arguments.len() != program.inputs.len() {
            return Err(internal_error!("{} arguments for {} inputs", arguments.len(), program.inputs.len()));
        }
        let mut map: Vec<Option<Atom>> = vec![None; program.types.len()];
        // Where arguments differ along more axes than the program was typed for, so do results.
        let typed = program
            .input_types()
            .zip(arguments)
            .all(|(ty, &argument)| ty.varying().covers(self.type_of(argument).varying()));
        for (var, &argument) in program.inputs.iter().zip(arguments) {
            let weak = program.types[var.index()].as_array().is_some_and(|ty| ty.weak);
            map[var.index()] = Some(self.with_weak(argument, weak)?);
        }
        for (var, tensor) in &program.constants {
            let weak = program.types[var.index()].as_array().is_some_and(|ty| ty.weak);
            map[var.index()] = Some(self.constant(tensor.clone(), weak));
        }
        let outer = self.source;
        for equation in &program.equations {
            let inputs = substitute(&map, &equation.inputs)?;
            let types = equation.outputs.iter().map(|var| program.types[var.index()].clone());
            self.source = equation.source.within(outer);
            if typed {
                let outputs = self.emit_typed(equation.op.clone(), &inputs, types);
                for (old, new) in equation.outputs.iter().zip(outputs) {
                    map[old.index()] = Some(Atom::Var(new));
                }
            } else {
                let types: SmallVec<[Type; 1]> = types.collect();
                varying::append(self, equation, &inputs, &types, &mut map)?;
            }
        }
        self.source = outer;
        Ok(substitute(&map, &program.outputs)?.into_iter().collect())
    }

    /// `atom` with this weakness: a conversion where it differs.
    pub fn with_weak(&mut self, atom: Atom, weak: bool) -> Result<Atom> {
        match atom {
            Atom::Literal(literal) => Ok(Atom::Literal(Literal { weak, ..literal })),
            Atom::Var(_) => match self.type_of(atom) {
                Type::Array(ty) if ty.weak != weak && !ty.dtype.is_key() => {
                    self.emit1(ConvertElementType { new_dtype: ty.dtype, weak_type: weak }, &[atom])
                }
                _ => Ok(atom),
            },
        }
    }

    /// Ends the construction. `outputs` become the program's results.
    pub fn finish(mut self, outputs: impl IntoIterator<Item = Atom>) -> Program {
        self.program.outputs = outputs.into_iter().collect();
        self.program
    }

    // Constants.

    pub fn scalar(&self, dtype: DType, value: f64) -> Atom {
        Atom::Literal(Literal { value: Scalar::from_f64(dtype, value), weak: false })
    }

    pub fn int_scalar(&self, dtype: DType, value: i64) -> Atom {
        Atom::Literal(Literal { value: Scalar::from_i64(dtype, value), weak: false })
    }

    /// An array of one value, of this type (weakness included). A scalar is a literal.
    pub fn full(&mut self, ty: &ArrayType, value: Scalar) -> Result<Atom> {
        let literal = Atom::Literal(Literal { value, weak: ty.weak });
        let full = self.broadcast_scalar(literal, &ty.shape)?;
        if ty.varying.is_empty() {
            return Ok(full);
        }
        if value.is_zero() {
            return varying::cast_zeros(self, full, ty.varying);
        }
        let own = self.type_of(full);
        varying::cast(self, full, &own, ty.varying)
    }

    /// Zeros of this type. For keys and `float0` there are none.
    pub fn zeros(&mut self, ty: &ArrayType) -> Result<Atom> {
        self.full(ty, Scalar::zero(ty.dtype))
    }

    pub fn ones(&mut self, ty: &ArrayType) -> Result<Atom> {
        self.full(ty, Scalar::from_f64(ty.dtype, 1.0))
    }

    /// `value` in the dtype and shape of `like`.
    pub fn full_like(&mut self, like: Atom, value: f64) -> Result<Atom> {
        let ty = self.array_type(like)?;
        self.full(&ty, Scalar::from_f64(ty.dtype, value))
    }

    pub fn zeros_like(&mut self, like: Atom) -> Result<Atom> {
        self.full_like(like, 0.0)
    }

    // Elementwise.

    pub fn unary(&mut self, op: Unary, x: Atom) -> Result<Atom> {
        self.emit1(op, &[x])
    }

    pub fn binary(&mut self, op: Binary, x: Atom, y: Atom) -> Result<Atom> {
        self.emit1(op, &[x, y])
    }

    pub fn compare(&mut self, op: Compare, x: Atom, y: Atom) -> Result<Atom> {
        self.emit1(op, &[x, y])
    }

    pub fn add(&mut self, x: Atom, y: Atom) -> Result<Atom> {
        self.binary(Binary::Add, x, y)
    }

    pub fn sub(&mut self, x: Atom, y: Atom) -> Result<Atom> {
        self.binary(Binary::Sub, x, y)
    }

    pub fn mul(&mut self, x: Atom, y: Atom) -> Result<Atom> {
        self.binary(Binary::Mul, x, y)
    }

    pub fn div(&mut self, x: Atom, y: Atom) -> Result<Atom> {
        self.binary(Binary::Div, x, y)
    }

    pub fn neg(&mut self, x: Atom) -> Result<Atom> {
        self.unary(Unary::Neg, x)
    }

    /// `x` times a constant of its own dtype.
    pub fn scale(&mut self, x: Atom, by: f64) -> Result<Atom> {
        let factor = self.scalar(self.dtype(x), by);
        self.mul(x, factor)
    }

    /// `which ? on_true : on_false`, elementwise; shapes are equal.
    pub fn select(&mut self, which: Atom, on_true: Atom, on_false: Atom) -> Result<Atom> {
        self.emit1(SelectN {}, &[which, on_false, on_true])
    }

    pub fn convert(&mut self, x: Atom, dtype: DType) -> Result<Atom> {
        if self.dtype(x) == dtype && !self.array_type(x)?.weak {
            return Ok(x);
        }
        self.emit1(ConvertElementType { new_dtype: dtype, weak_type: false }, &[x])
    }

    // Structure.

    pub fn broadcast_in_dim(&mut self, x: Atom, shape: &[Dim], dims: &[usize]) -> Result<Atom> {
        let in_order = dims.iter().enumerate().all(|(axis, &dim)| axis == dim);
        if in_order && self.shape(x).as_slice() == shape {
            return Ok(x);
        }
        self.emit1(BroadcastInDim { shape: shape.into(), broadcast_dimensions: dims.into() }, &[x])
    }

    /// A 0-d value in every place of `shape`.
    pub fn broadcast_scalar(&mut self, x: Atom, shape: &[Dim]) -> Result<Atom> {
        if shape.is_empty() { Ok(x) } else { self.broadcast_in_dim(x, shape, &[]) }
    }

    pub fn reshape(&mut self, x: Atom, shape: &[Dim]) -> Result<Atom> {
        if self.shape(x).as_slice() == shape {
            return Ok(x);
        }
        self.emit1(Reshape { new_sizes: shape.into(), dimensions: None }, &[x])
    }

    pub fn transpose(&mut self, x: Atom, permutation: &[usize]) -> Result<Atom> {
        if permutation.iter().enumerate().all(|(axis, &from)| axis == from) {
            return Ok(x);
        }
        self.emit1(Transpose { permutation: permutation.into() }, &[x])
    }

    /// Moves axis `from` to position `to`.
    pub fn move_axis(&mut self, x: Atom, from: usize, to: usize) -> Result<Atom> {
        let mut permutation: Axes = (0..self.rank(x)).filter(|&axis| axis != from).collect();
        permutation.insert(to, from);
        self.transpose(x, &permutation)
    }

    /// A new axis of size 1 at `axis`.
    pub fn expand_dim(&mut self, x: Atom, axis: usize) -> Result<Atom> {
        let mut shape = self.shape(x);
        shape.insert(axis, Dim::Const(1));
        let dims: Axes = (0..shape.len()).filter(|&a| a != axis).collect();
        self.broadcast_in_dim(x, &shape, &dims)
    }

    pub fn squeeze(&mut self, x: Atom, axes: &[usize]) -> Result<Atom> {
        if axes.is_empty() {
            return Ok(x);
        }
        self.emit1(Squeeze { dimensions: axes.into() }, &[x])
    }

    /// Repeats `x` along a new axis.
    pub fn broadcast_batch(&mut self, x: Atom, size: &Dim, axis: usize) -> Result<Atom> {
        let mut shape = self.shape(x);
        shape.insert(axis, size.clone());
        let dims: Axes = (0..shape.len()).filter(|&a| a != axis).collect();
        self.broadcast_in_dim(x, &shape, &dims)
    }

    /// Elements `start..limit` along one axis.
    pub fn slice_axis(&mut self, x: Atom, axis: usize, start: usize, limit: usize) -> Result<Atom> {
        let shape = self.shape(x);
        let mut starts: Axes = smallvec![0; shape.len()];
        let mut limits = shape.clone();
        starts[axis] = start;
        limits[axis] = Dim::Const(limit);
        self.emit1(
            Slice {
                start_indices: starts.iter().map(|&start| Dim::Const(start)).collect(),
                limit_indices: limits,
                strides: None,
            },
            &[x],
        )
    }

    pub fn iota(&mut self, dtype: DType, shape: &[Dim], dimension: usize) -> Result<Atom> {
        self.emit1(Iota { dtype, shape: shape.into(), dimension }, &[])
    }

    // Reductions.

    pub fn reduce(&mut self, kind: ReduceKind, x: Atom, axes: &[usize]) -> Result<Atom> {
        if axes.is_empty() {
            return Ok(x);
        }
        self.emit1(Reduce { kind, axes: axes.into() }, &[x])
    }

    pub fn reduce_sum(&mut self, x: Atom, axes: &[usize]) -> Result<Atom> {
        self.reduce(ReduceKind::Sum, x, axes)
    }

    /// Undoes the implicit broadcast of a 0-d operand: sums a cotangent down to `rank` 0.
    pub fn unbroadcast(&mut self, cotangent: Atom, rank: usize) -> Result<Atom> {
        if rank > 0 {
            return Ok(cotangent);
        }
        let axes: Axes = (0..self.rank(cotangent)).collect();
        self.reduce_sum(cotangent, &axes)
    }
}

/// `atoms` with variables replaced as `map` says.
pub fn substitute(map: &[Option<Atom>], atoms: &[Atom]) -> Result<Atoms> {
    atoms
        .iter()
        .map(|atom| match atom {
            Atom::Var(var) => map[var.index()]
                .ok_or_else(|| internal_error!("variable {} is used before its definition", var.0)),
            literal => Ok(*literal),
        })
        .collect()
}
