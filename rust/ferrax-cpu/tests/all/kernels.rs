//! The vector VM on the cases of kernel IR.

use crate::case::cases;
use ferrax_cpu::Tuning;
use ferrax_cpu::vm::Bound;

const TUNINGS: [&Tuning; 3] = [&Tuning::CPU, &Tuning::TINY, &Tuning::HUGE];

#[test]
fn the_vector_vm_gives_what_cases_say() {
    for case in cases() {
        for (tuning, run) in
            TUNINGS.into_iter().flat_map(|tuning| case.runs.iter().map(move |run| (tuning, run)))
        {
            let bound = Bound::new(&case.launch, tuning, (0, 1.0), &|operand| operand).unwrap();
            // Aligned, as buffers are: words hold the bytes.
            let mut memory: Vec<Vec<u64>> = run
                .operands
                .iter()
                .map(|bytes| {
                    let mut words = vec![0u64; bytes.len().div_ceil(8)];
                    bytemuck::cast_slice_mut::<u64, u8>(&mut words)[..bytes.len()].copy_from_slice(bytes);
                    words
                })
                .collect();
            let pointers: Vec<*mut u8> = memory.iter_mut().map(|words| words.as_mut_ptr().cast()).collect();
            // SAFETY: the cases say all elements of each operand that their kernel reaches, which the
            // interpreter checks; each is memory of its own.
            unsafe { bound.run(&pointers).unwrap() };
            let found: Vec<Vec<u8>> = memory
                .iter()
                .zip(&run.operands)
                .map(|(words, bytes)| bytemuck::cast_slice::<u64, u8>(words)[..bytes.len()].to_vec())
                .collect();
            case.check(run, &found);
        }
    }
}
