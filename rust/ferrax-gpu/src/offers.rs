//! What a driver says that its GPU has.

use ferrax_ir::DType;
use wgpu::{Adapter, Backend, CooperativeScalarType, Features};

use crate::wgsl::product::matrices::{Maker, Matrices, WORKGROUP_BYTES, WORKGROUP_SUBGROUPS};

/// What a GPU has to be opened with to multiply matrices of halves.
pub const MATRICES: Features =
    Features::EXPERIMENTAL_COOPERATIVE_MATRIX.union(Features::SHADER_F16).union(Features::SUBGROUP);

/// Subgroups that the shader of products by matrices is written for.
const LANES: [u32; 5] = [4, 8, 16, 32, 64];

/// What a GPU needs to compute with a dtype, beside what all have.
pub fn feature(dtype: DType) -> Option<Features> {
    match dtype.real() {
        DType::I64 | DType::U64 => Some(Features::SHADER_INT64),
        DType::F64 => Some(Features::SHADER_F64),
        _ => None,
    }
}

/// The matrices that a driver says its GPU multiplies, halves with sums of floats; the larger ones first. Metal has no
/// way to read halves from words.
pub fn matrices(adapter: &Adapter) -> Option<Matrices> {
    let (info, limits) = (adapter.get_info(), adapter.limits());
    let lanes = info.subgroup_min_size;
    let fits = info.backend == Backend::Vulkan
        && adapter.features().contains(MATRICES)
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
