//! Programs over the devices of a mesh.

mod erase;
mod graph;
mod propagate;

pub use erase::erase_varying;
pub use graph::Stated;
pub use propagate::{MeshAxes, Spec, propagate};
