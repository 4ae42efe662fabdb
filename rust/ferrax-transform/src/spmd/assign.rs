//! Over which axes of a mesh an equation is cut.
//!
//! In: the factors of its operands and results (`ferrax_ir::shard_rule`), how operands are cut and how results are to be. Out: the
//! axes of the mesh for each factor. An axis of the mesh cuts one factor at most: of those that an array says, the one for
//! which devices have to exchange the fewest bytes, by the sizes of the arrays that would have to be laid out anew; the first of
//! equals, results before operands. Cost: axes of the mesh times factors.

use ferrax_ir::rules::Extents;
use ferrax_ir::shard_rule::{ArrayFactors, Cut, ShardRule};
use smallvec::SmallVec;

use super::propagate::{MeshAxes, Spec, parts};
use super::reshard::{Mesh, Part};

/// An operand, or a result.
pub struct Side<'a> {
    axes: &'a ArrayFactors,
    spec: &'a Spec,
    bytes: usize,
    is_result: bool,
}

/// Results, and then operands.
pub fn sides<'a>(
    rule: &'a ShardRule,
    inputs: &[Extents<'_>],
    operands: &'a [Part],
    outputs: &[Extents<'_>],
    wanted: &'a [Spec],
) -> Vec<Side<'a>> {
    let bytes = |extents: &Extents<'_>| extents.count() * extents.dtype.size();
    let results = rule.results.iter().zip(wanted).zip(outputs);
    let results = results.map(|((axes, spec), of)| Side { axes, spec, bytes: bytes(of), is_result: true });
    let operands = rule.operands.iter().zip(operands).zip(inputs);
    let operands = operands.map(|((axes, part), of)| Side {
        axes,
        spec: &part.spec,
        bytes: bytes(of),
        is_result: false,
    });
    results.chain(operands).collect()
}

/// What devices can do beside computing with equal parts.
pub struct Movable {
    /// Whether what parts give can be folded.
    pub folds: bool,
    /// The factors of which devices can get the edges of their neighbours' parts.
    pub shifts: SmallVec<[u16; 2]>,
    /// Those whose parts need not be equal.
    pub uneven: SmallVec<[u16; 2]>,
}

/// See the head of the file.
pub fn assign(rule: &ShardRule, mesh: &Mesh<'_>, can: &Movable, sides: &[Side<'_>]) -> Vec<MeshAxes> {
    let mut cut: Vec<MeshAxes> = vec![MeshAxes::new(); rule.factors.len()];
    // Where each side has the axes of the mesh.
    let mut places: Vec<SmallVec<[Option<u16>; 4]>> = Vec::with_capacity(sides.len());
    for side in sides {
        let mut place = SmallVec::from_elem(None, mesh.sizes.len());
        for (own, names) in side.axes.iter().zip(side.spec) {
            for (factor, part) in parts(own, names, rule, mesh.sizes) {
                part.iter().for_each(|&name| place[usize::from(name)] = Some(factor));
                let known = &mut cut[usize::from(factor)];
                if known.is_empty() && can_be_cut(rule, factor, can) {
                    *known = part;
                }
            }
        }
        places.push(place);
    }
    for name in 0..mesh.sizes.len() {
        let has = |factor: &u16| cut[usize::from(*factor)].contains(&(name as u8));
        let choices: SmallVec<[u16; 4]> = (0..rule.factors.len() as u16).filter(has).collect();
        let cost = |factor: &u16| exchanged(rule, mesh.sizes[name], *factor, sides, &places, name);
        if let Some(best) = in_order(choices.clone(), sides).into_iter().min_by_key(cost) {
            for other in choices.into_iter().filter(|other| *other != best) {
                cut[usize::from(other)].retain(|axis| usize::from(*axis) != name);
            }
        }
    }
    let even = |factor: &usize| !can.uneven.contains(&(*factor as u16));
    for (factor, axes) in cut.iter_mut().enumerate().filter(|(factor, _)| even(factor)) {
        let mut room = rule.factors[factor].size;
        let fits = |axis: &&u8| {
            let parts = mesh.sizes[usize::from(**axis)];
            let fits = room.is_multiple_of(parts);
            room /= parts.max(1);
            fits
        };
        let count = axes.iter().take_while(fits).count();
        axes.truncate(count);
    }
    settle_order(rule, mesh, sides, &mut cut);
    cut
}

fn can_be_cut(rule: &ShardRule, factor: u16, can: &Movable) -> bool {
    match rule.factors[usize::from(factor)].cut {
        Cut::Pass => true,
        Cut::Fold => can.folds,
        Cut::Shift => can.shifts.contains(&factor),
        Cut::Whole => false,
    }
}

/// Factors in the order of the sides that have them.
fn in_order(factors: SmallVec<[u16; 4]>, sides: &[Side<'_>]) -> SmallVec<[u16; 4]> {
    let mut ordered: SmallVec<[u16; 4]> = SmallVec::new();
    for factor in sides.iter().flat_map(|side| side.axes.iter().flatten()) {
        if factors.contains(factor) && !ordered.contains(factor) {
            ordered.push(*factor);
        }
    }
    ordered
}

/// The bytes that devices exchange, about, if this axis of the mesh, of `count` devices, cuts this factor.
fn exchanged(
    rule: &ShardRule,
    count: usize,
    factor: u16,
    sides: &[Side<'_>],
    places: &[SmallVec<[Option<u16>; 4]>],
    name: usize,
) -> usize {
    let folds = rule.factors[usize::from(factor)].cut == Cut::Fold;
    let of_side = |(side, place): (&Side<'_>, &SmallVec<[Option<u16>; 4]>)| {
        let has = side.axes.iter().flatten().any(|own| *own == factor);
        match place[name] {
            Some(now) if now == factor => 0,
            // A sum into parts, or one for all, which is as much again.
            now if side.is_result && folds => side.bytes * if now.is_some() { 1 } else { 2 },
            Some(_) if has => side.bytes / count,
            Some(_) => side.bytes * usize::from(!side.is_result),
            None => side.bytes * usize::from(side.is_result && has),
        }
    };
    sides.iter().zip(places).map(of_side).sum()
}

/// Of an axis that is several factors, a later one is cut only where those before it are cut to single elements.
fn settle_order(rule: &ShardRule, mesh: &Mesh<'_>, sides: &[Side<'_>], cut: &mut [MeshAxes]) {
    loop {
        let mut changed = false;
        for own in sides.iter().flat_map(|side| side.axes) {
            let mut open = true;
            for &factor in own {
                let axes = &mut cut[usize::from(factor)];
                if !open && !axes.is_empty() {
                    axes.clear();
                    changed = true;
                }
                open &= mesh.parts(axes) == rule.factors[usize::from(factor)].size;
            }
        }
        if !changed {
            return;
        }
    }
}
