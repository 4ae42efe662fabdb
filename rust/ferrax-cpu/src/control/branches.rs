//! Branches: one of several executables runs, on the operands where they are.
//!
//! A result may be in the memory of an operand, which is dead from then on: a branch that hands the operand on has nothing
//! to do, one whose plan lets the result take the operand's place works in it, and others compute the result beside it,
//! from where it is copied.

use ferrax_ir::ops::Cond;
use ferrax_ir::paths::Path;
use ferrax_ir::{Result, internal_error};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use super::ALIGNMENT;
use super::body::Inner;
use crate::call::{Call, Held, Kernel};
use crate::machine::Nested;

#[derive(Debug)]
struct Branches {
    branches: Vec<Branch>,
    /// Of each result, the operand whose memory it may be in.
    shared: Vec<Option<usize>>,
}

#[derive(Debug)]
struct Branch {
    inner: Inner,
    results: Vec<Landing>,
    /// Bytes of its workspace and of what is computed beside operands.
    scratch: usize,
}

/// How a result comes to its place.
#[derive(Clone, Copy, Debug)]
struct Landing {
    /// The fresh buffer that it is computed in, unless it is another value, which is copied.
    fresh: Option<usize>,
    /// Where in the scratch memory it is put while its place is that of an operand, if that needs it.
    beside: Option<usize>,
}

pub fn cond(
    op: &Cond,
    shared: &dyn Fn(usize, usize) -> bool,
    nested: &mut Nested<'_>,
) -> Result<Box<dyn Kernel>> {
    let first = op.branches.first().ok_or_else(|| internal_error!("a cond without branches"))?;
    let operands = first.inputs.len();
    let shared: Vec<Option<usize>> = (0..first.outputs.len())
        .map(|result| (0..operands).find(|operand| shared(operand + 1, result)))
        .collect();
    let mut branches = Vec::with_capacity(op.branches.len());
    for program in &op.branches {
        branches.push(Branch::new(Inner::new(program, nested)?, &shared));
    }
    let landings = || branches.iter().flat_map(|branch| &branch.results);
    Path::BranchFresh.take_if(landings().any(|landing| landing.fresh.is_some()));
    Path::BranchCopied.take_if(landings().any(|landing| landing.fresh.is_none()));
    Path::BranchInPlace.take_if(shared.iter().any(Option::is_some));
    Path::BranchBeside.take_if(landings().any(|landing| landing.beside.is_some()));
    Ok(Box::new(Branches { branches, shared }))
}

impl Branch {
    fn new(inner: Inner, shared: &[Option<usize>]) -> Branch {
        let mut seen: FxHashSet<u32> = FxHashSet::default();
        let mut scratch = inner.raw.workspace().next_multiple_of(ALIGNMENT);
        let mut results = Vec::with_capacity(shared.len());
        for (result, &operand) in shared.iter().enumerate() {
            let buffer = inner.buffer_of(result);
            let fresh = inner.fresh_of(result).filter(|_| seen.insert(buffer));
            let fits = |operand: usize| {
                let handed_on = inner.raw.inputs[operand] == buffer;
                handed_on || fresh.is_some_and(|fresh| inner.may_take(operand, fresh))
            };
            let beside = operand.filter(|&operand| !fits(operand)).map(|_| {
                let place = scratch;
                scratch += inner.bytes_of(result).next_multiple_of(ALIGNMENT);
                place
            });
            results.push(Landing { fresh, beside });
        }
        Branch { inner, results, scratch }
    }
}

impl Kernel for Branches {
    fn scratch(&self) -> usize {
        self.branches.iter().map(|branch| branch.scratch).max().unwrap_or(0)
    }

    fn bytes(&self) -> usize {
        let of = |branch: &Branch| branch.inner.bytes() + size_of_val(&*branch.results);
        size_of_val(&*self.shared) + self.branches.iter().map(of).sum::<usize>()
    }

    fn programs(&self) -> SmallVec<[&dyn Held; 2]> {
        self.branches.iter().map(|branch| branch.inner.held()).collect()
    }

    unsafe fn run(&self, call: &Call<'_>) -> Result<()> {
        // SAFETY: the first input is an i32[].
        let index = unsafe { call.inputs[0].cast::<i32>().read_unaligned() };
        let branch = &self.branches[(index.max(0) as usize).min(self.branches.len() - 1)];
        let operands = &call.inputs[1..];
        // Where a result is put beside the operand that is in its place.
        let beside = |result: usize| {
            let operand = self.shared[result].filter(|&operand| operands[operand] == call.outputs[result]);
            operand.and(branch.results[result].beside).map(|offset| call.scratch.wrapping_add(offset))
        };
        // SAFETY: the scratch memory has room for each branch and what is computed beside operands, which have the
        // types of its inputs and outputs. Results overlap nothing but the operand that they share memory with, as
        // the plan of the branch lets them, or are computed beside it and copied when nothing reads it any more:
        // others that are that operand were copied before.
        unsafe {
            let mut session = branch.inner.begin(call.scratch);
            for (position, pointer) in operands.iter().enumerate() {
                *session.input(position) = pointer.cast_mut();
            }
            for (result, landing) in branch.results.iter().enumerate() {
                if let Some(fresh) = landing.fresh {
                    *session.fresh(fresh) = beside(result).unwrap_or(call.outputs[result]);
                }
            }
            session.run()?;
            for (result, &output) in call.outputs.iter().enumerate() {
                let (from, to) = (session.output(result), beside(result).unwrap_or(output));
                if from != to {
                    std::ptr::copy_nonoverlapping(from, to, branch.inner.bytes_of(result));
                }
            }
            for (result, &to) in call.outputs.iter().enumerate() {
                if let Some(from) = beside(result) {
                    std::ptr::copy_nonoverlapping(from, to, branch.inner.bytes_of(result));
                }
            }
        }
        Ok(())
    }
}
