//! Calls with rules of the user's in programs that are loaded without Python: derivatives of both
//! orders, batches and files use the rules. Transposes are wrong on purpose, so that they show.

use ferrax::{Array, Device, Program};

/// (x / r)², where the transpose of x / r claims to be a multiplication by 100 / r.
const HALF: &str = "{ lambda \"half\" ; x:f32[] r:f32[]. let
    y:f32[] = linear_call[
      callee={ lambda ; r:f32[] x:f32[]. let y:f32[] = div x r in (y,) }
      name=divide
      num_res=1
      transpose={ lambda ; r:f32[] t:f32[]. let a:f32[] = mul 100.0:f32[] t; b:f32[] = div a r in (b,) }
    ] r x
    z:f32[] = mul y y
  in (z,) }";

/// The solution x of a x = b by a loop. The transposed solver gives ten times its solution.
const SOLVE: &str = "{ lambda \"system\" ; a:f32[] b:f32[]. let
    x:f32[] = custom_linear_solve[
      matvec={ lambda ; a:f32[] x:f32[]. let y:f32[] = mul a x in (y,) }
      num_params=1
      solve={ lambda ; a:f32[] b:f32[]. let
          x:f32[] _:i32[] = while[
            body_jaxpr={ lambda ; a:f32[] b:f32[] x:f32[] i:i32[]. let
                y:f32[] = mul a x
                r:f32[] = sub b y
                s:f32[] = mul 0.25:f32[] r
                t:f32[] = add x s
                j:i32[] = add i 1:i32[]
              in (t, j) }
            body_nconsts=2
            cond_jaxpr={ lambda ; x:f32[] i:i32[]. let c:bool[] = lt i 60:i32[] in (c,) }
            cond_nconsts=0
          ] a b 0.0:f32[] 0:i32[]
        in (x,) }
      transpose_solve={ lambda ; a:f32[] b:f32[]. let s:f32[] = mul 10.0:f32[] b; x:f32[] = div s a in (x,) }
      vecmat={ lambda ; a:f32[] x:f32[]. let y:f32[] = mul a x in (y,) }
    ] a b
  in (x,) }";

/// The program as it comes out of a file.
fn loaded(text: &str) -> Program {
    let program: Program = text.parse().unwrap();
    let again = Program::from_bytes(&program.to_bytes().unwrap()).unwrap();
    assert_eq!(again, program);
    again
}

fn run(program: &Program, inputs: &[f32]) -> Vec<f32> {
    let inputs: Vec<Array> = inputs.iter().map(|&x| Array::scalar(x).unwrap()).collect();
    let outputs = program.compile(&Device::cpu()).unwrap().run(&inputs).unwrap();
    outputs.iter().map(|array| array.item().unwrap()).collect()
}

fn close(got: &[f32], expected: &[f32]) {
    assert_eq!(got.len(), expected.len());
    for (a, b) in got.iter().zip(expected) {
        assert!((a - b).abs() <= 1e-4 * (1.0 + b.abs()), "{got:?} is not {expected:?}");
    }
}

#[test]
fn a_given_transpose_is_the_derivative() {
    let half = loaded(HALF);
    close(&run(&half, &[3.0, 2.0]), &[2.25]);
    // Forwards the function itself, backwards the transpose.
    close(&run(&half.jvp(&[0]).unwrap(), &[3.0, 2.0, 1.0]), &[2.25, 1.5]);
    let gradient = half.grad(&[0]).unwrap();
    close(&run(&gradient, &[3.0, 2.0]), &[150.0]);
    close(&run(&gradient.jvp(&[0]).unwrap(), &[3.0, 2.0, 1.0]), &[150.0, 50.0]);
    close(&run(&gradient.grad(&[0]).unwrap(), &[3.0, 2.0]), &[50.0]);
    let again = Program::from_bytes(&gradient.to_bytes().unwrap()).unwrap();
    close(&run(&again.grad(&[0]).unwrap(), &[3.0, 2.0]), &[50.0]);
    let error = half.grad(&[1]).unwrap_err().to_string();
    assert!(error.contains("residuals") && error.contains("'divide'"), "{error}");
}

#[test]
fn batches_keep_the_transpose() {
    let inputs = [Array::from_slice(&[1.0f32, 3.0], [2]).unwrap(), Array::scalar(2.0f32).unwrap()];
    let expected = [50.0, 150.0];
    let gradient = loaded(HALF).grad(&[0]).unwrap().vmap(&[Some(0), None], 2).unwrap();
    let found = gradient.compile(&Device::cpu()).unwrap().run(&inputs).unwrap();
    close(&found[0].to_vec::<f32>().unwrap(), &expected);
    // The other way round: the gradient of a batch.
    let batch = loaded(HALF).vmap(&[Some(0), Some(0)], 2).unwrap().vjp(&[0]).unwrap();
    let both = [2.0f32, 2.0];
    let inputs = [
        inputs[0].clone(),
        Array::from_slice(&both, [2]).unwrap(),
        Array::from_slice(&[1.0f32, 1.0], [2]).unwrap(),
    ];
    let found = batch.compile(&Device::cpu()).unwrap().run(&inputs).unwrap();
    close(&found[1].to_vec::<f32>().unwrap(), &expected);
}

#[test]
fn a_system_is_differentiated_at_its_solution() {
    let solve = loaded(SOLVE);
    let (a, b) = (4.0, 2.0);
    close(&run(&solve, &[a, b]), &[0.5]);
    // Forwards: dx = (db - da x) / a.
    close(&run(&solve.jvp(&[0, 1]).unwrap(), &[a, b, 1.0, 3.0]), &[0.5, (3.0 - 0.5) / a]);
    // Backwards: ten times that; and again ten times that, forwards over the transposed system.
    let gradient = solve.grad(&[0, 1]).unwrap();
    close(&run(&gradient, &[a, b]), &[-10.0 * b / (a * a), 10.0 / a]);
    let by_side = solve.grad(&[1]).unwrap();
    close(&run(&by_side.jvp(&[0]).unwrap(), &[a, b, 1.0]), &[10.0 / a, -100.0 / (a * a)]);
    // The transpose of the transposed system is the system.
    close(&run(&by_side.grad(&[0]).unwrap(), &[a, b]), &[-10.0 / (a * a)]);
    let many = gradient.vmap(&[Some(0), None], 2).unwrap();
    let inputs = [Array::from_slice(&[4.0f32, 2.0], [2]).unwrap(), Array::scalar(b).unwrap()];
    let found = many.compile(&Device::cpu()).unwrap().run(&inputs).unwrap();
    close(&found[0].to_vec::<f32>().unwrap(), &[-1.25, -5.0]);
    close(&found[1].to_vec::<f32>().unwrap(), &[2.5, 5.0]);
}

#[test]
fn a_rule_that_is_not_there_is_asked_for() {
    let start = HALF.find("transpose={").unwrap();
    let end = start + HALF[start..].find('\n').unwrap();
    let without = HALF.replace(&HALF[start..end], "transpose=None");
    let program = loaded(&without);
    close(&run(&program.jvp(&[0]).unwrap(), &[3.0, 2.0, 1.0]), &[2.25, 1.5]);
    let error = program.grad(&[0]).unwrap_err().to_string();
    assert!(error.contains("'divide'") && error.contains("vjp_order"), "{error}");

    let given = &SOLVE[..SOLVE.find("transpose_solve=").unwrap()];
    let program = loaded(&format!("{given}transpose_solve=None vecmat=None ] a b in (x,) }}"));
    close(&run(&program.jvp(&[1]).unwrap(), &[4.0, 2.0, 1.0]), &[0.5, 0.25]);
    let error = program.grad(&[1]).unwrap_err().to_string();
    assert!(error.contains("without transpose_solve"), "{error}");
}

#[test]
fn programs_that_do_not_fit_are_refused() {
    let refused = |text: String| text.parse::<Program>().unwrap_err().to_string();
    let error = refused(HALF.replace("num_res=1", "num_res=7"));
    assert!(error.contains("fewer than its 7 residuals"), "{error}");
    let error = refused(HALF.replace("in (b,) }", "in (a, b) }"));
    assert!(error.contains("the transpose of 'divide' must give (f32[])"), "{error}");
    let error = refused(SOLVE.replace("num_params=1", "num_params=3"));
    assert!(error.contains("fewer than its 3 parameters"), "{error}");
    let error = refused(SOLVE.replace("num_params=1", "num_params=0"));
    assert!(error.contains("gives 2 outputs"), "{error}");
}

#[test]
fn batching_rules_are_loops_or_errors() {
    let text = |sequential: &str| {
        format!(
            "{{ lambda \"f\" ; x:f32[] y:f32[]. let
               z:f32[] = custom_vmap_call[
                 call={{ lambda ; x:f32[] y:f32[]. let z:f32[] = mul x y in (z,) }}
                 name=product sequential={sequential}
               ] x y
             in (z,) }}"
        )
    };
    let program = loaded(&text("True"));
    let inputs = [Array::from_slice(&[1.0f32, 3.0], [2]).unwrap(), Array::scalar(2.0f32).unwrap()];
    let many = program.vmap(&[Some(0), None], 2).unwrap();
    assert!(many.to_string().contains("scan["), "{many}");
    let found = many.compile(&Device::cpu()).unwrap().run(&inputs).unwrap();
    close(&found[0].to_vec::<f32>().unwrap(), &[2.0, 6.0]);
    let program = loaded(&text("False"));
    close(&run(&program.jvp(&[0]).unwrap(), &[3.0, 2.0, 1.0]), &[6.0, 2.0]);
    for program in [program.jvp(&[0]).unwrap(), program] {
        let axes = vec![Some(0); program.inputs().len()];
        let error = program.vmap(&axes, 2).unwrap_err().to_string();
        assert!(error.contains("'product'") && error.contains("export.export(jit(vmap(f)))"), "{error}");
    }
}
