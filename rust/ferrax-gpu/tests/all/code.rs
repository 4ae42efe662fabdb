//! What drivers make of shaders is kept in files, if somebody says where.

use std::time::{Duration, Instant};

use crate::gpu::gpu;
use ferrax_compile::Backend;
use ferrax_cpu::persistent::{self, Settings};
use ferrax_gpu::Counts;
use ferrax_ir::{Program, Tensor};

#[test]
fn code_is_loaded_from_files() {
    let folder = std::env::temp_dir().join(format!("ferrax-shaders-{}", std::process::id()));
    let text = "{ lambda ; a:f32[5]. let b:f32[5] = tanh a
        c:f32[] = reduce_sum[axes=(0,)] b in (c,) }";
    let program = Program::parse(text).unwrap();
    let input = Tensor::from_elements(vec![5], &[1f32, 2.0, 3.0, 4.0, 5.0]).unwrap();
    let once = || -> (Counts, Duration, Vec<u8>) {
        let gpu = gpu();
        let begun = Instant::now();
        let executable = ferrax_compile::backend::compile(&gpu, &program).unwrap();
        let took = begun.elapsed();
        let input = gpu.upload(input.bytes()).unwrap();
        let outputs = Backend::run(&gpu, &executable, &[&input]).unwrap();
        let mut bytes = vec![0; 4];
        gpu.download(&outputs[0].buffer, &mut bytes).unwrap();
        (gpu.counts(), took, bytes)
    };
    let without = once();
    persistent::configure_thread(Some(Some(Settings {
        folder: folder.clone(),
        build: "test".into(),
        least_time: Duration::ZERO,
        least_bytes: 0,
        most_bytes: None,
    })));
    let (first, second) = (once(), once());
    println!("{:?}, {:?}, from a file {:?}", without.1, first.1, second.1);
    assert_eq!((without.0.loaded, first.0.loaded), (0, 0));
    assert!(second.0.loaded == second.0.made && second.0.made > 0, "{:?}", second.0);
    assert!(first.2 == without.2 && second.2 == without.2);
    assert!(persistent::clear(&folder).unwrap() >= second.0.made);
    let _ = std::fs::remove_dir(folder);
}
