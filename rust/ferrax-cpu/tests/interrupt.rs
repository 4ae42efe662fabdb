//! Runs that the host stops. Alone in its process: the host's function is the process's.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ferrax_ir::ops::DotGeneral;
use ferrax_ir::{ArrayType, Axes, Builder, DType, Error, Tensor};

static STOP: AtomicBool = AtomicBool::new(false);
static ASKED: AtomicUsize = AtomicUsize::new(0);

fn host() -> bool {
    ASKED.fetch_add(1, Ordering::Relaxed);
    STOP.load(Ordering::Relaxed)
}

#[test]
fn long_runs_ask_now_and_then_and_end_when_told_to() {
    let axes = |axis: usize| Axes::from_slice(&[axis]);
    let product = DotGeneral {
        lhs_contracting: axes(1),
        rhs_contracting: axes(0),
        lhs_batch: Axes::new(),
        rhs_batch: Axes::new(),
        precision: None,
        preferred_element_type: None,
    };
    let mut b = Builder::new("powers");
    let x = b.input(ArrayType::of_sizes(&[16, 16], DType::F32));
    let mut power = x;
    for _ in 0..1000 {
        power = b.emit1(product.clone(), &[power, x]).unwrap();
    }
    let executable = ferrax_cpu::compile(&b.finish([power])).unwrap();
    assert!(executable.steps() >= 1000);
    let inputs = [Tensor::zeros(DType::F32, &[16, 16][..]).unwrap()];
    ferrax_cpu::set_interrupt_check(host);

    let start = Instant::now();
    let mut runs = 0;
    while start.elapsed() < Duration::from_millis(100) {
        executable.run(&inputs).unwrap();
        runs += 1;
    }
    let (asked, elapsed) = (ASKED.load(Ordering::Relaxed), start.elapsed());
    assert!(asked >= 1, "{runs} runs in {elapsed:?} and no question");
    assert!(asked <= 1 + elapsed.as_millis() as usize / 10, "{asked} questions in {elapsed:?}");

    STOP.store(true, Ordering::Relaxed);
    let start = Instant::now();
    let error = loop {
        match executable.run(&inputs) {
            Ok(_) => assert!(start.elapsed() < Duration::from_secs(10), "never stopped"),
            Err(error) => break error,
        }
    };
    assert_eq!(error, Error::Interrupted("'powers' was interrupted".to_owned()));
    STOP.store(false, Ordering::Relaxed);
    executable.run(&inputs).unwrap();
}
