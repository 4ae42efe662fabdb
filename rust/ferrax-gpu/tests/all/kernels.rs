//! A GPU, or a processor that plays one, on the cases of kernel IR.

use crate::case::cases;
use crate::gpu::gpu;

#[test]
fn shaders_give_what_cases_say() {
    let gpu = gpu();
    for case in cases() {
        for run in &case.runs {
            let memory: Vec<_> = run.operands.iter().map(|bytes| gpu.upload(bytes).unwrap()).collect();
            let named = |error| panic!("{}: {error}", case.path.display());
            let bytes: Vec<usize> = run.operands.iter().map(Vec::len).collect();
            let prepared = gpu.prepare(&case.launch, &bytes).unwrap_or_else(named);
            gpu.launch(&prepared, &memory).unwrap();
            let found: Vec<Vec<u8>> = memory
                .iter()
                .zip(&run.operands)
                .map(|(buffer, bytes)| {
                    let mut to = vec![0; bytes.len()];
                    gpu.download(buffer, &mut to).unwrap();
                    to
                })
                .collect();
            case.check(run, &found);
        }
    }
}
