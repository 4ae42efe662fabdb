//! Kernels in one launch, as plain data: where what is between them is, and what waits for what.

use super::own::Place;
use crate::kernel::Launch;

/// What goes through the parts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Frame {
    /// A workgroup for each row.
    Rows,
    /// An invocation for each row.
    Alone,
    /// One workgroup, step after step.
    Scan,
    /// The same, as long as the condition holds; whether it still does is written to the last array.
    While,
}

/// What has to be done before a part begins: what all invocations wrote or read of their own memory, or of arrays.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Waits {
    pub own: bool,
    pub arrays: bool,
}

/// Who folds the terms of an index of a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Folds {
    /// There are none.
    None,
    /// An invocation.
    Each,
    /// The invocations of a workgroup.
    Together,
}

/// A kernel of a sequence.
#[derive(Debug)]
pub struct Part {
    pub launch: Launch,
    /// The loops whose indices are those of the row.
    pub rows: Vec<usize>,
    /// Indices of the other loops that are not folded.
    pub indices: usize,
    pub places: Vec<Place>,
    pub folds: Folds,
    pub waits: Waits,
}

/// Kernels in one launch.
#[derive(Debug)]
pub struct Sequence {
    pub frame: Frame,
    /// Invocations of a workgroup.
    pub lanes: u32,
    /// Words of own memory.
    pub own: u32,
    /// How many arrays there are.
    pub arrays: usize,
    /// What is done once, before all steps.
    pub before: Vec<Part>,
    pub condition: Vec<Part>,
    pub body: Vec<Part>,
    /// What is done once, after all steps.
    pub after: Vec<Part>,
}

impl Sequence {
    /// The parts, in the order in which they run.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.before.iter().chain(&self.condition).chain(&self.body).chain(&self.after)
    }
}
