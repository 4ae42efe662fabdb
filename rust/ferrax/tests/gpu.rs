//! Programs on a GPU: the one that `FERRAX_GPU` names, or Mesa's.

use ferrax::{Array, Device, Program};

fn gpu() -> Device {
    let name = std::env::var("FERRAX_GPU").unwrap_or_else(|_| "llvmpipe".to_string());
    Device::gpu_named(&name).unwrap()
}

fn step() -> Program {
    "{ lambda ; w:f32[3,3] x:f32[2,3]. let
        y:f32[2,3] = dot_general[dimension_numbers=(([1], [0]), ([], [])) precision=None preferred_element_type=None] x w
        z:f32[2,3] = tanh y
      in (z,) }"
        .parse()
        .unwrap()
}

#[test]
fn arrays_stay_on_the_device() {
    let (gpu, cpu) = (gpu(), Device::cpu());
    assert!(gpu == gpu.clone() && gpu != cpu && gpu.to_string().starts_with("gpu: "));
    let w = Array::from_slice(&[0.1f32, 0.2, -0.3, 0.4, 0.5, 0.6, -0.7, 0.8, 0.9], [3, 3]).unwrap();
    let x = Array::from_slice(&[1.0f32, 2.0, 3.0, -1.0, 0.5, 0.0], [2, 3]).unwrap();
    let run = |device: &Device| {
        let step = step().compile(device).unwrap();
        assert_eq!(step.device(), device);
        let (w, mut x) = (device.put(&w).unwrap(), device.put(&x).unwrap());
        for _ in 0..3 {
            x = step.run_on_device(&[w.clone(), x]).unwrap().remove(0);
        }
        assert_eq!(x.shape(), [2, 3]);
        x.get().unwrap().to_vec::<f32>().unwrap()
    };
    for (got, wanted) in run(&gpu).into_iter().zip(run(&cpu)) {
        assert!((got - wanted).abs() < 1e-5, "{got} and {wanted}");
    }
}

#[test]
fn arrays_of_other_devices_are_an_error() {
    let (gpu, other) = (gpu(), gpu());
    let array = Array::from_slice(&[0.0f32; 9], [3, 3]).unwrap();
    let x = Array::from_slice(&[0.0f32; 6], [2, 3]).unwrap();
    let step = step().compile(&gpu).unwrap();
    for device in [Device::cpu(), other] {
        let error = step.run_on_device(&[gpu.put(&array).unwrap(), device.put(&x).unwrap()]).unwrap_err();
        assert!(
            error.to_string().contains("input 1 of") && error.to_string().contains("is on another device")
        );
    }
    let error = step.run(&[x.clone(), x]).unwrap_err().to_string();
    assert!(error.contains("input 0 of") && error.contains("f32[2,3]"), "{error}");
}

#[test]
fn what_is_said_where_there_is_none() {
    let error = Device::gpu_named("none of this name").unwrap_err().to_string();
    assert!(error.contains("no GPU has 'none of this name'"), "{error}");
}
