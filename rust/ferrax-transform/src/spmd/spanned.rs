//! Ops done on windows: what holds of parts of equal sizes (`ferrax_ir::shard_rule`) holds of windows that are alike.
//!
//! In: an op's rule, and its operands, some of which are held in windows (`span`) along some axes. Out: the window for each factor that is
//! done so. Operands that are held alike stay where they are; where they differ all meet in the middle, or in equal parts. A factor
//! that is folded is so where elements outside of the array, and such as two devices have, can be made to count for nothing.
//! Other axes are in equal parts before the op is done, or whole. Cost: the factors.

use ferrax_ir::shard_rule::{ArrayFactors, Cut, ShardRule};
use ferrax_ir::{ArrayType, Atom, Dim, Op, Result, Scalar, Type};
use smallvec::SmallVec;

use super::propagate::{MeshAxes, Spec};
use super::reshard::{Lane, Mesh, Part};
use super::span::{Span, Spans};

/// A factor of which devices hold windows.
pub struct Spanned {
    pub factor: u16,
    pub over: MeshAxes,
    span: Span,
    /// Of the whole array.
    size: usize,
}

impl Spanned {
    /// Whether its factor is cut so; else that is cut into equal parts, if at all.
    pub fn stays(&self, rule: &ShardRule, mesh: &Mesh<'_>, cut: &mut [MeshAxes]) -> bool {
        let axes = &mut cut[usize::from(self.factor)];
        if *axes == self.over {
            return true;
        }
        if !rule.factors[usize::from(self.factor)].size.is_multiple_of(mesh.parts(axes)) {
            axes.clear();
        }
        false
    }
}

/// The operands in windows of which each device has about as much: others in equal parts, or whole.
pub fn nearly_even(lane: &mut Lane<'_>, operands: &[Part]) -> Result<Vec<Part>> {
    let near = |lane: &mut Lane<'_>, part: &Part| {
        let mut part = part.clone();
        for (axis, span) in part.spans.clone() {
            let count = lane.mesh.parts(&part.spec[axis]);
            if !Span::is_near(span.step, count, part.sizes[axis]) {
                part = lane.gathered(&part, axis)?;
            }
        }
        Ok(part)
    };
    operands.iter().map(|part| near(lane, part)).collect()
}

/// See the head of the file.
pub fn spanned(op: &Op, rule: &ShardRule, mesh: &Mesh<'_>, operands: &[Part]) -> SmallVec<[Spanned; 1]> {
    let mut found: SmallVec<[Spanned; 1]> = SmallVec::new();
    for (part, axes) in operands.iter().zip(&rule.operands) {
        for &(axis, span) in &part.spans {
            let [factor] = axes[axis].as_slice() else { continue };
            let over = &part.spec[axis];
            if found.iter().any(|one| one.factor == *factor) || !can_be(op, rule, *factor) {
                continue;
            }
            let size = part.sizes[axis];
            let alike = |(other, axes): (&Part, &ArrayFactors)| {
                let own = (0..axes.len()).filter(|of| axes[*of].as_slice() == [*factor]);
                own.into_iter().all(|of| other.spec[of].is_empty() || other.span(of, mesh) == Some(span))
            };
            let one = match operands.iter().zip(&rule.operands).all(alike) {
                true => span,
                false => Span::middle(span.step, mesh.parts(over), size),
            };
            if !one.is_even(mesh.parts(over), size) {
                found.push(Spanned { factor: *factor, over: over.clone(), span: one, size });
            }
        }
    }
    found
}

fn can_be(op: &Op, rule: &ShardRule, factor: u16) -> bool {
    let axes = rule.operands.iter().chain(&rule.results).flatten();
    let alone = axes.filter(|own| own.contains(&factor)).all(|own| own.len() == 1);
    alone
        && match rule.factors[usize::from(factor)].cut {
            Cut::Pass => true,
            Cut::Fold => matches!(op, Op::Reduce(_) | Op::DotGeneral(_)),
            Cut::Shift | Cut::Whole => false,
        }
}

/// The windows of an array's axes.
pub fn spans_of(spanned: &[Spanned], axes: &ArrayFactors) -> Spans {
    let of = |axis: usize| {
        let one = spanned.iter().find(|one| axes[axis].as_slice() == [one.factor])?;
        Some((axis, one.span))
    };
    (0..axes.len()).filter_map(of).collect()
}

/// The type of what a device has.
pub fn held_type(mesh: &Mesh<'_>, ty: &Type, spec: &Spec, spans: &Spans) -> Type {
    let mut ty = mesh.part(ty, spec);
    if let Type::Array(ty) = &mut ty {
        for (axis, span) in spans {
            ty.shape[*axis] = Dim::Const(span.length);
        }
    }
    ty
}

/// An operand of which elements count once, and those outside of the array for nothing.
pub fn counted_once(
    lane: &mut Lane<'_>,
    op: &Op,
    rule: &ShardRule,
    spanned: &[Spanned],
    axes: &ArrayFactors,
    mut x: Atom,
) -> Result<Atom> {
    for one in spanned.iter().filter(|one| rule.factors[usize::from(one.factor)].cut == Cut::Fold) {
        let Some(axis) = axes.iter().position(|own| own.as_slice() == [one.factor]) else { continue };
        let ty: ArrayType = lane.b.array_type(x)?;
        let nothing = match op {
            Op::Reduce(op) => op.kind.of_nothing(ty.dtype)?,
            _ => Scalar::zero(ty.dtype),
        };
        let nothing = lane.b.full(&ty, nothing)?;
        let within = lane.inside(&ty.shape, axis, &one.over, one.span, 0, one.size as i64)?;
        let first = lane.first_holds(&ty.shape, axis, &one.over, one.span)?;
        for counts in [within, first].into_iter().flatten() {
            x = lane.b.select(counts, x, nothing)?;
        }
    }
    Ok(x)
}
