//! Copies of whole arrays that are made if a word in memory of the GPU says so.
//!
//! In: the bytes of arrays, and which value of the word is meant. Out: launches, a few arrays each. Cost of a run: a
//! read of the word for each word of the arrays, and, if it is as meant, a copy of them.

use ferrax_ir::{Result, unsupported};

use crate::gpu::{Gpu, Prepared};
use crate::memory::Memory;
use crate::pipelines::Source;
use crate::wgsl::WORKGROUP;
use crate::wgsl::flags::Flagged;

/// Arrays of a launch, at most: with the flag as many as any GPU may bind.
const TOGETHER: usize = 3;

/// Copies of arrays of these sizes.
#[derive(Debug)]
pub struct Copies {
    /// With each launch the numbers of its arrays.
    launches: Vec<(Prepared, Vec<usize>)>,
}

impl Copies {
    /// Those made where the word, clamped to `0..=last`, is `wanted`.
    pub fn new(gpu: &Gpu, bytes: &[usize], (last, wanted): (usize, usize)) -> Result<Copies> {
        let words = |bytes: usize| {
            let words = u32::try_from(bytes.div_ceil(size_of::<u32>()));
            words.map_err(|_| unsupported!("an array of {bytes} bytes on {}: too many", gpu.name()))
        };
        let numbers: Vec<usize> = (0..bytes.len()).filter(|&number| bytes[number] > 0).collect();
        let launch = |numbers: &[usize]| -> Result<(Prepared, Vec<usize>)> {
            let each = numbers.iter().map(|&number| words(bytes[number])).collect::<Result<Vec<u32>>>()?;
            let all = each.iter().try_fold(0u32, |sum, &words| sum.checked_add(words));
            let all = all.ok_or_else(|| unsupported!("arrays of more than 2^32 words on {}", gpu.name()))?;
            let source = Source::Flagged(Flagged::Copy(numbers.len() as u32));
            let head = [last as u32, wanted as u32].into_iter().chain(each).collect::<Vec<u32>>();
            Ok((gpu.prepared(source, &head, all.div_ceil(WORKGROUP))?, numbers.to_vec()))
        };
        Ok(Copies { launches: numbers.chunks(TOGETHER).map(launch).collect::<Result<_>>()? })
    }

    /// Copies `from` to `to`, which are apart where they are not the same.
    pub fn record(&self, gpu: &Gpu, flag: &Memory, from: &[Memory], to: &[Memory]) -> Result<()> {
        for (prepared, numbers) in &self.launches {
            if numbers.iter().all(|&number| from[number].is(&to[number])) {
                continue;
            }
            let pairs = numbers.iter().flat_map(|&number| [&from[number], &to[number]]);
            gpu.launch(prepared, std::iter::once(flag).chain(pairs))?;
        }
        Ok(())
    }
}
