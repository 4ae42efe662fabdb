//! The loops of a launch, simplified: neighbours that all operands walk as one are one.

use ferrax_ir::scalar::{Body, ScalarOp};
use smallvec::SmallVec;

use crate::index::View;
use crate::kernel::{Accumulator, AxisKind, Launch, Stage};

/// Numbers per axis.
pub type PerAxis<T> = SmallVec<[T; 6]>;

/// An index map in elements, with guards.
#[derive(Clone, Debug)]
pub struct Map {
    pub offset: i64,
    pub strides: PerAxis<i64>,
    /// Where the map is valid; `None` if everywhere.
    pub guards: Option<PerAxis<(i64, i64)>>,
}

#[derive(Clone, Debug)]
pub struct Nest {
    pub extents: PerAxis<usize>,
    pub reduced: PerAxis<bool>,
    /// Whether the order of the terms of a reduction matters: then it is row-major over the reduced axes, whatever a
    /// tile spans.
    pub ordered: bool,
    pub loads: Vec<Map>,
    pub stores: Vec<Map>,
    /// For each axis of the launch the axis here.
    pub axis_of: PerAxis<usize>,
}

fn uses_index(bodies: [&Body; 2], axis: usize) -> bool {
    bodies.iter().any(|body| {
        body.instructions().iter().any(|i| matches!(i.op, ScalarOp::Index { axis: a } if a as usize == axis))
    })
}

impl Nest {
    pub fn new(launch: &Launch) -> Nest {
        let kernel = &launch.kernel;
        let full = |range: (i64, i64), axis: usize| range == (0, launch.extents[axis] as i64);
        let map = |view: &View| Map {
            offset: view.offset,
            strides: view.strides.iter().copied().collect(),
            guards: (!view.ranges.iter().enumerate().all(|(axis, &range)| full(range, axis)))
                .then(|| view.ranges.iter().copied().collect()),
        };
        // Without accumulators nothing is reduced.
        let reducing =
            !kernel.accumulators.is_empty() || kernel.stores.iter().any(|s| s.stage == Stage::Epilogue);
        let mut nest = Nest {
            extents: launch.extents.iter().copied().collect(),
            reduced: kernel.axes.iter().map(|&kind| reducing && kind == AxisKind::Reduction).collect(),
            ordered: kernel.accumulators.iter().any(Accumulator::is_tree),
            loads: launch.loads.iter().map(map).collect(),
            stores: launch.stores.iter().map(map).collect(),
            axis_of: (0..launch.extents.len()).collect(),
        };
        let indexed: PerAxis<bool> = (0..launch.extents.len())
            .map(|axis| uses_index([&kernel.body, &kernel.epilogue], axis))
            .collect();
        let mut indexed = indexed;
        // Neighbours that every map walks as one.
        let mut axis = nest.extents.len();
        while axis > 1 {
            axis -= 1;
            let (outer, inner) = (axis - 1, axis);
            let extent = nest.extents[inner] as i64;
            let joined = |map: &Map| {
                map.strides[outer] == map.strides[inner] * extent
                    && map.guards.as_ref().is_none_or(|guards| {
                        guards[outer] == (0, nest.extents[outer] as i64) && guards[inner] == (0, extent)
                    })
            };
            let mergeable = nest.reduced[outer] == nest.reduced[inner]
                && !indexed[outer]
                && !indexed[inner]
                && nest.loads.iter().chain(&nest.stores).all(joined);
            if mergeable {
                nest.extents[outer] *= nest.extents[inner];
                nest.extents.remove(inner);
                nest.reduced.remove(inner);
                indexed.remove(inner);
                let total = nest.extents[outer] as i64;
                for map in nest.loads.iter_mut().chain(&mut nest.stores) {
                    map.strides.remove(outer);
                    if let Some(guards) = &mut map.guards {
                        guards.remove(inner);
                        guards[outer] = (0, total);
                    }
                }
                for to in &mut nest.axis_of {
                    if *to >= inner {
                        *to -= 1;
                    }
                }
            }
        }
        nest
    }

    /// Of each loop of the launch, whose extents these are: its axis here, how far that moves with it, and its
    /// extent.
    pub fn launched(&self, extents: &[usize]) -> PerAxis<(usize, usize, usize)> {
        let mut weights: PerAxis<usize> = self.extents.iter().map(|_| 1).collect();
        let mut launched: PerAxis<(usize, usize, usize)> = SmallVec::from_elem((0, 1, 1), extents.len());
        for (number, &extent) in extents.iter().enumerate().rev() {
            let axis = self.axis_of[number];
            launched[number] = (axis, weights[axis], extent);
            weights[axis] *= extent;
        }
        launched
    }

    pub fn count(&self) -> usize {
        self.extents.iter().product()
    }

    /// Weights that number the reduction indices row-major.
    pub fn reduction_weights(&self) -> PerAxis<i64> {
        let mut weights: PerAxis<i64> = self.extents.iter().map(|_| 0).collect();
        let mut weight = 1;
        for axis in (0..self.extents.len()).rev() {
            if self.reduced[axis] {
                weights[axis] = weight;
                weight *= self.extents[axis] as i64;
            }
        }
        weights
    }
}
