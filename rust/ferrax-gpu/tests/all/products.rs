//! Products of matrices and convolutions on a GPU: what the interpreter gives.

use std::sync::Arc;

use crate::common::{Random, compare, fill};
use crate::gpu::{device, run};
use ferrax_compile::device::Attached;
use ferrax_gpu::Gpu;
use ferrax_ir::ops::{ConvDims, ConvGeneralDilated, DotGeneral};
use ferrax_ir::{Axes, Builder, DType, Op, interpret};

const DTYPES: [DType; 14] = {
    use DType::*;
    [Bool, I8, I16, I32, I64, U8, U16, U32, U64, BF16, F32, F64, C64, C128]
};

fn check(device: &Arc<Attached<Gpu>>, op: impl Into<Op>, dtype: DType, lhs: &[usize], rhs: &[usize]) {
    let op = op.into();
    let inputs = [fill(dtype, lhs, 1), fill(dtype, rhs, 2)];
    let mut b = Builder::new(format!("{dtype} {lhs:?} {rhs:?} {op:?}"));
    let atoms: Vec<_> = inputs.iter().map(|tensor| b.input(tensor.array_type())).collect();
    let output = b.emit1(op, &atoms).unwrap();
    let program = b.finish([output]);
    let got = run(device, &program, &inputs).unwrap_or_else(|error| panic!("{}: {error}", program.name));
    // Sums of hundreds of products that cancel.
    let ulps = if dtype.is_inexact() { 100_000 } else { 0 };
    compare(&got[0], &interpret::run(&program, &inputs).unwrap()[0], ulps, &program.name);
}

/// A product of operands whose axes are in any order, and their sizes: so many axes of batches, rows, columns, terms.
fn product(random: &mut Random, counts: [usize; 4], most: usize) -> (DotGeneral, Vec<usize>, Vec<usize>) {
    let mut sizes = |count: usize| -> Vec<usize> { (0..count).map(|_| 1 + random.below(most)).collect() };
    let [batch, rows, columns, terms] = counts.map(&mut sizes);
    let mut operand = |free: &[usize]| {
        let all: Vec<usize> = [&batch[..], free, &terms].concat();
        let mut order: Vec<usize> = (0..all.len()).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, random.below(i + 1));
        }
        let at = |axis: usize| order.iter().position(|&other| other == axis).unwrap();
        let list = |from: usize, count: usize| (from..from + count).map(at).collect::<Axes>();
        let sizes: Vec<usize> = order.iter().map(|&axis| all[axis]).collect();
        (list(0, batch.len()), list(batch.len() + free.len(), terms.len()), sizes)
    };
    let (lhs_batch, lhs_contracting, lhs) = operand(&rows);
    let (rhs_batch, rhs_contracting, rhs) = operand(&columns);
    let op = DotGeneral {
        lhs_contracting,
        rhs_contracting,
        lhs_batch,
        rhs_batch,
        precision: None,
        preferred_element_type: None,
    };
    (op, lhs, rhs)
}

#[test]
fn products_of_all_dtypes_and_layouts() {
    let device = device();
    let mut random = Random::new(7);
    for dtype in DTYPES {
        for counts in [[0, 1, 1, 1], [1, 1, 1, 1], [2, 2, 1, 2], [1, 0, 2, 1], [0, 2, 0, 1], [1, 1, 1, 0]] {
            let (op, lhs, rhs) = product(&mut random, counts, 9);
            check(&device, op, dtype, &lhs, &rhs);
        }
    }
}

/// Several tiles, with rests, few rows, few results of many terms, and none at all.
#[test]
fn products_of_all_sizes() {
    let device = device();
    let plain = || product(&mut Random::new(0), [0, 1, 1, 1], 1).0;
    let lists = DotGeneral {
        lhs_contracting: [1].into_iter().collect(),
        rhs_contracting: [0].into_iter().collect(),
        ..plain()
    };
    let sizes = [
        [130, 70, 65],
        [64, 64, 64],
        [1, 300, 200],
        [300, 1, 200],
        [3, 5, 2000],
        [65, 40, 1],
        [0, 4, 3],
        [4, 3, 0],
    ];
    for [rows, columns, terms] in sizes {
        for dtype in [DType::F32, DType::I8, DType::C64] {
            check(&device, lists.clone(), dtype, &[rows, terms], &[terms, columns]);
        }
    }
}

/// What the launches of products are called that `check` makes.
fn names(
    device: &Arc<Attached<Gpu>>,
    op: impl Into<Op>,
    dtype: DType,
    lhs: &[usize],
    rhs: &[usize],
) -> Vec<String> {
    device.backend().begin_profile().unwrap();
    check(device, op, dtype, lhs, rhs);
    let events = device.backend().end_profile().unwrap();
    events.into_iter().map(|event| event.name).collect()
}

/// Operands whose rows or whose terms lie next to each other, in lines of fours and others.
#[test]
fn fours_are_read_at_once_in_any_layout() {
    let device = device();
    for (rows, columns, terms) in [(68, 72, 40), (4, 132, 36), (64, 5, 64), (66, 8, 12), (8, 8, 7)] {
        for (turned_left, turned_right) in [(false, false), (false, true), (true, false), (true, true)] {
            let order = |turned: bool, sizes: [usize; 2]| match turned {
                true => vec![3, sizes[1], sizes[0]],
                false => vec![3, sizes[0], sizes[1]],
            };
            let op = DotGeneral {
                lhs_batch: axes(&[0]),
                rhs_batch: axes(&[0]),
                lhs_contracting: axes(&[if turned_left { 1 } else { 2 }]),
                rhs_contracting: axes(&[if turned_right { 2 } else { 1 }]),
                precision: None,
                preferred_element_type: None,
            };
            let (lhs, rhs) = (order(turned_left, [rows, terms]), order(turned_right, [terms, columns]));
            for dtype in [DType::F32, DType::I32, DType::U32] {
                let names = names(&device, op.clone(), dtype, &lhs, &rhs);
                let four = |size: usize| usize::from(size.is_multiple_of(4));
                let left = if turned_left { four(rows) } else { four(terms) };
                let right = if turned_right { four(terms) } else { four(columns) };
                // The batches of an operand begin at fours as well, if its lines do.
                let said = ["tiles of 64", "tiles of 64, fours of one", "tiles of 64, fours of both"];
                if rows > 4 {
                    assert_eq!(
                        names,
                        [format!("product of {dtype}, {}", said[left + right])],
                        "{lhs:?} {rhs:?}"
                    );
                }
            }
            for dtype in [DType::F64, DType::C128, DType::I8] {
                check(&device, op.clone(), dtype, &lhs, &rhs);
            }
        }
    }
}

#[test]
fn large_products_have_large_tiles() {
    let device = device();
    for (terms, dtype) in [(7, DType::F32), (8, DType::I32)] {
        let op = DotGeneral {
            lhs_batch: axes(&[0]),
            rhs_batch: axes(&[0]),
            lhs_contracting: axes(&[2]),
            rhs_contracting: axes(&[1]),
            precision: None,
            preferred_element_type: None,
        };
        let names = names(&device, op, dtype, &[32, 129, terms], &[32, terms, 132]);
        assert!(names[0].contains("tiles of 128"), "{names:?}");
    }
    // Several blocks of terms, of one tile: as many batches as are worth it.
    let op = DotGeneral {
        lhs_batch: axes(&[0]),
        rhs_batch: axes(&[0]),
        lhs_contracting: axes(&[2]),
        rhs_contracting: axes(&[2]),
        precision: None,
        preferred_element_type: None,
    };
    let mut b = Builder::new("large tiles");
    let inputs = [fill(DType::F32, &[128, 128, 41], 1), fill(DType::F32, &[128, 130, 41], 2)];
    let atoms: Vec<_> = inputs.iter().map(|tensor| b.input(tensor.array_type())).collect();
    let output = b.emit1(op, &atoms).unwrap();
    let program = b.finish([output]);
    let got = run(&device, &program, &inputs).unwrap();
    let want = ferrax_cpu::compile(&program).unwrap().run(&inputs).unwrap();
    compare(&got[0], &want[0], 100_000, "large tiles and several blocks");
}

/// The sums of segments are added in their order: the same bits each time.
#[test]
fn many_terms_are_cut_into_segments() {
    let device = device();
    for dtype in [DType::F32, DType::F64, DType::C64, DType::I32, DType::U8, DType::C128] {
        for (rows, columns, terms) in [(5, 6, 5000), (70, 9, 1030), (8, 8, 512)] {
            let op = DotGeneral {
                lhs_contracting: axes(&[1]),
                rhs_contracting: axes(&[0]),
                ..product(&mut Random::new(0), [0, 1, 1, 1], 1).0
            };
            let names = names(&device, op, dtype, &[rows, terms], &[terms, columns]);
            assert_eq!(names.len(), 2, "{names:?}");
            assert!(names[0].ends_with("segments") && names[1].contains("sums of segments"), "{names:?}");
        }
    }
}

fn axes(values: &[usize]) -> Axes {
    values.iter().copied().collect()
}

/// Two spatial axes, features last.
fn convolution(padding: [(i64, i64); 2]) -> ConvGeneralDilated {
    ConvGeneralDilated {
        window_strides: axes(&[1, 1]),
        padding: padding.to_vec(),
        lhs_dilation: axes(&[1, 1]),
        rhs_dilation: axes(&[1, 1]),
        dims: ConvDims { lhs: axes(&[0, 3, 1, 2]), rhs: axes(&[3, 2, 0, 1]), out: axes(&[0, 3, 1, 2]) },
        feature_group_count: 1,
        batch_group_count: 1,
        precision: None,
        preferred_element_type: None,
    }
}

#[test]
fn convolutions_of_all_dtypes() {
    let device = device();
    for dtype in DTYPES {
        check(&device, convolution([(1, 1), (0, 2)]), dtype, &[2, 5, 6, 3], &[3, 2, 3, 4]);
        let grouped = ConvGeneralDilated { feature_group_count: 3, ..convolution([(1, 0), (-1, 1)]) };
        check(&device, grouped, dtype, &[2, 5, 6, 3], &[3, 2, 1, 6]);
    }
}

/// Dilated windows and arrays (of which a part of the result may be no window's), strides, groups of batches.
#[test]
fn convolutions_of_all_kinds() {
    let device = device();
    let strided = ConvGeneralDilated { window_strides: axes(&[2, 3]), ..convolution([(2, 1), (0, 0)]) };
    let dilated = ConvGeneralDilated { lhs_dilation: axes(&[2, 3]), ..convolution([(1, 2), (2, 2)]) };
    let both = ConvGeneralDilated {
        window_strides: axes(&[3, 1]),
        lhs_dilation: axes(&[2, 4]),
        rhs_dilation: axes(&[3, 2]),
        ..convolution([(4, 4), (5, 3)])
    };
    for op in [strided, dilated, both] {
        check(&device, op.clone(), DType::F32, &[2, 9, 8, 5], &[3, 3, 5, 7]);
        check(&device, op, DType::F32, &[2, 9, 8, 5], &[1, 1, 5, 7]);
    }
    let batches = ConvGeneralDilated { batch_group_count: 2, ..convolution([(0, 0), (1, 1)]) };
    check(&device, batches, DType::F32, &[4, 5, 6, 3], &[3, 2, 3, 4]);
    let names = names(&device, convolution([(1, 1), (1, 1)]), DType::F32, &[3, 16, 15, 20], &[3, 3, 20, 70]);
    assert_eq!(names, ["product of float32, tiles of 64, fours of one"]);
    check(&device, convolution([(1, 1), (1, 1)]), DType::F32, &[0, 5, 5, 2], &[3, 3, 2, 4]);
}
