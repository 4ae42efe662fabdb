//! Programs over the devices of a mesh.

mod graph;
mod propagate;

pub use graph::Stated;
pub use propagate::{MeshAxes, Spec, propagate};
