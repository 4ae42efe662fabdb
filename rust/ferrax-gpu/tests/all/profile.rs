//! The times of kernels.

use crate::common::{arguments, softmax};
use crate::gpu::{device, run};

#[test]
fn kernels_are_timed_one_after_the_other() {
    let device = device();
    let program = softmax(&[40, 700]);
    let inputs = arguments(&program, 5);
    device.backend().begin_profile().unwrap();
    assert!(device.backend().begin_profile().unwrap_err().to_string().contains("is being taken already"));
    run(&device, &program, &inputs).unwrap();
    let events = device.backend().end_profile().unwrap();
    assert!(events.iter().any(|event| event.name.contains("exp")), "{events:?}");
    assert!(events.iter().all(|event| event.begin <= event.end && !event.host), "{events:?}");
    assert!(events.windows(2).all(|pair| pair[0].end <= pair[1].begin), "{events:?}");
    assert!(device.backend().end_profile().unwrap_err().to_string().contains("no profile"));
}

/// More kernels than are submitted together.
#[test]
fn long_profiles_lose_nothing() {
    let device = device();
    let program = softmax(&[3, 5]);
    let inputs = arguments(&program, 5);
    let runs = |count: usize| {
        device.backend().begin_profile().unwrap();
        (0..count).for_each(|_| drop(run(&device, &program, &inputs).unwrap()));
        device.backend().end_profile().unwrap().len()
    };
    assert_eq!(runs(200), 200 * runs(1));
}
