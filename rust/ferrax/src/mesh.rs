//! Programs over several devices: arrays cut into parts, and programs of which each device runs its part.
//!
//! The devices of a [`Mesh`] are played by the one that an executable runs on, in lockstep: what they exchange stays in its memory.
//! [`Partitioned::exchanges`] tells what devices apart would send.

use std::fmt;
use std::sync::Arc;

use ferrax_ir::{Dim, Result, value_error};
use ferrax_transform::OutDims;
use ferrax_transform::spmd;

use crate::{Array, Device, Executable, Program};

/// Devices in a grid whose axes have names, numbered row by row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mesh {
    names: Vec<Arc<str>>,
    sizes: Vec<usize>,
}

/// For each axis of an array the axes of a mesh that it is cut over, the major one first. Axes behind the last are whole.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Spec(Vec<Vec<String>>);

impl Spec {
    /// An array of which each device has all.
    pub fn whole() -> Spec {
        Spec::default()
    }

    /// `Spec::new([&["x"][..], &[]])` cuts the first axis over `x`.
    pub fn new<'a>(axes: impl IntoIterator<Item = &'a [&'a str]>) -> Spec {
        Spec(axes.into_iter().map(|names| names.iter().map(|name| name.to_string()).collect()).collect())
    }
}

/// `P(x, None, (y, z))`.
impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let axis = |names: &Vec<String>| match names.as_slice() {
            [] => "None".to_string(),
            [name] => name.clone(),
            many => format!("({})", many.join(", ")),
        };
        write!(f, "P({})", self.0.iter().map(axis).collect::<Vec<_>>().join(", "))
    }
}

/// What devices send to each other at one place of a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exchange {
    /// `psum`, `all_gather` and the like.
    pub collective: &'static str,
    /// The axes of the mesh.
    pub axes: Vec<String>,
    /// What each device puts in.
    pub bytes: usize,
    /// The op that needs its operand otherwise than it is cut; empty for what the specs ask for.
    pub needed_by: String,
}

impl Mesh {
    /// A grid of these axes, the major one first.
    ///
    /// Errors: no axis, more than 255, one of size 0, or two of one name.
    pub fn new<'a>(axes: impl IntoIterator<Item = (&'a str, usize)>) -> Result<Mesh> {
        let (names, sizes): (Vec<Arc<str>>, Vec<usize>) =
            axes.into_iter().map(|(name, size)| (Arc::from(name), size)).unzip();
        let twice = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name));
        if let Some((_, name)) = twice {
            return Err(value_error!("a mesh has two axes of the name '{name}'"));
        }
        if names.is_empty() || names.len() > 255 || sizes.contains(&0) {
            return Err(value_error!(
                "a mesh has between 1 and 255 axes of at least one device, got {sizes:?}"
            ));
        }
        Ok(Mesh { names, sizes })
    }

    /// How many devices there are.
    pub fn devices(&self) -> usize {
        self.sizes.iter().product()
    }

    /// The part of each device.
    ///
    /// Errors: the spec names other axes than the mesh has, one twice, or more axes than the array has; parts would not be equal.
    pub fn split(&self, array: &Array, spec: &Spec) -> Result<Vec<Array>> {
        let cut = self.numbers(spec, array.shape())?;
        let part = self.part_shape(&cut, array.shape());
        (0..self.devices())
            .map(|device| {
                let mut bytes = Vec::with_capacity(array.bytes().len() / self.devices());
                self.rows(&cut, array.shape(), device, |at, count| {
                    let width = array.dtype().size();
                    bytes.extend_from_slice(&array.bytes()[at * width..(at + count) * width]);
                });
                Array::from_bytes(array.dtype(), &part, &bytes)
            })
            .collect()
    }

    /// The array that parts make. Of an array that several devices have, the first one's is taken.
    ///
    /// Errors: another number of parts than devices, parts of several types, and those of [`Mesh::split`].
    pub fn join(&self, parts: &[Array], spec: &Spec) -> Result<Array> {
        let [first, ..] = parts else { return Err(self.wrong_count(parts.len())) };
        let same = |part: &Array| part.shape() == first.shape() && part.dtype() == first.dtype();
        if parts.len() != self.devices() || !parts.iter().all(same) {
            return Err(self.wrong_count(parts.len()));
        }
        let mut shape = first.shape().to_vec();
        let cut = self.numbers_of_rank(spec, shape.len())?;
        for (size, axes) in shape.iter_mut().zip(&cut) {
            *size *= self.parts(axes);
        }
        let width = first.dtype().size();
        let mut bytes = vec![0; shape.iter().product::<usize>() * width];
        for (device, part) in parts.iter().enumerate().rev() {
            let mut from = 0;
            self.rows(&cut, &shape, device, |at, count| {
                let end = from + count * width;
                bytes[at * width..(at + count) * width].copy_from_slice(&part.bytes()[from..end]);
                from = end;
            });
        }
        Array::from_bytes(first.dtype(), &shape, &bytes)
    }

    fn wrong_count(&self, got: usize) -> ferrax_ir::Error {
        value_error!("an array over {} devices has so many parts, all of one type; got {got}", self.devices())
    }

    fn parts(&self, axes: &[u8]) -> usize {
        axes.iter().map(|&axis| self.sizes[usize::from(axis)]).product()
    }

    fn numbers_of_rank(&self, spec: &Spec, rank: usize) -> Result<spmd::Spec> {
        if spec.0.len() > rank {
            return Err(value_error!("{spec} is for arrays of {} axes or more, got {rank}", spec.0.len()));
        }
        let mut used: Vec<&str> = Vec::new();
        let mut cut = spmd::Spec::new();
        for names in &spec.0 {
            let mut axes = spmd::MeshAxes::new();
            for name in names {
                let known = self.names.iter().position(|own| **own == **name);
                let Some(number) = known.filter(|_| !used.contains(&name.as_str())) else {
                    return Err(value_error!(
                        "{spec} names '{name}', which is no axis of the mesh ({}) or is named twice",
                        self.names.join(", ")
                    ));
                };
                used.push(name);
                axes.push(number as u8);
            }
            cut.push(axes);
        }
        cut.resize(rank, spmd::MeshAxes::new());
        Ok(cut)
    }

    fn numbers(&self, spec: &Spec, shape: &[usize]) -> Result<spmd::Spec> {
        let cut = self.numbers_of_rank(spec, shape.len())?;
        for (axis, (size, axes)) in shape.iter().zip(&cut).enumerate() {
            if !size.is_multiple_of(self.parts(axes)) {
                return Err(value_error!(
                    "{spec} cuts axis {axis} of shape {shape:?} into {} parts, which {size} is no multiple of",
                    self.parts(axes)
                ));
            }
        }
        Ok(cut)
    }

    fn spec(&self, cut: &spmd::Spec) -> Spec {
        let name = |axis: &u8| self.names[usize::from(*axis)].to_string();
        Spec(cut.iter().map(|axes| axes.iter().map(name).collect()).collect())
    }

    fn part_shape(&self, cut: &spmd::Spec, shape: &[usize]) -> Vec<usize> {
        shape.iter().zip(cut).map(|(size, axes)| size / self.parts(axes)).collect()
    }

    /// Where a device is along each axis of the mesh.
    fn place(&self, device: usize) -> Vec<usize> {
        let mut left = device;
        let mut place: Vec<usize> = self
            .sizes
            .iter()
            .rev()
            .map(|size| {
                let at = left % size;
                left /= size;
                at
            })
            .collect();
        place.reverse();
        place
    }

    /// Calls with where each run of a device's elements begins in the whole array, and how long it is, in order.
    fn rows(&self, cut: &spmd::Spec, shape: &[usize], device: usize, mut each: impl FnMut(usize, usize)) {
        let (part, place) = (self.part_shape(cut, shape), self.place(device));
        let starts: Vec<usize> = cut
            .iter()
            .zip(&part)
            .map(|(axes, size)| {
                let step =
                    |at: usize, &axis: &u8| at * self.sizes[usize::from(axis)] + place[usize::from(axis)];
                axes.iter().fold(0, step) * size
            })
            .collect();
        if part.contains(&0) {
            return;
        }
        let run = part.last().copied().unwrap_or(1);
        let outer = part.len().saturating_sub(1);
        for number in 0..part[..outer].iter().product() {
            let mut left: usize = number;
            let mut index = vec![0; part.len()];
            for axis in (0..outer).rev() {
                index[axis] = left % part[axis];
                left /= part[axis];
            }
            let at =
                index.iter().zip(&starts).zip(shape).fold(0, |at, ((i, start), size)| at * size + start + i);
            each(at, run);
        }
    }
}

/// A program of which each device of a mesh runs its part.
#[derive(Clone, Debug)]
pub struct Partitioned {
    mesh: Mesh,
    /// Over all devices at once: inputs and outputs have the axes of the mesh that cut them in front.
    lanes: Program,
    inputs: Vec<spmd::Spec>,
    outputs: Vec<spmd::Spec>,
    exchanges: Vec<Exchange>,
}

impl Program {
    /// The program over the devices of a mesh, each of which has the parts of inputs that the specs say. `outputs`: how outputs are to
    /// be cut; `None`: as follows from the inputs.
    ///
    /// Errors: other numbers of specs than inputs and outputs; specs that do not fit; inputs with symbolic dimensions.
    pub fn partition(&self, mesh: &Mesh, inputs: &[Spec], outputs: Option<&[Spec]>) -> Result<Partitioned> {
        let given = specs(mesh, "inputs", inputs, self.inputs())?;
        let wanted = match outputs {
            Some(outputs) => specs(mesh, "outputs", outputs, self.outputs())?.into_iter().map(Some).collect(),
            None => vec![None; self.outputs().len()],
        };
        let axes = spmd::Mesh { sizes: &mesh.sizes, names: &mesh.names };
        let found = spmd::partition(self.ir(), &axes, &given, &wanted, &|_| Ok(false), &mut |_| Ok(None))?;
        let mut program = found.program;
        let vars = program.inputs.split_off(given.len());
        program.constants.extend(vars.into_iter().zip(found.constants));
        for axis in (0..mesh.sizes.len()).rev() {
            let has = |spec: &spmd::Spec| spec.iter().flatten().any(|own| usize::from(*own) == axis);
            let front = |spec: &spmd::Spec| has(spec).then_some(0);
            let dims: Vec<_> = given.iter().map(front).collect();
            let all = vec![Some(0); found.outputs.len()];
            let size = Dim::Const(mesh.sizes[axis]);
            let name = Some(&*mesh.names[axis]);
            program = ferrax_transform::batch(&program, &size, &dims, name, OutDims::Force(&all))?.0;
        }
        let exchange = |one: spmd::Communication| Exchange {
            collective: one.collective,
            axes: one.axes.iter().map(|&axis| mesh.names[usize::from(axis)].to_string()).collect(),
            bytes: one.bytes,
            needed_by: one.needed_by,
        };
        Ok(Partitioned {
            mesh: mesh.clone(),
            lanes: self.derived(program, self.input_names(), self.output_names())?,
            inputs: given,
            outputs: found.outputs,
            exchanges: found.communication.into_iter().map(exchange).collect(),
        })
    }
}

fn specs(mesh: &Mesh, what: &str, specs: &[Spec], values: &[crate::Value]) -> Result<Vec<spmd::Spec>> {
    if specs.len() != values.len() {
        return Err(value_error!("partition: {} specs were given for {} {what}", specs.len(), values.len()));
    }
    let pairs = specs.iter().zip(values);
    pairs
        .map(|(spec, value)| {
            let sizes: Result<Vec<usize>> =
                value.shape().iter().map(|dim| dim.require("partition")).collect();
            mesh.numbers(spec, &sizes?)
        })
        .collect()
}

impl Partitioned {
    /// How each output is cut.
    pub fn outputs(&self) -> Vec<Spec> {
        self.outputs.iter().map(|cut| self.mesh.spec(cut)).collect()
    }

    /// What devices send to each other, in the order of the program.
    pub fn exchanges(&self) -> &[Exchange] {
        &self.exchanges
    }

    /// The program for a device that plays those of the mesh.
    pub fn compile(&self, device: &Device) -> Result<MeshExecutable> {
        let code = self.lanes.compile(device)?;
        Ok(MeshExecutable { mesh: self.mesh.clone(), code, inputs: self.inputs.clone() })
    }
}

/// A program that is compiled for all devices of a mesh.
#[derive(Clone, Debug)]
pub struct MeshExecutable {
    mesh: Mesh,
    code: Executable,
    inputs: Vec<spmd::Spec>,
}

impl MeshExecutable {
    /// The parts of the outputs, for those of the inputs: of each its devices' in the order of the mesh ([`Mesh::split`]).
    ///
    /// Errors: other inputs than the program's, and those of [`Executable::run`].
    pub fn run(&self, inputs: &[Vec<Array>]) -> Result<Vec<Vec<Array>>> {
        if inputs.len() != self.inputs.len() {
            return Err(value_error!("the program takes {} inputs, got {}", self.inputs.len(), inputs.len()));
        }
        let pairs = inputs.iter().zip(&self.inputs);
        let stacked = pairs.map(|(parts, cut)| self.stacked(parts, cut)).collect::<Result<Vec<_>>>()?;
        let outputs = self.code.run(&stacked)?;
        outputs.iter().map(|output| self.apart(output)).collect()
    }

    /// The parts along the axes of the mesh that cut the array.
    fn stacked(&self, parts: &[Array], cut: &spmd::Spec) -> Result<Array> {
        let [first, ..] = parts else { return Err(self.mesh.wrong_count(parts.len())) };
        let same = |part: &Array| part.shape() == first.shape() && part.dtype() == first.dtype();
        if parts.len() != self.mesh.devices() || !parts.iter().all(same) {
            return Err(self.mesh.wrong_count(parts.len()));
        }
        let cuts = |axis: usize| cut.iter().flatten().any(|own| usize::from(*own) == axis);
        let sizes = self.mesh.sizes.iter().enumerate().filter(|(axis, _)| cuts(*axis)).map(|(_, size)| *size);
        let shape: Vec<usize> = sizes.chain(first.shape().iter().copied()).collect();
        let mut bytes = Vec::new();
        for (device, part) in parts.iter().enumerate() {
            let place = self.mesh.place(device);
            if place.iter().enumerate().all(|(axis, at)| *at == 0 || cuts(axis)) {
                bytes.extend_from_slice(part.bytes());
            }
        }
        Array::from_bytes(first.dtype(), shape, &bytes)
    }

    fn apart(&self, output: &Array) -> Result<Vec<Array>> {
        let shape = &output.shape()[self.mesh.sizes.len()..];
        let size = output.bytes().len() / self.mesh.devices();
        (0..self.mesh.devices())
            .map(|device| {
                let bytes = &output.bytes()[device * size..(device + 1) * size];
                Array::from_bytes(output.dtype(), shape, bytes)
            })
            .collect()
    }
}
