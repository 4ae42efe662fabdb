//! A GPU whose memory is exhausted, and one that is lost.

use crate::gpu::{choice, gpu};
use ferrax_compile::Setting;
use ferrax_compile::backend::compile;
use ferrax_gpu::Gpu;
use ferrax_ir::{DType, Error, Program};

#[test]
fn exhausted_memory_names_the_largest_arrays_and_passes() {
    let gpu = gpu();
    let held: Vec<_> =
        [1 << 20, 4 << 20, 4 << 20].into_iter().map(|bytes| gpu.allocate(bytes).unwrap()).collect();
    gpu.set_limit(Some(10 << 20));
    let error = gpu.allocate(2 << 20).unwrap_err().to_string();
    assert!(error.contains("no memory for 2097152 bytes more (the limit that was set)"), "{error}");
    assert!(
        error
            .contains("9437184 bytes are in use, the largest arrays: 2 of 4194304 bytes, 1 of 1048576 bytes"),
        "{error}"
    );
    drop(held);
    gpu.allocate(2 << 20).unwrap();
}

#[test]
fn memory_is_given_out_again_and_trimmed() {
    let gpu = gpu();
    let first = gpu.upload(&[1; 1000]).unwrap();
    let buffer = first.buffer().clone();
    drop(first);
    assert_eq!((gpu.usage().in_use, gpu.usage().kept), (0, 1024));
    let second = gpu.upload(&[2; 1001]).unwrap();
    assert_eq!(*second.buffer(), buffer, "memory of nearly the same size is the same");
    let mut bytes = [0; 1001];
    gpu.download(&second, &mut bytes).unwrap();
    assert_eq!(bytes, [2; 1001]);
    let large: Vec<_> = (0..3).map(|_| gpu.allocate(40 << 20).unwrap()).collect();
    drop(large);
    assert!(gpu.usage().kept <= 64 << 20, "{:?}", gpu.usage());
    gpu.trim();
    assert_eq!(gpu.usage().kept, 0);
}

#[test]
fn a_lost_gpu_is_an_error_and_others_still_work() {
    let (lost, other) = (gpu(), gpu());
    let memory = lost.upload(&[1; 8]).unwrap();
    lost.lose();
    let error = lost.download(&memory, &mut [0; 8]).unwrap_err().to_string();
    assert!(error.contains("was lost, with its arrays") && error.contains("512 bytes are in use"), "{error}");
    assert!(lost.upload(&[1; 8]).unwrap_err().to_string().contains("was lost"));
    let memory = other.upload(&[7; 8]).unwrap();
    let mut bytes = [0; 8];
    other.download(&memory, &mut bytes).unwrap();
    assert_eq!(bytes, [7; 8]);
}

#[test]
fn an_array_larger_than_any_is_an_error() {
    let error = gpu().allocate(usize::MAX / 2).unwrap_err().to_string();
    assert!(error.contains("whose arrays have at most"), "{error}");
}

/// What a GPU cannot compute with is named, with the op; what only moves is not refused.
#[test]
fn dtypes_that_a_gpu_lacks() {
    let gpu = Gpu::open_as(&choice(), &[DType::F64], Setting::Default).unwrap();
    let compiled = |text: &str| compile(&gpu, &Program::parse(text).unwrap());
    compiled("{ lambda ; a:f32[3]. let b:f32[3] = sin a in (b,) }").unwrap();
    for (ty, op) in [("f64[3]", "sin"), ("c128[3]", "neg")] {
        let text = format!("{{ lambda ; a:{ty} k:f32[3]. let l:f32[3] = sin k b:{ty} = {op} a in (b, l) }}");
        let Err(Error::Unsupported(message)) = compiled(&text) else { panic!("{text} was compiled") };
        let dtype = if ty.starts_with('c') { "complex128" } else { "float64" };
        assert!(message.contains(&format!("cannot compute with float64: '{op}' is of {dtype}")), "{message}");
    }
}
