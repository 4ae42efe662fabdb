//! The order of the terms of float reductions: their number determines it, whatever the layout.

use crate::common::{dims, fill};
use ferrax_cpu::compile;
use ferrax_ir::ops::ReduceKind;
use ferrax_ir::{ArrayType, Builder, DType, Program, Tensor};

/// The tree as it is defined: blocks of 256 terms in 16 lanes, of up to 7 in order, and blocks in pairs. A run of blocks is split
/// at the largest power of two below their number, which is what counting them amounts to.
fn tree(terms: &[f32], fold: fn(f32, f32) -> f32, start: f32) -> f32 {
    let blocks = terms.len().div_ceil(256);
    if blocks > 1 {
        let split = 256 << (blocks - 1).ilog2();
        return fold(tree(&terms[..split], fold, start), tree(&terms[split..], fold, start));
    }
    if terms.len() < 8 {
        return terms.iter().fold(start, |value, &term| fold(value, term));
    }
    let mut lanes = [start; 16];
    for (index, &term) in terms.iter().enumerate() {
        lanes[index % 16] = fold(lanes[index % 16], term);
    }
    for half in [8, 4, 2, 1] {
        for lane in 0..half {
            lanes[lane] = fold(lanes[lane], lanes[lane + half]);
        }
    }
    lanes[0]
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.bytes().as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
}

/// The terms of each result, row-major over the reduced axes.
fn terms(x: &[f32], sizes: &[usize], axes: &[usize]) -> Vec<Vec<f32>> {
    let kept: Vec<usize> = (0..sizes.len()).filter(|axis| !axes.contains(axis)).collect();
    let count: usize = kept.iter().map(|&axis| sizes[axis]).product();
    let mut found = vec![vec![]; count];
    for (number, &value) in x.iter().enumerate() {
        let index = |axis: usize| number / sizes[axis + 1..].iter().product::<usize>() % sizes[axis];
        found[kept.iter().fold(0, |all, &axis| all * sizes[axis] + index(axis))].push(value);
    }
    found
}

fn bits(values: impl IntoIterator<Item = f32>) -> Vec<u32> {
    values.into_iter().map(f32::to_bits).collect()
}

fn run(program: &Program, inputs: &[Tensor]) -> Vec<Vec<f32>> {
    compile(program).unwrap().run(inputs).unwrap().iter().map(values).collect()
}

const CASES: &[(&[usize], &[usize])] = &[
    (&[5], &[0]),
    (&[7], &[0]),
    (&[8], &[0]),
    (&[127], &[0]),
    (&[259], &[0]),
    (&[7, 300], &[0]),
    (&[8, 9], &[0]),
    (&[263, 5], &[0]),
    (&[129], &[0]),
    (&[3000], &[0]),
    (&[300_001], &[0]),
    (&[3, 7], &[0]),
    (&[7, 3], &[1]),
    (&[40, 33], &[1]),
    (&[9, 150], &[1]),
    (&[4, 2000], &[1]),
    (&[5000, 1], &[0]),
    (&[100_000, 2], &[0]),
    (&[5000, 3], &[0]),
    (&[1000, 8], &[0]),
    (&[700, 13], &[0]),
    (&[700, 191], &[0]),
    (&[129, 2100], &[0]),
    (&[5, 300, 3], &[1]),
    (&[5, 300, 400], &[1]),
    (&[130, 11, 17], &[0, 1]),
    (&[130, 11, 17], &[1, 2]),
    (&[130, 11, 17], &[0, 2]),
    (&[3000, 3, 49], &[0, 2]),
    (&[60, 20, 200], &[0, 2]),
    (&[60, 20, 200], &[0, 1, 2]),
];

#[test]
fn sums_and_products_are_the_tree_of_their_terms() {
    for &(sizes, axes) in CASES {
        for kind in [ReduceKind::Sum, ReduceKind::Prod] {
            let mut b = Builder::new("reduce");
            let x = b.input(ArrayType::of_sizes(sizes, DType::F32));
            let y = b.reduce(kind, x, axes).unwrap();
            let mut input = fill(DType::F32, sizes, 5);
            if kind == ReduceKind::Prod {
                // Long products that stay in range.
                let near: Vec<u8> =
                    values(&input).iter().flat_map(|x| (1.0 + x / 4000.0).to_le_bytes()).collect();
                input = Tensor::from_bytes(DType::F32, sizes, &near).unwrap();
            }
            let got = run(&b.finish([y]), std::slice::from_ref(&input));
            let of = terms(&values(&input), sizes, axes);
            let want = of.iter().map(|terms| match kind {
                ReduceKind::Sum => tree(terms, |a, b| a + b, 0.0),
                _ => tree(terms, |a, b| a * b, 1.0),
            });
            assert_eq!(bits(got[0].iter().copied()), bits(want), "{kind:?} of {sizes:?} over {axes:?}");
        }
    }
}

#[test]
fn fusion_does_not_change_the_order() {
    for &(sizes, axes) in CASES {
        // Three sums and a maximum in one kernel, of code between them and memory.
        let mut b = Builder::new("fused");
        let x = b.input(ArrayType::of_sizes(sizes, DType::F32));
        let sum = b.reduce_sum(x, axes).unwrap();
        let square = b.mul(x, x).unwrap();
        let squares = b.reduce_sum(square, axes).unwrap();
        let cube = b.mul(square, x).unwrap();
        let shifted = b.add(cube, square).unwrap();
        let cubes = b.reduce_sum(shifted, axes).unwrap();
        let most = b.reduce(ReduceKind::Max, cube, axes).unwrap();
        let input = fill(DType::F32, sizes, 9);
        let got = run(&b.finish([sum, squares, cubes, most]), std::slice::from_ref(&input));
        let of = terms(&values(&input), sizes, axes);
        let functions: [fn(f32) -> f32; 3] = [|x| x, |x| x * x, |x| x * x * x + x * x];
        for (got, function) in got.iter().zip(functions) {
            let want = of.iter().map(|terms| {
                let terms: Vec<f32> = terms.iter().map(|&x| function(x)).collect();
                tree(&terms, |a, b| a + b, 0.0)
            });
            assert_eq!(bits(got.iter().copied()), bits(want), "{sizes:?} over {axes:?}");
        }
    }
}

#[test]
fn a_transposed_operand_is_summed_in_the_same_order() {
    for (sizes, axis) in [([700, 300], 0), ([700, 300], 1), ([20_000, 3], 1), ([3, 20_000], 0)] {
        let mut b = Builder::new("transposed");
        let x = b.input(ArrayType::of_sizes(&[sizes[1], sizes[0]], DType::F32));
        let t = b.transpose(x, &[1, 0]).unwrap();
        let y = b.reduce_sum(t, &[axis]).unwrap();
        let input = fill(DType::F32, &[sizes[1], sizes[0]], 2);
        let got = run(&b.finish([y]), std::slice::from_ref(&input));
        let want = terms(&values(&input), &[sizes[1], sizes[0]], &[1 - axis]);
        assert_eq!(bits(got[0].iter().copied()), bits(want.iter().map(|t| tree(t, |a, b| a + b, 0.0))));
    }
}

#[test]
fn slices_are_summed_in_the_same_order() {
    // Rows that do not follow one another in memory.
    for (rows, cols, width) in [(3000, 7, 3), (3000, 400, 300)] {
        let mut b = Builder::new("sliced");
        let x = b.input(ArrayType::of_sizes(&[rows, cols], DType::F32));
        let s = b.slice_axis(x, 1, 2, 2 + width).unwrap();
        let over: Vec<_> =
            [&[0][..], &[1], &[0, 1]].iter().map(|axes| b.reduce_sum(s, axes).unwrap()).collect();
        let input = fill(DType::F32, &[rows, cols], 2);
        let got = run(&b.finish(over), std::slice::from_ref(&input));
        let x = values(&input);
        let part: Vec<f32> = x.chunks(cols).flat_map(|row| &row[2..2 + width]).copied().collect();
        for (got, axes) in got.iter().zip([&[0][..], &[1], &[0, 1]]) {
            let want = terms(&part, &[rows, width], axes);
            let want = want.iter().map(|t| tree(t, |a, b| a + b, 0.0));
            assert_eq!(bits(got.iter().copied()), bits(want), "{rows} by {width} over {axes:?}");
        }
    }
}

#[test]
fn products_of_vectors_are_sums_of_products() {
    use ferrax_ir::ops::DotGeneral;
    let axes = |list: &[usize]| list.iter().copied().collect();
    for (sizes, batch, contracted) in
        [(&[5000][..], &[][..], &[0][..]), (&[5000, 2], &[1], &[0]), (&[3, 900], &[0], &[1])]
    {
        let op = DotGeneral {
            lhs_contracting: axes(contracted),
            rhs_contracting: axes(contracted),
            lhs_batch: axes(batch),
            rhs_batch: axes(batch),
            precision: None,
            preferred_element_type: None,
        };
        let mut b = Builder::new("dot");
        let (x, y) = (
            b.input(ArrayType::of_sizes(sizes, DType::F32)),
            b.input(ArrayType::of_sizes(sizes, DType::F32)),
        );
        let dot = b.emit1(op, &[x, y]).unwrap();
        let inputs = [fill(DType::F32, sizes, 1), fill(DType::F32, sizes, 2)];
        let got = run(&b.finish([dot]), &inputs);
        let products: Vec<f32> =
            values(&inputs[0]).iter().zip(values(&inputs[1])).map(|(a, b)| a * b).collect();
        let want = terms(&products, sizes, contracted);
        assert_eq!(bits(got[0].iter().copied()), bits(want.iter().map(|t| tree(t, |a, b| a + b, 0.0))));
    }
}

#[test]
fn products_of_what_lies_in_memory_are_summed_in_the_same_order() {
    let sliced: &[(&[usize], &[usize])] = &[(&[3000, 300], &[1]), (&[5, 100_000], &[1]), (&[131, 1], &[0])];
    for &(sizes, axes) in CASES.iter().chain(sliced) {
        let kept: Vec<usize> = (0..sizes.len()).filter(|axis| !axes.contains(axis)).collect();
        let kept_sizes: Vec<usize> = kept.iter().map(|&axis| sizes[axis]).collect();
        // Each sum alone, and beside the sum of an operand.
        for number in 0..5 {
            for beside in [false, true] {
                let mut b = Builder::new("products");
                let [x, y, less, one] = [sizes, sizes, &kept_sizes[..], &[]]
                    .map(|sizes| b.input(ArrayType::of_sizes(sizes, DType::F32)));
                let less = b.broadcast_in_dim(less, &dims(sizes), &kept).unwrap();
                // A value of all lines that is computed.
                let one = b.scale(one, 0.5).unwrap();
                let one = b.broadcast_in_dim(one, &dims(sizes), &[]).unwrap();
                let (left, right) = match number {
                    0 => (x, y),
                    1 => (x, x),
                    2 => [b.sub(x, less).unwrap(); 2].into(),
                    3 => (b.sub(x, less).unwrap(), y),
                    _ => [b.sub(y, one).unwrap(); 2].into(),
                };
                let product = b.mul(left, right).unwrap();
                let mut outputs = vec![b.reduce_sum(product, axes).unwrap()];
                if beside {
                    outputs.push(b.reduce_sum(x, axes).unwrap());
                }
                let inputs = [(sizes, 5), (sizes, 6), (&kept_sizes[..], 7), (&[], 8)]
                    .map(|(s, seed)| fill(DType::F32, s, seed));
                let got = run(&b.finish(outputs), &inputs);
                let [x, y, less, one] = [0, 1, 2, 3].map(|input| {
                    terms(&values(&inputs[input]), inputs[input].sizes(), if input < 2 { axes } else { &[] })
                });
                let want = (0..x.len()).map(|line| {
                    let (x, y, less, one) = (&x[line], &y[line], less[line][0], one[0][0] * 0.5);
                    let product = |place: usize| match number {
                        0 => x[place] * y[place],
                        1 => x[place] * x[place],
                        2 => (x[place] - less) * (x[place] - less),
                        3 => (x[place] - less) * y[place],
                        _ => (y[place] - one) * (y[place] - one),
                    };
                    tree(&(0..x.len()).map(product).collect::<Vec<_>>(), |a, b| a + b, 0.0)
                });
                assert_eq!(bits(got[0].iter().copied()), bits(want), "{number} of {sizes:?} over {axes:?}");
            }
        }
    }
}

#[test]
fn long_products_of_matrices_are_as_exact_as_their_panels() {
    use ferrax_ir::ops::DotGeneral;
    let axes = |list: &[usize]| list.iter().copied().collect();
    let k = 300_000;
    // Each side by rows and by columns; vectors, few columns, and more than one piece.
    for (m, n, lhs, rhs) in
        [(1, 3, 1, 0), (1, 3, 1, 1), (3, 1, 0, 0), (3, 1, 1, 0), (2, 3, 0, 0), (2, 520, 1, 0)]
    {
        let k = if n > 100 { 9000 } else { k };
        let op = DotGeneral {
            lhs_contracting: axes(&[lhs]),
            rhs_contracting: axes(&[rhs]),
            lhs_batch: axes(&[]),
            rhs_batch: axes(&[]),
            precision: None,
            preferred_element_type: None,
        };
        let sizes = |free: usize, contracted: usize| if contracted == 0 { [k, free] } else { [free, k] };
        let mut b = Builder::new("product");
        let x = b.input(ArrayType::of_sizes(&sizes(m, lhs), DType::F32));
        let scaled = b.scale(x, 0.1).unwrap();
        let y = b.input(ArrayType::of_sizes(&sizes(n, rhs), DType::F32));
        let product = b.emit1(op, &[scaled, y]).unwrap();
        let ones = |sizes: [usize; 2]| {
            let bytes: Vec<u8> = 1f32.to_le_bytes().repeat(sizes[0] * sizes[1]);
            Tensor::from_bytes(DType::F32, &sizes[..], &bytes).unwrap()
        };
        let got = run(&b.finish([product]), &[ones(sizes(m, lhs)), ones(sizes(n, rhs))]);
        let want = k as f64 * f64::from(0.1f32);
        for value in &got[0] {
            let error = (f64::from(*value) - want).abs() / want;
            // In order, 300,000 tenths are off by a thousandth and more.
            assert!(error < 1e-5, "{m} by {n} over axes {lhs} and {rhs}: {value}, not {want}");
        }
    }
}
