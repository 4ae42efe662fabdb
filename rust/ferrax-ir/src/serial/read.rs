//! Payloads to programs. Nothing in a payload is trusted.

use std::sync::Arc;

use super::{Interface, MAX_DEPTH, MAX_DIM_TEXT, MAX_EXPANDED, MAX_LIST_DEPTH, MAX_RANK, check_type, format};
use crate::verify::verify;
use crate::{
    ArrayType, Atom, DType, Dim, Effect, Equation, Literal, Op, Param, Program, Result, Scalar, Shape, Sizes,
    Source, SourceLine, Tensor, Type, Var, parse_error,
};

/// The program of a payload, verified, with its interface.
pub fn payload(bytes: &[u8]) -> Result<(Program, Interface)> {
    let (file, rest) = postcard::take_from_bytes::<format::File<'_>>(bytes)
        .map_err(|error| parse_error!("its contents have no meaning ({error})"))?;
    if !rest.is_empty() {
        return Err(parse_error!("{} bytes follow its contents", rest.len()));
    }
    let mut reader = Reader {
        sources: file.lines.iter().map(source).collect(),
        types: file.types.iter().map(ty).collect::<Result<_>>()?,
        tensors: file.tensors.iter().map(tensor).collect::<Result<_>>()?,
        programs: Vec::with_capacity(file.programs.len()),
        dims_left: bytes.len().saturating_mul(16),
    };
    for saved in &file.programs {
        let program = reader.program(saved).map_err(|error| parse_error!("in '{}': {error}", saved.name))?;
        reader.programs.push(program);
    }
    let last = reader.programs.pop().ok_or_else(|| parse_error!("it holds no program"))?;
    drop(reader);
    let program = Arc::unwrap_or_clone(last.program);
    verify(&program)?;
    let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let interface = Interface {
        input_names: owned(&file.input_names),
        output_names: owned(&file.output_names),
        metadata: file.metadata.to_owned(),
    };
    interface.check(&program)?;
    Ok((program, interface))
}

struct Read {
    program: Arc<Program>,
    depth: usize,
    /// Equations once all calls are written out.
    expanded: usize,
}

struct Reader {
    sources: Vec<Source>,
    types: Vec<Type>,
    tensors: Vec<Tensor>,
    programs: Vec<Read>,
    /// Dimensions that the types of variables may still have: a variable takes
    /// few bytes in the file, its type many in memory.
    dims_left: usize,
}

fn at<'t, T>(table: &'t [T], index: u32, what: &str) -> Result<&'t T> {
    table.get(index as usize).ok_or_else(|| parse_error!("there is no {what} {index} (of {})", table.len()))
}

impl Reader {
    fn program(&mut self, saved: &format::Program<'_>) -> Result<Read> {
        let (mut depth, mut expanded) = (0, 0usize);
        let mut types = Vec::with_capacity(saved.variables.len());
        for &index in &saved.variables {
            let ty = at(&self.types, index, "type")?;
            let rank = ty.as_array().map_or(0, ArrayType::rank);
            self.dims_left = self
                .dims_left
                .checked_sub(rank)
                .ok_or_else(|| parse_error!("its variables have too many dimensions"))?;
            types.push(ty.clone());
        }
        let constants = saved
            .constants
            .iter()
            .map(|&(var, index)| Ok((Var(var), at(&self.tensors, index, "tensor")?.clone())))
            .collect::<Result<_>>()?;
        let mut equations = Vec::with_capacity(saved.equations.len());
        for (index, equation) in saved.equations.iter().enumerate() {
            let equation = self
                .equation(equation, &mut depth, &mut expanded)
                .map_err(|error| parse_error!("equation {index} ({}): {error}", equation.op))?;
            equations.push(equation);
        }
        let program = Program {
            name: saved.name.into(),
            types,
            inputs: saved.inputs.iter().map(|&var| Var(var)).collect(),
            constants,
            equations,
            outputs: saved.outputs.iter().map(atom).collect::<Result<_>>()?,
            effects: saved.effects.iter().map(effect).collect(),
            donated: Vec::new(),
        };
        Ok(Read { program: Arc::new(program), depth, expanded })
    }

    /// `depth` and `expanded` are those of the program so far.
    fn equation(
        &self,
        saved: &format::Equation<'_>,
        depth: &mut usize,
        expanded: &mut usize,
    ) -> Result<Equation> {
        let mut params = Vec::with_capacity(saved.params.len());
        for (name, nodes) in &saved.params {
            let mut nodes = nodes.iter();
            let value = self.param(&mut nodes, 0)?;
            if nodes.len() != 0 {
                return Err(parse_error!("parameter '{name}' does not end"));
            }
            if params.iter().any(|(key, _): &(Arc<str>, Param)| &**key == *name) {
                return Err(parse_error!("parameter '{name}' is there twice"));
            }
            params.push((Arc::from(*name), value));
        }
        *expanded += 1;
        for node in saved.params.iter().flat_map(|(_, nodes)| nodes) {
            let format::Param::Program(index) = node else { continue };
            let callee = at(&self.programs, *index, "program before this one with number")?;
            *depth = (*depth).max(callee.depth + 1);
            *expanded = expanded.saturating_add(callee.expanded);
        }
        if *depth > MAX_DEPTH {
            return Err(parse_error!("calls nest more than {MAX_DEPTH} deep"));
        }
        if *expanded > MAX_EXPANDED {
            return Err(parse_error!("written out, its calls are more than {MAX_EXPANDED} equations"));
        }
        let source = match saved.source {
            0 => Source::UNKNOWN,
            place => *at(&self.sources, place - 1, "source line")?,
        };
        Ok(Equation {
            op: Op::from_params(&saved.op, params)?,
            inputs: saved.inputs.iter().map(atom).collect::<Result<_>>()?,
            outputs: saved.outputs.iter().map(|&var| Var(var)).collect(),
            source,
        })
    }

    fn param(&self, nodes: &mut std::slice::Iter<'_, format::Param<'_>>, depth: usize) -> Result<Param> {
        let node = nodes.next().ok_or_else(|| parse_error!("a parameter is cut off"))?;
        Ok(match node {
            format::Param::None => Param::None,
            format::Param::Bool(value) => Param::Bool(*value),
            format::Param::Int(value) => Param::Int(*value),
            format::Param::Dim(text) => match dim(text)? {
                Dim::Const(_) => return Err(parse_error!("'{text}' is no symbolic dimension")),
                symbolic => Param::Dim(symbolic),
            },
            format::Param::DType(name) => Param::DType(DType::parse(name)?),
            format::Param::Str(text) => Param::Str(Arc::from(&**text)),
            format::Param::Scalar(value) => Param::Scalar(scalar(value)?),
            format::Param::List(_) if depth == MAX_LIST_DEPTH => {
                return Err(parse_error!("a parameter nests too deep"));
            }
            format::Param::List(len) => {
                Param::List((0..*len).map(|_| self.param(nodes, depth + 1)).collect::<Result<_>>()?)
            }
            format::Param::Program(index) => Param::Program(
                at(&self.programs, *index, "program before this one with number")?.program.clone(),
            ),
        })
    }
}

fn source(line: &format::Line<'_>) -> Source {
    Source::new(SourceLine {
        file: (*line.file).into(),
        line: line.line,
        function: (*line.function).into(),
        scope: "".into(),
    })
}

fn ty(saved: &format::Type<'_>) -> Result<Type> {
    let array = |saved: &format::ArrayType<'_>| -> Result<ArrayType> {
        let shape = saved.shape.iter().map(|size| match size {
            format::Dim::Const(size) => self::size(*size).map(Dim::Const),
            format::Dim::Symbolic(text) => dim(text),
        });
        Ok(ArrayType::new(shape.collect::<Result<Shape>>()?, DType::parse(saved.dtype)?)
            .with_weak(saved.weak))
    };
    let ty = match saved {
        format::Type::Array(saved) => Type::Array(array(saved)?),
        format::Type::Ref(saved) => Type::Ref(array(saved)?),
        format::Type::Token => Type::Token,
    };
    check_type(&ty)?;
    Ok(ty)
}

fn size(size: u64) -> Result<usize> {
    usize::try_from(size).map_err(|_| parse_error!("the size {size} exceeds the address space"))
}

/// The text has to be as `Dim` prints it, save the order of terms: brackets
/// only after the names of functions. So products are of single terms, which
/// keeps their cost in proportion to the text.
fn dim(text: &str) -> Result<Dim> {
    if text.len() > MAX_DIM_TEXT {
        return Err(parse_error!("a dimension is longer than {MAX_DIM_TEXT} characters"));
    }
    let of_function =
        |at: usize| ["floordiv", "mod", "max", "min"].iter().any(|name| text[..at].ends_with(name));
    if text.match_indices('(').any(|(at, _)| !of_function(at)) {
        return Err(parse_error!("the dimension '{text}' is not in normal form"));
    }
    Dim::parse(text)
}

fn tensor(saved: &format::Tensor<'_>) -> Result<Tensor> {
    if saved.sizes.len() > MAX_RANK {
        return Err(parse_error!("a constant of {} dimensions", saved.sizes.len()));
    }
    let sizes = saved.sizes.iter().map(|&size| self::size(size)).collect::<Result<Sizes>>()?;
    let dtype = DType::parse(saved.dtype)?;
    check_type(&ArrayType::of_sizes(&sizes, dtype).into())?;
    let (need, have) = (crate::tensor::byte_size(&sizes, dtype)?, saved.elements.0.len());
    if need != have {
        return Err(parse_error!("a constant {dtype}{sizes:?} takes {need} bytes, but has {have}"));
    }
    if !crate::tensor::are_normal(dtype, saved.elements.0) {
        return Err(parse_error!("a boolean constant has elements other than 0 and 1"));
    }
    Tensor::from_bytes(dtype, sizes, saved.elements.0)
}

fn scalar(saved: &format::Scalar<'_>) -> Result<Scalar> {
    let dtype = DType::parse(saved.dtype)?;
    let value = Scalar::from_bits(dtype, saved.bits);
    if value.bits() != saved.bits || dtype.is_bool() && saved.bits > 1 {
        return Err(parse_error!("0x{:x} is no value of dtype {dtype}", saved.bits));
    }
    Ok(value)
}

fn atom(saved: &format::Atom<'_>) -> Result<Atom> {
    Ok(match saved {
        format::Atom::Var(var) => Atom::Var(Var(*var)),
        format::Atom::Literal(value, weak) => Atom::Literal(Literal { value: scalar(value)?, weak: *weak }),
    })
}

fn effect(saved: &format::Effect<'_>) -> Effect {
    match saved {
        format::Effect::Unordered => Effect::Unordered,
        format::Effect::Ordered => Effect::Ordered,
        format::Effect::NamedAxis(name) => Effect::NamedAxis((*name).into()),
        format::Effect::Memory => Effect::Memory,
    }
}
