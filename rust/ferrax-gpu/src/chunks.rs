//! Loops of which the host asks only now and then whether they go on.
//!
//! The commands of several steps are recorded at once: 1, 2, 4, … up to so many (`tuning::Vain`). A word of the GPU
//! says whether the loop goes on; it becomes zero for good in the first step at which the condition does not hold.
//! From there on the body runs in vain, on the last carry, which is then copied over what it gave. Then the host
//! reads the word. So a loop of n steps waits about log2(n) + n / 64 times, and its carry is what it would be.
//!
//! Loops are gone through like this whose step costs no more than a read (see [`crate::cost`]), so that little is
//! lost where they end, and whose condition and body only record commands: not with calls on the CPU, among them all
//! that has effects, and not with loops and branches that the host decides about, for a loop might not end on such a
//! carry.

use ferrax_ir::Result;

use crate::cost::{LAUNCH, of_copies, total};
use crate::flags::Copies;
use crate::gpu::{Gpu, Prepared};
use crate::memory::Memory;
use crate::pipelines::Source;
use crate::tuning::Vain;
use crate::wgsl::flags::Flagged;

/// What records whether the condition of a loop holds of a carry, and the next carry.
pub type Step<'a> = dyn Fn(&[Memory]) -> Result<(Memory, Vec<Memory>)> + 'a;

/// How a loop goes in chunks.
#[derive(Debug)]
pub struct Chunks {
    end: Prepared,
    restore: Copies,
    most: usize,
}

impl Chunks {
    /// That of a loop over carries of so many bytes, given what its condition and its body cost if they may run in
    /// vain; none if it is read at each step.
    pub fn new(gpu: &Gpu, bytes: &[usize], costs: [Option<u64>; 2]) -> Result<Option<Chunks>> {
        let Some(cost) = total(costs).map(|cost| cost.saturating_add(LAUNCH + of_copies(bytes))) else {
            return Ok(None);
        };
        let Vain { most, steps, reads } = gpu.tuning().vain;
        if cost > most {
            return Ok(None);
        }
        Ok(Some(Chunks {
            end: gpu.prepared(Source::Flagged(Flagged::End), &[0], 1)?,
            restore: Copies::new(gpu, bytes, (1, 0))?,
            most: (reads * most / cost).min(steps) as usize,
        }))
    }

    /// The last carry. `bound` is asked whether the loop may go on after so many steps, and for certain after `most`
    /// of them.
    pub fn run(
        &self,
        gpu: &Gpu,
        mut carry: Vec<Memory>,
        step: &Step<'_>,
        (most, bound): (Option<usize>, &dyn Fn(usize) -> Result<()>),
    ) -> Result<Vec<Memory>> {
        let goes_on = gpu.upload(&1u32.to_le_bytes())?;
        let (mut steps, mut length) = (0usize, 1);
        loop {
            // A step more than there may be shows whether there is one.
            let left = most.map_or(usize::MAX, |most| most.saturating_add(1) - steps);
            for _ in 0..left.min(length) {
                let (holds, mut next) = step(&carry)?;
                gpu.launch(&self.end, [&goes_on, &holds])?;
                for (next, before) in next.iter_mut().zip(&carry) {
                    if !next.is(before) && next.is_shared() {
                        *next = gpu.copy(next)?;
                    }
                }
                self.restore.record(gpu, &goes_on, &carry, &next)?;
                carry = next;
                steps += 1;
            }
            let mut word = [0; 4];
            gpu.download(&goes_on, &mut word)?;
            if word == [0; 4] {
                return Ok(carry);
            }
            bound(steps - 1)?;
            length = (2 * length).min(self.most);
        }
    }
}
