//! Runs block by block, with small blocks of small arrays: what the interpreter gives, whatever the block.

use ferrax_compile::backend::prepare;
use ferrax_compile::{Place, Plan, Step, Target, plan};
use ferrax_ir::{DType, Program, Tensor, interpret};

use super::Blocks;
use crate::adapter::Choice;
use crate::common::{arguments, attention, attention_of, compare};
use crate::gpu::Gpu;
use crate::memory::Memory;

fn gpu() -> Gpu {
    let name = std::env::var("FERRAX_GPU").unwrap_or_else(|_| "llvmpipe".to_string());
    Gpu::open(&Choice::Name(name)).unwrap()
}

/// A plan whose runs begin with little, and are all of it; a row has at most so many bytes.
fn planned(program: &Program, row: usize) -> Plan {
    let (plan, before) = planned_after(program, row);
    assert!(before == 0 && plan.runs[0].steps.end == plan.steps.len(), "{plan}");
    plan
}

/// A plan with one run that begins with little, and the number of steps before it.
fn planned_after(program: &Program, row: usize) -> (Plan, usize) {
    let product_block = 8 * row;
    let little =
        Target { product_bytes: 1 << 8, run_bytes: 1 << 6, product_rows: 8, product_block, ..Target::CPU };
    let plan = plan(&prepare(program).unwrap(), &little).unwrap();
    assert_eq!(plan.runs.len(), 1, "{plan}");
    assert!(plan.runs[0].has_calls(), "{plan}");
    let before = plan.runs[0].steps.start;
    (plan, before)
}

/// The results, by blocks of so many bytes, of which there have to be so many.
fn run(gpu: &Gpu, plan: &Plan, inputs: &[Tensor], bytes: usize, blocks: usize) -> Vec<Tensor> {
    let ready = Blocks::new(gpu, plan, &plan.runs[0], bytes).unwrap();
    let ready = ready.unwrap_or_else(|| panic!("no blocks of {bytes} bytes of {plan}"));
    assert_eq!(ready.blocks.len(), blocks, "{bytes} bytes of {plan}");
    let memory: Vec<Option<Memory>> = plan
        .buffers
        .iter()
        .map(|buffer| match buffer.place {
            Place::Input(number) => Some(gpu.upload(inputs[number].bytes()).unwrap()),
            Place::Constant(number) => Some(gpu.upload(plan.constants[number].bytes()).unwrap()),
            Place::Arena(_) | Place::Fresh(_) => Some(gpu.allocate(buffer.bytes).unwrap()),
            Place::Rows(_) => None,
        })
        .collect();
    for step in &plan.steps[..plan.runs[0].steps.start] {
        let Step::Kernel { launch, operands } = step else { panic!("{plan}") };
        let bytes: Vec<usize> = operands.iter().map(|id| plan.buffers[id.0 as usize].bytes).collect();
        let operands: Vec<Memory> =
            operands.iter().map(|id| memory[id.0 as usize].clone().unwrap()).collect();
        gpu.launch(&gpu.prepare(launch, &bytes).unwrap(), &operands).unwrap();
    }
    ready.record(gpu, |id| Ok(memory[id.0 as usize].clone().unwrap())).unwrap();
    let home = |output: &ferrax_compile::Argument| {
        let mut tensor = Tensor::zeros(output.dtype, output.sizes.clone()).unwrap();
        let memory = memory[output.buffer.0 as usize].as_ref().unwrap();
        gpu.download(memory, tensor.bytes_mut().unwrap()).unwrap();
        tensor
    };
    plan.outputs.iter().map(home).collect()
}

/// A causal mask compares the numbers of rows, which go on from block to block; heads are in one block, in several, or
/// each in several of unequal lengths.
#[test]
fn attention_by_blocks_of_any_size() {
    let gpu = gpu();
    let cases = [
        (
            [6, 20, 8],
            1 << 10,
            2,
            &[(1 << 30, 0), (3 * 20, 2), (2 * 20, 3), (20, 6), (19, 12), (7, 18), (1, 120)][..],
        ),
        ([6, 20, 8], 1 << 20, 1, &[(6, 0), (5, 2), (2, 3), (1, 6)][..]),
        ([1, 40, 8], 1 << 10, 1, &[(39, 2), (16, 3)][..]),
        ([2, 64, 3], 1 << 10, 2, &[(1, 128)][..]),
    ];
    for (sizes, row, loops, cases) in cases {
        let program = attention(sizes[0], sizes[1], sizes[2]);
        let (plan, inputs) = (planned(&program, row), arguments(&program, 3));
        let extents = plan.runs[0].extents.iter().filter(|&&extent| extent > 1);
        assert_eq!(extents.count(), loops, "{plan}");
        let wanted = interpret::run(&program, &inputs).unwrap();
        for &(rows, blocks) in cases {
            let bytes = plan.runs[0].own_bytes.saturating_mul(rows);
            if blocks == 0 {
                assert!(Blocks::new(&gpu, &plan, &plan.runs[0], bytes).unwrap().is_none());
                continue;
            }
            let got = run(&gpu, &plan, &inputs, bytes, blocks);
            compare(&got[0], &wanted[0], 1000, &format!("attention of {sizes:?} by {rows} rows"));
        }
    }
}

/// Elements narrower than words, which are written in groups where rows allow it, else beside those of other blocks.
#[test]
fn narrow_elements_by_blocks() {
    let gpu = gpu();
    for (dtype, places, keys) in
        [(DType::F16, 20, 40), (DType::BF16, 13, 39), (DType::I8, 7, 37), (DType::Bool, 9, 24)]
    {
        let text = format!(
            "{{ lambda ; q:f32[2,{places},3] k:f32[2,{keys},3]. let
              s:f32[2,{places},{keys}] = dot_general[dimension_numbers=(([2], [2]), ([0], [0])) precision=None
                preferred_element_type=None] q k
              m:f32[2,{places}] = reduce_max[axes=(2,)] s
              w:f32[2,{places},{keys}] = broadcast_in_dim[shape=(2, {places}, {keys}) broadcast_dimensions=(0, 1)] m
              d:f32[2,{places},{keys}] = sub s w
              e:f32[2,{places},{keys}] = floor d
              n:{}[2,{places},{keys}] = convert_element_type[new_dtype={} weak_type=False] e
            in (n, m) }}",
            dtype.short_name(),
            dtype.name()
        );
        let program = Program::parse(&text).unwrap_or_else(|error| panic!("{error}"));
        let (plan, inputs) = (planned(&program, 1 << 9), arguments(&program, 3));
        let wanted = interpret::run(&program, &inputs).unwrap();
        for (rows, blocks) in [(5, 2 * usize::div_ceil(places, 5)), (places, 2), (1, 2 * places)] {
            let got = run(&gpu, &plan, &inputs, plan.runs[0].own_bytes * rows, blocks);
            for (got, wanted) in got.iter().zip(&wanted) {
                compare(got, wanted, 8, &format!("{dtype} of {places} by {rows} rows"));
            }
        }
    }
}

/// Steps that bring operands of products into another dtype come before the run.
#[test]
fn attention_in_half_precision_by_blocks() {
    let gpu = gpu();
    for dtype in [DType::F16, DType::BF16] {
        let program = attention_of(dtype, 2, 39, 8);
        let inputs = arguments(&program, 3);
        let wanted = interpret::run(&program, &inputs).unwrap();
        for (rows, blocks) in [(16, 6), (39, 2)] {
            let (plan, before) = planned_after(&program, 1 << 10);
            assert!(before > 0 && plan.runs[0].steps.end == plan.steps.len(), "{plan}");
            let got = run(&gpu, &plan, &inputs, plan.runs[0].own_bytes * rows, blocks);
            compare(&got[0], &wanted[0], 100, &format!("attention in {dtype} by {rows} rows"));
        }
    }
}
