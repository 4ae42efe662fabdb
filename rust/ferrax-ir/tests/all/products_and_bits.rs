//! `dot_general` and the random ops: values, types, expansions.

use crate::common::{array, element, eval, parts, rules};
use ferrax_ir::ops::*;
use ferrax_ir::rules::{Batch, Lowering};
use ferrax_ir::{
    ArrayType, Atom, Axes, Builder, DType, Dim, KeyImpl, Op, Param, Scalar, Shape, Sizes, Tensor, Type,
    interpret,
};

fn axes(axes: &[usize]) -> Axes {
    axes.iter().copied().collect()
}

fn dot(numbers: [&[usize]; 4], preferred_element_type: Option<DType>) -> Op {
    let [lc, rc, lb, rb] = numbers.map(axes);
    DotGeneral {
        lhs_contracting: lc,
        rhs_contracting: rc,
        lhs_batch: lb,
        rhs_batch: rb,
        precision: None,
        preferred_element_type,
    }
    .into()
}

const MATRIX: [&[usize]; 4] = [&[1], &[0], &[], &[]];

fn count<T: ferrax_ir::Element>(sizes: &[usize], from: impl Fn(usize) -> T) -> Tensor {
    let elements: Vec<T> = (0..sizes.iter().product()).map(from).collect();
    Tensor::from_elements(Sizes::from_slice(sizes), &elements).unwrap()
}

#[test]
fn products() {
    let (x, y) = (count(&[2, 3], |i| i as f32), count(&[3, 2], |i| i as f32 - 1.0));
    let z = eval(&dot(MATRIX, None), &[x.clone(), y.clone()]).unwrap();
    assert_eq!(z.elements::<f32>().unwrap(), [7.0, 10.0, 16.0, 28.0]);
    // Axes of the result: batch, left free, right free.
    let (x, y) = (count(&[4, 2, 3], |i| i as f64), count(&[3, 5, 2], |i| (i * i % 7) as f64));
    let z = eval(&dot([&[2], &[0], &[1], &[2]], None), &[x.clone(), y.clone()]).unwrap();
    assert_eq!(z.sizes(), [2, 4, 5]);
    let (xs, ys) = (x.elements::<f64>().unwrap(), y.elements::<f64>().unwrap());
    for (b, l, r) in [(0, 0, 0), (1, 3, 4), (0, 2, 1)] {
        let expected: f64 = (0..3).map(|k| xs[l * 6 + b * 3 + k] * ys[k * 10 + r * 2 + b]).sum();
        assert_eq!(z.elements::<f64>().unwrap()[b * 20 + l * 5 + r], expected);
    }
    let empty = eval(&dot(MATRIX, None), &[count(&[2, 0], |_| 0f32), count(&[0, 1], |_| 0f32)]).unwrap();
    assert_eq!(empty.elements::<f32>().unwrap(), [0.0, 0.0]);
}

#[test]
fn accumulation() {
    let (x, y) = (count(&[1, 3], |_| 100i8), count(&[3, 1], |_| 2i8));
    let product = |preferred| eval(&dot(MATRIX, preferred), &[x.clone(), y.clone()]).unwrap();
    assert_eq!(element(&product(None), 0), Scalar::new(88i8));
    assert_eq!(element(&product(Some(DType::I32)), 0), Scalar::new(600i32));
    assert_eq!(element(&product(Some(DType::F32)), 0), Scalar::new(600f32));
    let ones = |sizes: &[usize]| {
        Tensor::from_elements(Sizes::from_slice(sizes), &vec![half::bf16::ONE; 4096]).unwrap()
    };
    let sum = eval(&dot(MATRIX, None), &[ones(&[1, 4096]), ones(&[4096, 1])]).unwrap();
    assert_eq!(parts(element(&sum, 0)).0, 4096.0);
    let bools = |sizes: &[usize]| Tensor::from_bools(Sizes::from_slice(sizes), &[true, false, true]).unwrap();
    let any = eval(&dot(MATRIX, None), &[bools(&[1, 3]), bools(&[3, 1])]).unwrap();
    assert_eq!(element(&any, 0), Scalar::bool(true));
}

#[test]
fn product_types() {
    let result = |lhs, rhs| {
        let types = [ArrayType::of_sizes(&[2, 3], lhs).into(), ArrayType::of_sizes(&[3, 4], rhs).into()];
        dot(MATRIX, None).infer(&types).unwrap()[0].as_array().unwrap().dtype
    };
    use DType::*;
    for (lhs, rhs, expected) in [
        (U8, I8, I8),
        (U32, I8, U32),
        (I32, BF16, BF16),
        (F16, BF16, BF16),
        (F32, BF16, F32),
        (C64, F64, C64),
        (Bool, Bool, Bool),
    ] {
        assert_eq!([result(lhs, rhs), result(rhs, lhs)], [expected; 2], "{lhs} {rhs}");
    }
}

#[test]
fn refused_products() {
    let ty = |sizes: &[usize]| Type::Array(ArrayType::of_sizes(sizes, DType::F32));
    let types = [ty(&[2, 3]), ty(&[3, 4])];
    let table: [([&[usize]; 4], &str); 7] = [
        ([&[0], &[0], &[], &[]], "the contracted axes differ in size: (2,) and (3,) (of the operands"),
        ([&[1], &[2], &[], &[]], "rhs_batch () and rhs_contracting (2,) for a rhs of rank 2"),
        ([&[1], &[0, 1], &[], &[]], "each axis in lhs_contracting needs one in rhs_contracting"),
        ([&[1, 1], &[0, 0], &[], &[]], "lhs_contracting (1, 1) has an axis twice."),
        ([&[1], &[0], &[0], &[1]], "differ in size: (2,) and (4,) (of the operands"),
        ([&[1], &[0], &[1], &[0]], "an axis of the lhs is both in lhs_batch (1,)"),
        ([&[1], &[0], &[0], &[]], "each axis in lhs_batch needs one in rhs_batch, got (0,)"),
    ];
    for (numbers, expected) in table {
        let error = dot(numbers, None).infer(&types).unwrap_err().to_string();
        assert!(error.contains(expected), "{numbers:?}: {error}");
    }
}

const KEY: DType = DType::Key(KeyImpl::THREEFRY2X32);

/// The words of keys, or any words.
fn words(tensor: &Tensor) -> Vec<u32> {
    tensor.elements::<u32>().unwrap().to_vec()
}

fn seed(dtype: DType, value: i64) -> Tensor {
    let seed = Scalar::from_i64(dtype, value).to_tensor().unwrap();
    eval(&RandomSeed { r#impl: "fry".into() }.into(), &[seed]).unwrap()
}

fn shape(sizes: &[usize]) -> Shape {
    sizes.iter().map(|&size| Dim::Const(size)).collect()
}

fn bits(key: &Tensor, bit_width: u32, sizes: &[usize]) -> Tensor {
    eval(&RandomBits { bit_width, shape: shape(sizes) }.into(), std::slice::from_ref(key)).unwrap()
}

#[test]
fn cipher() {
    let word = |value: u32| Scalar::new(value).to_tensor().unwrap();
    // The known answers that come with the authors' Random123 library.
    let table = [
        ([0, 0], [0, 0], [0x6b20_0159, 0x99ba_4efe]),
        ([u32::MAX; 2], [u32::MAX; 2], [0x1cb9_96fc, 0xbb00_2be7]),
        ([0x1319_8a2e, 0x0370_7344], [0x243f_6a88, 0x85a3_08d3], [0xc492_3a9c, 0x483d_f7a0]),
    ];
    for (key, counter, expected) in table {
        let inputs = [key[0], key[1], counter[0], counter[1]].map(word);
        let types: Vec<Type> = inputs.iter().map(|input| input.array_type().into()).collect();
        let op: Op = Threefry2x32 {}.into();
        let outputs = op.eval(&inputs, &op.infer(&types).unwrap()).unwrap();
        assert_eq!([words(&outputs[0])[0], words(&outputs[1])[0]], expected);
    }
}

#[test]
fn seeds() {
    assert_eq!(words(&seed(DType::I32, 0)), [0, 0]);
    assert_eq!(words(&seed(DType::I32, -1)), [0, u32::MAX]);
    assert_eq!(words(&seed(DType::I64, -1)), [u32::MAX, u32::MAX]);
    assert_eq!(words(&seed(DType::I64, (1 << 40) + 7)), [256, 7]);
    assert_eq!(words(&seed(DType::I8, -1)), [0, u32::MAX]);
    assert_eq!(words(&seed(DType::U8, 200)), [0, 200]);
}

#[test]
fn streams_of_keys() {
    let zero = seed(DType::I32, 0);
    let split = eval(&RandomSplit { shape: shape(&[2]) }.into(), std::slice::from_ref(&zero)).unwrap();
    assert_eq!(words(&split), [1_797_259_609, 2_579_123_966, 928_981_903, 3_453_687_069]);
    let fold = |key: &Tensor, number: u32| {
        eval(&RandomFoldIn {}.into(), &[key.clone(), Scalar::new(number).to_tensor().unwrap()]).unwrap()
    };
    assert_eq!(words(&fold(&zero, 1)), [928_981_903, 3_453_687_069]);
    assert_eq!(words(&bits(&zero, 32, &[4])), [4_070_199_207, 4_202_968_722, 1_427_181_096, 2_012_915_765]);

    let key = seed(DType::I32, 42);
    assert_eq!(words(&fold(&key, 7)), [2_547_012_911, 1_371_500_959]);
    let square = eval(&RandomSplit { shape: shape(&[2, 2]) }.into(), std::slice::from_ref(&key)).unwrap();
    assert_eq!(
        words(&square),
        [
            1_832_780_943,
            270_669_613,
            64_467_757,
            2_916_123_636,
            2_465_931_498,
            255_383_827,
            3_134_548_294,
            894_150_801
        ]
    );
    assert_eq!(bits(&key, 8, &[2, 3]).elements::<u8>().unwrap(), [162, 217, 249, 215, 21, 216]);
    assert_eq!(bits(&key, 16, &[6]).elements::<u16>().unwrap(), [5026, 12505, 63993, 49623, 29461, 20184]);
    assert_eq!(words(&bits(&key, 32, &[2])), [2_098_992_034, 2_919_706_841]);
    assert_eq!(
        bits(&key, 64, &[2]).elements::<u64>().unwrap(),
        [7_871_734_211_187_709_741, 276_886_910_877_598_708]
    );
}

/// Replaces every op that expands until none is left, and runs the result.
fn run_expanded(op: Op, inputs: &[Tensor]) -> Tensor {
    fn emit(b: &mut Builder, op: &Op, inputs: &[Atom]) -> Vec<Atom> {
        if rules(op).lower() != Lowering::Expand {
            return b.emit(op.clone(), inputs).unwrap().into_iter().map(Atom::Var).collect();
        }
        let mut inner = Builder::new("inner");
        let parameters: Vec<Atom> = inputs.iter().map(|&atom| inner.input(b.type_of(atom))).collect();
        let outputs = rules(op).expand(&mut inner, &parameters).unwrap();
        let types: Vec<Type> = parameters.iter().map(|&atom| inner.type_of(atom)).collect();
        let expected: Vec<Type> = op.infer(&types).unwrap().into_iter().collect();
        let got: Vec<Type> = outputs.iter().map(|&atom| inner.type_of(atom)).collect();
        assert_eq!(got, expected, "{op:?} expands to another type");
        let program = inner.finish(outputs);
        let mut values: Vec<Option<Atom>> = vec![None; program.types.len()];
        for (var, &atom) in program.inputs.iter().zip(inputs) {
            values[var.index()] = Some(atom);
        }
        let read = |values: &[Option<Atom>], atom: &Atom| {
            atom.as_var().map_or(*atom, |var| values[var.index()].unwrap())
        };
        for equation in &program.equations {
            let operands: Vec<Atom> = equation.inputs.iter().map(|atom| read(&values, atom)).collect();
            let results = emit(b, &equation.op, &operands);
            for (var, atom) in equation.outputs.iter().zip(results) {
                values[var.index()] = Some(atom);
            }
        }
        program.outputs.iter().map(|atom| read(&values, atom)).collect()
    }
    let mut b = Builder::new("expanded");
    let parameters: Vec<Atom> = inputs.iter().map(|input| b.input(input.array_type())).collect();
    let outputs = emit(&mut b, &op, &parameters);
    let program = b.finish(outputs);
    interpret::run(&program, inputs).unwrap().remove(0)
}

#[test]
fn expansions_agree_with_evaluation() {
    let key = seed(DType::I32, 42);
    let keys = eval(&RandomSplit { shape: shape(&[2, 3]) }.into(), std::slice::from_ref(&key)).unwrap();
    let check = |op: Op, inputs: &[Tensor]| {
        assert_eq!(run_expanded(op.clone(), inputs), eval(&op, inputs).unwrap(), "{op:?}");
    };
    for keys in [&key, &keys] {
        for sizes in [&[][..], &[5], &[3, 4], &[1, 2, 1], &[0, 2]] {
            check(RandomSplit { shape: shape(sizes) }.into(), std::slice::from_ref(keys));
            for bit_width in [8, 16, 32, 64] {
                check(RandomBits { bit_width, shape: shape(sizes) }.into(), std::slice::from_ref(keys));
            }
        }
        check(RandomFoldIn {}.into(), &[keys.clone(), Scalar::new(9u32).to_tensor().unwrap()]);
        check(RandomFoldIn {}.into(), &[keys.clone(), Scalar::new(-9i64).to_tensor().unwrap()]);
    }
    check(RandomFoldIn {}.into(), &[key, array(&[1u32, 2, 3].map(Scalar::new))]);
    for dtype in [DType::I8, DType::U16, DType::I32, DType::U64, DType::I64] {
        let seeds: Vec<Scalar> = [0, -1, 7, 1 << 40].map(|value| Scalar::from_i64(dtype, value)).into();
        check(RandomSeed { r#impl: "threefry2x32".into() }.into(), &[array(&seeds)]);
    }
}

#[test]
fn keys_wrap_their_words() {
    let key = seed(DType::I32, 42);
    let raw = eval(&RandomUnwrap {}.into(), std::slice::from_ref(&key)).unwrap();
    assert_eq!((raw.sizes(), raw.dtype()), (&[2][..], DType::U32));
    let again = eval(&RandomWrap { r#impl: "threefry2x32".into() }.into(), &[raw]).unwrap();
    assert_eq!(again, key);
}

#[test]
fn batched_keys_draw_as_each_alone() {
    let key = seed(DType::I32, 3);
    let keys = eval(&RandomSplit { shape: shape(&[4]) }.into(), &[key]).unwrap();
    let mut b = Builder::new("batch");
    let atom = b.input(ArrayType::of_sizes(&[4], KEY));
    let op: Op = RandomBits { bit_width: 32, shape: shape(&[3]) }.into();
    let eqn = Batch { size: &Dim::Const(4), axis_name: None, inputs: &[atom], dims: &[Some(0)] };
    let (output, dim) = rules(&op).batch(&mut b, &eqn).unwrap()[0];
    assert_eq!(dim, Some(0));
    let program = b.finish([output]);
    let all = words(&interpret::run(&program, std::slice::from_ref(&keys)).unwrap()[0]);
    for index in 0..4 {
        let alone = element(&keys, index).to_tensor().unwrap();
        assert_eq!(all[index * 3..][..3], words(&bits(&alone, 32, &[3])));
    }
}

#[test]
fn refused_keys() {
    let ty = |dtype, sizes: &[usize]| Type::Array(ArrayType::of_sizes(sizes, dtype));
    let wrap = || Op::from(RandomWrap { r#impl: "fry".into() });
    let table: Vec<(Op, Type, &str)> = vec![
        (
            RandomBits { bit_width: 7, shape: shape(&[]) }.into(),
            ty(KEY, &[]),
            "8, 16, 32 or 64 bits, not of 7",
        ),
        (RandomUnwrap {}.into(), ty(DType::U32, &[2]), "random_unwrap requires a key array, got u32[2]"),
        (wrap(), ty(DType::U32, &[3]), "ends with [2], that of the words of a key, got shape (3,)"),
        (wrap(), ty(DType::I32, &[2]), "random_wrap requires uint32 key data"),
        (
            RandomSeed { r#impl: "rbg".into() }.into(),
            ty(DType::I32, &[]),
            "random_seed computes with key<fry>; of key<rbg>",
        ),
        (RandomSeed { r#impl: "fry".into() }.into(), ty(DType::F32, &[]), "a key is made of an integer"),
    ];
    for (op, ty, expected) in table {
        let error = op.infer(&[ty]).unwrap_err().to_string();
        assert!(error.contains(expected), "{op:?}: {error}");
    }
}

#[test]
fn parameters_have_jax_names() {
    let op = Op::from(RandomSeed { r#impl: "fry".into() });
    assert_eq!(op.params(), [("impl", Param::Str("fry".into()))]);
    let again = Op::from_params("random_seed", vec![("impl".into(), Param::Str("fry".into()))]).unwrap();
    assert_eq!(again, op);
}
