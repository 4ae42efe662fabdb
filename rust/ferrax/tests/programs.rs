//! The facade: programs loaded, transformed, compiled and run.

use ferrax::{Array, DType, Device, Error, Interface, Program};

/// `sum(tanh(x @ w + b) * n)`: one float out.
const LOSS: &str = "{ lambda \"loss\" ; x:f32[2,3] w:f32[3,4] b:f32[4] n:i32[]. let
    h:f32[2,4] = dot_general[dimension_numbers=(([1], [0]), ([], []))] x w
    c:f32[2,4] = broadcast_in_dim[broadcast_dimensions=(1,)] b
    s:f32[2,4] = add h c
    t:f32[2,4] = tanh s
    k:f32[] = convert_element_type[new_dtype=float32 weak_type=False] n
    u:f32[2,4] = mul t k
    l:f32[] = reduce_sum[axes=(0, 1)] u
  in (l,) }";

fn ramp(shape: &[usize], scale: f32) -> Array {
    let count: usize = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|i| (i as f32 - count as f32 / 2.0) * scale).collect();
    Array::from_vec(values, shape).unwrap()
}

fn arguments() -> Vec<Array> {
    vec![ramp(&[2, 3], 0.2), ramp(&[3, 4], 0.1), ramp(&[4], 0.3), Array::scalar(3i32).unwrap()]
}

fn run(program: &Program, inputs: &[Array]) -> Vec<Array> {
    program.compile(&Device::cpu()).unwrap().run(inputs).unwrap()
}

/// The loss in plain Rust, in double precision.
fn loss(x: &[f32], w: &[f32], b: &[f32], n: i32) -> f64 {
    let mut total = 0.0;
    for row in 0..2 {
        for column in 0..4 {
            let mut sum = f64::from(b[column]);
            for k in 0..3 {
                sum += f64::from(x[row * 3 + k]) * f64::from(w[k * 4 + column]);
            }
            total += sum.tanh() * f64::from(n);
        }
    }
    total
}

fn plain(inputs: &[Array]) -> f64 {
    let floats = |i: usize| inputs[i].to_vec::<f32>().unwrap();
    loss(&floats(0), &floats(1), &floats(2), inputs[3].item().unwrap())
}

/// The slope of the loss in each element of one input, by central differences.
fn slopes(inputs: &[Array], which: usize) -> Vec<f64> {
    let values = inputs[which].to_vec::<f32>().unwrap();
    let step = 1.0 / 128.0;
    let at = |index: usize, by: f32| {
        let mut moved = values.clone();
        moved[index] += by;
        let mut inputs = inputs.to_vec();
        inputs[which] = Array::from_slice(&moved, inputs[which].shape()).unwrap();
        plain(&inputs)
    };
    (0..values.len()).map(|i| (at(i, step) - at(i, -step)) / (2.0 * f64::from(step))).collect()
}

fn close(got: &Array, expected: &[f64], tolerance: f64) {
    let got = got.to_vec::<f32>().unwrap();
    assert_eq!(got.len(), expected.len());
    for (a, b) in got.iter().zip(expected) {
        assert!((f64::from(*a) - b).abs() <= tolerance * (1.0 + b.abs()), "{got:?} is not {expected:?}");
    }
}

#[test]
fn values_and_gradients() {
    let program: Program = LOSS.parse().unwrap();
    let inputs = arguments();
    close(&run(&program, &inputs)[0], &[plain(&inputs)], 1e-5);
    // The order of argnums is the order of the gradients.
    let both = run(&program.value_and_grad(&[2, 0]).unwrap(), &inputs);
    close(&both[0], &[plain(&inputs)], 1e-5);
    close(&both[1], &slopes(&inputs, 2), 1e-3);
    close(&both[2], &slopes(&inputs, 0), 1e-3);
    let one = program.grad(&[1]).unwrap();
    assert_eq!(one.outputs()[0].to_string(), "input_1.gradient: f32[3,4]");
    close(&run(&one, &inputs)[0], &slopes(&inputs, 1), 1e-3);
}

#[test]
fn forward_and_reverse_agree() {
    let program: Program = LOSS.parse().unwrap();
    let inputs = arguments();
    let direction = ramp(&[3, 4], 0.7);
    let mut forward = inputs.clone();
    forward.push(direction.clone());
    let jvp = program.jvp(&[1]).unwrap();
    assert_eq!(jvp.inputs()[4].name(), "input_1.tangent");
    let tangent: f32 = run(&jvp, &forward)[1].item().unwrap();
    let mut backward = inputs.clone();
    backward.push(Array::scalar(2.0f32).unwrap());
    let cotangent = run(&program.vjp(&[1]).unwrap(), &backward)[1].to_vec::<f32>().unwrap();
    let product: f32 = cotangent.iter().zip(direction.to_vec::<f32>().unwrap()).map(|(a, b)| a * b).sum();
    assert!((product - 2.0 * tangent).abs() < 1e-4, "{product} is not twice {tangent}");
}

#[test]
fn batches_are_the_cases_one_by_one() {
    let program: Program = LOSS.parse().unwrap();
    let inputs = arguments();
    let many = program.vmap(&[Some(1), None, None, Some(0)], 5).unwrap();
    assert_eq!(many.outputs()[0].to_string(), "output_0: f32[5]");
    let x = ramp(&[2, 5, 3], 0.05);
    let n = Array::from_slice(&[1, 2, 3, 4, 5], [5]).unwrap();
    let got = run(&many, &[x.clone(), inputs[1].clone(), inputs[2].clone(), n]);
    let x = x.to_vec::<f32>().unwrap();
    let expected: Vec<f64> = (0..5)
        .map(|case| {
            let rows: Vec<f32> = (0..2).flat_map(|row| x[(row * 5 + case) * 3..][..3].to_vec()).collect();
            let floats = |i: usize| inputs[i].to_vec::<f32>().unwrap();
            loss(&rows, &floats(1), &floats(2), case as i32 + 1)
        })
        .collect();
    close(&got[0], &expected, 1e-5);
}

#[test]
fn files_keep_everything() {
    let program: Program = LOSS.parse().unwrap();
    let interface = Interface {
        input_names: ["x", "w", "b", "n"].map(String::from).to_vec(),
        output_names: vec!["loss".to_owned()],
        metadata: "{\"tree\": [1, \"ü\"]}".to_owned(),
    };
    let program = Program::new(program.ir().clone(), interface).unwrap();
    let path = std::env::temp_dir().join(format!("ferrax-test-{}.ferrax", std::process::id()));
    program.save(&path).unwrap();
    let loaded = ferrax::load(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(loaded, program);
    assert_eq!(loaded.inputs()[1].to_string(), "w: f32[3,4]");
    assert_eq!(loaded.metadata(), "{\"tree\": [1, \"ü\"]}");
    let inputs = arguments();
    assert_eq!(run(&loaded, &inputs), run(&program, &inputs));
    // Derivatives come from the file too.
    assert_eq!(run(&loaded.grad(&[0]).unwrap(), &inputs), run(&program.grad(&[0]).unwrap(), &inputs));
    let bound = loaded.bind_last(&inputs[1..]).unwrap();
    let again = Program::from_bytes(&bound.to_bytes().unwrap()).unwrap();
    assert_eq!(again.inputs().len(), 1);
    close(&run(&again, &inputs[..1])[0], &[plain(&inputs)], 1e-5);
}

#[test]
fn errors_say_what_was_expected() {
    let program: Program = LOSS.parse().unwrap();
    let compiled = program.compile(&Device::cpu()).unwrap();
    let text = |error: Error| error.to_string();
    assert_eq!(text(compiled.run(&[]).unwrap_err()), "'loss' takes 4 inputs, got 0");
    let mut wrong = arguments();
    wrong[1] = ramp(&[4, 3], 1.0);
    let message = text(compiled.run(&wrong).unwrap_err());
    assert_eq!(message, "input 1 of 'loss' is input_1: f32[3,4], got f32[4,3]");
    wrong = arguments();
    wrong[3] = Array::scalar(1.0f32).unwrap();
    assert!(text(compiled.run(&wrong).unwrap_err()).ends_with("is input_3: i32[], got f32[]"));
    assert!(matches!(program.grad(&[3]), Err(Error::Type(_))));
    assert!(matches!(program.grad(&[4]), Err(Error::Value(_))));
    assert!(matches!(program.grad(&[0, 0]), Err(Error::Value(_))));
    assert!(matches!(program.vmap(&[Some(0)], 2), Err(Error::Value(_))));
    assert!(matches!(program.vmap(&[Some(3), None, None, None], 2), Err(Error::Value(_))));
    let vector: Program = "{ lambda ; x:f32[3]. let in (x,) }".parse().unwrap();
    assert!(matches!(vector.grad(&[0]), Err(Error::Type(_))));
    let symbolic: Program = "{ lambda ; x:f32[n]. let y:f32[n] = sin x in (y,) }".parse().unwrap();
    assert!(matches!(symbolic.compile(&Device::cpu()), Err(Error::Unsupported(_))));
    assert!(matches!(symbolic.with_sizes(&[("m", 3)]), Err(Error::Value(_))));
    assert!(matches!(symbolic.with_sizes(&[("n", 3), ("n", 3)]), Err(Error::Value(_))));
    assert!(text(ferrax::load("/nowhere/at.all").unwrap_err()).starts_with("cannot read '/nowhere/at.all'"));
    assert!(matches!(Program::from_bytes(b"{ lambda ; . let in () }"), Err(Error::Parse(_))));
}

#[test]
fn symbolic_dimensions() {
    let text = "{ lambda ; x:f32[b,2*n]. let
        c:i32[] = dim_as_value[dim=2*n minus=b dtype=int32]
        d:f32[] = convert_element_type[new_dtype=float32 weak_type=False] c
        s:f32[b,2*n] = mul x d
        y:f32[b,n] = slice[start_indices=(0, 0) limit_indices=(b, n) strides=None] s
        in (y,) }";
    let program: Program = text.parse().unwrap();
    let names: Vec<String> = program.dimension_variables().iter().map(|name| name.to_string()).collect();
    assert_eq!(names, ["b", "n"]);
    // A file keeps them.
    let program = Program::from_bytes(&program.to_bytes().unwrap()).unwrap();
    for (b, n) in [(1usize, 1usize), (3, 2), (5, 4)] {
        let sized = program.with_sizes(&[("n", n), ("b", b)]).unwrap();
        assert!(sized.dimension_variables().is_empty());
        let count = i32::try_from(2 * b * n).unwrap();
        let input: Vec<f32> = (0..count).map(|value| value as f32).collect();
        let outputs = sized
            .compile(&Device::cpu())
            .unwrap()
            .run(&[Array::from_vec(input.clone(), [b, 2 * n]).unwrap()])
            .unwrap();
        let factor = (2 * n) as f32 - b as f32;
        let expected: Vec<f32> = (0..b)
            .flat_map(|row| (0..n).map(move |column| (row, column)))
            .map(|(row, column)| input[row * 2 * n + column] * factor)
            .collect();
        assert_eq!(outputs[0].to_vec::<f32>().unwrap(), expected);
    }
    // A part of the sizes leaves the others.
    let half = program.with_sizes(&[("n", 2)]).unwrap();
    assert_eq!(half.inputs()[0].to_string(), "input_0: f32[b,4]");
    // An op that such a size does not fit.
    let short: Program = "{ lambda ; x:f32[n]. let y:f32[3] = slice[start_indices=(0,) limit_indices=(3,) strides=None] x in (y,) }"
        .parse()
        .unwrap();
    assert!(short.with_sizes(&[("n", 3)]).is_ok());
    assert!(matches!(short.with_sizes(&[("n", 2)]), Err(Error::Value(_))));
}

#[test]
fn arrays() {
    let array = Array::from_slice(&[1.5f64, -2.0, 0.25, 4.0], [2, 2]).unwrap();
    assert_eq!((array.dtype(), array.shape(), array.len(), array.rank()), (DType::F64, &[2, 2][..], 4, 2));
    assert_eq!(array.to_vec::<f64>().unwrap(), [1.5, -2.0, 0.25, 4.0]);
    assert_eq!(array.to_string(), "f64[2,2] [1.5, -2.0, 0.25, 4.0]");
    assert_eq!(array.reshape([4]).unwrap().shape(), [4]);
    assert!(matches!(array.reshape([5]), Err(Error::Value(_))));
    assert!(matches!(array.to_vec::<f32>(), Err(Error::Type(_))));
    assert!(matches!(array.item::<f64>(), Err(Error::Value(_))));
    assert!(matches!(Array::from_slice(&[1u8], [usize::MAX, 2]), Err(Error::Value(_))));
    assert!(matches!(Array::zeros(DType::F32, [usize::MAX]), Err(Error::Memory(_))));
    assert!(matches!(Array::from_bytes(DType::F32, [2], &[0; 7]), Err(Error::Value(_))));
    let flags = Array::from_slice(&[true, false], [2]).unwrap();
    assert_eq!(flags.to_vec::<bool>().unwrap(), [true, false]);
    assert_eq!(flags.to_string(), "bool[2] [True, False]");
    let complex = Array::scalar([1.0f32, -1.0]).unwrap();
    assert_eq!(complex.item::<[f32; 2]>().unwrap(), [1.0, -1.0]);
    let many = Array::zeros(DType::I32, [100]).unwrap();
    assert!(many.to_string().ends_with("0, …]"));
    assert!(Array::zeros(DType::F32, [0, 3]).unwrap().is_empty());
}

#[test]
fn bools_of_any_bytes_are_0_or_1() {
    let x = Array::from_bytes(DType::Bool, [4], &[2, 0, 255, 1]).unwrap();
    assert_eq!(x, Array::from_slice(&[true, false, true, true], [4]).unwrap());
}
