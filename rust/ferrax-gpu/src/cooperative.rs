//! Whether a GPU multiplies matrices of halves: what its driver says, and what it then does.
//!
//! In: an adapter; later the GPU. Out: its matrices, if there are any that shaders of [`crate::wgsl::cooperative`]
//! have, and whether products by them are right. The feature is an experimental one of wgpu, and drivers' compilers
//! have got it wrong: before the first product by matrices two small ones, of whole numbers, are computed and
//! compared with what they are, in shapes that use what there is of the shader: tiles of both sizes, operands by rows
//! and by columns, terms of several blocks, sizes that are no multiples of anything. One operand has numbers below
//! the normal ones, which are not to become zeros. Cost: two pipelines, and a wait for the GPU, once.

use ferrax_compile::{Argument, BufferId};
use ferrax_ir::ops::DotGeneral;
use ferrax_ir::scalar::{Narrow, ScalarOp, Value};
use ferrax_ir::{DType, Result};
use wgpu::{Adapter, Backend, CooperativeScalarType, Features};

use crate::elementwise::digits;
use crate::fuse::{Fusion, Taken};
use crate::gpu::Gpu;
use crate::product;
use crate::wgsl::cooperative::{Maker, Matrices, WORKGROUP_BYTES, WORKGROUP_SUBGROUPS};

/// What a GPU has to be opened with.
pub const FEATURES: Features =
    Features::EXPERIMENTAL_COOPERATIVE_MATRIX.union(Features::SHADER_F16).union(Features::SUBGROUP);

/// Subgroups that the shader is written for.
const LANES: [u32; 5] = [4, 8, 16, 32, 64];

/// The matrices that a driver says its GPU multiplies, halves with sums of floats; the larger ones first. Metal has no
/// way to read halves from words.
pub fn offered(adapter: &Adapter) -> Option<Matrices> {
    let (info, limits) = (adapter.get_info(), adapter.limits());
    let lanes = info.subgroup_min_size;
    let fits = info.backend == Backend::Vulkan
        && adapter.features().contains(FEATURES)
        && LANES.contains(&lanes)
        && limits.max_compute_workgroup_storage_size >= WORKGROUP_BYTES
        && limits.max_compute_invocations_per_workgroup >= WORKGROUP_SUBGROUPS * lanes
        && limits.max_compute_workgroup_size_x >= WORKGROUP_SUBGROUPS * lanes;
    let known = adapter.cooperative_matrix_properties();
    let has = |side: &u32| {
        known.iter().any(|known| {
            [known.m_size, known.n_size, known.k_size] == [*side; 3]
                && known.ab_type == CooperativeScalarType::F16
                && known.cr_type == CooperativeScalarType::F32
        })
    };
    let side = [16, 8].into_iter().find(has).filter(|_| fits)?;
    Some(Matrices { side: side as usize, lanes: lanes as usize, maker: Maker::Driver })
}

/// Where halves that a kernel makes are: the operand whose elements they are, if it makes nothing else of them. None
/// if it does not make halves.
pub fn halves(taken: &Taken) -> Option<Option<u32>> {
    let Value::Real(reg) = taken.value else { return None };
    let kernel = &taken.launch.kernel;
    match kernel.body.instructions().get(reg.0 as usize)?.op {
        ScalarOp::RoundTo(Narrow::F16) => Some(None),
        ScalarOp::Input { operand, .. } => {
            let load = kernel.loads.get(operand as usize)?;
            (kernel.operands.get(load.operand as usize)?.dtype == DType::F16).then_some(())?;
            let view = taken.launch.loads.get(operand as usize)?;
            let same = digits(view, &taken.launch.extents);
            Some(same.filter(|order| *order == taken.order).map(|_| load.operand))
        }
        _ => None,
    }
}

/// Whether the products that this GPU computes by matrices are right.
pub fn holds(gpu: &Gpu, matrices: Matrices) -> bool {
    let odd =
        || is_right(gpu, matrices, Trial { sizes: [75, 91, 203], by_terms: [true, false], large: false });
    let even =
        || is_right(gpu, matrices, Trial { sizes: [136, 144, 104], by_terms: [false, true], large: true });
    // What a driver refuses it does not hold.
    odd().unwrap_or(false) && even().unwrap_or(false)
}

/// A product of rows, columns and terms; whether neighbours are terms in the left operand, and in the right one.
struct Trial {
    sizes: [usize; 3],
    by_terms: [bool; 2],
    large: bool,
}

/// Whole numbers that do not repeat soon: from -7 to 7, times 2^-24, as halves; from 1024 on as halves.
fn small(at: usize) -> (u16, f32) {
    let number = (at * at + 5 * at) % 15;
    let number = number as i16 - 7;
    let sign = if number < 0 { 0x8000 } else { 0 };
    (sign | number.unsigned_abs(), f32::from(number))
}

fn large(at: usize) -> (u16, f32) {
    let number = (at * at * 3 + at) % 29;
    (0x6400 + number as u16, 1024.0 + number as f32)
}

/// Halves below the normal ones are multiples of this.
const LEAST: f32 = 1.0 / (1 << 24) as f32;

fn is_right(gpu: &Gpu, matrices: Matrices, trial: Trial) -> Result<bool> {
    let Trial { sizes: [rows, columns, terms], by_terms, large: is_large } = trial;
    // Where the element of a row, or column, and a term lies, and what it is.
    let place = |which: usize, index: usize, term: usize| match by_terms[which] {
        true => index * terms + term,
        false => term * [rows, columns][which] + index,
    };
    let number = |which: usize, at: usize| if (which == 0) != is_large { small(at) } else { large(at) };
    let halves = |which: usize| -> Vec<u16> {
        (0..[rows, columns][which] * terms).map(|at| number(which, at).0).collect()
    };
    let shape = |which: usize| match by_terms[which] {
        true => [[rows, columns][which], terms],
        false => [terms, [rows, columns][which]],
    };
    let argument = |dtype: DType, sizes: [usize; 2]| Argument {
        buffer: BufferId(0),
        dtype,
        sizes: sizes.as_slice().into(),
    };
    let [lhs, rhs] = [0, 1].map(|which| argument(DType::F16, shape(which)));
    let out = argument(DType::F32, [rows, columns]);
    let contracting = |which: usize| std::iter::once(usize::from(by_terms[which])).collect();
    let op = DotGeneral {
        lhs_contracting: contracting(0),
        rhs_contracting: contracting(1),
        lhs_batch: std::iter::empty().collect(),
        rhs_batch: std::iter::empty().collect(),
        precision: None,
        preferred_element_type: Some(DType::F32),
    };
    let prepared = product::by_matrices(gpu, &op, &Fusion::plain([&lhs, &rhs, &out]), matrices, is_large)?;
    let [left, right] = [0, 1].map(|which| gpu.upload(bytemuck::cast_slice(&halves(which))));
    let result = gpu.allocate(out.bytes())?;
    gpu.launch(&prepared, [&left?, &right?, &result])?;
    let mut got = vec![0f32; rows * columns];
    gpu.download(&result, bytemuck::cast_slice_mut(&mut got))?;
    // Sums of whole numbers below 2^24, in any order.
    let value = |row: usize, column: usize| {
        let one = |term: usize| number(0, place(0, row, term)).1 * number(1, place(1, column, term)).1;
        (0..terms).map(one).sum::<f32>() * LEAST
    };
    Ok(got.iter().enumerate().all(|(at, &got)| got.to_bits() == value(at / columns, at % columns).to_bits()))
}

#[cfg(test)]
#[path = "cooperative_tests.rs"]
mod tests;
