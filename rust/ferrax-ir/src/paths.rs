//! The ways of computing that programs may take, and how often each was taken: what tests are held to, so that no way is
//! without one.
//!
//! All are listed here, whichever crate they are in. A way counts where a program is optimised, or where a kernel is made
//! ready for its sizes; those that a run alone decides count once a call. Counters are of the process and only grow.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! paths {
    ($($(#[$doc:meta])* $path:ident = $name:literal,)*) => {
        /// A way of computing.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Path {
            $($(#[$doc])* $path,)*
        }

        impl Path {
            pub const ALL: &'static [Path] = &[$(Path::$path,)*];

            pub fn name(self) -> &'static str {
                match self {
                    $(Path::$path => $name,)*
                }
            }
        }
    };
}

paths! {
    /// A choice between an array and its update became an update of nothing.
    ConditionalUpdate = "conditional update",
    /// Products that left a loop: before it, as a sum after it, after it.
    FissionBefore = "fission: before the loop",
    FissionSums = "fission: sums",
    FissionAfter = "fission: after the loop",
    /// A product over all pairs of rows that is about to be differentiated became a loop.
    RowBlocks = "blocks of rows for derivatives",

    /// Kernels that go through rows together, and those with products.
    Run = "run by rows",
    RunOfProducts = "run by rows with products",
    /// A kernel of several results, with results of all terms of a reduction, that reads beyond an operand, at computed
    /// indices (one a tile, one a row, one an element).
    SeveralResults = "kernel: several results",
    Epilogue = "kernel: epilogue",
    Guards = "kernel: guards",
    PickedTiles = "kernel: index of a tile",
    PickedRows = "kernel: index of a row",
    PickedLanes = "kernel: index of an element",
    /// A kernel that writes into the memory of an operand, or an operand's that the caller gave away.
    InPlace = "kernel: in place",
    Donation = "donated operand",
    /// A kernel that is one straight line in a loop or a branch.
    Flat = "kernel: flat",
    /// A kernel whose tiles cross the order of an operand.
    Crossed = "kernel: crossed tiles",
    /// Trees of sums side by side, terms that are read where they lie, products that are, and segments.
    TreeByRows = "sum: rows",
    TreeByLines = "sum: lines",
    TreeStrided = "sum: rows where they lie",
    TreeOfLines = "sum: lines where they lie",
    TreeOfProducts = "sum: products where they lie",
    Segments = "sum: segments",
    PlainSegments = "reduction: segments",
    /// Work that threads share.
    Threads = "threads",
    CopyShared = "copy: shared",

    /// Products of matrices.
    ProductTiny = "product: tiny",
    ProductThin = "product: thin",
    ProductRow = "product: a row",
    ProductVector = "product: a matrix and a vector",
    ProductBlocks = "product: register blocks",
    ProductShared = "product: register blocks of all threads",
    ProductPacked = "product: right operand packed for all rows",
    ProductLarge = "product: large",
    ProductIntegers = "product: integers",
    ProductPieces = "product: pieces",
    ProductGroups = "product: groups of small ones",
    ProductCopied = "product: operand brought into order",
    ProductPanels = "product: panels",
    ProductPanelPieces = "product: pieces of panels",
    ProductSubtrees = "product: subtrees of panels",

    /// Convolutions: one feature a group along groups, places, terms or nothing, and products of patches.
    ConvolutionGroups = "convolution: along groups",
    ConvolutionRows = "convolution: along places",
    ConvolutionTerms = "convolution: along terms",
    ConvolutionNothing = "convolution: along nothing",
    ConvolutionProduct = "convolution: product",
    ConvolutionShared = "convolution: weights packed once",
    ConvolutionStraight = "convolution: patches where they lie",
    ConvolutionSplit = "convolution: terms in parts",
    ConvolutionComplex = "convolution: complex",
    ConvolutionGaps = "convolution: gaps",

    /// Gathers, scatters and slices.
    GatherSingles = "gather: elements",
    GatherLines = "gather: windows, an element of each at a time",
    GatherWindows = "gather: windows",
    ScatterLines = "scatter: lines",
    ScatterWindows = "scatter: windows",
    ScatterLineStripes = "scatter: stripes of lines",
    ScatterWindowStripes = "scatter: stripes of windows",
    SliceDynamic = "dynamic slice",
    UpdateInPlace = "dynamic update: in place",
    UpdateCopied = "dynamic update: of a copy",

    /// Sorting.
    SortBytes = "sort: bytes",
    SortDigits = "sort: digits",
    SortCompared = "sort: comparisons",
    SortPlaces = "sort: places",
    SortShared = "sort: a line on all threads",
    TopK = "top k",
    TopKPieces = "top k: pieces of a line",

    CumulativeLines = "cumulative: lines",
    CumulativeGroups = "cumulative: groups of lines",
    FourierLines = "fft: lines",
    FourierColumns = "fft: columns",
    FourierCopied = "fft: of a copy",
    SmallMatrices = "matrices: small ones side by side",
    LargeMatrices = "matrices: one by one",
    SmallDecompositions = "decompositions: small ones",
    LargeDecompositions = "decompositions: large ones",

    /// Values of loops, from one step to the next, and what loops record.
    CarryKept = "carry: kept",
    CarryInPlace = "carry: in place",
    CarrySwapped = "carry: swapped",
    CarryFollowed = "carry: followed",
    StackDirect = "loop: stacked where it is computed",
    StackCopied = "loop: stacked by a copy",
    /// A loop that is machine code as a whole, one of these that goes through vectors, and one for which the system gave no
    /// memory.
    Native = "loop: machine code",
    NativeLanes = "loop: vectors in machine code",
    NativeRefused = "loop: no memory for machine code",
    /// What a kernel does to its blocks as machine code that was made, that was known, and for which there was no memory.
    Chain = "kernel: machine code",
    ChainKnown = "kernel: known machine code",
    ChainRefused = "kernel: no memory for machine code",
    Sweeps = "loop: recorded",
    SweepsAgain = "loop: checkpoints",
    BranchFresh = "branch: results where they belong",
    BranchCopied = "branch: results copied",
    BranchInPlace = "branch: results in the memory of operands",
    BranchBeside = "branch: results beside operands whose place they have",

    /// Ops that are computed as the reference evaluates them.
    Reference = "reference",
}

static TAKEN: [AtomicU64; Path::ALL.len()] = [const { AtomicU64::new(0) }; Path::ALL.len()];

impl Path {
    /// Counts that it is taken.
    #[inline]
    pub fn take(self) {
        TAKEN[self as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts that it is taken, if it is.
    #[inline]
    pub fn take_if(self, taken: bool) {
        if taken {
            self.take();
        }
    }

    /// How often it was taken.
    pub fn taken(self) -> u64 {
        TAKEN[self as usize].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_names_and_counters_of_their_own() {
        let names: std::collections::BTreeSet<_> = Path::ALL.iter().map(|path| path.name()).collect();
        assert_eq!(names.len(), Path::ALL.len());
        let before = Path::Flat.taken();
        Path::Flat.take();
        Path::Flat.take_if(false);
        assert_eq!(
            (Path::Flat.taken(), Path::Flat as usize),
            (before + 1, Path::ALL.iter().position(|&p| p == Path::Flat).unwrap())
        );
    }
}
