//! Laying out anew the part of an array that a device has.
//!
//! In: an array as a value of a program of one device, how it is cut, and how it is to be cut. Out: the device's part of that.
//! An axis of the mesh that goes from one axis of the array to another is an `all_to_all`, one that goes away an `all_gather`, one
//! that comes is a slice at the device's place. What is exchanged is written down.

use std::sync::Arc;

use ferrax_ir::ops::{
    AllGather, AllToAll, AxisIndex, AxisReduce, AxisReduceKind, DynamicSlice, ReduceScatter,
};
use ferrax_ir::{ArrayType, Atom, Builder, DType, Dim, Result, Sizes, Source, Type};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::neighbours::{Sender, Sent};
use super::propagate::{MeshAxes, Spec};
use super::span::{Span, Spans};

/// The axes of a mesh.
pub struct Mesh<'a> {
    pub sizes: &'a [usize],
    /// As ops name them.
    pub names: &'a [Arc<str>],
}

impl Mesh<'_> {
    /// How many parts these axes make.
    pub fn parts(&self, axes: &[u8]) -> usize {
        axes.iter().map(|&axis| self.sizes[usize::from(axis)]).product()
    }

    pub fn names(&self, axes: &[u8]) -> Vec<Arc<str>> {
        axes.iter().map(|&axis| self.names[usize::from(axis)].clone()).collect()
    }

    /// The type of a part of an array.
    pub fn part(&self, ty: &Type, spec: &Spec) -> Type {
        let Type::Array(ty) = ty else { return ty.clone() };
        let mut ty = ty.clone();
        for (size, cut) in ty.shape.iter_mut().zip(spec) {
            if let Dim::Const(size) = size {
                *size /= self.parts(cut);
            }
        }
        Type::Array(ty)
    }
}

/// Bytes that devices exchange.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Communication {
    pub source: Source,
    /// The collective's name.
    pub collective: &'static str,
    pub axes: MeshAxes,
    /// What a device puts in.
    pub bytes: usize,
    /// The op that needs its operand otherwise than it is cut; empty where the program says how.
    pub needed_by: String,
}

/// A device's part of an array.
#[derive(Clone, Debug)]
pub struct Part {
    pub atom: Atom,
    pub spec: Spec,
    /// Of the whole array.
    pub sizes: Sizes,
    /// Axes that are cut otherwise than into equal parts.
    pub spans: Spans,
}

impl Part {
    /// Of an array in equal parts.
    pub fn new(atom: Atom, spec: Spec, sizes: Sizes) -> Part {
        Part { atom, spec, sizes, spans: Spans::new() }
    }

    /// What devices hold along an axis, if it is cut.
    pub fn span(&self, axis: usize, mesh: &Mesh<'_>) -> Option<Span> {
        if let Some((_, span)) = self.spans.iter().find(|(of, _)| *of == axis) {
            return Some(*span);
        }
        let count = mesh.parts(&self.spec[axis]);
        let even = !self.spec[axis].is_empty() && self.sizes[axis] >= count && count > 0;
        even.then(|| Span::even(self.sizes[axis] / count))
    }
}

/// A program of one device as it is written.
pub struct Lane<'a> {
    pub b: Builder,
    pub mesh: &'a Mesh<'a>,
    pub said: Vec<Communication>,
    /// Whose sake it is for that something is laid out anew.
    pub needed_by: String,
    /// Whether the sum that is written next may wait; and over which axes it does.
    pub may_wait: bool,
    pub waiting: Option<MeshAxes>,
    /// What neighbours have sent.
    pub sent: FxHashMap<Sender, Vec<Sent>>,
    /// Arrays that were laid out anew, by how they were cut and how they are to be.
    known: FxHashMap<(Atom, Spec, Spec), Atom>,
}

impl<'a> Lane<'a> {
    pub fn new(name: Arc<str>, mesh: &'a Mesh<'a>) -> Lane<'a> {
        Lane {
            b: Builder::new(name),
            mesh,
            said: Vec::new(),
            needed_by: String::new(),
            may_wait: false,
            waiting: None,
            sent: FxHashMap::default(),
            known: FxHashMap::default(),
        }
    }

    /// The part of an array that is cut so.
    pub fn laid_out(&mut self, part: &Part, to: &Spec) -> Result<Atom> {
        if !part.spans.is_empty() {
            let even = self.evened(part, to)?;
            return self.laid_out(&even, to);
        }
        self.cut_anew(part.atom, &part.spec, to)
    }

    /// An array that is cut one way cut another way: axes that are cut alike may be held in any way.
    pub fn cut_anew(&mut self, x: Atom, from: &Spec, to: &Spec) -> Result<Atom> {
        if from == to {
            return Ok(x);
        }
        let key = (x, from.clone(), to.clone());
        if let Some(&known) = self.known.get(&key) {
            return Ok(known);
        }
        let found = self.laid_out_anew(x, from, to)?;
        self.known.insert(key, found);
        Ok(found)
    }

    fn laid_out_anew(&mut self, mut x: Atom, from: &Spec, to: &Spec) -> Result<Atom> {
        let mut from = from.clone();
        let going =
            |from: &Spec, axis: usize| -> MeshAxes { from[axis][common(&from[axis], &to[axis])..].into() };
        let moving: MeshAxes = (0..to.len()).flat_map(|axis| going(&from, axis)).collect();
        // What is cut more is smaller to exchange.
        for axis in 0..to.len() {
            let more = &to[axis][common(&from[axis], &to[axis])..];
            if going(&from, axis).is_empty() && !more.iter().any(|name| moving.contains(name)) {
                x = self.sliced(x, axis, more)?;
                from[axis] = to[axis].clone();
            }
        }
        for axis in 0..to.len() {
            while let Some(&last) = going(&from, axis).last() {
                let goes_to = (0..to.len()).find(|&other| {
                    let kept = from[other].len();
                    other != axis && to[other].get(kept) == Some(&last) && to[other].starts_with(&from[other])
                });
                if let Some(other) = goes_to {
                    x = self.all_to_all(x, other, axis, last)?;
                    from[axis].pop();
                    from[other].push(last);
                    continue;
                }
                let gone = going(&from, axis);
                x = self.all_gather(x, axis, &gone)?;
                let kept = from[axis].len() - gone.len();
                from[axis].truncate(kept);
            }
        }
        for axis in 0..to.len() {
            let more: MeshAxes = to[axis][from[axis].len()..].into();
            x = self.sliced(x, axis, &more)?;
        }
        Ok(x)
    }

    /// The fold of what devices have along these axes.
    pub fn folded(&mut self, x: Atom, kind: AxisReduceKind, axes: &[u8]) -> Result<Atom> {
        self.say(kind.name(), x, axes)?;
        let op = AxisReduce { kind, axes: self.mesh.names(axes), axis_index_groups: None };
        self.b.emit1(op, &[x])
    }

    /// The sum of what devices have along these axes, cut along an axis of it.
    pub fn sum_scattered(&mut self, mut x: Atom, axis: usize, axes: &[u8]) -> Result<Atom> {
        self.say("psum_scatter", x, axes)?;
        for over in axes {
            let op = ReduceScatter {
                axis_index_groups: None,
                axis_name: self.mesh.names(&[*over]),
                axis_size: Dim::Const(self.mesh.parts(&[*over])),
                scatter_dimension: axis,
                tiled: true,
            };
            x = self.b.emit1(op, &[x])?;
        }
        Ok(x)
    }

    /// Of the minor axis first, whose parts lie beside each other.
    fn all_gather(&mut self, mut x: Atom, axis: usize, axes: &[u8]) -> Result<Atom> {
        self.say("all_gather", x, axes)?;
        for over in axes.iter().rev() {
            let op = AllGather {
                all_gather_dimension: axis,
                axis_index_groups: None,
                axis_name: self.mesh.names(&[*over]),
                axis_size: Dim::Const(self.mesh.parts(&[*over])),
                tiled: true,
            };
            x = self.b.emit1(op, &[x])?;
        }
        Ok(x)
    }

    fn all_to_all(&mut self, x: Atom, split_axis: usize, concat_axis: usize, over: u8) -> Result<Atom> {
        self.say("all_to_all", x, &[over])?;
        let op = AllToAll {
            axis_index_groups: None,
            axis_name: self.mesh.names[usize::from(over)].clone(),
            axis_size: Dim::Const(self.mesh.sizes[usize::from(over)]),
            concat_axis,
            split_axis,
            tiled: true,
        };
        self.b.emit1(op, &[x])
    }

    /// The device's part of an axis that is cut over these more.
    fn sliced(&mut self, x: Atom, axis: usize, axes: &[u8]) -> Result<Atom> {
        if axes.is_empty() {
            return Ok(x);
        }
        let mut shape = self.b.shape(x);
        let size = shape[axis].require("an array over a mesh")? / self.mesh.parts(axes);
        shape[axis] = Dim::Const(size);
        let place = self.place(axes, size)?;
        let zero = self.b.int_scalar(DType::I32, 0);
        let starts = (0..shape.len()).map(|other| if other == axis { place } else { zero });
        let operands: SmallVec<[Atom; 5]> = std::iter::once(x).chain(starts).collect();
        self.b.emit1(DynamicSlice { slice_sizes: shape }, &operands)
    }

    /// Where the device's part begins along an axis that is cut over these, with parts of this size.
    pub fn place(&mut self, axes: &[u8], size: usize) -> Result<Atom> {
        let mut place = self.b.int_scalar(DType::I32, 0);
        for &axis in axes {
            let count = self.b.int_scalar(DType::I32, self.mesh.sizes[usize::from(axis)] as i64);
            let axis_name = self.mesh.names[usize::from(axis)].clone();
            let index = self.b.emit1(AxisIndex { axis_name }, &[])?;
            let before = self.b.mul(place, count)?;
            place = self.b.add(before, index)?;
        }
        let size = self.b.int_scalar(DType::I32, size as i64);
        self.b.mul(place, size)
    }

    pub fn say(&mut self, collective: &'static str, x: Atom, axes: &[u8]) -> Result<()> {
        let ty: ArrayType = self.b.array_type(x)?;
        let count: usize = ty.sizes().unwrap_or_default().iter().product();
        self.said.push(Communication {
            source: self.b.source,
            collective,
            axes: axes.into(),
            bytes: count * ty.dtype.size(),
            needed_by: self.needed_by.clone(),
        });
        Ok(())
    }
}

/// How many axes two lists begin with both.
fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}
