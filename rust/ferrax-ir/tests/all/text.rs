//! Program text: golden texts, exactness, and what hostile text does.

use std::sync::Arc;

use ferrax_ir::ops::{Binary, Call, Compare, ConvertElementType, Unary};
use ferrax_ir::{ArrayType, Atom, Builder, DType, Dim, Error, Literal, Program, Scalar, Tensor};

fn check(program: &Program, expected: &str) {
    assert_eq!(program.to_string(), expected);
    let exact = format!("{program:#}");
    assert_eq!(Program::parse(&exact).unwrap(), program.canonical(), "{exact}");
}

fn f32s(sizes: &[usize]) -> ArrayType {
    ArrayType::of_sizes(sizes, DType::F32)
}

/// `sin(x) * 2 + sum(x)`.
fn example() -> Program {
    let mut b = Builder::new("<lambda>");
    let x = b.input(f32s(&[3]));
    let sine = b.unary(Unary::Sin, x).unwrap();
    let doubled = b.scale(sine, 2.0).unwrap();
    let sum = b.reduce_sum(x, &[0]).unwrap();
    let result = b.add(doubled, sum).unwrap();
    b.finish([result])
}

#[test]
fn equations_one_a_line() {
    check(
        &example(),
        "\
{ lambda ; a:f32[3]. let
    b:f32[3] = sin a
    c:f32[3] = mul b 2.0:f32[]
    d:f32[] = reduce_sum[axes=(0,)] a
    e:f32[3] = add c d
  in (e,) }",
    );
}

#[test]
fn short_programs_on_one_line() {
    let mut b = Builder::new("f");
    let x = b.input(f32s(&[]));
    let sine = b.unary(Unary::Sin, x).unwrap();
    let cosine = b.unary(Unary::Cos, sine).unwrap();
    check(&b.finish([cosine]), "{ lambda ; a:f32[]. let b:f32[] = sin a; c:f32[] = cos b in (c,) }");
    let mut b = Builder::new("f");
    b.input(f32s(&[3]));
    check(&b.finish([]), "{ lambda ; a:f32[3]. let  in () }");
    let b = Builder::new("f");
    let one = b.scalar(DType::F32, 1.0);
    check(&b.finish([one]), "{ lambda ; . let  in (1.0:f32[],) }");
}

#[test]
fn captured_arrays() {
    let mut b = Builder::new("f");
    let x = b.input(f32s(&[3]));
    let c = b.constant(Tensor::from_elements([3].as_slice(), &[0.0f32, 1.0, f32::NAN]).unwrap(), false);
    let sum = b.add(x, c).unwrap();
    let program = b.finish([sum]);
    check(&program, "{ lambda a:f32[3]; b:f32[3]. let c:f32[3] = add b a in (c,) }");
    assert!(Program::parse(&program.to_string()).unwrap_err().to_string().contains("captured array 'a'"));
}

#[test]
fn callees_show_the_names_of_their_callers() {
    let mut b = Builder::new("g");
    let x = b.input(f32s(&[3]));
    let call = Call { name: "<lambda>".into(), program: Arc::new(example()), inline: false };
    let outputs = b.emit(call, &[x]).unwrap();
    check(
        &b.finish([Atom::Var(outputs[0])]),
        "\
{ lambda ; a:f32[3]. let
    b:f32[3] = jit[
      name=<lambda>
      jaxpr={ lambda ; a:f32[3]. let
          c:f32[3] = sin a
          d:f32[3] = mul c 2.0:f32[]
          e:f32[] = reduce_sum[axes=(0,)] a
          b:f32[3] = add d e
        in (b,) }
    ] a
  in (b,) }",
    );
}

#[test]
fn shared_callees_stand_in_front() {
    let callee = Arc::new(example());
    let mut b = Builder::new("g");
    let x = b.input(f32s(&[3]));
    let call = Call { name: "<lambda>".into(), program: callee, inline: false };
    let first = b.emit(call.clone(), &[x]).unwrap()[0];
    let second = b.emit(call, &[Atom::Var(first)]).unwrap()[0];
    let program = b.finish([Atom::Var(second)]);
    check(
        &program,
        "\
let lambda = { lambda ; a:f32[3]. let
    b:f32[3] = sin a
    c:f32[3] = mul b 2.0:f32[]
    d:f32[] = reduce_sum[axes=(0,)] a
    e:f32[3] = add c d
  in (e,) } in
{ lambda ; f:f32[3]. let
    g:f32[3] = jit[name=<lambda> jaxpr=lambda] f
    h:f32[3] = jit[name=<lambda> jaxpr=lambda] g
  in (h,) }",
    );
    let parsed = Program::parse(&format!("{program:#}")).unwrap();
    let callees: Vec<_> = parsed.equations.iter().flat_map(|eqn| eqn.op.programs()).collect();
    assert!(Arc::ptr_eq(callees[0], callees[1]));
}

#[test]
fn literals_are_written_as_python_does() {
    let write = |value: Scalar| {
        let b = Builder::new("f");
        let program = b.finish([Atom::Literal(Literal { value, weak: false })]);
        let text = program.to_string();
        let inside = text.strip_prefix("{ lambda ; . let  in (").unwrap().strip_suffix(",) }").unwrap();
        let parsed = Program::parse(&format!("{program:#}")).unwrap();
        assert_eq!(parsed.outputs, program.outputs, "{text}");
        inside.to_owned()
    };
    assert_eq!(write(Scalar::new(0.1f32)), "0.1:f32[]");
    assert_eq!(write(Scalar::new(1e20f64)), "1e+20:f64[]");
    assert_eq!(write(Scalar::new(1e-7f32)), "1e-07:f32[]");
    assert_eq!(write(Scalar::new(123456789012345.0f64)), "123456789012345.0:f64[]");
    assert_eq!(write(Scalar::new(-0.0f32)), "-0.0:f32[]");
    assert_eq!(write(Scalar::new(f32::INFINITY)), "inf:f32[]");
    assert_eq!(write(Scalar::new(f32::NAN)), "nan:f32[]");
    assert_eq!(write(Scalar::from_bits(DType::F32, 0xffc0_1234)), "nan:f32[]");
    assert_eq!(write(Scalar::new(f64::MIN_POSITIVE / 8.0)), "2.781342323134e-309:f64[]");
    assert_eq!(write(Scalar::from_f64(DType::BF16, 2.5)), "2.5:bf16[]");
    assert_eq!(write(Scalar::from_f64(DType::F16, 0.1)), "0.099975586:f16[]");
    assert_eq!(write(Scalar::from_f64(DType::F8E4M3FN, -1.5)), "-1.5:f8_e4m3fn[]");
    assert_eq!(write(Scalar::new([1.0f32, 2.0])), "(1+2j):c64[]");
    assert_eq!(write(Scalar::new([1.5f64, -0.25])), "(1.5-0.25j):c128[]");
    assert_eq!(write(Scalar::new([-0.0f32, 1e-20])), "(-0+1e-20j):c64[]");
    assert_eq!(write(Scalar::bool(true)), "True:bool[]");
    assert_eq!(write(Scalar::new(u64::MAX)), "18446744073709551615:u64[]");
    assert_eq!(write(Scalar::new(i8::MIN)), "-128:i8[]");
}

#[test]
fn exact_text_keeps_weakness_and_names() {
    let mut b = Builder::new("a \"quoted\" \\ name\n");
    let x = b.input(ArrayType::scalar(DType::F32).with_weak(true));
    let two = Atom::Literal(Literal { value: Scalar::new(2.0f32), weak: true });
    let product = b.mul(x, two).unwrap();
    let strong = b.emit1(ConvertElementType { new_dtype: DType::F32, weak_type: false }, &[product]).unwrap();
    let program = b.finish([product, strong]);
    let text = format!("{program:#}");
    assert!(text.contains("a:~f32[]") && text.contains("2.0:~f32[]"), "{text}");
    assert!(!program.to_string().contains('~'));
    let parsed = Program::parse(&text).unwrap();
    assert_eq!((parsed.clone(), parsed.name), (program.clone(), program.name));
}

#[test]
fn symbolic_dimensions() {
    let mut b = Builder::new("f");
    let n = Dim::variable("n");
    let x = b.input(ArrayType::new([n.clone(), 3.into()].as_slice(), DType::F32));
    let sum = b.reduce_sum(x, &[0]).unwrap();
    let twice = n.mul(&Dim::Const(2)).unwrap().add(&Dim::Const(1)).unwrap();
    let wide = b.broadcast_batch(sum, &twice, 0).unwrap();
    check(
        &b.finish([wide]),
        "\
{ lambda ; a:f32[n,3]. let
    b:f32[3] = reduce_sum[axes=(0,)] a
    c:f32[2*n + 1,3] = broadcast_in_dim[broadcast_dimensions=(1,)] b
  in (c,) }",
    );
}

#[test]
fn long_lists_wrap() {
    let mut b = Builder::new("f");
    let inputs: Vec<Atom> = (0..30).map(|_| b.input(f32s(&[]))).collect();
    let sum = b.binary(Binary::Add, inputs[29], inputs[1]).unwrap();
    let which = b.compare(Compare::Lt, sum, inputs[0]).unwrap();
    let program = b.finish([which]);
    assert!(program.to_string().lines().all(|line| line.len() <= 90), "{program}");
    assert!(program.to_string().contains(" ba:f32[]"));
    check(&program, &program.to_string());
}

#[test]
fn readable_text_reads_back() {
    let program = example();
    let parsed = Program::parse(&program.to_string()).unwrap();
    assert_eq!(parsed.equations, program.equations);
    let unnamed: Program = "{ lambda ; a:f32[]. let _:f32[] = sin a in (a,) }".parse().unwrap();
    assert_eq!(unnamed.equations.len(), 1);
}

#[test]
fn errors_name_the_place() {
    let refused = |text: &str| match Program::parse(text) {
        Err(Error::Parse(message)) => message,
        other => panic!("{other:?}"),
    };
    let cases = [
        (
            "{ lambda ; a:f32[]. let\n b:f32[] = sin c in (b,) }",
            "line 2, column 17: there is no variable 'c'",
        ),
        ("{ lambda ; a:f32[]. let b:f32[] = frob a in (b,) }", "no op named 'frob'"),
        ("{ lambda ; a:f32[]. let b:f64[] = sin a in (b,) }", "declared f64[]"),
        ("{ lambda ; a:f32[] a:f32[]. let in () }", "defined twice"),
        ("{ lambda ; in:f32[]. let in () }", "cannot name a variable"),
        ("{ lambda ; a:q32[]. let in () }", "unknown dtype"),
        ("{ lambda ; a:f32[-1]. let in () }", "negative"),
        ("{ lambda ; . let in (300:u8[],) }", "not a value of dtype uint8"),
        ("{ lambda ; . let in (1.0:f32[2],) }", "a literal of type"),
        ("{ lambda \"f\" a:f32[99999999999999]=#00; . let in () }", "takes"),
        ("{ lambda \"f\" a:f32[1]=#0; . let in () }", "hexadecimal"),
        ("{ lambda \"f\" a:bool[3]=#010002; . let in () }", "elements other than 0 and 1"),
        ("{ lambda ; . let in () } x", "after the program"),
        ("", "expected"),
    ];
    for (text, expected) in cases {
        let message = refused(text);
        assert!(message.contains(expected), "{text}: {message}");
    }
}

#[test]
fn nesting_is_bounded() {
    let deep = "{ lambda ; . let = jit[name=f jaxpr=".repeat(100_000);
    assert!(Program::parse(&deep).unwrap_err().to_string().contains("deep"));
    let tuples = format!("{{ lambda ; a:f32[]. let b:f32[] = reduce_sum[axes={}", "(".repeat(100_000));
    assert!(Program::parse(&tuples).unwrap_err().to_string().contains("deep"));
    let dims = format!("{{ lambda ; a:f32[{}", "(".repeat(100_000));
    assert!(Program::parse(&dims).is_err());
    let powers = "{ lambda ; a:f32[((((((a+b+c+d)^16)^16)^16)^16)^16)^16]. let in () }";
    assert!(Program::parse(powers).is_err());
}

#[test]
fn hostile_text_is_an_error_and_never_a_panic() {
    let mut b = Builder::new("g");
    let x = b.input(f32s(&[3]));
    let c = b.constant(Tensor::from_elements([3].as_slice(), &[1.0f32, 2.0, 3.0]).unwrap(), false);
    let call = Call { name: "f".into(), program: Arc::new(example()), inline: true };
    let y = Atom::Var(b.emit(call, &[x]).unwrap()[0]);
    let z = b.broadcast_batch(y, &Dim::variable("n"), 1).unwrap();
    let t = b.transpose(z, &[1, 0]).unwrap();
    let w = b.slice_axis(c, 0, 1, 3).unwrap();
    let complex = Atom::Literal(Literal { value: Scalar::new([1.5f32, -2.0]), weak: false });
    let program = b.finish([t, w, complex]);
    let text = format!("{program:#}");
    assert!(Program::parse(&text).is_ok());
    let pieces = [
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ":",
        "=",
        "-",
        "0",
        "9",
        "~",
        "\"",
        "\\",
        "é",
        " ",
        "let",
        "in",
        "None",
        "99999999999999999999",
        "n",
        ",",
        "(0,)",
        "(5, 7)",
        "#",
        "0x",
        "inf",
        "\n",
        "a",
    ];
    let mut state = 12345u64;
    let mut random = |limit: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % limit
    };
    let boundaries: Vec<usize> = text.char_indices().map(|(offset, _)| offset).collect();
    for _ in 0..6000 {
        let mut mutated = text.clone();
        for _ in 0..1 + random(3) {
            let at = boundaries[random(boundaries.len())].min(mutated.len());
            if !mutated.is_char_boundary(at) {
                continue;
            }
            let end = (at + random(4)).min(mutated.len());
            let end = if mutated.is_char_boundary(end) { end } else { at };
            mutated.replace_range(at..end, pieces[random(pieces.len())]);
        }
        if let Ok(program) = Program::parse(&mutated) {
            ferrax_ir::verify::verify(&program).unwrap();
        }
        let cut = boundaries[random(boundaries.len())];
        let _ = Program::parse(&text[..cut]);
    }
}
