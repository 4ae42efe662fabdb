//! Programs as embedders see them. Invariant: all inputs and outputs are
//! arrays, and each has a name.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use ferrax_ir::serial::{self, Interface};
use ferrax_ir::{ArrayType, DType, Dim, Error, Result, Type, unsupported, value_error, verify};
use ferrax_transform::specialise;

use crate::{Array, Device, Executable};

/// An input or output of a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Value {
    name: String,
    ty: ArrayType,
}

impl Value {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn dtype(&self) -> DType {
        self.ty.dtype
    }

    pub fn shape(&self) -> &[Dim] {
        &self.ty.shape
    }

    pub(crate) fn ty(&self) -> &ArrayType {
        &self.ty
    }
}

/// `images: f32[8,64]`.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.ty)
    }
}

/// A function of arrays, typed and pure. Copies are cheap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    ir: Arc<ferrax_ir::Program>,
    inputs: Arc<[Value]>,
    outputs: Arc<[Value]>,
    metadata: Arc<str>,
}

/// The program in a file.
///
/// Fails with [`Error::Parse`] if the file holds no valid program, with
/// [`Error::Value`] if it cannot be read.
pub fn load(path: impl AsRef<Path>) -> Result<Program> {
    Program::load(path)
}

fn values(side: &str, types: Vec<Type>, names: Vec<String>) -> Result<Arc<[Value]>> {
    let mut names = names.into_iter();
    types
        .into_iter()
        .enumerate()
        .map(|(position, ty)| match ty {
            Type::Array(ty) => {
                Ok(Value { name: names.next().unwrap_or_else(|| format!("{side}_{position}")), ty })
            }
            other => Err(unsupported!("{side} {position} of the program is {other}, not an array")),
        })
        .collect()
}

impl Program {
    /// A program of the IR, as a compiler of another front end makes it.
    pub fn new(ir: impl Into<Arc<ferrax_ir::Program>>, interface: Interface) -> Result<Program> {
        let ir = ir.into();
        interface.check(&ir)?;
        Ok(Program {
            inputs: values("input", ir.input_types().cloned().collect(), interface.input_names)?,
            outputs: values("output", ir.output_types().collect(), interface.output_names)?,
            metadata: interface.metadata.into(),
            ir,
        })
    }

    /// See [`load`].
    pub fn load(path: impl AsRef<Path>) -> Result<Program> {
        let path = path.as_ref();
        let bytes =
            std::fs::read(path).map_err(|error| value_error!("cannot read '{}': {error}", path.display()))?;
        Program::from_bytes(&bytes).map_err(|error| match error {
            Error::Parse(text) => Error::Parse(format!("'{}': {text}", path.display())),
            other => other,
        })
    }

    /// The program in the bytes of a file.
    pub fn from_bytes(bytes: &[u8]) -> Result<Program> {
        let (ir, interface) = serial::from_bytes(bytes)?;
        Program::new(ir, interface)
    }

    /// The bytes of a file with this program.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let names = |values: &[Value]| values.iter().map(|value| value.name.clone()).collect();
        let interface = Interface {
            input_names: names(&self.inputs),
            output_names: names(&self.outputs),
            metadata: self.metadata.to_string(),
        };
        serial::to_bytes(&self.ir, &interface)
    }

    /// Writes a file with this program.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        std::fs::write(path, self.to_bytes()?)
            .map_err(|error| value_error!("cannot write '{}': {error}", path.display()))
    }

    /// What the user called the function.
    pub fn name(&self) -> &str {
        &self.ir.name
    }

    pub fn inputs(&self) -> &[Value] {
        &self.inputs
    }

    pub fn outputs(&self) -> &[Value] {
        &self.outputs
    }

    /// What the writer of the file put there for itself; Python keeps the
    /// structure of arguments and results in it. Transformed programs have none.
    pub fn metadata(&self) -> &str {
        &self.metadata
    }

    /// The program of the IR.
    pub fn ir(&self) -> &ferrax_ir::Program {
        &self.ir
    }

    /// The program where the last inputs are constants with these values, as
    /// weights are that belong to the program.
    pub fn bind_last(&self, values: &[Array]) -> Result<Program> {
        let tensors: Vec<_> = values.iter().map(|array| array.tensor().clone()).collect();
        let ir = self.ir.bind_constants(&tensors)?;
        let kept = ir.inputs.len();
        let inputs = self.inputs[..kept].iter().map(|value| value.name.clone()).collect();
        self.derived(ir, inputs, self.output_names())
    }

    pub(crate) fn input_names(&self) -> Vec<String> {
        self.inputs.iter().map(|value| value.name.clone()).collect()
    }

    pub(crate) fn output_names(&self) -> Vec<String> {
        self.outputs.iter().map(|value| value.name.clone()).collect()
    }

    /// A program made of this one.
    pub(crate) fn derived(
        &self,
        ir: ferrax_ir::Program,
        input_names: Vec<String>,
        output_names: Vec<String>,
    ) -> Result<Program> {
        Program::new(ir, Interface { input_names, output_names, metadata: String::new() })
    }

    /// The same function in fewer steps: calls written out, common parts
    /// shared, dead ones gone. [`Program::compile`] does this itself; here it is
    /// for reading and saving.
    pub fn optimise(&self) -> Result<Program> {
        let ir = ferrax_transform::optimise(&self.ir, Default::default())?;
        let mut program = self.derived(ir, self.input_names(), self.output_names())?;
        program.metadata = self.metadata.clone();
        Ok(program)
    }

    /// The variables of symbolic dimensions, in the order in which inputs have them.
    pub fn dimension_variables(&self) -> Vec<Arc<str>> {
        specialise::input_variables(&self.ir)
    }

    /// The program where dimension variables have these sizes; others stay.
    ///
    /// Errors: a name that is none of [`Program::dimension_variables`], or that is given twice; sizes that an op of the
    /// program cannot have.
    ///
    /// ```
    /// let rows: ferrax::Program = "{ lambda ; x:f32[n,3]. let y:f32[n,3] = sin x in (y,) }".parse()?;
    /// assert_eq!(rows.with_sizes(&[("n", 8)])?.inputs()[0].to_string(), "input_0: f32[8,3]");
    /// # Ok::<(), ferrax::Error>(())
    /// ```
    pub fn with_sizes(&self, sizes: &[(&str, usize)]) -> Result<Program> {
        let known = self.dimension_variables();
        for (place, (name, _)) in sizes.iter().enumerate() {
            if !known.iter().any(|variable| **variable == **name) {
                return Err(value_error!(
                    "with_sizes: '{}' has no dimension '{name}'; its dimensions are {known:?}",
                    self.name()
                ));
            }
            if sizes[..place].iter().any(|(other, _)| other == name) {
                return Err(value_error!("with_sizes: the dimension '{name}' is given twice"));
            }
        }
        let size = |name: &str| sizes.iter().find(|(other, _)| *other == name).map(|(_, n)| Dim::Const(*n));
        let ir = ferrax_transform::specialise(&self.ir, &size)?;
        let mut program = self.derived(ir, self.input_names(), self.output_names())?;
        program.metadata = self.metadata.clone();
        Ok(program)
    }

    /// Makes the program ready to run.
    pub fn compile(&self, device: &Device) -> Result<Executable> {
        Executable::new(self, device)
    }
}

/// Reads the text form, which `{:#}` writes exactly.
impl FromStr for Program {
    type Err = Error;

    fn from_str(text: &str) -> Result<Program> {
        let ir = ferrax_ir::Program::parse(text)?;
        verify::verify(&ir)?;
        Program::new(ir, Interface::default())
    }
}

/// The equations, in the notation of jaxprs; `{:#}` says everything there is.
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&*self.ir, f)
    }
}
