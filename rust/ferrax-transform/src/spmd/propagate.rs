//! How the arrays of a program are cut over the axes of a mesh, where that is said of some of them.
//!
//! In: a program, the sizes of the mesh's axes, how inputs are cut (`None`: nothing is said), and what equations say of
//! themselves. Out: how the outputs are cut. What is said stays; all else is cut as what it hangs together with
//! (`ferrax_ir::shard_rule`), forwards and backwards, to a fixed point. Where two say different things of a factor it is cut
//! as far as they agree. An axis of the mesh cuts one axis of an array. Sizes that parts do not divide are no matter inside; an
//! output is cut as far as its sizes allow.
//!
//! In the order of Shardy (<https://openxla.org/shardy/propagation>): elementwise operations first, then others, copies along new
//! axes last. Cost: each round is linear in the program; a round only goes on if an array is cut by more axes than before, and
//! there are few of these.

use ferrax_ir::shard_rule::{ArrayFactors, Cut, Factors, ShardRule};
use ferrax_ir::{Program, Result};
use smallvec::SmallVec;

use super::graph::{Array, Asked, Frame, Graph, LEVELS, Node, Value};

/// Axes of a mesh by number, the major one first.
pub type MeshAxes = SmallVec<[u8; 2]>;

/// For each axis of an array the axes of the mesh that it is cut over.
pub type Spec = SmallVec<[MeshAxes; 4]>;

/// See the head of the file.
pub fn propagate(
    program: &Program,
    mesh: &[usize],
    inputs: &[Option<Spec>],
    asked: Asked<'_>,
) -> Result<Vec<Spec>> {
    let Settled { values, outputs, .. } = settled(program, mesh, inputs, &[], asked)?;
    Ok(outputs.into_iter().map(|array| fitting(&values[array], mesh)).collect())
}

/// How all arrays of a program are cut; outputs as is said, unless the program says otherwise.
pub(super) struct Settled {
    pub values: Vec<Value>,
    pub outputs: Vec<Array>,
    pub frame: Frame,
}

pub(super) fn settled(
    program: &Program,
    mesh: &[usize],
    inputs: &[Option<Spec>],
    wanted: &[Option<Spec>],
    asked: Asked<'_>,
) -> Result<Settled> {
    let mut graph = Graph::new(asked);
    let arrays: Vec<_> = program.inputs.iter().map(|var| graph.fresh(&program.types[var.index()])).collect();
    for (&array, spec) in arrays.iter().zip(inputs) {
        if let Some(spec) = spec {
            graph.close(array, spec.clone());
        }
    }
    let outputs = graph.program(program, &arrays)?;
    for (&array, spec) in outputs.iter().zip(wanted) {
        if let (Some(spec), false) = (spec, graph.values[array].closed) {
            graph.close(array, spec.clone());
        }
    }
    let Graph { mut values, nodes, mut frames, .. } = graph;
    for level in 0..LEVELS {
        settle(&mut values, &nodes, mesh, level);
    }
    Ok(Settled { values, outputs, frame: frames.pop().unwrap_or_default() })
}

/// Rounds, forwards and backwards in turn, until nothing changes.
fn settle(values: &mut [Value], nodes: &[Node], mesh: &[usize], level: u8) {
    let mut forwards = true;
    let mut quiet = 0;
    while quiet < 2 {
        let mut changed = false;
        let mut visit = |node: &Node| changed |= step(values, node, mesh, level);
        if forwards {
            nodes.iter().for_each(&mut visit);
        } else {
            nodes.iter().rev().for_each(&mut visit);
        }
        forwards = !forwards;
        quiet = if changed { 0 } else { quiet + 1 };
    }
}

/// What one node's arrays say is told to the others. Whether one is cut by more axes than before.
fn step(values: &mut [Value], node: &Node, mesh: &[usize], level: u8) -> bool {
    // Copies along new axes only say before their turn how their operands are cut.
    let backwards = node.level > level;
    if backwards && (level == 0 || node.level != LEVELS - 1) {
        return false;
    }
    let ShardRule { factors, operands, results, .. } = &node.rule;
    let sides = || operands.iter().chain(results);
    let mut merged: SmallVec<[Option<MeshAxes>; 8]> = SmallVec::from_elem(None, factors.len());
    for (array, axes) in node.arrays.iter().zip(sides()) {
        if values[*array].spec.iter().any(|axis| !axis.is_empty()) {
            gather(&values[*array], axes, &node.rule, mesh, &mut merged);
        }
    }
    let mut changed = false;
    for (number, (array, axes)) in node.arrays.iter().zip(sides()).enumerate() {
        if !(values[*array].closed || backwards && number >= operands.len()) {
            changed |= tell(&mut values[*array], axes, &node.rule, mesh, &merged);
        }
    }
    changed
}

/// Adds how an array is cut to what is known of its factors.
fn gather(
    value: &Value,
    axes: &ArrayFactors,
    rule: &ShardRule,
    mesh: &[usize],
    merged: &mut [Option<MeshAxes>],
) {
    for (own, cut) in axes.iter().zip(&value.spec) {
        for (factor, part) in parts(own, cut, rule, mesh) {
            let known = &mut merged[usize::from(factor)];
            *known = Some(match known.take() {
                None => part,
                Some(other) => agreed(other, part),
            });
        }
    }
}

/// The longer of two lists if it begins with the other; else what they begin with both.
fn agreed(a: MeshAxes, b: MeshAxes) -> MeshAxes {
    let common = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
    if common == a.len() {
        b
    } else if common == b.len() {
        a
    } else {
        SmallVec::from_slice(&a[..common])
    }
}

/// Which axes of the mesh cut each factor of an axis. Of several factors, a later one is cut only if those before it are
/// cut to single elements.
pub(super) fn parts(
    own: &Factors,
    cut: &MeshAxes,
    rule: &ShardRule,
    mesh: &[usize],
) -> SmallVec<[(u16, MeshAxes); 2]> {
    if let [factor] = own.as_slice() {
        return SmallVec::from_iter([(*factor, cut.clone())]);
    }
    let mut left = cut.iter().copied().peekable();
    let mut found = SmallVec::new();
    for &factor in own {
        let mut room = rule.factors[usize::from(factor)].size;
        let mut part = MeshAxes::new();
        while let Some(&axis) = left.peek()
            && room.is_multiple_of(mesh[usize::from(axis)])
        {
            room /= mesh[usize::from(axis)];
            part.push(axis);
            left.next();
        }
        found.push((factor, part));
        if room > 1 {
            break;
        }
    }
    found
}

/// Cuts an array as its factors are. Whether that is more than before.
fn tell(
    value: &mut Value,
    axes: &ArrayFactors,
    rule: &ShardRule,
    mesh: &[usize],
    merged: &[Option<MeshAxes>],
) -> bool {
    let mut changed = false;
    for (axis, own) in axes.iter().enumerate() {
        let mut wanted = MeshAxes::new();
        for &factor in own {
            let of = &rule.factors[usize::from(factor)];
            if of.cut == Cut::Whole {
                break;
            }
            let Some(part) = &merged[usize::from(factor)] else { break };
            let free = part.iter().take_while(|name| !wanted.contains(name)).count();
            wanted.extend(part[..free].iter().copied());
            if free < part.len()
                || part.iter().map(|&axis| mesh[usize::from(axis)]).product::<usize>() < of.size
            {
                break;
            }
        }
        let others = value.spec.iter().enumerate().filter(|(other, _)| *other != axis);
        let used: SmallVec<[u8; 4]> = others.flat_map(|(_, cut)| cut.iter().copied()).collect();
        let free = wanted.iter().take_while(|axis| !used.contains(axis)).count();
        wanted.truncate(free);
        let now = &mut value.spec[axis];
        if wanted.len() > now.len() && wanted.starts_with(now) {
            *now = wanted;
            changed = true;
        }
    }
    changed
}

/// How an array is cut that has equal parts: by those axes that divide its sizes.
pub(super) fn fitting(value: &Value, mesh: &[usize]) -> Spec {
    let fits = |(cut, &size): (&MeshAxes, &usize)| {
        let mut room = size;
        let divides = |axis: &&u8| {
            let parts = mesh[usize::from(**axis)];
            let fits = room.is_multiple_of(parts);
            room /= parts.max(1);
            fits
        };
        cut.iter().take_while(divides).copied().collect()
    };
    value.spec.iter().zip(&value.sizes).map(fits).collect()
}
