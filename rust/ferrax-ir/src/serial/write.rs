//! Programs to payloads.

use std::borrow::Cow;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::{Interface, MAX_DEPTH, MAX_DIM_TEXT, MAX_EXPANDED, check_type, format};
use crate::{
    Atom, Dim, Effect, Equation, Error, Op, Param, Program, Result, Scalar, Source, SourceLine, Tensor, Type,
    internal_error, unsupported, value_error,
};

/// The payload of a file. Cost: linear; a shared callee is written once.
pub fn payload(program: &Program, interface: &Interface) -> Result<Vec<u8>> {
    let mut writer = Writer {
        file: format::File {
            metadata: &interface.metadata,
            input_names: interface.input_names.iter().map(String::as_str).collect(),
            output_names: interface.output_names.iter().map(String::as_str).collect(),
            ..Default::default()
        },
        lines: FxHashMap::default(),
        types: FxHashMap::default(),
        tensors: FxHashMap::default(),
        programs: FxHashMap::default(),
        expanded: Vec::new(),
    };
    writer.program(program, 0)?;
    postcard::to_allocvec(&writer.file).map_err(|error| internal_error!("a program was not encoded: {error}"))
}

struct Writer<'a> {
    file: format::File<'a>,
    lines: FxHashMap<SourceLine, u32>,
    types: FxHashMap<&'a Type, u32>,
    /// By the address of the elements and the type.
    tensors: FxHashMap<(usize, Type), u32>,
    /// By address.
    programs: FxHashMap<usize, u32>,
    /// Equations of each program with all calls written out.
    expanded: Vec<usize>,
}

fn place(index: usize) -> Result<u32> {
    u32::try_from(index).map_err(|_| value_error!("the program is too large to be saved"))
}

impl<'a> Writer<'a> {
    fn program(&mut self, program: &'a Program, depth: usize) -> Result<u32> {
        if depth > MAX_DEPTH {
            return Err(unsupported!(
                "calls nest more than {MAX_DEPTH} deep in '{}', which cannot be saved; optimise the program first",
                program.name
            ));
        }
        let mut expanded = 0usize;
        for equation in &program.equations {
            expanded = expanded.saturating_add(1);
            for callee in equation.op.programs() {
                let index = self.callee(callee, depth)?;
                expanded = expanded.saturating_add(self.expanded[index as usize]);
            }
        }
        if expanded > MAX_EXPANDED {
            return Err(unsupported!(
                "'{}' stands for more than {MAX_EXPANDED} equations once its calls are written out, and cannot be saved",
                program.name
            ));
        }
        let saved = format::Program {
            name: &program.name,
            variables: program.types.iter().map(|ty| self.ty(ty)).collect::<Result<_>>()?,
            inputs: program.inputs.iter().map(|var| var.0).collect(),
            constants: program
                .constants
                .iter()
                .map(|(var, tensor)| Ok((var.0, self.tensor(tensor)?)))
                .collect::<Result<_>>()?,
            equations: program
                .equations
                .iter()
                .enumerate()
                .map(|(index, equation)| {
                    self.equation(equation).map_err(|error| match error {
                        Error::Unsupported(text) => {
                            unsupported!("equation {index} of '{}' cannot be saved: {text}", program.name)
                        }
                        other => other,
                    })
                })
                .collect::<Result<_>>()?,
            outputs: program.outputs.iter().map(atom).collect(),
            effects: program.effects.iter().map(effect).collect(),
        };
        let index = place(self.file.programs.len())?;
        self.file.programs.push(saved);
        self.expanded.push(expanded);
        Ok(index)
    }

    fn callee(&mut self, callee: &'a Arc<Program>, depth: usize) -> Result<u32> {
        let address = Arc::as_ptr(callee).addr();
        if let Some(&index) = self.programs.get(&address) {
            return Ok(index);
        }
        let index = self.program(callee, depth + 1)?;
        self.programs.insert(address, index);
        Ok(index)
    }

    fn ty(&mut self, ty: &'a Type) -> Result<u32> {
        if let Some(&index) = self.types.get(ty) {
            return Ok(index);
        }
        check_type(ty)?;
        let array = |array: &'a crate::ArrayType| -> Result<format::ArrayType<'a>> {
            let shape = array.shape.iter().map(|size| {
                Ok(match size {
                    Dim::Const(size) => format::Dim::Const(*size as u64),
                    Dim::Symbolic(_) => format::Dim::Symbolic(dim(size)?),
                })
            });
            Ok(format::ArrayType {
                dtype: array.dtype.name(),
                shape: shape.collect::<Result<_>>()?,
                weak: array.weak,
            })
        };
        let saved = match ty {
            Type::Array(ty) => format::Type::Array(array(ty)?),
            Type::Ref(ty) => format::Type::Ref(array(ty)?),
            Type::Token => format::Type::Token,
        };
        let index = place(self.file.types.len())?;
        self.file.types.push(saved);
        self.types.insert(ty, index);
        Ok(index)
    }

    fn tensor(&mut self, tensor: &'a Tensor) -> Result<u32> {
        let key = (tensor.bytes().as_ptr().addr(), tensor.array_type().into());
        if let Some(&index) = self.tensors.get(&key) {
            return Ok(index);
        }
        let index = place(self.file.tensors.len())?;
        self.file.tensors.push(format::Tensor {
            dtype: tensor.dtype().name(),
            sizes: tensor.sizes().iter().map(|&size| size as u64).collect(),
            elements: format::Bytes(tensor.bytes()),
        });
        self.tensors.insert(key, index);
        Ok(index)
    }

    fn equation(&mut self, equation: &'a Equation) -> Result<format::Equation<'a>> {
        let op = &equation.op;
        if let Op::Extension(_) = op {
            return Err(unsupported!("'{}' is an extension op, which files do not hold", op.name()));
        }
        let params = op.params();
        let entries = params.iter().map(|(name, value)| (Arc::from(*name), value.clone())).collect();
        if !Op::from_params(op.name(), entries).is_ok_and(|made| made == *op) {
            return Err(unsupported!("'{}' is not made of its parameters alone", op.name()));
        }
        let mut saved = Vec::with_capacity(params.len());
        for (name, value) in &params {
            let mut nodes = Vec::new();
            self.param(value, &mut nodes)?;
            saved.push((*name, nodes));
        }
        Ok(format::Equation {
            op: Cow::Borrowed(op.name()),
            params: saved,
            inputs: equation.inputs.iter().map(atom).collect(),
            outputs: equation.outputs.iter().map(|var| var.0).collect(),
            source: self.source(equation.source)?,
        })
    }

    fn param(&self, value: &Param, nodes: &mut Vec<format::Param<'a>>) -> Result<()> {
        nodes.push(match value {
            Param::None => format::Param::None,
            Param::Bool(value) => format::Param::Bool(*value),
            Param::Int(value) => format::Param::Int(*value),
            Param::Dim(value) => format::Param::Dim(dim(value)?),
            Param::DType(dtype) => format::Param::DType(dtype.name()),
            Param::Str(text) => format::Param::Str(text.to_string().into()),
            Param::Scalar(value) => format::Param::Scalar(scalar(*value)),
            Param::List(items) => {
                nodes.push(format::Param::List(place(items.len())?));
                return items.iter().try_for_each(|item| self.param(item, nodes));
            }
            Param::Jvp(_) | Param::Vjp(_) | Param::Policy(_) => {
                return Err(unsupported!("a rule of the user's cannot be saved"));
            }
            Param::Program(program) => {
                let index = self.programs.get(&Arc::as_ptr(program).addr());
                format::Param::Program(
                    *index
                        .ok_or_else(|| internal_error!("'{}' is no sub-program of its op", program.name))?,
                )
            }
        });
        Ok(())
    }

    fn source(&mut self, source: Source) -> Result<u32> {
        let Some(line) = source.line() else { return Ok(0) };
        if let Some(&index) = self.lines.get(&line) {
            return Ok(index);
        }
        self.file.lines.push(format::Line {
            file: line.file.to_string().into(),
            line: line.line,
            function: line.function.to_string().into(),
        });
        let index = place(self.file.lines.len())?;
        self.lines.insert(line, index);
        Ok(index)
    }
}

fn dim(dim: &Dim) -> Result<Cow<'static, str>> {
    let text = dim.to_string();
    if text.len() > MAX_DIM_TEXT {
        return Err(unsupported!("a dimension is written with more than {MAX_DIM_TEXT} characters: {text}"));
    }
    Ok(text.into())
}

fn scalar(value: Scalar) -> format::Scalar<'static> {
    format::Scalar { dtype: value.dtype().name(), bits: value.bits() }
}

fn atom(atom: &Atom) -> format::Atom<'static> {
    match atom {
        Atom::Var(var) => format::Atom::Var(var.0),
        Atom::Literal(literal) => format::Atom::Literal(scalar(literal.value), literal.weak),
    }
}

fn effect(effect: &Effect) -> format::Effect<'_> {
    match effect {
        Effect::Unordered => format::Effect::Unordered,
        Effect::Ordered => format::Effect::Ordered,
        Effect::NamedAxis(name) => format::Effect::NamedAxis(name),
        Effect::Memory => format::Effect::Memory,
    }
}
