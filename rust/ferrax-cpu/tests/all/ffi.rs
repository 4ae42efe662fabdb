//! Calls of handlers that are written in Rust: frames, attributes, memory, states, tasks and errors, both sides of which
//! `make sanitize` looks at.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use ferrax_cpu::ffi::{self, Attribute, FfiCall};
use ferrax_ffi::abi::Handler;
use ferrax_ffi::{Attributes, Call, Code, ffi_handler, ffi_state};
use ferrax_ir::rules::Row;
use ferrax_ir::{ArrayType, DType, Tensor, Type};

ffi_handler! {
    fn ffi_scaled(call: &Call<'_>) -> ferrax_ffi::Result<()> {
        let by: f32 = call.attribute::<Attributes<'_>>("inner")?.get("by")?;
        let (text, list) = (call.attribute::<&str>("text")?, call.attribute::<&[i64]>("list")?);
        assert_eq!((text, list, call.attribute::<bool>("flag")?), ("two words", &[1, -1][..], true));
        let x = call.operand::<f32>(0)?;
        call.result::<f32>(0)?.iter_mut().zip(x.iter()).for_each(|(y, x)| *y = by * x);
        Ok(())
    }
}

ffi_handler! {
    fn ffi_in_place(call: &Call<'_>) -> ferrax_ffi::Result<()> {
        assert_eq!(call.operand::<f32>(0).unwrap_err().code, Code::FailedPrecondition);
        call.result::<f32>(0)?.iter_mut().for_each(|y| *y += 1.0);
        Ok(())
    }
}

ffi_handler! {
    fn ffi_squares(call: &Call<'_>) -> ferrax_ffi::Result<()> {
        let x = call.operand::<f32>(0)?;
        let parts: Vec<_> = call.result::<f32>(0)?.into_elements().chunks_mut(7).map(Mutex::new).collect();
        call.parallel(parts.len(), &|part| {
            parts[part].lock().unwrap().iter_mut().zip(&x[7 * part..]).for_each(|(y, x)| *y = x * x);
        })
    }
}

static ALIVE: AtomicUsize = AtomicUsize::new(0);

struct Counter(AtomicI64);

impl Drop for Counter {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

ffi_state!(Counter, ffi_counter_id, ffi_counter_info);

ffi_handler! {
    instantiate fn ffi_make_counter(call: &Call<'_>) -> ferrax_ffi::Result<Counter> {
        let from = call.attribute("from")?;
        ALIVE.fetch_add(1, Ordering::Relaxed);
        Ok(Counter(AtomicI64::new(from)))
    }
}

ffi_handler! {
    fn ffi_count(call: &Call<'_>) -> ferrax_ffi::Result<()> {
        call.result::<i64>(0)?[0] = call.state::<Counter>()?.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

ffi_handler! {
    fn ffi_panics(call: &Call<'_>) -> ferrax_ffi::Result<()> {
        panic!("with {} operands", call.operands())
    }
}

fn register(name: &str, instantiate: Option<Handler>, execute: Handler) -> ferrax_ir::Result<()> {
    // SAFETY: handlers of this program.
    unsafe { ffi::register(name, "cpu", [instantiate.map_or(0, |one| one as usize), 0, 0, execute as usize]) }
}

fn run(
    name: &str,
    input: &[Tensor],
    output: (DType, &[usize]),
    attributes: Vec<(String, Attribute)>,
    aliases: Vec<(usize, usize)>,
) -> ferrax_ir::Result<Tensor> {
    let ty = ArrayType::of_sizes(output.1, output.0);
    let call = FfiCall::new(name, "cpu", vec![ty.clone()], attributes, aliases, false)?;
    call.eval(input, &[Type::from(ty)]).map(|mut found| found.remove(0))
}

fn floats(values: &[f32]) -> Tensor {
    Tensor::from_elements(&[values.len()][..], values).unwrap()
}

fn number(dtype: DType, bytes: &[u8]) -> Attribute {
    Attribute::Scalar(dtype, bytes.to_vec())
}

fn named(name: &str, attribute: Attribute) -> (String, Attribute) {
    (name.to_owned(), attribute)
}

#[test]
fn a_call_with_attributes() {
    register("scaled", None, ffi_scaled).unwrap();
    let by = named("by", number(DType::F32, &0.5f32.to_ne_bytes()));
    let list = [1i64, -1].iter().flat_map(|x| x.to_ne_bytes()).collect();
    let attributes = vec![
        named("flag", number(DType::Bool, &[1])),
        named("inner", Attribute::Dictionary(vec![by])),
        named("list", Attribute::Array(DType::I64, 2, list)),
        named("text", Attribute::Text("two words".to_owned())),
    ];
    let found = run("scaled", &[floats(&[1.0, 2.0, 3.0])], (DType::F32, &[3]), attributes, vec![]).unwrap();
    assert_eq!(found, floats(&[0.5, 1.0, 1.5]));
    let error = run("scaled", &[floats(&[1.0])], (DType::F32, &[1]), vec![], vec![]).unwrap_err();
    assert!(error.to_string().contains("NOT_FOUND: there is no attribute `inner`, only []"), "{error}");
}

ffi_handler! {
    /// The dimensions that it sees.
    fn ffi_dims(call: &Call<'_>) -> ferrax_ffi::Result<()> {
        let dims = [call.operand_type(0)?.dims, call.result_type(0)?.dims].concat();
        call.result::<i64>(0)?.copy_from_slice(&dims);
        Ok(())
    }
}

#[test]
fn another_order_of_axes() {
    register("dims", None, ffi_dims).unwrap();
    // An array of sizes 2, 3, 4, given with its last axis first; and a result of sizes 1, 5, given the other way.
    let input = Tensor::zeros(DType::F32, &[4, 2, 3][..]).unwrap();
    let ty = ArrayType::of_sizes(&[5, 1], DType::I64);
    let call = FfiCall::new("dims", "cpu", vec![ty.clone()], vec![], vec![], false).unwrap();
    let call = call.with_orders(vec![Some(vec![2, 0, 1])], vec![Some(vec![1, 0])]);
    let found = call.eval(&[input], &[Type::from(ty)]).unwrap();
    assert_eq!(found[0], Tensor::from_elements(&[5, 1][..], &[2i64, 3, 4, 1, 5]).unwrap());
}

#[test]
fn an_alias() {
    register("in_place", None, ffi_in_place).unwrap();
    let found = run("in_place", &[floats(&[1.0, 2.0])], (DType::F32, &[2]), vec![], vec![(0, 0)]).unwrap();
    assert_eq!(found, floats(&[2.0, 3.0]));
}

#[test]
fn tasks() {
    register("squares", None, ffi_squares).unwrap();
    let values: Vec<f32> = (0..100).map(|x| x as f32).collect();
    let squares: Vec<f32> = values.iter().map(|x| x * x).collect();
    let found = run("squares", &[floats(&values)], (DType::F32, &[100]), vec![], vec![]).unwrap();
    assert_eq!(found, floats(&squares));
}

#[test]
fn a_state_goes_with_what_made_it() {
    let unknown = register("count", Some(ffi_make_counter), ffi_count).unwrap_err();
    assert!(unknown.to_string().contains("FAILED_PRECONDITION"), "{unknown}");
    // SAFETY: what the library says of its type.
    unsafe { ffi::register_type("counter", ffi_counter_id() as usize, ffi_counter_info() as usize) }.unwrap();
    register("count", Some(ffi_make_counter), ffi_count).unwrap();
    let from = || vec![named("from", number(DType::I64, &5i64.to_ne_bytes()))];
    for _ in 0..2 {
        let found = run("count", &[], (DType::I64, &[1]), from(), vec![]).unwrap();
        assert_eq!(found, Tensor::from_elements(&[1][..], &[5i64]).unwrap());
        assert_eq!(ALIVE.load(Ordering::Relaxed), 0);
    }
    let error = run("count", &[], (DType::I64, &[1]), vec![], vec![]).unwrap_err();
    assert!(error.to_string().contains("`from`"), "{error}");
}

#[test]
fn a_panic_is_an_error() {
    register("panics", None, ffi_panics).unwrap();
    let error = run("panics", &[floats(&[])], (DType::F32, &[1]), vec![], vec![]).unwrap_err();
    assert!(error.to_string().contains("INTERNAL: the handler panicked: with 1 operands"), "{error}");
}
