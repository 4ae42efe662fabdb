//! Attention on a GPU and its gradient: the right values, in memory that grows with the places and not with their
//! pairs.

use crate::common::{arguments, attention, compare};
use crate::gpu::{device, run};
use ferrax_compile::device::Device;
use ferrax_ir::interpret;
use ferrax_transform::row_blocks::set_block_bytes;
use ferrax_transform::vjp_program;

/// There are 72 MB of pairs. The values are compared with those of the CPU, which the interpreter is too slow for.
#[test]
fn attention_has_memory_for_a_block() {
    let (heads, places, width) = (2, 3001, 4);
    let (device, program) = (device(), attention(heads, places, width));
    let inputs = arguments(&program, 3);
    let wanted = ferrax_cpu::compile(&program).unwrap().run(&inputs).unwrap();
    device.compile(&program).unwrap();
    let before = device.backend().downloads();
    let got = run(&device, &program, &inputs).unwrap();
    compare(&got[0], &wanted[0], 1000, "attention");
    assert_eq!(device.backend().downloads() - before, 1, "the host waits for the result alone");
    let peak = device.backend().usage().peak;
    assert!(peak < 36 << 20, "{peak}");
}

/// The gradient is a loop over blocks of rows, each of which is there once.
#[test]
fn gradients_of_attention_have_memory_for_a_block() {
    let peak = |places: usize| {
        let device = device();
        let block = set_block_bytes(1 << 14);
        let program = vjp_program(&attention(1, places, 4), &[true; 3], &[true]).unwrap();
        set_block_bytes(block);
        let inputs = arguments(&program, 3);
        let wanted = interpret::run(&program, &inputs).unwrap();
        device.compile(&program).unwrap();
        let before = device.backend().downloads();
        let got = run(&device, &program, &inputs).unwrap();
        for (number, (got, wanted)) in got.iter().zip(&wanted).enumerate() {
            compare(got, wanted, 4000, &format!("output {number} of the gradient of attention"));
        }
        assert_eq!(device.backend().downloads() - before, got.len(), "the host waits for results alone");
        device.backend().usage().peak
    };
    // 0.25 MB and 2.25 MB of pairs.
    let (little, large) = (peak(256), peak(768));
    assert!(large < 4 * little, "{little} {large}");
}
