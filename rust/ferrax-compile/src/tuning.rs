//! The thresholds of plans and schedules: from how many bytes or elements on a way to compute pays, and how large its
//! parts are.
//!
//! Each backend has a value of them, which is handed down from there: nothing reads a process-wide one. No threshold
//! changes a bit of a result, so that programs of a few elements can go every way (`tiny`), or none (`huge`), and
//! tests compare the three. Nor does what is optimised depend on them, and stored programs are for all
//! (`ferrax-transform`, `ferrax-cpu/src/persistent`).
//!
//! Numbers that do determine bits are no thresholds, and constants where they are used: [`LANES`] and [`BLOCK`] of the
//! tree of a sum (`interpret.rs`), panels of products and convolutions, and which products are
//! tiny or thin (`ferrax-cpu/src/kernels`: `panels.rs`, `blocked.rs`, `thin.rs`, `conv/tree.rs`, `micro.rs`).
//!
//! [`LANES`]: crate::interpret::LANES
//! [`BLOCK`]: crate::interpret::BLOCK

use ferrax_ir::{Result, value_error};

/// The environment variable that chooses the thresholds of a process.
pub const VARIABLE: &str = "FERRAX_TUNING";

/// Multiplications of a product up to which each of its sums adds its terms one after the other. It determines bits, and is no
/// matter of tuning.
pub const TINY_PRODUCT: usize = 8 * 8 * 8;

/// Which thresholds a process has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Setting {
    /// Every way of computing is taken from a few elements on, in parts that are as small as they may be: for tests.
    Tiny,
    /// What is fastest on most machines.
    #[default]
    Default,
    /// Nothing is taken that pays for large arrays only: for tests, and to find a fault.
    Huge,
}

impl Setting {
    pub const ALL: [Setting; 3] = [Setting::Tiny, Setting::Default, Setting::Huge];

    /// What the variable says. Errors: it says something else.
    pub fn parse(text: &str) -> Result<Setting> {
        match text {
            "tiny" => Ok(Setting::Tiny),
            "default" | "" => Ok(Setting::Default),
            "huge" => Ok(Setting::Huge),
            other => Err(value_error!("{VARIABLE} expected 'tiny', 'default' or 'huge', got '{other}'")),
        }
    }

    /// What the environment says. Backends ask when they are made.
    pub fn from_environment() -> Result<Setting> {
        match std::env::var_os(VARIABLE) {
            None => Ok(Setting::Default),
            Some(text) => Setting::parse(&text.to_string_lossy()),
        }
    }
}

/// The numbers of a machine that plans depend on. They change which kernels there are, never a bit of what
/// they give.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Target {
    /// What the registers of a block may take, where these are memory: a part of a first-level cache.
    pub register_bytes: usize,
    /// Memory below which keeping a value is not worth a kernel: a first-level cache.
    pub near_bytes: usize,
    /// What a block of rows should take that kernels go through together: a part of a second-level cache.
    pub block_bytes: usize,
    /// Bytes of the rows of an array from which products of matrices go with such kernels, so that it is never
    /// there as a whole: what second-level caches hold. How many rows of it at least, and the bytes that they may take.
    pub product_bytes: usize,
    pub product_rows: usize,
    pub product_block: usize,
    /// Bytes of such kernels' arrays below which these stay in the caches anyway.
    pub run_bytes: usize,
    /// Arrays that a kernel may have.
    pub operands: usize,
    /// Elements from which on kernels of loops that are machine code are done in lanes.
    pub lanes: usize,
    /// Whether branches and loops take over the memory of operands that die with them.
    pub inner_updates: bool,
    /// What is computed together.
    pub fusion: Fusion,
}

impl Target {
    /// A core of the last ten years, with a second-level cache of its own.
    pub const CPU: Target = Target {
        register_bytes: 24 << 10,
        near_bytes: 32 << 10,
        block_bytes: 256 << 10,
        product_bytes: 4 << 20,
        product_rows: 128,
        product_block: 8 << 20,
        run_bytes: 1 << 20,
        operands: usize::MAX,
        lanes: 16,
        inner_updates: true,
        fusion: Fusion::CPU,
    };

    /// Machines of which each call has operands and results apart.
    pub const APART: Target = Target { inner_updates: false, ..Target::CPU };

    /// Runs of two or three rows, from a few elements on.
    pub const TINY: Target = Target {
        near_bytes: 16,
        block_bytes: 512,
        product_bytes: 64,
        product_rows: 2,
        lanes: 2,
        product_block: 16 << 10,
        run_bytes: 64,
        fusion: Fusion::TINY,
        ..Target::CPU
    };

    /// No runs.
    pub const HUGE: Target = Target {
        near_bytes: usize::MAX,
        product_bytes: usize::MAX,
        run_bytes: usize::MAX,
        inner_updates: false,
        fusion: Fusion::HUGE,
        ..Target::CPU
    };
}

/// From where on values are stored rather than computed where they are used. Work of an element is counted in additions
/// (`Rules::cost`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fusion {
    /// Work above which a value with several users is stored rather than recomputed: eight additions, or anything
    /// transcendental.
    pub recompute: u32,
    /// Work above which a value is stored before it is broadcast.
    pub broadcast: u32,
    /// Elements of lines picked at an index each from which kernels pick them where they are used: it is then one index
    /// for a block of elements. Of shorter ones it would be computed for each element.
    pub picked_line: usize,
    /// How many times the memory of a value its operands must take for it to be stored so that they need not be kept
    /// until it is used.
    pub held_ratio: usize,
}

impl Fusion {
    pub const CPU: Fusion = Fusion { recompute: 8, broadcast: 3, picked_line: 256, held_ratio: 4 };
    pub const TINY: Fusion = Fusion { picked_line: 2, held_ratio: 2, ..Fusion::CPU };
    pub const HUGE: Fusion = Fusion { picked_line: usize::MAX, held_ratio: usize::MAX, ..Fusion::CPU };
}

/// How kernels go through their elements. Counts are of elements where nothing else is said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blocks {
    /// Rows and columns of a tile, at most. Unlimited but for tests: a tile has about 24 KiB of registers.
    pub rows: usize,
    pub columns: usize,
    /// Bytes of the lanes of trees side by side, for terms that are read where they lie and for computed ones, of which a
    /// tile holds one row. Lanes stay in the second-level cache: to read whole rows is worth more than to have them nearer.
    pub lane_bytes: usize,
    pub computed_lane_bytes: usize,
    /// Elements of a tile that is converted row by row: what fits into the first-level cache.
    pub strided: usize,
    /// Elements of a tile of lines that are read where they lie, and the most lines of one: enough that the call of a
    /// block costs nothing beside them.
    pub lines: usize,
    pub most_lines: usize,
    /// Terms per segment of a long reduction (some tens of microseconds), and the number of segments that is aimed at:
    /// threads of a large machine.
    pub segment: usize,
    pub segments: usize,
    /// Tiles that are enough for all threads.
    pub tiles: usize,
}

impl Blocks {
    pub const CPU: Blocks = Blocks {
        rows: usize::MAX,
        columns: usize::MAX,
        lane_bytes: 64 << 10,
        computed_lane_bytes: 64 << 10,
        strided: 1 << 12,
        lines: 1 << 14,
        most_lines: 256,
        segment: 1 << 16,
        segments: 64,
        tiles: 16,
    };

    /// Tiles of a few rows and columns; segments of as few terms as are a subtree.
    pub const TINY: Blocks = Blocks {
        rows: 3,
        columns: 5,
        lane_bytes: 64,
        computed_lane_bytes: 64,
        strided: 8,
        lines: 16,
        most_lines: 2,
        segment: 1,
        ..Blocks::CPU
    };

    /// No segments.
    pub const HUGE: Blocks =
        Blocks { segment: usize::MAX / 4, lines: 1, most_lines: 1, tiles: 1, ..Blocks::CPU };
}

/// What is launched at once (`launches/`), on machines for which each launch costs something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Launches {
    /// What an operand's kernel may cost for an element, times how often that is read, for its product to take it in. A
    /// pass over memory that goes away takes, on GPUs of the last ten years, about as long as so many instructions for
    /// each element.
    pub taken_cost: usize,
    /// Bytes that the values of a block of rows may take for which nobody else has a use. Who computes a product, and so
    /// the order of its terms, depends on its rows: it is the same whatever the setting.
    pub block_bytes: usize,
    /// Iterations of a row below which it is short, and rows from which on these are many: then rows are invocations,
    /// each of which may have so many words of its own.
    pub short_row: usize,
    pub many_rows: usize,
    pub alone_words: usize,
    /// Iterations of a row from which on a workgroup is slow, and rows that keep the machine busy though it is.
    pub long_row: usize,
    pub enough_rows: usize,
    /// Iterations of kernels that are small: one workgroup is faster than launches.
    pub small: usize,
    /// Iterations of a kernel in a step of a loop that is one launch, at most.
    pub loop_work: usize,
    /// Bytes of a workgroup's memory that values may take, so that a processor has several workgroups at a time, and
    /// those that are left for folding.
    pub own_bytes: usize,
    pub fold_bytes: usize,
}

impl Launches {
    /// GPUs of the last ten years.
    pub const GPU: Launches = Launches {
        taken_cost: 64,
        block_bytes: 32 << 20,
        short_row: 32,
        many_rows: 256,
        alone_words: 64,
        long_row: 4096,
        enough_rows: 512,
        small: 1024,
        loop_work: 4096,
        own_bytes: 24 << 10,
        fold_bytes: 6 << 10,
    };

    /// Rows are many from two on; what is between kernels has no place but for some of it.
    pub const TINY: Launches = Launches {
        taken_cost: 1 << 12,
        many_rows: 2,
        alone_words: 16,
        enough_rows: 1,
        own_bytes: 1 << 10,
        ..Launches::GPU
    };

    /// Each kernel is a launch, but for those that cost nothing.
    pub const HUGE: Launches = Launches {
        taken_cost: 0,
        many_rows: usize::MAX,
        long_row: 0,
        enough_rows: usize::MAX,
        small: 0,
        loop_work: 0,
        ..Launches::GPU
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_one_of_three_words() {
        for (text, setting) in
            [("tiny", Setting::Tiny), ("default", Setting::Default), ("huge", Setting::Huge)]
        {
            assert_eq!(Setting::parse(text).unwrap(), setting);
        }
        let error = Setting::parse("small").unwrap_err().to_string();
        assert!(error.contains("FERRAX_TUNING") && error.contains("'small'"), "{error}");
    }
}
