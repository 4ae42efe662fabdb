//! The thresholds of the CPU: from where on a way to compute pays, and how large its parts are.
//!
//! They are handed down from [`Cpu`](crate::Cpu), whose value is chosen once (`ferrax_compile::tuning`): kernels are bound
//! with what they need of them. None changes a bit; numbers that do are constants, which `ferrax_compile::tuning` names.

use ferrax_compile::tuning::{Blocks, Setting, Target};

/// See the head of this file.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tuning {
    pub plan: Target,
    pub blocks: Blocks,
    pub threads: Threads,
    pub products: Products,
    pub convolutions: Convolutions,
    pub lines: Lines,
    pub loops: Loops,
    pub code: Code,
}

/// Machine code for what kernels do to blocks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Code {
    /// Operations on elements from which it is made: to make it takes some ten microseconds.
    pub work: f64,
    /// Elements of a block from which it pays to call it.
    pub lanes: usize,
}

/// Work from which threads share it. To wake a helper and to wait for it takes some microseconds, so that work of twenty
/// or so stays on one thread; shares are such that a claim costs little beside them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Threads {
    /// Of a kernel, in nanoseconds as `Bound` estimates them: what stays on one thread, what a chunk should take, and
    /// what it takes at most, where units are shorter, for runs can be stopped between chunks.
    pub kernel: f64,
    pub chunk: f64,
    pub longest_chunk: f64,
    /// Chunks of blocks of rows for each thread: some, so that those that are done early take from others.
    pub run_chunks: usize,
    /// Bytes of windows that are gathered or scattered: a second-level cache takes as long.
    pub windows: usize,
    /// Bytes of a copy, and of each share: memory is faster on several threads only beyond the caches.
    pub copy: usize,
    pub copy_chunk: usize,
    /// Elements that are gathered one by one.
    pub gather: usize,
    /// Elements of all lines that are scattered, which each thread goes through.
    pub scatter: usize,
    /// Bytes of a line or window that a thread has of its own: a cache line.
    pub stripe: usize,
    /// Elements of running reductions.
    pub cumulative: usize,
    /// Elements of lines that are sorted, words of a line that threads share, and elements of a line whose largest are
    /// found.
    pub sort: usize,
    pub sort_line: usize,
    pub top_k: usize,
    /// Elements of Fourier transforms.
    pub fft: usize,
    /// Multiplications of factorisations, and elements of decompositions, each of which costs some hundred.
    pub factorisations: usize,
    pub decompositions: usize,
}

/// Products of matrices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Products {
    /// Multiplications below which a product stays on one thread.
    pub serial: usize,
    /// Pieces that a large product is cut into, at most, the least rows of one where there are more than two, for each piece
    /// of the `gemm` crate packs the whole other operand, and what rows are a multiple of, which is that of its blocks.
    pub pieces: usize,
    pub least_piece: usize,
    pub multiple: usize,
    /// Rows and columns that register blocks have packed at once: for all threads, and for one thread, whose second-level
    /// cache holds them.
    pub shared: [usize; 2],
    pub own: [usize; 2],
    /// Register blocks, one below the other, of a unit that one of many threads computes, at least, and its columns: of fewer
    /// rows the strips of the right operand are read too often.
    pub unit: [usize; 2],
    /// Rows and columns of a piece of a product over long axes, at most: what a second-level cache holds of the
    /// values of a tree.
    pub panel_piece: usize,
    /// Units of work that are aimed at, where panels are few: threads of a machine.
    pub units: usize,
}

/// Convolutions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Convolutions {
    /// Multiplications below which a convolution stays on one thread.
    pub serial: usize,
    /// Free indices of a tile, at most: broadcast ones and those along vectors. Packed, both are in a second-level cache.
    pub broadcast: usize,
    pub along: usize,
    /// Units of work that are aimed at, if there is work for them, and the multiplications that one should have.
    pub units: usize,
    pub unit: usize,
    /// Tiles from which on the weights that they share are packed once.
    pub shared: usize,
    /// Of those with one output feature a group: groups side by side, at most, and elements of a tile, whose sums stay in
    /// the first-level cache.
    pub groups: usize,
    pub tile: usize,
}

/// Lines of arrays that are gone through together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lines {
    /// Adjacent lines of a running reduction, at most [`Lines::MOST_GROUP`]: cache lines are used whole.
    pub cumulative: usize,
    /// Columns that are transformed together (two cache lines of `complex64`), and rows that are copied together.
    pub fft_columns: usize,
    pub fft_rows: usize,
    /// Words below which comparing is faster than counting digits, for each digit.
    pub compared: usize,
}

impl Lines {
    pub const MOST_GROUP: usize = 64;
}

/// Loops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loops {
    /// Bytes from which the body of a loop works on its carry in place: two small places that take turns are faster than
    /// one that is read and written.
    pub in_place: usize,
    /// Steps from which on a small loop is machine code; the most there are: none is.
    pub native: usize,
    /// Steps in the first chunk of what a loop records, and bytes from which chunks do not grow any more.
    pub first_chunk: usize,
    pub large_chunk: usize,
}

impl Tuning {
    /// A core of the last ten years.
    pub const CPU: Tuning = Tuning {
        plan: Target::CPU,
        blocks: Blocks::CPU,
        threads: Threads {
            kernel: 20_000.0,
            chunk: 12_000.0,
            longest_chunk: 10_000_000.0,
            run_chunks: 4,
            windows: 1 << 17,
            copy: 4 << 20,
            copy_chunk: 1 << 20,
            gather: 1 << 14,
            scatter: 1 << 16,
            stripe: 64,
            cumulative: 1 << 14,
            sort: 1 << 13,
            sort_line: 1 << 16,
            top_k: 1 << 15,
            fft: 1 << 14,
            factorisations: 1 << 16,
            decompositions: 1 << 10,
        },
        products: Products {
            serial: 1 << 19,
            pieces: 8,
            least_piece: 256,
            multiple: 16,
            shared: [768, 4096],
            own: [96, 512],
            unit: [4, 512],
            panel_piece: 512,
            units: 16,
        },
        convolutions: Convolutions {
            serial: 1 << 18,
            broadcast: 240,
            along: 256,
            units: 16,
            unit: 1 << 20,
            shared: 3,
            groups: 64,
            tile: 4096,
        },
        lines: Lines { cumulative: Lines::MOST_GROUP, fft_columns: 16, fft_rows: 8, compared: 32 },
        loops: Loops { in_place: 4 << 10, native: 16, first_chunk: 16, large_chunk: 16 << 20 },
        code: Code { work: 32_000.0, lanes: 64 },
    };

    /// All is shared, in the smallest parts.
    pub const TINY: Tuning = Tuning {
        plan: Target::TINY,
        blocks: Blocks::TINY,
        threads: Threads {
            kernel: 0.0,
            chunk: 1.0,
            windows: 1,
            copy: 2,
            copy_chunk: 24,
            gather: 1,
            scatter: 1,
            stripe: 1,
            cumulative: 1,
            sort: 1,
            sort_line: 2,
            top_k: 2,
            fft: 1,
            factorisations: 1,
            decompositions: 1,
            ..Tuning::CPU.threads
        },
        products: Products {
            serial: 1,
            least_piece: 3,
            multiple: 1,
            shared: [24, 64],
            own: [12, 32],
            unit: [1, 32],
            panel_piece: 3,
            ..Tuning::CPU.products
        },
        convolutions: Convolutions {
            serial: 1,
            broadcast: 2,
            along: 2,
            unit: 1,
            shared: 2,
            groups: 2,
            tile: 6,
            ..Tuning::CPU.convolutions
        },
        lines: Lines { cumulative: 3, fft_columns: 3, fft_rows: 2, compared: 1 },
        loops: Loops { in_place: 0, native: 1, first_chunk: 2, large_chunk: 256 },
        code: Code { work: 500.0, lanes: 2 },
    };

    /// Nothing is shared.
    pub const HUGE: Tuning = Tuning {
        plan: Target::HUGE,
        blocks: Blocks::HUGE,
        threads: Threads {
            kernel: f64::INFINITY,
            windows: usize::MAX,
            copy: usize::MAX,
            gather: usize::MAX,
            scatter: usize::MAX,
            cumulative: usize::MAX,
            sort: usize::MAX,
            sort_line: usize::MAX,
            top_k: usize::MAX,
            fft: usize::MAX,
            factorisations: usize::MAX,
            decompositions: usize::MAX,
            ..Tuning::CPU.threads
        },
        products: Products { serial: usize::MAX, ..Tuning::CPU.products },
        convolutions: Convolutions {
            serial: usize::MAX,
            unit: usize::MAX / 2,
            shared: usize::MAX,
            ..Tuning::CPU.convolutions
        },
        lines: Lines { compared: usize::MAX / 8, ..Tuning::CPU.lines },
        loops: Loops { in_place: usize::MAX, native: usize::MAX, ..Tuning::CPU.loops },
        code: Code { work: f64::INFINITY, lanes: 64 },
    };

    /// The thresholds of a setting.
    pub fn of(setting: Setting) -> &'static Tuning {
        match setting {
            Setting::Tiny => &Tuning::TINY,
            Setting::Default => &Tuning::CPU,
            Setting::Huge => &Tuning::HUGE,
        }
    }
}
