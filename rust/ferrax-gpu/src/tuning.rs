//! The thresholds of a GPU: from where on a way to compute pays, and how large its parts are.
//!
//! A GPU is opened with a value of them, which `FERRAX_TUNING` chooses as it does the CPU's (`ferrax_compile::tuning`).
//! None that differs between settings changes a bit. Numbers that do are the same in all: of blocks of rows with products,
//! or constants where they are used: which products are thin, how many terms a segment of them has (`product/sizes`),
//! chunks of running reductions (`cumulative`), and what the CPU transforms and factorises (`fft`, `factorise`).

use ferrax_compile::tuning::{Launches, Setting, Target};

/// See the head of this file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tuning {
    pub plan: Target,
    pub launches: Launches,
    pub kernels: Kernels,
    pub vain: Vain,
}

/// Who computes a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kernels {
    /// Terms from which on a workgroup folds them, and from which on several do, where indices are fewer than that.
    pub many_terms: usize,
    pub long: usize,
    pub few_indices: usize,
    /// How many workgroups, or invocations, are enough.
    pub groups: usize,
    pub invocations: usize,
    /// Indices from which on invocations of their own have neighbours in memory, where terms are none.
    pub neighbours: usize,
    /// Indices from which on a fourth of the invocations are enough (`wgsl/wide`).
    pub wide: usize,
}

impl Kernels {
    pub const GPU: Kernels = Kernels {
        many_terms: 512,
        long: 1 << 14,
        few_indices: 256,
        groups: 1024,
        invocations: 1 << 16,
        neighbours: 64,
        wide: 1 << 18,
    };
}

/// What is computed before the host knows whether it is needed (`cost`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Vain {
    /// What it may cost, in operations: as much as a read by the host, about a tenth of a millisecond.
    pub most: u64,
    /// The most steps of a loop that are recorded before the host asks whether it goes on, and what they may cost
    /// together, in reads.
    pub steps: u64,
    pub reads: u64,
}

impl Tuning {
    /// GPUs of the last ten years.
    pub const GPU: Tuning = Tuning {
        plan: Target::APART,
        launches: Launches::GPU,
        kernels: Kernels::GPU,
        vain: Vain { most: 1 << 27, steps: 64, reads: 8 },
    };

    /// Terms are shared from a few on, and rows are many from two on.
    pub const TINY: Tuning = Tuning {
        plan: Target { near_bytes: Target::TINY.near_bytes, fusion: Target::TINY.fusion, ..Target::APART },
        launches: Launches::TINY,
        kernels: Kernels { many_terms: 2, long: 2, few_indices: 4, neighbours: 2, wide: 1, ..Kernels::GPU },
        vain: Vain { steps: 3, ..Tuning::GPU.vain },
    };

    /// Nobody shares terms, each kernel is a launch, and the host asks at each step.
    pub const HUGE: Tuning = Tuning {
        plan: Target { near_bytes: Target::HUGE.near_bytes, fusion: Target::HUGE.fusion, ..Target::APART },
        launches: Launches::HUGE,
        kernels: Kernels { many_terms: usize::MAX, wide: usize::MAX, ..Kernels::GPU },
        vain: Vain { most: 0, ..Tuning::GPU.vain },
    };

    /// The thresholds of a setting.
    pub fn of(setting: Setting) -> &'static Tuning {
        match setting {
            Setting::Tiny => &Tuning::TINY,
            Setting::Default => &Tuning::GPU,
            Setting::Huge => &Tuning::HUGE,
        }
    }
}
