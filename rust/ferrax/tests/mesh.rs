//! Programs over the devices of a mesh: the same as whole, and what is exchanged.

use ferrax::{Array, DType, Device, Mesh, Program, Spec};

/// `mean(tanh(x @ w)²)`, and the rows' maxima.
const STEP: &str = "{ lambda \"step\" ; x:f32[8,4] w:f32[4,6]. let
    h:f32[8,6] = dot_general[dimension_numbers=(([1], [0]), ([], []))] x w
    t:f32[8,6] = tanh h
    q:f32[8,6] = mul t t
    l:f32[] = reduce_sum[axes=(0, 1)] q
    m:f32[8] = reduce_max[axes=(1,)] t
  in (l, m) }";

fn ramp(shape: &[usize]) -> Array {
    let count: usize = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|i| ((i * 7 % 11) as f32 - 5.0) * 0.1).collect();
    Array::from_vec(values, shape).unwrap()
}

fn mesh() -> Mesh {
    Mesh::new([("x", 4), ("y", 2)]).unwrap()
}

fn close(a: &Array, b: &Array) {
    assert_eq!(a.shape(), b.shape());
    for (a, b) in a.to_vec::<f32>().unwrap().into_iter().zip(b.to_vec::<f32>().unwrap()) {
        assert!((a - b).abs() <= 1e-5 * b.abs().max(1.0), "{a} for {b}");
    }
}

#[test]
fn parts_make_the_whole() {
    let (mesh, array) = (mesh(), ramp(&[8, 4]));
    let specs: [&[&[&str]]; 5] = [&[&["x"], &["y"]], &[&["y", "x"]], &[&[], &["x"]], &[&["x"]], &[]];
    for axes in specs {
        let spec = Spec::new(axes.iter().copied());
        let parts = mesh.split(&array, &spec).unwrap();
        assert_eq!(parts.len(), 8);
        assert_eq!(mesh.join(&parts, &spec).unwrap(), array, "{spec}");
    }
    // The devices of a row lie beside each other: device 3 is (1, 1).
    let parts = mesh.split(&array, &Spec::new([&["x"][..], &["y"]])).unwrap();
    assert_eq!(
        parts[3].to_vec::<f32>().unwrap(),
        [
            array.to_vec::<f32>().unwrap()[2 * 4 + 2],
            array.to_vec::<f32>().unwrap()[2 * 4 + 3],
            array.to_vec::<f32>().unwrap()[3 * 4 + 2],
            array.to_vec::<f32>().unwrap()[3 * 4 + 3],
        ]
    );
}

#[test]
fn programs_of_parts_give_the_parts_of_what_whole_ones_give() {
    let (mesh, program): (Mesh, Program) = (mesh(), STEP.parse().unwrap());
    let loss: Program = STEP.replace("(l, m)", "(l,)").parse().unwrap();
    let inputs = [ramp(&[8, 4]), ramp(&[4, 6])];
    let cuts: [[&[&[&str]]; 2]; 4] =
        [[&[&["x"]], &[]], [&[&["x"], &["y"]], &[&["y"]]], [&[&["y"]], &[&["x"], &["y"]]], [&[], &[]]];
    for program in [program, loss.value_and_grad(&[1]).unwrap()] {
        let whole = program.compile(&Device::cpu()).unwrap().run(&inputs).unwrap();
        for cut in &cuts {
            let specs: Vec<Spec> = cut.iter().map(|axes| Spec::new(axes.iter().copied())).collect();
            let parts = program.partition(&mesh, &specs, None).unwrap();
            let given: Vec<Vec<Array>> =
                inputs.iter().zip(&specs).map(|(array, spec)| mesh.split(array, spec).unwrap()).collect();
            let found = parts.compile(&Device::cpu()).unwrap().run(&given).unwrap();
            for ((found, spec), whole) in found.iter().zip(parts.outputs()).zip(&whole) {
                close(&mesh.join(found, &spec).unwrap(), whole);
            }
        }
    }
}

#[test]
fn exchanges_are_told() {
    let (mesh, loss): (Mesh, Program) = (mesh(), STEP.replace("(l, m)", "(l,)").parse().unwrap());
    let rows = Spec::new([&["x"][..]]);
    let step = loss.value_and_grad(&[1]).unwrap();
    let parts = step.partition(&mesh, &[rows.clone(), Spec::whole()], None).unwrap();
    let told: Vec<_> = parts.exchanges().iter().map(|one| (one.collective, one.bytes)).collect();
    assert_eq!(told, [("psum", 4), ("psum", 4 * 6 * 4)]);
    let both = [Spec::whole(), rows.clone()];
    let parts = step.partition(&mesh, &[rows.clone(), rows], Some(&both)).unwrap();
    assert_eq!(parts.exchanges().last().unwrap().collective, "psum_scatter");
    assert_eq!(parts.outputs()[1].to_string(), "P(x, None)");
}

#[test]
fn what_does_not_fit_is_refused() {
    let (mesh, program): (Mesh, Program) = (mesh(), STEP.parse().unwrap());
    assert!(
        Mesh::new([("x", 2), ("x", 2)]).is_err() && Mesh::new([]).is_err() && Mesh::new([("x", 0)]).is_err()
    );
    for axes in [&[&["z"][..]][..], &[&["x"], &["x"]], &[&[], &[], &["x"]], &[&[], &["x", "y"]]] {
        let spec = Spec::new(axes.iter().copied());
        let error = program.partition(&mesh, &[spec.clone(), Spec::whole()], None).unwrap_err();
        assert!(error.to_string().contains(&spec.to_string()), "{error}");
        assert!(mesh.split(&ramp(&[8, 4]), &spec).is_err());
    }
    assert!(program.partition(&mesh, &[], None).is_err());
    let code =
        program.partition(&mesh, &[Spec::whole(), Spec::whole()], None).unwrap().compile(&Device::cpu());
    let one = Array::zeros(DType::F32, [8, 4]).unwrap();
    assert!(code.as_ref().unwrap().run(&[vec![one.clone(); 7], vec![one.clone(); 8]]).is_err());
    assert!(code.unwrap().run(&[vec![one]]).is_err());
    assert!(mesh.join(&[], &Spec::whole()).is_err());
}
