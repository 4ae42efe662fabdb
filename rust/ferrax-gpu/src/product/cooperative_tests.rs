//! Products by cooperative matrices: their text is valid for drivers that have these; what is around the matrices,
//! with functions in their place on a GPU that has none, gives what the interpreter gives; and nothing is computed so
//! where the GPU has none or has wrong ones.

use std::sync::Arc;

use ferrax_compile::Operand;
use ferrax_compile::backend::Output;
use ferrax_compile::device::{Attached, Device, DeviceId, Memory};
use ferrax_compile::launches::Origin;
use ferrax_ir::ops::{ConvDims, ConvGeneralDilated, DotGeneral, Precision, Unary};
use ferrax_ir::{Atom, Axes, Builder, DType, Op, Tensor, interpret};
use naga::back::spv;
use naga::valid::{Capabilities, ValidationFlags, Validator};

use super::holds;
use crate::adapter::Choice;
use crate::common::{compare, fill};
use crate::gpu::Gpu;
use crate::wgsl::arrays::{Pieces, declarations};
use crate::wgsl::product::matrices::{Cooperative, Halves, Maker, Matrices};
use crate::wgsl::product::{ProductForm, Way, shader};

fn gpu() -> Gpu {
    let name = std::env::var("FERRAX_GPU").unwrap_or_else(|_| "llvmpipe".to_string());
    Gpu::open(&Choice::Name(name)).unwrap()
}

/// Matrices that functions multiply.
fn played(right: bool, lanes: usize) -> Matrices {
    Matrices { side: 8, lanes: 8, maker: Maker::Played { right, lanes } }
}

fn form(cooperative: Cooperative, by_terms: [bool; 2], segmented: bool) -> ProductForm {
    let operand = |dtype, written| Operand { dtype, written };
    ProductForm {
        dtype: DType::F32,
        operands: vec![operand(DType::F16, false), operand(DType::F16, false), operand(DType::F32, true)],
        left: Origin::Operand(0),
        right: Origin::Operand(1),
        then: None,
        way: Way::Cooperative(cooperative),
        batch: 1,
        rows: vec![None, Some(0)],
        terms: vec![None, Some(0)],
        columns: 1,
        guards: 1,
        left_terms: by_terms[0],
        right_columns: !by_terms[1],
        left_quads: false,
        right_quads: false,
        segmented,
    }
}

/// The whole text of a module.
fn text(form: &ProductForm) -> String {
    let shader = shader(form).unwrap();
    assert!(shader.needs.cooperative);
    let pieces = Pieces { counts: vec![1; shader.arrays.len()], log: 0 };
    shader.needs.directives().to_string() + &declarations(&shader.arrays, &pieces) + &shader.text
}

/// What a driver is given for a text, or why it is given nothing.
fn compiled(text: &str, capabilities: Capabilities) -> Result<Vec<u32>, String> {
    let module = naga::front::wgsl::parse_str(text).map_err(|error| error.emit_to_string(text))?;
    let mut validator = Validator::new(ValidationFlags::all(), capabilities);
    let info = validator.validate(&module).map_err(|error| error.emit_to_string(text))?;
    let options = spv::Options { lang_version: (1, 6), ..spv::Options::default() };
    spv::write_vec(&module, &info, &options, None).map_err(|error| error.to_string())
}

const CAPABILITIES: Capabilities = Capabilities::COOPERATIVE_MATRIX
    .union(Capabilities::SHADER_FLOAT16)
    .union(Capabilities::SHADER_FLOAT16_IN_FLOAT32)
    .union(Capabilities::SUBGROUP);

/// How often an instruction is in a module.
fn count(words: &[u32], instruction: u32) -> usize {
    let (mut at, mut found) = (5, 0);
    while at < words.len() {
        found += usize::from(words[at] & 0xffff == instruction);
        at += (words[at] >> 16) as usize;
    }
    found
}

/// `OpCooperativeMatrixMulAddKHR`.
const MULTIPLY_ADD: u32 = 4459;

#[test]
fn texts_are_valid_and_multiply_matrices() {
    for (side, lanes, large) in [
        (16, 32, false),
        (16, 32, true),
        (16, 64, true),
        (16, 64, false),
        (8, 8, false),
        (8, 32, true),
        (16, 4, true),
    ] {
        for halves in [[Halves::Eights(0), Halves::Eights(1)], [Halves::Ones(0), Halves::Eights(1)]] {
            for by_terms in [[true, true], [true, false], [false, true], [false, false]] {
                for segmented in [false, true] {
                    let matrices = Matrices { side, lanes, maker: Maker::Driver };
                    let form = form(Cooperative { matrices, large, halves }, by_terms, segmented);
                    let text = text(&form);
                    let words = compiled(&text, CAPABILITIES).unwrap_or_else(|error| panic!("{error}"));
                    let sums = if large { 32 * 64 } else { 32 * 32 } / (side * side);
                    assert_eq!(count(&words, MULTIPLY_ADD), sums, "{form:?}");
                    let without = CAPABILITIES - Capabilities::COOPERATIVE_MATRIX;
                    assert!(compiled(&text, without).is_err());
                }
            }
        }
    }
}

#[test]
fn gpus_that_do_not_say_so_have_no_matrices() {
    let gpu = gpu();
    if gpu.offers_matrices() {
        return;
    }
    assert!(!gpu.has_cooperative_matrices());
    assert_eq!(gpu.counts().made, 0, "nothing is tried");
    let form = form(
        Cooperative {
            matrices: Matrices { side: 16, lanes: 32, maker: Maker::Driver },
            large: false,
            halves: [Halves::Ones(0), Halves::Ones(1)],
        },
        [true, true],
        false,
    );
    let error = gpu.prepared(crate::pipelines::Source::Product(form), &[0; 64], 1).unwrap_err();
    assert!(error.to_string().contains("cannot compute with matrices of halves"), "{error}");
}

#[test]
fn matrices_are_used_if_they_are_right() {
    let gpu = gpu();
    assert!(holds(&gpu, played(true, 8)));
    assert!(!holds(&gpu, played(false, 8)));
    // Subgroups that are larger than the smallest go through the terms more than once.
    assert!(holds(&gpu, played(true, 16)));
}

fn axes(values: &[usize]) -> Axes {
    values.iter().copied().collect()
}

fn dot(contracting: [usize; 2], batch: &[usize], precision: Option<Precision>) -> DotGeneral {
    DotGeneral {
        lhs_contracting: axes(&contracting[..1]),
        rhs_contracting: axes(&contracting[1..]),
        lhs_batch: axes(batch),
        rhs_batch: axes(batch),
        precision,
        preferred_element_type: Some(DType::F32),
    }
}

/// A program's results, compared with the interpreter's, and how many of its launches were products by matrices.
fn by_matrices(build: impl Fn(&mut Builder, &[Atom]) -> Atom, inputs: &[Tensor], what: &str) -> usize {
    let mut gpu = gpu();
    gpu.play(played(true, 8));
    let device = Attached::new(DeviceId(1), gpu);
    let mut b = Builder::new(what.to_string());
    let atoms: Vec<Atom> = inputs.iter().map(|tensor| b.input(tensor.array_type())).collect();
    let output = build(&mut b, &atoms);
    let program = b.finish(vec![output]);
    device.backend().begin_profile().unwrap();
    let runnable = device.compile(&program).unwrap();
    let buffers: Vec<Arc<dyn Memory>> =
        inputs.iter().map(|tensor| device.upload(tensor.bytes()).unwrap()).collect();
    let outputs: Vec<Output<Arc<dyn Memory>>> = runnable.run(&buffers).unwrap();
    let wanted = interpret::run(&program, inputs).unwrap();
    for (output, want) in outputs.into_iter().zip(&wanted) {
        let mut got = Tensor::zeros(output.dtype, output.sizes).unwrap();
        output.buffer.download(got.bytes_mut().unwrap()).unwrap();
        let ulps = if got.dtype() == DType::F16 { 8 } else { 100_000 };
        compare(&got, want, ulps, what);
    }
    let events = device.backend().end_profile().unwrap();
    events.iter().filter(|event| event.name.contains("by matrices")).count()
}

#[test]
fn products_of_halves_of_all_layouts_go_by_matrices() {
    for ([rows, columns, terms], contracting) in [([72, 40, 48], [1, 0]), ([33, 70, 19], [0, 1])] {
        let left = if contracting[0] == 1 { [rows, terms] } else { [terms, rows] };
        let right = if contracting[1] == 1 { [columns, terms] } else { [terms, columns] };
        let inputs = [fill(DType::F16, &left, 1), fill(DType::F16, &right, 2)];
        let what = format!("{rows} {columns} {terms} {contracting:?}");
        let build = |b: &mut Builder, atoms: &[Atom]| product(b, atoms, dot(contracting, &[], None));
        assert_eq!(by_matrices(build, &inputs, &what), 1, "{what}");
    }
}

/// A product in floats of what are halves.
fn product(b: &mut Builder, operands: &[Atom], op: impl Into<Op>) -> Atom {
    let wide = [0, 1].map(|which| b.convert(operands[which], DType::F32).unwrap());
    b.emit1(op, &wide).unwrap()
}

#[test]
fn segments_batches_and_what_is_made_of_results_go_by_matrices() {
    let inputs = [fill(DType::F16, &[2, 40, 600], 1), fill(DType::F16, &[2, 600, 36], 2)];
    let build = |b: &mut Builder, atoms: &[Atom]| {
        let op = dot([2, 1], &[0], None);
        let product = product(b, atoms, op);
        let result = b.unary(Unary::Abs, product).unwrap();
        b.convert(result, DType::F16).unwrap()
    };
    assert_eq!(by_matrices(build, &inputs, "segments"), 1);
}

#[test]
fn operands_that_are_rounded_to_halves_go_by_matrices() {
    let inputs = [fill(DType::F32, &[40, 48], 1), fill(DType::F16, &[48, 40], 2)];
    let build = |b: &mut Builder, atoms: &[Atom]| {
        let rounded = b.convert(atoms[0], DType::F16).unwrap();
        product(b, &[rounded, atoms[1]], dot([1, 0], &[], None))
    };
    assert_eq!(by_matrices(build, &inputs, "rounded"), 1);
}

#[test]
fn convolutions_of_halves_go_by_matrices() {
    let op = ConvGeneralDilated {
        window_strides: axes(&[1, 1]),
        padding: vec![(1, 1), (0, 2)],
        lhs_dilation: axes(&[1, 1]),
        rhs_dilation: axes(&[1, 1]),
        dims: ConvDims { lhs: axes(&[0, 3, 1, 2]), rhs: axes(&[3, 2, 0, 1]), out: axes(&[0, 3, 1, 2]) },
        feature_group_count: 1,
        batch_group_count: 1,
        precision: None,
        preferred_element_type: None,
    };
    let inputs = [fill(DType::F16, &[1, 7, 6, 8], 1), fill(DType::F16, &[3, 3, 8, 40], 2)];
    assert_eq!(by_matrices(|b, atoms| product(b, atoms, op.clone()), &inputs, "convolution"), 1);
}

#[test]
fn other_products_go_by_tiles() {
    let none = |rows: usize, dtype: DType, precision: Option<Precision>, what: &str| {
        let inputs = [fill(dtype, &[rows, 48], 1), fill(dtype, &[48, 40], 2)];
        let build = |b: &mut Builder, atoms: &[Atom]| product(b, atoms, dot([1, 0], &[], precision));
        assert_eq!(by_matrices(build, &inputs, what), 0, "{what}");
    };
    none(40, DType::F16, Some(Precision::Highest), "of the highest precision");
    none(20, DType::F16, None, "few rows");
    none(40, DType::BF16, None, "of other halves");
    none(40, DType::F32, None, "of floats");
}
