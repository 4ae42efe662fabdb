//! How the values of loops get from one step to the next.

use ferrax_compile::carries::{Carries, Ends};
use ferrax_compile::{Target, plan};
use ferrax_ir::ops::Unary;
use ferrax_ir::{ArrayType, Atom, Builder, DType};

const SIZES: [usize; 2] = [8, 16];
const BYTES: usize = 8 * 16 * 4;

/// The carries of a body of so many inputs, the first of which is a constant.
fn carries(inputs: usize, carries: usize, body: impl FnOnce(&mut Builder, &[Atom]) -> Vec<Atom>) -> Carries {
    let mut b = Builder::new("body");
    let inputs: Vec<Atom> = (0..inputs).map(|_| b.input(ArrayType::of_sizes(&SIZES, DType::F32))).collect();
    let outputs = body(&mut b, &inputs);
    let plan = plan(&b.finish(outputs), &Target::CPU).unwrap();
    let places: Vec<_> = plan.buffers.iter().map(|buffer| buffer.place).collect();
    let ends =
        Ends { inputs: &plan.inputs, outputs: &plan.outputs, places: &places, donations: &plan.donations };
    Carries::new(&ends, 1, carries).unwrap()
}

fn numbers<'a>(carries: impl IntoIterator<Item = &'a ferrax_compile::carries::Carry>) -> Vec<usize> {
    carries.into_iter().map(|carry| carry.number).collect()
}

#[test]
fn carries_are_kept_worked_on_in_place_or_swapped() {
    let found = carries(5, 3, |b, inputs| {
        let &[constant, kept, own, swapped, element] = inputs else { panic!("five inputs") };
        let own = b.mul(own, constant).unwrap();
        // A transposition reads what is not yet written.
        let turned = b.transpose(swapped, &[1, 0]).unwrap();
        let turned = b.reshape(turned, &SIZES.map(ferrax_ir::Dim::Const)).unwrap();
        let turned = b.unary(Unary::Exp, turned).unwrap();
        let stacked = b.add(element, constant).unwrap();
        vec![kept, own, turned, stacked]
    });
    assert_eq!(numbers(&found.kept), [0]);
    assert_eq!(numbers(&found.in_place), [1]);
    assert_eq!(numbers(found.swapped.iter().map(|(carry, _)| carry)), [2]);
    assert!(found.followed.is_empty() && found.pool.is_empty());
    assert_eq!(
        found.stacked.iter().map(|stack| (stack.bytes, stack.direct)).collect::<Vec<_>>(),
        [(BYTES, true)]
    );
    assert_eq!(found.elements.iter().map(|element| element.1).collect::<Vec<_>>(), [BYTES]);
    assert_eq!(found.bytes, BYTES);
}

#[test]
fn what_is_found_elsewhere_is_followed() {
    // The carries change places; what is stacked is the second one's new value.
    let found = carries(3, 2, |b, inputs| {
        let sum = b.add(inputs[1], inputs[2]).unwrap();
        vec![inputs[2], sum, sum]
    });
    assert_eq!(numbers(&found.followed), [0, 1]);
    assert!(found.kept.is_empty() && found.in_place.is_empty() && found.swapped.is_empty());
    // It lies where it is stacked: no place is needed.
    assert!(found.targets.is_empty() && found.bytes == 0);

    // Two carries that share a computed value: one may hold the last, one the next, and one is free.
    let found = carries(3, 2, |b, inputs| {
        let sum = b.add(inputs[1], inputs[2]).unwrap();
        vec![sum, sum]
    });
    assert_eq!(numbers(&found.followed), [0, 1]);
    assert_eq!((found.targets.len(), found.pool.len(), found.bytes), (1, 3, 3 * BYTES));
}

#[test]
fn bodies_that_are_none_are_refused() {
    let ends = Ends { inputs: &[], outputs: &[], places: &[], donations: &[] };
    assert!(Carries::new(&ends, 1, 1).unwrap_err().to_string().contains("has 1 carries"));
}
