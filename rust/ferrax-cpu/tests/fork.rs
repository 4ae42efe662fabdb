//! Forks while other threads hold the locks of the process: the child, which has only the thread
//! that forked, compiles, allocates and runs.

#![cfg(unix)]

use std::sync::atomic::{AtomicBool, Ordering};

use ferrax_cpu::alloc::Buffer;
use ferrax_cpu::run_op;
use ferrax_ir::ops::{Binary, Unary};
use ferrax_ir::{Sizes, Tensor};

const FORKS: usize = 60;

fn vector(n: usize) -> Tensor {
    Tensor::from_elements(Sizes::from_slice(&[n]), &vec![0f32; n]).unwrap()
}

/// Takes and gives blocks of all classes, large ones too.
fn allocate() {
    for power in 6..23 {
        for quarter in 0..4 {
            let _ = Buffer::new((1 << power) + quarter * (1 << (power - 2)) + 1).unwrap();
        }
    }
}

/// What a child does; whether all went well.
fn work(number: usize) -> bool {
    allocate();
    // A shape of its own is compiled, and large enough for helpers.
    let x = vector(100_000 + number);
    let ones = run_op(&Unary::Exp.into(), &[x]).unwrap();
    let sums = run_op(&Binary::Add.into(), &[ones[0].clone(), ones[0].clone()]).unwrap();
    sums[0].elements::<f32>().unwrap().iter().all(|&sum| sum == 2.0)
}

#[test]
fn children_of_a_busy_process_work() {
    ferrax_cpu::protect_forks();
    assert!(work(0));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3usize {
            let stop = &stop;
            scope.spawn(move || {
                for round in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    allocate();
                    // Compiled anew nearly each time, found again by the others.
                    let x = vector(1 + (round * 3 + thread) % 2000);
                    run_op(&Unary::Sin.into(), &[x]).unwrap();
                }
            });
        }
        let mut failed = Vec::new();
        for number in 1..=FORKS {
            // SAFETY: the child runs code that is made for it, and ends without unwinding or destructors.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: ends the child if it hangs, and else when it is done.
                unsafe {
                    libc::alarm(20);
                    let good = std::panic::catch_unwind(|| work(number)).unwrap_or(false);
                    libc::_exit(i32::from(!good));
                }
            }
            assert!(child > 0, "could not fork");
            let mut status = 0;
            // SAFETY: waits for the child, whose status goes to a local variable.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            if status != 0 {
                failed.push((number, status));
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(failed.is_empty(), "child and status: {failed:?}");
    });
}
