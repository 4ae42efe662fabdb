//! Whole programs on a GPU, or a processor that plays one: what the interpreter gives.

#![allow(clippy::cloned_ref_to_slice_refs, reason = "operands are lists")]

use std::sync::Arc;

use crate::common::generate::Case;
use crate::common::{Random, arguments, compare, softmax};
use crate::gpu::{device, run};
use ferrax_compile::device::Attached;
use ferrax_gpu::Gpu;
use ferrax_ir::{DType, Error, interpret};

/// Whether it runs there: some dtypes have no kernels.
fn runs(device: &Arc<Attached<Gpu>>, case: &Case, what: &str) -> bool {
    match run(device, &case.program, &case.inputs) {
        Ok(got) => case.compare(&[&got]),
        Err(Error::Unsupported(why)) => {
            let narrow = |dtype: &DType| dtype.is_narrow() && why.contains(dtype.name());
            assert!(why.contains("no kernels for elements of"), "{what}: {why}");
            assert!(DType::ALL.iter().any(narrow), "{what}: {why}");
            return false;
        }
        Err(error) => panic!("{what}: {error}\n{}", case.program),
    }
    true
}

#[test]
fn random_programs_agree_with_the_interpreter() {
    let device = device();
    let case = |seed| Case::new(&format!("seed {seed}"), &mut Random::new(seed));
    let taken = (0..300).filter(|&seed| runs(&device, &case(seed), &format!("seed {seed}"))).count();
    // Others have elements narrower than any register, which GPUs do not compute (`runs`).
    assert!(taken >= 250, "{taken} of 300");
}

/// Short rows are folded by an invocation each, long ones by a workgroup, and kernels follow one another without the
/// host.
#[test]
fn softmax_and_new_shapes() {
    let device = device();
    let mut made = Vec::new();
    for sizes in [[3, 5], [40, 700], [7, 9], [513, 1065]] {
        let program = softmax(&sizes);
        let inputs = arguments(&program, 5);
        let got = run(&device, &program, &inputs).unwrap();
        compare(&got[0], &interpret::run(&program, &inputs).unwrap()[0], 8, &format!("softmax of {sizes:?}"));
        made.push(device.backend().counts().made);
    }
    assert_eq!(made[2..], [made[1]; 2], "a new shape makes no pipeline");
}
