//! Programs over the devices of a mesh.

mod align;
mod assign;
mod combine;
mod erase;
mod graph;
mod halo;
mod hoist;
mod local;
mod lookups;
mod moves;
mod neighbours;
mod open;
mod partial;
mod partition;
mod propagate;
mod reshard;
mod span;
mod spanned;
mod updates;

pub use combine::combine_sums;
pub use erase::erase_varying;
pub use graph::Stated;
pub use partition::{Partitioned, partition};
pub use propagate::{MeshAxes, Spec, propagate};
pub use reshard::{Communication, Mesh};
