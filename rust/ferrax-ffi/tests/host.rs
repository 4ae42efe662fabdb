//! Handlers called by a host that is as small as can be: frames by hand, errors that are counted, a pool of threads.

mod support;

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use ferrax_ffi::{Attributes, BF16, Bool, Call, Code, Complex, Error, Result, ffi_handler, ffi_state};
use support::{Array, Host, Value};

ffi_handler! {
    /// `by` times each number.
    fn scaled(call: &Call<'_>) -> Result<()> {
        let by: f32 = call.attribute("by")?;
        let x = call.operand::<f32>(0)?;
        let mut y = call.result::<f32>(0)?;
        assert_eq!(x.ty.dims, y.ty.dims);
        y.iter_mut().zip(x.iter()).for_each(|(y, x)| *y = by * x);
        Ok(())
    }
}

fn floats(dims: &[i64], values: &[f32]) -> Array {
    Array::of(11, dims, values)
}

fn by(value: f32) -> Vec<(&'static str, Value)> {
    vec![("by", Value::scalar(11, value))]
}

#[test]
fn a_call() {
    let host = Host::new(scaled);
    assert_eq!(host.version(), (0, 3));
    let (x, mut y) = (floats(&[2, 2], &[1.0, 2.0, 3.0, 4.0]), floats(&[2, 2], &[0.0; 4]));
    host.call(&[&x], &mut [&mut y], &by(0.5)).unwrap();
    assert_eq!(y.values::<f32>(), [0.5, 1.0, 1.5, 2.0]);
    let (x, mut y) = (floats(&[0, 2], &[]), floats(&[0, 2], &[]));
    host.call(&[&x], &mut [&mut y], &by(0.5)).unwrap();
}

#[test]
fn what_does_not_fit_is_refused() {
    let host = Host::new(scaled);
    let refused = |x: &Array, y: &mut Array, attributes: &[(&'static str, Value)]| {
        host.call(&[x], &mut [y], attributes).unwrap_err()
    };
    let x = floats(&[2], &[1.0, 2.0]);
    let error = |x: &Array, attributes: &[(&'static str, Value)]| {
        refused(x, &mut floats(&[2], &[0.0; 2]), attributes)
    };
    let whole = Array::of(4, &[2], &[1i32, 2]);
    for (found, code, text) in [
        (error(&x, &[]), 5, "there is no attribute `by`, only []"),
        (
            error(&x, &[("by", Value::scalar(12, 2f64))]),
            3,
            "the attribute `by`: wanted float32, got a float64",
        ),
        (error(&x, &[("by", Value::text("2"))]), 3, "the attribute `by`: wanted float32, got a string"),
        (error(&whole, &by(1.0)), 3, "the operand 0 has to be float32, got int32"),
        (error(&floats(&[-1], &[]), &by(1.0)), 3, "an array of dims [-1]"),
        (error(&floats(&[i64::MAX, 8], &[]), &by(1.0)), 3, "an array of dims [9223372036854775807, 8]"),
        (error(&x.moved(1), &by(1.0)), 3, "the operand 0 lies at"),
        (refused(&x, &mut whole.clone(), &by(1.0)), 3, "the result 0 has to be float32, got int32"),
        (host.call(&[], &mut [], &by(1.0)).unwrap_err(), 3, "there is no operand 0, only 0"),
    ] {
        assert!(found.0 == code && found.1.starts_with(text), "{found:?} for {text}");
    }
}

ffi_handler! {
    fn begins_as_operand(call: &Call<'_>) -> Result<()> {
        assert_eq!(call.operand::<f32>(0).unwrap_err().code, Code::FailedPrecondition);
        assert_eq!(call.operand_bytes(0).unwrap_err().code, Code::FailedPrecondition);
        call.result::<f32>(0)?.iter_mut().for_each(|y| *y += 1.0);
        assert_eq!(call.result::<f32>(0).unwrap_err().message, "the result 0 was asked for twice");
        call.result_bytes(0).map(drop)
    }
}

#[test]
fn memory_is_given_out_once() {
    let mut y = floats(&[2], &[1.0, 2.0]);
    let found = Host::new(begins_as_operand).call(&[&y.alias()], &mut [&mut y], &[]).unwrap_err();
    assert_eq!(found, (13, "the result 0 was asked for twice".to_owned()));
    assert_eq!(y.values::<f32>(), [2.0, 3.0]);
}

ffi_handler! {
    fn many_results(call: &Call<'_>) -> Result<()> {
        for round in 0..2 {
            for i in 0..call.results() {
                let given = call.result::<i32>(i);
                assert_eq!(given.is_ok(), round == 0, "{i}");
                if let Ok(mut y) = given {
                    y[0] = i as i32;
                }
            }
        }
        Ok(())
    }
}

#[test]
fn more_results_than_bits() {
    let mut arrays = vec![Array::of(4, &[], &[-1i32]); 70];
    Host::new(many_results).call(&[], &mut arrays.iter_mut().collect::<Vec<_>>(), &[]).unwrap();
    assert!(arrays.iter().enumerate().all(|(i, y)| y.values::<i32>() == [i as i32]));
}

ffi_handler! {
    fn attributes(call: &Call<'_>) -> Result<()> {
        let inner: Attributes<'_> = call.attribute("inner")?;
        let list: &[i16] = call.attribute("list")?;
        let empty: &[f64] = call.attribute("empty")?;
        assert_eq!(call.attributes().names().collect::<Vec<_>>(), ["empty", "flag", "inner", "list", "text", "whole"]);
        assert_eq!((inner.get::<f64>("real")?, inner.len(), inner.is_empty()), (0.25, 1, false));
        assert_eq!((list, empty.len()), (&[1i16, -2][..], 0));
        assert_eq!((call.attribute::<&str>("text")?, call.attribute::<bool>("flag")?), ("höher", true));
        assert_eq!(call.attribute::<i64>("whole")?, i64::MIN);
        Err(inner.get::<i32>("real").unwrap_err())
    }
}

#[test]
fn attributes_of_each_kind() {
    let given = vec![
        ("empty", Value::array::<f64>(12, &[])),
        ("flag", Value::scalar(1, 1u8)),
        ("inner", Value::dictionary(vec![("real", Value::scalar(12, 0.25))])),
        ("list", Value::array(3, &[1i16, -2])),
        ("text", Value::text("höher")),
        ("whole", Value::scalar(5, i64::MIN)),
    ];
    let found = Host::new(attributes).call(&[], &mut [], &given).unwrap_err();
    assert_eq!(found, (3, "the attribute `real`: wanted int32, got a float64".to_owned()));
}

ffi_handler! {
    fn dtypes(call: &Call<'_>) -> Result<()> {
        assert_eq!(call.operand::<Bool>(0)?.iter().map(|x| x.get()).collect::<Vec<_>>(), [true, false]);
        assert_eq!(call.operand::<BF16>(1)?[0].to_f32(), 1.5);
        assert_eq!(call.operand::<Complex<f32>>(2)?[0], Complex { re: 1.0, im: -1.0 });
        assert_eq!(&*call.operand_bytes(3)?, [7, 8]);
        assert_eq!(call.operand_type(2)?.rows(), (3, 1));
        assert_eq!(call.operand_type(0)?.rows(), (1, 2));
        assert_eq!((call.operands(), call.results()), (5, 0));
        call.operand_bytes(4).map(drop)
    }
}

#[test]
fn elements_of_dtypes() {
    let complex = [1f32, -1.0, 0.0, 0.0, 0.0, 0.0];
    let arrays = [
        Array::of(1, &[2], &[1u8, 0]),
        Array::of(16, &[], &[0x3fc0u16]),
        Array::of(15, &[3, 1], &complex),
        Array::of(20, &[2], &[7u8, 8]),
        Array::of(77, &[], &[0u8]),
    ];
    let found = Host::new(dtypes).call(&arrays.iter().collect::<Vec<_>>(), &mut [], &[]).unwrap_err();
    assert_eq!(found, (12, "the operand 4 has dtype number 77".to_owned()));
}

ffi_handler! {
    fn panics(_call: &Call<'_>) -> Result<()> {
        panic!("at {}", 3)
    }
}

ffi_handler! {
    fn fails(_call: &Call<'_>) -> Result<()> {
        Err(Error::new(Code::DataLoss, "a\0b"))
    }
}

#[test]
fn errors_and_panics() {
    assert_eq!(Host::new(panics).call(&[], &mut [], &[]), Err((13, "the handler panicked: at 3".to_owned())));
    assert_eq!(Host::new(fails).call(&[], &mut [], &[]), Err((15, "a b".to_owned())));
    let mut old = Host::new(fails);
    old.minor = 2;
    assert_eq!(old.call(&[], &mut [], &[]).unwrap_err().0, Code::FailedPrecondition as i32);
}

static ALIVE: AtomicUsize = AtomicUsize::new(0);

struct Counter(AtomicI64);

impl Drop for Counter {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

ffi_state!(Counter, counter_id, counter_info);

ffi_handler! {
    instantiate fn make_counter(call: &Call<'_>) -> Result<Counter> {
        let from = call.attribute("from")?;
        ALIVE.fetch_add(1, Ordering::Relaxed);
        Ok(Counter(AtomicI64::new(from)))
    }
}

ffi_handler! {
    fn count(call: &Call<'_>) -> Result<()> {
        call.result::<i64>(0)?[0] = call.state::<Counter>()?.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn states() {
    let mut host = Host::new(make_counter);
    let from = [("from", Value::scalar(5, 5i64))];
    let refused = host.call(&[], &mut [], &from).unwrap_err();
    assert!(refused.0 == 9 && refused.1.contains("is not registered"), "{refused:?}");
    // SAFETY: the address of a number, which is written before anybody reads it.
    unsafe { counter_id().write(44) };
    host.call(&[], &mut [], &from).unwrap();
    assert_eq!(ALIVE.load(Ordering::Relaxed), 1);
    // A second one of the same executable is refused, and dropped.
    assert_eq!(host.call(&[], &mut [], &from).unwrap_err().0, 3);
    assert_eq!(ALIVE.load(Ordering::Relaxed), 1);
    host.handler = count;
    let mut y = Array::of(5, &[], &[0i64]);
    for wanted in 5..8 {
        host.call(&[], &mut [&mut y], &[]).unwrap();
        assert_eq!(y.values::<i64>(), [wanted]);
    }
    host.delete_state(counter_info());
    assert_eq!(ALIVE.load(Ordering::Relaxed), 0);
    assert_eq!(host.call(&[], &mut [&mut y], &[]).unwrap_err(), (5, "no state".to_owned()));
}

ffi_handler! {
    fn squares(call: &Call<'_>) -> Result<()> {
        let x = call.operand::<f32>(0)?;
        let parts = call.result::<f32>(0)?.into_elements();
        let parts: Vec<_> = parts.chunks_mut(3).map(std::sync::Mutex::new).collect();
        call.parallel(parts.len(), &|part| {
            let mut part_of_y = parts[part].lock().unwrap();
            part_of_y.iter_mut().zip(&x[3 * part..]).for_each(|(y, x)| *y = x * x);
        })?;
        call.parallel(0, &|_| unreachable!())?;
        assert_eq!((call.run_id()?, call.device()?), (3, 1));
        call.parallel(10, &|step| assert!(step != 4, "four"))
    }
}

#[test]
fn loops_over_threads() {
    for threads in [0, 1, 4, 20] {
        let mut host = Host::new(squares);
        host.threads = threads;
        let values: Vec<f32> = (0..100).map(|x| x as f32).collect();
        let (x, mut y) = (floats(&[100], &values), floats(&[100], &[0.0; 100]));
        let found = host.call(&[&x], &mut [&mut y], &[]).unwrap_err();
        assert_eq!(found, (13, "a step of a parallel loop panicked".to_owned()));
        assert!(y.values::<f32>().iter().zip(&values).all(|(y, x)| *y == x * x));
    }
}
