//! What rows tell compilers: index maps say where `eval` takes its elements from, reductions fold what it folds.

#![allow(clippy::cloned_ref_to_slice_refs, reason = "operands are lists")]

use crate::support::*;
use ferrax_ir::lowering::{AccumulatorKind, Extents, Follow, IndexMap};
use ferrax_ir::ops::*;
use ferrax_ir::tensor::row_major;
use ferrax_ir::{Axes, DType, KeyImpl, Op, Sizes, Tensor, Type};

fn extents(tensor: &Tensor) -> Extents<'_> {
    Extents { dtype: tensor.dtype(), sizes: tensor.sizes() }
}

/// The multi-indices of an array, in row-major order.
fn indices(sizes: &[usize]) -> Vec<Vec<usize>> {
    let count: usize = sizes.iter().product();
    (0..count)
        .map(|mut rest| {
            let mut index = vec![0; sizes.len()];
            for axis in (0..sizes.len()).rev() {
                index[axis] = rest % sizes[axis];
                rest /= sizes[axis];
            }
            index
        })
        .collect()
}

fn element(tensor: &Tensor, index: &[usize]) -> Vec<u8> {
    let width = tensor.dtype().size();
    let position: usize = index.iter().zip(row_major(tensor.sizes(), 1)).map(|(i, stride)| i * stride).sum();
    tensor.bytes()[position * width..][..width].to_vec()
}

/// An index along an axis of an operand, at an index of the result.
fn at(follow: &Follow, index: &[usize]) -> usize {
    let place = follow.axis.map_or(0, |axis| index[axis] as i64);
    usize::try_from(follow.start + follow.step * place).unwrap()
}

/// The bytes of a result, element by element as the map says.
fn follow(map: &IndexMap, inputs: &[Tensor], result: &Tensor) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (position, index) in indices(result.sizes()).iter().enumerate() {
        bytes.extend(match map {
            IndexMap::InOrder | IndexMap::Bytes => {
                let width = result.dtype().size();
                inputs[0].bytes()[position * width..][..width].to_vec()
            }
            IndexMap::Along(axes) => {
                element(&inputs[0], &axes.iter().map(|axis| at(axis, index)).collect::<Vec<_>>())
            }
            IndexMap::Picked(picked) => {
                let along =
                    |axes: &[Follow]| -> Vec<usize> { axes.iter().map(|axis| at(axis, index)).collect() };
                let mut from = along(&picked.within);
                let mut inside = true;
                for start in &picked.starts {
                    let input = &inputs[start.operand];
                    let bytes = element(input, &along(&start.at));
                    let place = ferrax_ir::Scalar::from_bytes(input.dtype(), &bytes).unwrap();
                    let place = place.to_i128().unwrap();
                    let last = i128::from(start.last);
                    inside &= (0..=last).contains(&place);
                    from[start.axis] += place.clamp(0, last) as usize;
                }
                match picked.outside.filter(|_| !inside) {
                    Some(outside) => outside.bytes().to_vec(),
                    None => element(&inputs[0], &from),
                }
            }
            IndexMap::Padded(kept) => {
                let inside = kept.iter().zip(index).map(|(kept, &place)| {
                    let offset = place.checked_sub(kept.to)?;
                    (kept.count > 0 && offset % kept.step == 0 && offset / kept.step < kept.count)
                        .then(|| kept.from + offset / kept.step)
                });
                match inside.collect::<Option<Vec<_>>>() {
                    Some(from) => element(&inputs[0], &from),
                    None => element(&inputs[1], &[]),
                }
            }
            IndexMap::Joined { axis } => {
                let mut from = index.clone();
                let mut found = None;
                for input in inputs {
                    if from[*axis] < input.sizes()[*axis] {
                        found = Some(element(input, &from));
                        break;
                    }
                    from[*axis] -= input.sizes()[*axis];
                }
                found.unwrap()
            }
            IndexMap::Counted { axis } => {
                let place = ferrax_ir::Scalar::from_i64(result.dtype(), index[*axis] as i64);
                place.bytes().to_vec()
            }
            IndexMap::Constant(value) => value.bytes().to_vec(),
        });
    }
    bytes
}

fn slice(start: &[usize], limit: &[usize], strides: Option<&[usize]>) -> Op {
    Slice { start_indices: shape(start), limit_indices: shape(limit), strides: strides.map(axes) }.into()
}

fn broadcast(sizes: &[usize], dims: &[usize]) -> Op {
    BroadcastInDim { shape: shape(sizes), broadcast_dimensions: axes(dims) }.into()
}

fn pad(config: &[(i64, i64, i64)]) -> Op {
    Pad { padding_config: config.to_vec() }.into()
}

fn reduce(kind: ReduceKind, axes: &[usize]) -> Op {
    Reduce { kind, axes: Axes::from_slice(axes) }.into()
}

#[test]
fn index_maps_say_where_elements_come_from() {
    let x = |sizes: &[usize]| noise(sizes, 1);
    let padded = |sizes: &[usize]| vec![noise(sizes, 1), f64s(&[], &[7.0])];
    let words = Tensor::from_elements(Sizes::from_slice(&[2, 2]), &[1u32, 2, 3, 4]).unwrap();
    let wrap = Op::from(RandomWrap { r#impl: KeyImpl::named("threefry2x32").unwrap().name().into() });
    let keys = eval(wrap.clone(), &[words.clone()]);
    let bits = |new_dtype| Op::from(BitcastConvertType { new_dtype });
    let same = Op::from(ConvertElementType { new_dtype: DType::F64, weak_type: false });
    let counted = |dtype| Op::from(Iota { dtype, shape: shape(&[2, 3]), dimension: 1 });
    let first = ArgReduce { kind: ArgKind::Max, axes: axes(&[1]), index_dtype: DType::I32 };
    let cases: Vec<(Op, Vec<Tensor>)> = vec![
        (broadcast(&[2, 4, 3], &[0, 2]), vec![x(&[2, 3])]),
        (broadcast(&[2, 4, 3], &[0, 2]), vec![x(&[1, 3])]),
        (broadcast(&[3, 2], &[1, 0]), vec![x(&[2, 3])]),
        (broadcast(&[1, 2, 1, 3], &[1, 3]), vec![x(&[2, 3])]),
        (broadcast(&[2], &[]), vec![x(&[])]),
        (Reshape { new_sizes: shape(&[3, 2]), dimensions: None }.into(), vec![x(&[2, 3])]),
        (Transpose { permutation: axes(&[1, 2, 0]) }.into(), vec![x(&[2, 3, 4])]),
        (Transpose { permutation: axes(&[1, 0, 2]) }.into(), vec![x(&[1, 3, 4])]),
        (Squeeze { dimensions: axes(&[0, 2]) }.into(), vec![x(&[1, 3, 1])]),
        (slice(&[1, 0], &[3, 2], None), vec![x(&[4, 3])]),
        (slice(&[1, 0], &[7, 2], Some(&[3, 1])), vec![x(&[8, 3])]),
        (slice(&[0, 0], &[4, 3], None), vec![x(&[4, 3])]),
        (slice(&[3], &[4], Some(&[usize::MAX])), vec![x(&[5])]),
        (Rev { dimensions: axes(&[0, 2]) }.into(), vec![x(&[2, 2, 3])]),
        (pad(&[(1, 2, 0), (-1, 0, 0)]), padded(&[2, 3])),
        (pad(&[(-1, 2, 2)]), padded(&[4])),
        (pad(&[(-9, 12, 0)]), padded(&[4])),
        (Concatenate { dimension: 1 }.into(), vec![x(&[2, 3]), x(&[2, 0]), noise(&[2, 2], 2)]),
        (counted(DType::I8), vec![]),
        (counted(DType::C64), vec![]),
        (Copy {}.into(), vec![x(&[2, 3])]),
        (OptimizationBarrier {}.into(), vec![x(&[2])]),
        (same, vec![x(&[2])]),
        (bits(DType::U32), vec![x(&[3])]),
        (bits(DType::F64), vec![x(&[3])]),
        (wrap, vec![words]),
        (RandomUnwrap {}.into(), vec![keys]),
        (reduce(ReduceKind::Max, &[1]), vec![x(&[2, 1, 3])]),
        (reduce(ReduceKind::Prod, &[0]), vec![x(&[0, 2])]),
        (reduce(ReduceKind::Max, &[0]), vec![x(&[0, 2])]),
        (first.into(), vec![x(&[2, 1])]),
    ];
    for (op, inputs) in cases {
        let result = eval(op.clone(), &inputs);
        let known: Vec<Extents<'_>> = inputs.iter().map(extents).collect();
        let map = rules(&op).index_map(&known, extents(&result)).unwrap();
        let map = map.unwrap_or_else(|| panic!("{op:?} has no index map"));
        assert_eq!(follow(&map, &inputs, &result), result.bytes(), "{op:?}: {map:?}");
        if let Some(operand) = inputs.first()
            && map.is_in_order(operand.sizes(), result.sizes())
        {
            assert_eq!(operand.bytes(), result.bytes(), "{op:?}: {map:?}");
        }
    }
}

#[test]
fn what_is_picked_at_run_time_stands_where_maps_say() {
    let check = |op: Op, inputs: &[Tensor]| {
        let result = eval(op.clone(), inputs);
        let known: Vec<Extents<'_>> = inputs.iter().map(extents).collect();
        let map = rules(&op).index_map(&known, extents(&result)).unwrap();
        if result.bytes().is_empty() {
            return assert!(map.is_none(), "{op:?} of nothing");
        }
        let map = map.unwrap_or_else(|| panic!("{op:?} has no index map"));
        assert!(matches!(map, IndexMap::Picked(_)), "{op:?}: {map:?}");
        assert_eq!(follow(&map, inputs, &result), result.bytes(), "{op:?}: {map:?}");
    };
    for case in crate::cases::GATHERS {
        let &(_, _, operand, places, indices, ..) = case;
        check(crate::cases::gather(case).into(), &[noise(operand, 1), i32s(places, indices)]);
    }
    let starts = |starts: &[i32]| starts.iter().map(|&start| i32s(&[], &[start])).collect::<Vec<_>>();
    for (sizes, window, at) in [
        (&[4, 3][..], &[2, 2][..], &[1, 1][..]),
        (&[4, 3], &[2, 3], &[-7, 9]),
        (&[4, 3], &[1, 1], &[99, -1]),
        (&[5], &[5], &[3]),
        (&[5], &[0], &[3]),
        (&[], &[], &[]),
    ] {
        let inputs = [vec![noise(sizes, 1)], starts(at)].concat();
        check(DynamicSlice { slice_sizes: shape(window) }.into(), &inputs);
    }
}

#[test]
fn maps_in_order_are_found() {
    let in_order = |op: Op, from: &[usize]| {
        let x = noise(from, 1);
        let to = eval(op.clone(), &[x.clone()]);
        let map = rules(&op).index_map(&[extents(&x)], extents(&to)).unwrap().unwrap();
        map.is_in_order(x.sizes(), to.sizes())
    };
    assert!(in_order(Transpose { permutation: axes(&[1, 0, 2]) }.into(), &[1, 3, 4]));
    assert!(!in_order(Transpose { permutation: axes(&[1, 0]) }.into(), &[2, 3]));
    assert!(in_order(broadcast(&[1, 2, 1, 3], &[1, 3]), &[2, 3]));
    assert!(!in_order(broadcast(&[3, 2], &[1, 0]), &[2, 3]));
    assert!(!in_order(broadcast(&[2, 2], &[1]), &[2]));
    assert!(in_order(slice(&[0, 0], &[4, 3], None), &[4, 3]));
    assert!(!in_order(slice(&[1, 0], &[4, 3], None), &[4, 3]));
    assert!(in_order(Rev { dimensions: axes(&[0]) }.into(), &[1, 3]));
    assert!(!in_order(Rev { dimensions: axes(&[1]) }.into(), &[1, 3]));
}

#[test]
fn reductions_say_what_they_fold() {
    let said = |op: Op, dtype, sizes: &[usize]| rules(&op).reduction(Extents { dtype, sizes }).unwrap();
    let sum = said(reduce(ReduceKind::Sum, &[0, 2]), DType::C64, &[2, 3, 4]).unwrap();
    assert_eq!((sum.kind, sum.axes.as_slice()), (AccumulatorKind::Sum, &[0, 2][..]));
    assert_eq!(said(reduce(ReduceKind::Prod, &[0]), DType::C64, &[2]), None);
    let most = said(reduce(ReduceKind::Max, &[0]), DType::Bool, &[2]).unwrap();
    assert_eq!(most.kind, AccumulatorKind::Or);
    let arg = ArgReduce { kind: ArgKind::Min, axes: axes(&[1]), index_dtype: DType::I32 };
    assert_eq!(said(arg.into(), DType::Bool, &[2, 3]).unwrap().kind, AccumulatorKind::ArgMin);
}

#[test]
fn reshapes_with_dimensions_are_a_transpose_and_a_reshape() {
    let op = Reshape { new_sizes: shape(&[3, 8]), dimensions: Some(axes(&[1, 2, 0])) };
    let x = noise(&[2, 3, 4], 1);
    let mut b = ferrax_ir::Builder::new("f");
    let input = b.input(Type::Array(x.array_type()));
    let outputs = rules(&op.clone().into()).expand(&mut b, &[input]).unwrap();
    let program = b.finish(outputs.to_vec());
    let result = ferrax_ir::interpret::run(&program, &[x.clone()]).unwrap();
    assert_eq!(result[0].bytes(), eval(op, &[x]).bytes());
}

#[test]
fn one_axis_without_elements_is_enough() {
    let long = 1 << 40;
    for sizes in [[0, long, long], [long, 0, long], [long, long, 0]] {
        assert_eq!(Extents { dtype: DType::F32, sizes: &sizes }.count(), 0);
    }
}
