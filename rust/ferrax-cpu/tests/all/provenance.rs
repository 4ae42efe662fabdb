//! What is blamed for a NaN or an infinity in a result.

use ferrax_cpu::provenance::{Finding, Origin, Watch, find};
use ferrax_ir::{Program, Tensor};

const NAN: Watch = Watch { nan: true, inf: false };
const INF: Watch = Watch { nan: false, inf: true };

fn floats(values: &[f32]) -> Tensor {
    Tensor::from_elements(&[values.len()][..], values).unwrap()
}

fn float(value: f32) -> Tensor {
    Tensor::from_elements(&[][..], &[value]).unwrap()
}

fn blame(text: &str, inputs: &[Tensor], watch: Watch) -> Option<Finding> {
    let program = Program::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    find(&program, inputs, watch).unwrap()
}

/// The op, the place of the bad element and the iterations around it.
fn op(finding: Option<Finding>) -> (String, usize, Vec<usize>) {
    let finding = finding.expect("a bad value");
    let Origin::Op { name, whole: false, .. } = finding.origin else { panic!("{finding:?}") };
    (name, finding.index, finding.within.iter().map(|iteration| iteration.number).collect())
}

#[test]
fn the_op_that_made_it_with_its_operands() {
    let text =
        "{ lambda ; x:f32[3]. let a:f32[3] = log x; b:f32[3] = add a 1.0:f32[]; c:f32[3] = mul b b in (c,) }";
    let found = blame(text, &[floats(&[1.0, 2.0, -1.0])], NAN).unwrap();
    let Origin::Op { name, operands, .. } = &found.origin else { panic!("{found:?}") };
    assert_eq!((name.as_str(), found.index), ("log", 2));
    assert_eq!(operands.iter().map(ToString::to_string).collect::<Vec<_>>(), ["-1.0"]);
    assert!(blame(text, &[floats(&[1.0, 2.0, 3.0])], NAN).is_none());
}

#[test]
fn masked_values_are_not_blamed() {
    let text = "{ lambda ; x:f32[3] y:f32[3]. let
        a:f32[3] = log x
        p:bool[3] = gt x 0.0:f32[]
        z:f32[3] = sub x x
        s:f32[3] = select_n p z a
        d:f32[3] = div y y
        o:f32[3] = add s d in (o,) }";
    let inputs = [floats(&[1.0, -1.0, 2.0]), floats(&[1.0, 1.0, 0.0])];
    assert_eq!(op(blame(text, &inputs, NAN)), ("div".to_owned(), 2, vec![]));
}

#[test]
fn infinities_are_watched_apart_from_nans() {
    let text = "{ lambda ; x:f32[2]. let a:f32[2] = div 1.0:f32[] x; b:f32[2] = sub a a in (b,) }";
    let inputs = [floats(&[1.0, 0.0])];
    assert_eq!(op(blame(text, &inputs, NAN)).0, "sub");
    assert!(blame(text, &inputs, INF).is_none());
    let text = "{ lambda ; x:f32[2]. let a:f32[2] = div 1.0:f32[] x; b:f32[2] = neg a in (b,) }";
    assert_eq!(op(blame(text, &inputs, INF)), ("div".to_owned(), 1, vec![]));
}

#[test]
fn an_infinity_that_became_a_nan_is_followed_too() {
    let text = "{ lambda ; x:f32[2] y:f32[2]. let a:f32[2] = div 1.0:f32[] x; b:f32[2] = mul a y in (b,) }";
    let found = blame(text, &[floats(&[1.0, 0.0]), floats(&[0.0, 0.0])], NAN).unwrap();
    let infinity = found.infinity.clone().map(|infinity| *infinity);
    assert_eq!(op(Some(found)), ("mul".to_owned(), 1, vec![]));
    assert_eq!(op(infinity), ("div".to_owned(), 1, vec![]));
    let text = "{ lambda ; x:f32[2]. let b:f32[2] = mul x 0.0:f32[] in (b,) }";
    let found = blame(text, &[floats(&[1.0, f32::INFINITY])], NAN).unwrap();
    assert_eq!(found.infinity.map(|infinity| infinity.origin), Some(Origin::Input(0)));
}

#[test]
fn all_dtypes_are_looked_at() {
    for dtype in ["f16", "bf16", "f64", "c64", "c128"] {
        let text = format!("{{ lambda ; x:{dtype}[2]. let a:{dtype}[2] = div x x in (a,) }}");
        let program = Program::parse(&text).unwrap();
        let ty = program.input_types().next().unwrap().as_array().unwrap().clone();
        let input = Tensor::zeros(ty.dtype, &[2][..]).unwrap();
        let found = find(&program, &[input], NAN).unwrap();
        assert_eq!(op(found), ("div".to_owned(), 0, vec![]), "{dtype}");
    }
}

#[test]
fn what_came_in_is_an_input() {
    let text =
        "{ lambda ; x:f32[2] y:f32[2]. let a:f32[2] = add x y; b:f32[] = reduce_sum[axes=(0,)] a in (b,) }";
    let found = blame(text, &[floats(&[1.0, 1.0]), floats(&[1.0, f32::NAN])], NAN).unwrap();
    assert_eq!((found.origin, found.index), (Origin::Input(1), 1));
}

const LOG_SCAN: &str = "{ lambda ; c:f32[] xs:f32[5]. let d:f32[] ys:f32[5] = scan[
    jaxpr={ lambda ; c:f32[] x:f32[]. let a:f32[] = sub c x; b:f32[] = log a; y:f32[] = mul b 2.0:f32[] in (b, y) }
    length=5 num_carry=1 num_consts=0 reverse=REVERSE unroll=1 ] c xs in (OUT,) }";

#[test]
fn loops_are_opened_where_the_value_turned_bad() {
    let steps = floats(&[1.0, 1.0, 1.0, 0.5, 0.5]);
    // log(9) = 2.2, log(1.2) = 0.2, log(-0.8): the third step.
    for out in ["d", "ys"] {
        let text = LOG_SCAN.replace("REVERSE", "False").replace("OUT", out);
        let (name, _, within) = op(blame(&text, &[float(10.0), steps.clone()], NAN));
        assert_eq!((name.as_str(), within), ("log", vec![2]), "{out}");
    }
    // Backwards: log(9.5) = 2.3, log(1.8) = 0.6, log(-0.4) at element 2.
    let text = LOG_SCAN.replace("REVERSE", "True").replace("OUT", "d");
    assert_eq!(op(blame(&text, &[float(10.0), steps], NAN)).2, [2]);
}

#[test]
fn loops_hand_on_what_came_in() {
    let text = LOG_SCAN.replace("REVERSE", "False").replace("OUT", "d");
    let found = blame(&text, &[float(f32::NAN), floats(&[0.0; 5])], NAN).unwrap();
    assert_eq!(found.origin, Origin::Input(0));
    let found = blame(&text, &[float(1e9), floats(&[0.0, f32::NAN, 0.0, 0.0, 0.0])], NAN).unwrap();
    assert_eq!((found.origin, found.index), (Origin::Input(1), 1));
}

#[test]
fn carries_that_change_places_are_followed() {
    // The NaN is made in `a` in step 0 and wanders to `d`, one place a step.
    let text = "{ lambda ; z:f32[]. let a:f32[] b:f32[] c:f32[] d:f32[] = scan[
        jaxpr={ lambda ; z:f32[] b:f32[] c:f32[] d:f32[] i:f32[]. let
            q:f32[] = div z i
            j:f32[] = add i 1.0:f32[] in (q, b, c, j) }
        length=3 num_carry=4 num_consts=1 reverse=False unroll=1 ] z 1.0:f32[] 1.0:f32[] 1.0:f32[] 0.0:f32[] in (c,) }";
    let (name, _, within) = op(blame(text, &[float(0.0)], NAN));
    assert_eq!((name.as_str(), within), ("div", vec![0]));
}

#[test]
fn whiles_calls_and_branches_are_opened() {
    let body = "{ lambda ; i:i32[] x:f32[]. let
        n:f32[] = jit[name=halve jaxpr={ lambda ; x:f32[]. let a:f32[] = sqrt x; b:f32[] = sub a 1.5:f32[] in (b,) }] x
        j:i32[] = add i 1:i32[] in (j, n) }";
    let text = format!(
        "{{ lambda ; k:i32[] x:f32[]. let
            i:i32[] y:f32[] = while[body_jaxpr={body} body_nconsts=0
                cond_jaxpr={{ lambda ; i:i32[] x:f32[]. let c:bool[] = lt i 4:i32[] in (c,) }} cond_nconsts=0] 0:i32[] x
            z:f32[] = cond[branches=(
                {{ lambda ; y:f32[]. let in (y,) }},
                {{ lambda ; y:f32[]. let w:f32[] = log -1.0:f32[]; v:f32[] = add w y in (v,) }},
            )] k y in (z,) }}"
    );
    let index = |value: i32| Tensor::from_elements(&[][..], &[value]).unwrap();
    // 16 -> 2.5 -> 0.08 -> -1.2 -> nan
    let (name, _, within) = op(blame(&text, &[index(0), float(16.0)], NAN));
    assert_eq!((name.as_str(), within), ("sqrt", vec![3]));
    let (name, _, within) = op(blame(&text, &[index(1), float(1e30)], NAN));
    assert_eq!((name.as_str(), within), ("log", vec![]));
}
