use ferrax_ir::Result;
use ferrax_ir::scalar::{ScalarOp, ScalarType};

use super::build::Builder;
use super::{Address, Code, Id, Lane, Native, interpret};
use crate::chain::Chain;

fn constant(to: u32, bits: u64) -> Code {
    Code::Compute { to: Id(to), op: ScalarOp::Const { bits }, args: [].into_iter().collect() }
}

fn program(types: &[ScalarType], code: Vec<Code>) -> Native {
    Native { types: types.to_vec(), code, ..Native::default() }
}

const AT: Address = Address { pointer: 0, bytes: None, offset: 0 };

#[test]
fn what_an_emitter_relies_on_is_checked() {
    use ScalarType::{Bool, F32, I64};
    let refused = |types: &[ScalarType], code: Vec<Code>, why: &str| {
        let error = program(types, code).verify().unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    refused(&[F32], vec![Code::Store { from: Id(0), to: AT }], "has no value");
    refused(&[F32], vec![Code::Store { from: Id(7), to: AT }], "has no value");
    refused(&[F32], vec![constant(3, 0)], "no value of the program");
    refused(&[F32, I64], vec![constant(0, 0), Code::Set { to: Id(1), from: Id(0) }], "of other types");
    refused(&[F32], vec![constant(0, 0), Code::If { holds: Id(0) }], "of other types");
    let far = Address { bytes: Some(Id(0)), ..AT };
    refused(&[Bool], vec![constant(0, 0), Code::Store { from: Id(0), to: far }], "of other types");
    refused(&[I64], vec![constant(0, 3), Code::Again { count: Id(0) }], "did not begin");
    refused(&[Bool], vec![constant(0, 1), Code::Leave { unless: Id(0) }], "did not begin");
    refused(&[Bool], vec![constant(0, 1), Code::If { holds: Id(0) }, Code::End], "did not begin");
    refused(&[I64], vec![Code::Loop], "does not end");
    let index = Code::Compute { to: Id(0), op: ScalarOp::Index { axis: 0 }, args: [].into_iter().collect() };
    refused(&[I64], vec![index], "of other types");
    let lonely = Code::Compute { to: Id(1), op: ScalarOp::Add, args: [Id(0)].into_iter().collect() };
    refused(&[F32, F32], vec![constant(0, 0), lonely], "of other types");
    let lanes = |count| Code::Lanes {
        chain: 0,
        inputs: [Lane::Block(AT)].into_iter().collect(),
        outputs: [AT].into_iter().collect(),
        count,
    };
    refused(&[], vec![lanes(8)], "has no chain");
    let mut chain = Chain::default();
    let x = chain.input(F32, false);
    chain.outputs.push(x);
    let with_chain = |chain: &Chain, code: Code| {
        let native = Native { chains: vec![chain.clone()], code: vec![code], ..Native::default() };
        native.verify().map_err(|error| error.to_string())
    };
    assert_eq!(with_chain(&chain, lanes(8)), Ok(()));
    assert!(with_chain(&chain, lanes(9)).unwrap_err().contains("of other types"));
    assert!(with_chain(&chain, lanes(0)).unwrap_err().contains("of other types"));
    chain.input(F32, true);
    assert!(with_chain(&chain, lanes(8)).unwrap_err().contains("of other types"));
}

#[test]
fn what_a_loop_does_not_change_is_before_it_and_once() -> Result<()> {
    let mut build = Builder::new();
    let float = ScalarType::F32;
    let x = build.load(float, AT, true);
    let total = build.variable(x);
    let count = build.int(5);
    let count = build.variable(count);
    build.begin_loop();
    let y = build.load(float, AT, true);
    let doubled = build.compute(ScalarOp::Add, float, &[y, y])?;
    let next = build.compute(ScalarOp::Add, float, &[total, doubled])?;
    let again = build.compute(ScalarOp::Add, float, &[total, doubled])?;
    assert_eq!((x, next), (y, again));
    build.set_all(&[total], &[next]);
    build.end_loop(Code::Again { count })?;
    build.settled(total);
    build.store(total, Address { offset: 4, ..AT });
    let native = build.finish();
    native.verify()?;
    let begin = native.code.iter().position(|code| *code == Code::Loop).unwrap();
    let of_doubled = native.code.iter().position(|code| code.result() == Some(doubled)).unwrap();
    assert!(of_doubled < begin);
    let mut memory = vec![[1.5f32.to_le_bytes(), [0; 4]].concat()];
    interpret(&native, &mut memory)?;
    assert_eq!(memory[0][4..], (1.5f32 + 5.0 * 3.0).to_le_bytes());
    Ok(())
}

#[test]
fn variables_change_places_at_once() -> Result<()> {
    let mut build = Builder::new();
    let int = ScalarType::I32;
    let [a, b] = [3, 4].map(|bits| build.constant(int, bits));
    let [a, b] = [a, b].map(|value| build.variable(value));
    let count = build.int(3);
    let count = build.variable(count);
    build.begin_loop();
    build.set_all(&[a, b], &[b, a]);
    build.end_loop(Code::Again { count })?;
    for (number, id) in [a, b].into_iter().enumerate() {
        build.settled(id);
        build.store(id, Address { offset: 4 * number as i32, ..AT });
    }
    let native = build.finish();
    native.verify()?;
    let mut memory = vec![vec![0; 8]];
    interpret(&native, &mut memory)?;
    assert_eq!(memory[0], [4, 0, 0, 0, 3, 0, 0, 0]);
    Ok(())
}

#[test]
fn memory_beyond_the_end_is_an_error() {
    let mut build = Builder::new();
    let value = build.load(ScalarType::F64, Address { offset: 4, ..AT }, true);
    build.store(value, AT);
    assert!(interpret(&build.finish(), &mut [vec![0; 8]]).is_err());
}
