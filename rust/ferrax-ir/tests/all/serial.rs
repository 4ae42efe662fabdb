//! Saved programs: every op goes to a file and back, and no bytes do harm.

use std::sync::Arc;

use ferrax_ir::ops::{Binary, Call, Copy, Pvary, Unary};
use ferrax_ir::program::Effect;
use ferrax_ir::rules::{Batch, Batched, Jvp, Lowering, Row, Rules, Transpose, Types};
use ferrax_ir::serial::{HEADER, Interface, MAX_DEPTH, VERSION, from_bytes, seal, to_bytes};
use ferrax_ir::tensor::byte_size;
use ferrax_ir::{
    ArrayType, Atom, Builder, DType, Dim, Error, Extension, Op, Param, Program, Result, Source, SourceLine,
    Tensor, Type,
};
use smallvec::SmallVec;

fn save(program: &Program) -> Vec<u8> {
    to_bytes(program, &Interface::default()).unwrap_or_else(|error| panic!("{error}\n{program}"))
}

fn check(program: &Program) {
    let (loaded, _) = from_bytes(&save(program)).unwrap_or_else(|error| panic!("{error}\n{program}"));
    assert_eq!(loaded, *program);
}

/// One program for each line: a program of one equation with these inputs.
/// Together they have every op; a line may leave the parameters' types to the
/// type rule, which checks them.
const OPS: &str = include_str!("../support/every_op.txt");

fn every_op() -> Vec<Program> {
    let texts = OPS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    texts.map(|text| Program::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"))).collect()
}

/// The programs in the golden files of passes: sub-programs, literals, captured arrays.
fn golden() -> Vec<Program> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/ir");
    let mut groups: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    groups.sort();
    let mut files = Vec::new();
    for group in groups.iter().filter(|path| path.is_dir()) {
        files.extend(std::fs::read_dir(group).unwrap().map(|entry| entry.unwrap().path()));
    }
    files.sort();
    let mut programs = Vec::new();
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap();
        // Paragraphs are programs, some under a line that names them.
        let before = programs.len();
        for paragraph in text.split("\n\n") {
            let named = paragraph.split_once(":\n").map_or(paragraph, |(_, program)| program);
            programs.extend([paragraph, named].into_iter().find_map(|text| Program::parse(text).ok()));
        }
        assert!(programs.len() > before, "{} has no program", file.display());
    }
    // Files refuse arrays that no machine can hold; one case is about such.
    programs.retain(|program| {
        let sizes = program.types.iter().filter_map(|ty| ty.as_array());
        sizes
            .filter_map(|ty| Some((ty.sizes()?, ty.dtype)))
            .all(|(sizes, dtype)| byte_size(&sizes, dtype).is_ok())
    });
    programs
}

#[test]
fn golden_programs_come_back() {
    golden().iter().for_each(check);
}

/// What stands within functions of a mesh alone, which files do not hold.
const OF_DEVICES: [&str; 6] = [
    "pvary",
    "preduced",
    "reduced_vary_cast",
    "vary_unreduced_cast",
    "all_gather_reduced",
    "unreduced_reduce_scatter",
];

#[test]
fn types_of_devices_are_refused() {
    let mut b = Builder::new("on each device");
    let x = b.input(f32s(&[3]));
    let y = b.emit1(Pvary { axes: vec!["x".into()] }, &[x]).unwrap();
    let error = to_bytes(&b.finish([y]), &Interface::default()).unwrap_err();
    assert!(error.to_string().contains("f32[3]{V:x}"), "{error}");
}

#[test]
fn every_op_comes_back() {
    let programs = every_op();
    for program in &programs {
        check(program);
    }
    let missing: Vec<&str> = ferrax_ir::op::documented_ops()
        .into_iter()
        .map(|(name, _)| name)
        .filter(|name| !OF_DEVICES.contains(name))
        .filter(|name| !programs.iter().any(|program| program.equations.iter().any(|e| e.op.name() == *name)))
        .collect();
    assert!(missing.is_empty(), "no program in every_op.txt has {missing:?}");
}

fn f32s(sizes: &[usize]) -> ArrayType {
    ArrayType::of_sizes(sizes, DType::F32)
}

/// Shared callees, constants of several dtypes, literals, weak types, source
/// lines, symbolic dimensions.
fn example() -> Program {
    let mut inner = Builder::new("inner");
    let x = inner.input(f32s(&[3]));
    let held = inner.constant(Tensor::from_elements(vec![3], &[1.0f32, f32::NAN, -0.0]).unwrap(), false);
    let sum = inner.add(x, held).unwrap();
    let inner = Arc::new(inner.finish([sum]));
    let mut b = Builder::new("naïve");
    let x = b.input(f32s(&[3]));
    let n = b.input(ArrayType::scalar(DType::I32).with_weak(true));
    let ragged = b.input(ArrayType::new(vec![Dim::parse("2*n + 1").unwrap(), Dim::Const(2)], DType::BF16));
    let key = Tensor::zeros(DType::Key(ferrax_ir::KeyImpl::THREEFRY2X32), vec![]).unwrap();
    let key = b.constant(key, false);
    let empty = b.constant(Tensor::zeros(DType::C128, vec![0, 4]).unwrap(), false);
    b.source = Source::new(SourceLine {
        file: "model.py".into(),
        line: 7,
        function: "layer".into(),
        scope: "".into(),
    });
    let call = Call { name: "inner".into(), program: inner.clone(), inline: true };
    let first = b.emit1(call.clone(), &[x]).unwrap();
    let second = b.emit1(call, &[first]).unwrap();
    b.source = Source::UNKNOWN;
    let scaled = b.scale(second, f64::INFINITY).unwrap();
    let doubled = b.add(n, n).unwrap();
    let sine = b.unary(Unary::Sin, ragged).unwrap();
    b.finish([scaled, doubled, sine, key, empty, n])
}

#[test]
fn what_equality_does_not_see_comes_back_too() {
    let program = example();
    let names = |prefix: &str, count| (0..count).map(|i| format!("{prefix}[{i}]")).collect();
    let interface = Interface {
        input_names: names("args", 3),
        output_names: names("out", 6),
        metadata: "{\"å\": 1}".into(),
    };
    let bytes = to_bytes(&program, &interface).unwrap();
    let (loaded, back) = from_bytes(&bytes).unwrap();
    assert_eq!((&loaded, &back), (&program, &interface));
    assert_eq!(loaded.name, program.name);
    let lines = |program: &Program| -> Vec<_> { program.equations.iter().map(|e| e.source.line()).collect() };
    assert_eq!(lines(&loaded), lines(&program));
    assert!(lines(&loaded)[0].is_some() && lines(&loaded)[2].is_none());
    // The same bytes for the same program, and the callee is in them once.
    assert_eq!(to_bytes(&loaded, &interface).unwrap(), bytes);
    let callees: Vec<_> = loaded.equations.iter().flat_map(|e| e.op.programs()).collect();
    assert!(Arc::ptr_eq(callees[0], callees[1]));
    let wrong = Interface { input_names: names("args", 2), ..Default::default() };
    assert!(matches!(to_bytes(&program, &wrong), Err(Error::Value(_))));
}

#[test]
fn a_tensor_that_two_programs_hold_is_stored_once() {
    let tensor = Tensor::zeros(DType::F32, vec![1000]).unwrap();
    let mut b = Builder::new("f");
    let outputs = [b.constant(tensor.clone(), false), b.constant(tensor, false)];
    let bytes = save(&b.finish(outputs));
    assert!(bytes.len() < 5000, "{} bytes", bytes.len());
}

fn chain(length: usize, calls: usize) -> Program {
    let mut b = Builder::new("leaf");
    let x = b.input(f32s(&[]));
    let mut program = b.finish([x]);
    for _ in 0..length {
        let call = Call { name: "f".into(), program: Arc::new(program), inline: false };
        let mut b = Builder::new("f");
        let mut x = b.input(f32s(&[]));
        for _ in 0..calls {
            x = b.emit1(call.clone(), &[x]).unwrap();
        }
        program = b.finish([x]);
    }
    program
}

#[test]
fn deep_and_explosive_programs_are_refused() {
    check(&chain(MAX_DEPTH, 1));
    let refused = |program: &Program| to_bytes(program, &Interface::default()).unwrap_err();
    assert!(matches!(refused(&chain(MAX_DEPTH + 1, 1)), Error::Unsupported(_)));
    // Sixty calls of two each stand for 2^60 equations.
    check(&chain(20, 2));
    assert!(matches!(refused(&chain(60, 2)), Error::Unsupported(_)));
}

#[derive(Debug)]
struct Mine;

impl Row for Mine {
    fn name(&self) -> &str {
        "my_op"
    }

    fn params(&self) -> Vec<(&'static str, Param)> {
        Vec::new()
    }

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        Ok(inputs.iter().cloned().collect())
    }

    fn eval(&self, inputs: &[Tensor], _outputs: &[Type]) -> Result<Vec<Tensor>> {
        Ok(inputs.to_vec())
    }
}

impl Rules for Mine {
    fn jvp(&self, _b: &mut Builder, eqn: &Jvp<'_>) -> Result<SmallVec<[Option<Atom>; 1]>> {
        Ok(eqn.tangents.iter().copied().collect())
    }

    fn transpose(&self, _b: &mut Builder, eqn: &Transpose<'_>) -> Result<SmallVec<[Option<Atom>; 3]>> {
        Ok(eqn.cotangents.iter().copied().collect())
    }

    fn batch(&self, _b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        Ok(eqn.inputs.iter().copied().zip(eqn.dims.iter().copied()).collect())
    }

    fn lower(&self) -> Lowering {
        Lowering::Library
    }
}

#[test]
fn extension_ops_are_named() {
    let mut b = Builder::new("f");
    let x = b.input(f32s(&[]));
    let y = b.emit1(Op::Extension(Extension(Arc::new(Mine))), &[x]).unwrap();
    let error = to_bytes(&b.finish([y]), &Interface::default()).unwrap_err();
    let text = "equation 0 of 'f' cannot be saved: 'my_op' is an extension op, which files do not hold";
    assert_eq!(error, Error::Unsupported(text.to_owned()));
}

fn refusal(bytes: &[u8]) -> String {
    match from_bytes(bytes) {
        Err(Error::Parse(text)) => text,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[test]
fn foreign_damaged_and_newer_files_say_so() {
    let good = save(&example());
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        bytes
    };
    for (bytes, expected) in [
        (Vec::new(), "it has only 0 bytes"),
        (b"PK\x03\x04 something else".to_vec(), "it begins with other bytes"),
        (with(0, 0x09), "transferred as text"),
        (with(8, VERSION as u8 + 6), "has format version 7, but this library reads versions 1 to 1"),
        (with(8, 0), "has format version 0"),
        (good[..20].to_vec(), "its header has 20 of 24 bytes"),
        (good[..good.len() - 1].to_vec(), "is cut off"),
        ([&good[..], b"x"].concat(), "1 bytes follow its end"),
        (with(HEADER + 3, good[HEADER + 3] ^ 1), "its checksum does not match"),
    ] {
        let text = refusal(&bytes);
        assert!(text.contains(expected), "'{text}' does not contain '{expected}'");
    }
    let mut longer = [&good[..], b"x"].concat();
    seal(&mut longer);
    assert!(refusal(&longer).contains("1 bytes follow its contents"));
}

#[test]
fn programs_that_break_an_invariant_are_refused() {
    let mut b = Builder::new("f");
    let x = b.input(f32s(&[2]));
    let y = b.emit1(Copy {}, &[x]).unwrap();
    let good = b.finish([y]);
    let mut undefined = good.clone();
    undefined.outputs = vec![Atom::Var(ferrax_ir::Var(9))];
    assert!(refusal(&save(&undefined)).contains("used before its definition"));
    let mut wrong_type = good.clone();
    wrong_type.types[1] = f32s(&[3]).into();
    assert!(refusal(&save(&wrong_type)).contains("the type rule gives"));
    let mut effects = good.clone();
    effects.effects.insert(Effect::Ordered);
    assert!(refusal(&save(&effects)).contains("says effects"));
    let mut huge = good;
    huge.types[0] = f32s(&[1 << 40, 1 << 40]).into();
    assert!(matches!(to_bytes(&huge, &Interface::default()), Err(Error::Parse(_))));
}

/// Reproducible random numbers (PCG's multiplier and increment).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33
    }

    fn below(&mut self, bound: usize) -> usize {
        self.next() as usize % bound.max(1)
    }

    /// One to four small changes.
    fn mutate(&mut self, bytes: &mut Vec<u8>, from: usize) {
        for _ in 0..=self.below(4) {
            let at = from + self.below(bytes.len().saturating_sub(from));
            let at = at.min(bytes.len().saturating_sub(1));
            match self.below(7) {
                _ if bytes.is_empty() => bytes.push(self.next() as u8),
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes[at] = self.next() as u8,
                2 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][self.below(5)],
                3 => bytes.truncate(at),
                4 => bytes.insert(at, self.next() as u8),
                5 => {
                    bytes.remove(at);
                }
                _ => {
                    let end = (at + 1 + self.below(12)).min(bytes.len());
                    let piece = bytes[at..end].to_vec();
                    let to = (from + self.below((bytes.len() + 1).saturating_sub(from))).min(bytes.len());
                    bytes.splice(to..to, piece);
                }
            }
        }
    }
}

/// What loads from changed bytes is a valid program: it saves and loads again.
#[test]
fn changed_files_never_panic() {
    let mut seeds: Vec<Vec<u8>> = every_op().iter().chain(&golden()).map(save).collect();
    seeds.push(save(&example()));
    seeds.push(save(&chain(4, 2)));
    let mut random = Random(2024);
    let (mut loaded, rounds) = (0, 80_000 / seeds.len());
    for seed in &seeds {
        for round in 0..rounds {
            let mut bytes = seed.clone();
            let sealed = round % 16 != 0;
            random.mutate(&mut bytes, if sealed { HEADER } else { 0 });
            if sealed {
                seal(&mut bytes);
            }
            match from_bytes(&bytes) {
                Ok((program, interface)) => {
                    loaded += 1;
                    let again = to_bytes(&program, &interface).unwrap();
                    assert_eq!(from_bytes(&again).unwrap().0, program);
                }
                Err(Error::Parse(text)) => assert!(!text.is_empty()),
                Err(other) => panic!("expected a parse error, got {other:?}"),
            }
        }
    }
    assert!(loaded > 100, "only {loaded} changed files were valid: the changes are too wild to test much");
}

/// The same for program text.
#[test]
fn changed_text_never_panics() {
    let mut seeds: Vec<String> =
        every_op().iter().chain(&golden()).map(|program| format!("{program:#}")).collect();
    seeds.push(format!("{:#}", example()));
    seeds.push(format!("{:#}", chain(3, 2)));
    let mut random = Random(7);
    let rounds = 80_000 / seeds.len();
    let mut read = 0;
    for seed in &seeds {
        for _ in 0..rounds {
            let mut bytes = seed.clone().into_bytes();
            random.mutate(&mut bytes, 0);
            match Program::parse(&String::from_utf8_lossy(&bytes)) {
                Ok(program) => {
                    read += 1;
                    ferrax_ir::verify::verify(&program).unwrap();
                }
                Err(Error::Parse(text)) => assert!(text.contains("line")),
                Err(other) => panic!("expected a parse error, got {other:?}"),
            }
        }
    }
    assert!(read > 100, "only {read} changed texts were valid: the changes are too wild to test much");
}

#[test]
fn bound_constants_are_the_last_inputs() {
    let mut b = Builder::new("f");
    let (x, w, s) = (b.input(f32s(&[2])), b.input(f32s(&[2])), b.input(f32s(&[])));
    let y = b.binary(Binary::Mul, x, w).unwrap();
    let y = b.add(y, s).unwrap();
    let program = b.finish([y]);
    let tensor = |values: &[f32]| Tensor::from_elements(vec![values.len()], values).unwrap();
    let scalar = Tensor::from_elements(vec![], &[5.0f32]).unwrap();
    let bound = program.bind_constants(&[tensor(&[2.0, 3.0]), scalar.clone()]).unwrap();
    ferrax_ir::verify::verify(&bound).unwrap();
    assert_eq!((bound.inputs.len(), bound.constants.len()), (1, 1));
    let got = ferrax_ir::interpret::run(&bound, &[tensor(&[1.0, 10.0])]).unwrap();
    assert_eq!(got, [tensor(&[7.0, 35.0])]);
    assert!(matches!(program.bind_constants(&[scalar.clone(), scalar.clone()]), Err(Error::Value(_))));
    let four = vec![scalar; 4];
    assert!(matches!(program.bind_constants(&four), Err(Error::Value(_))));
}

#[test]
fn bytes_of_a_program_are_those_that_it_keeps() {
    const BYTES: usize = 1 << 20;
    let mut b = Builder::new("callee");
    let x = b.input(f32s(&[BYTES / 4]));
    let c = b.constant(Tensor::zeros(DType::F32, &[BYTES / 4][..]).unwrap(), false);
    let sum = b.add(x, c).unwrap();
    let mut program = b.finish([sum]);
    let callee = program.bytes();
    assert!((BYTES..BYTES + (BYTES >> 4)).contains(&callee), "{callee}");
    // A tower of calls, each of which calls the one below twice: what they share is there once.
    for level in 0..100 {
        let shared = Arc::new(program);
        let mut b = Builder::new("level");
        let mut x = b.input(f32s(&[BYTES / 4]));
        for _ in 0..2 {
            let call = Call { name: "below".into(), program: shared.clone(), inline: false };
            x = b.emit1(call, &[x]).unwrap();
        }
        program = b.finish([x]);
        assert!(program.bytes() < callee + (level + 1) * 4096, "level {level}: {}", program.bytes());
    }
}
