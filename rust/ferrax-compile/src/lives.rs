//! Lives of buffers: which steps need each.
//!
//! In: steps. Out: [`Lives`], which borrows them: while lives are known no step can move, so that none are kept for an
//! order that was another one. Cost: linear in the steps and their operands.

use std::marker::PhantomData;

use crate::plan::{BufferId, Run, Step, needed};

/// The first and the last step that touches each buffer.
pub struct Lives<'a> {
    of: PhantomData<&'a [Step]>,
    lives: Vec<Option<(usize, usize)>>,
}

impl<'a> Lives<'a> {
    /// Of so many buffers.
    pub fn of(steps: &'a [Step], buffers: usize) -> Lives<'a> {
        let mut lives: Vec<Option<(usize, usize)>> = vec![None; buffers];
        for (number, step) in steps.iter().enumerate() {
            step.each_buffer(|id| lives[id.0 as usize].get_or_insert((number, number)).1 = number);
        }
        Lives { of: PhantomData, lives }
    }

    /// The first and the last step that needs each buffer (see [`needed`]).
    pub fn through(mut self, runs: &[Run]) -> Lives<'a> {
        for life in self.lives.iter_mut().flatten() {
            *life = needed(runs, life.0, life.1);
        }
        self
    }

    pub fn of_buffer(&self, id: BufferId) -> Option<(usize, usize)> {
        self.lives[id.0 as usize]
    }

    pub fn first(&self, id: BufferId) -> Option<usize> {
        self.of_buffer(id).map(|life| life.0)
    }

    pub fn last(&self, id: BufferId) -> Option<usize> {
        self.of_buffer(id).map(|life| life.1)
    }
}
