//! Windows that reach into neighbouring parts: each device gets the edges of its neighbours.
//!
//! In: a convolution whose operand and result are cut along the same axes of space, over one axis of the mesh each. Out: the
//! operand's part with what its windows reach of the parts beside it, and the convolution that pads nothing there. At the ends of
//! the array nobody sends, and what nobody sends is zero, as padding is. Windows step by one and may be dilated; they reach no further than
//! the next part.

use ferrax_ir::ops::{Concatenate, ConvGeneralDilated, Ppermute};
use ferrax_ir::shard_rule::{Cut, ShardRule};
use ferrax_ir::{Atom, Op, Result};
use smallvec::SmallVec;

use super::propagate::MeshAxes;
use super::reshard::{Lane, Mesh};

/// How far windows along an axis of the first operand reach before and behind its part.
pub struct Halo {
    axis: usize,
    spatial: usize,
    factor: u16,
    before: usize,
    behind: usize,
}

/// The axes of an operand of these sizes along which windows step by one and there are as many as elements.
pub fn halos(op: &Op, rule: &ShardRule, sizes: &[usize], results: &[usize]) -> SmallVec<[Halo; 2]> {
    let Op::ConvGeneralDilated(op) = op else { return SmallVec::new() };
    let halo = |spatial: usize| {
        let (axis, out) = (op.dims.lhs[spatial + 2], op.dims.out[spatial + 2]);
        let (low, high) = op.padding[spatial];
        let steps = op.window_strides[spatial] == 1 && op.lhs_dilation[spatial] == 1;
        let factor = rule.operands[0][axis][0];
        let shifts = rule.factors[usize::from(factor)].cut == Cut::Shift && sizes[axis] == results[out];
        let (before, behind) = (usize::try_from(low).ok()?, usize::try_from(high).ok()?);
        (steps && shifts).then_some(Halo { axis, spatial, factor, before, behind })
    };
    (0..op.padding.len()).filter_map(halo).collect()
}

impl Halo {
    pub fn factor(&self) -> u16 {
        self.factor
    }

    /// Those of the axes of the mesh that can cut this axis of the array.
    pub fn keep(&self, cut: &mut [MeshAxes], mesh: &Mesh<'_>, sizes: &[usize]) {
        let axes = &mut cut[usize::from(self.factor)];
        axes.truncate(1);
        if sizes[self.axis] / mesh.parts(axes) < self.before.max(self.behind) {
            axes.clear();
        }
    }

    /// The convolution that pads nothing along this axis, and how much longer its operand is then.
    pub fn unpadded(&self, op: &mut ConvGeneralDilated) -> (usize, usize) {
        op.padding[self.spatial] = (0, 0);
        (self.axis, self.before + self.behind)
    }

    /// The part with the edges of its neighbours.
    pub fn widened(&self, lane: &mut Lane<'_>, x: Atom, over: &MeshAxes) -> Result<Atom> {
        let count = lane.mesh.parts(over);
        let size = lane.b.shape(x)[self.axis].require("an array over a mesh")?;
        let mut pieces: SmallVec<[Atom; 3]> = SmallVec::new();
        if self.before > 0 {
            let edge = lane.b.slice_axis(x, self.axis, size - self.before, size)?;
            let perm = (1..count).map(|to| (to - 1, to)).collect();
            pieces.push(sent(lane, edge, over, perm)?);
        }
        pieces.push(x);
        if self.behind > 0 {
            let edge = lane.b.slice_axis(x, self.axis, 0, self.behind)?;
            let perm = (1..count).map(|from| (from, from - 1)).collect();
            pieces.push(sent(lane, edge, over, perm)?);
        }
        lane.b.emit1(Concatenate { dimension: self.axis }, &pieces)
    }
}

fn sent(lane: &mut Lane<'_>, x: Atom, over: &MeshAxes, perm: Vec<(usize, usize)>) -> Result<Atom> {
    lane.say("ppermute", x, over)?;
    let op = Ppermute { axis_name: lane.mesh.names(over), perm };
    lane.b.emit1(op, &[x])
}
