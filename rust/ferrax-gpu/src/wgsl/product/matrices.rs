//! The matrices that a GPU multiplies, and what products by them depend on beside their form.

/// Rows and columns of tiles, and how many parts they have down and across.
const SMALL: (usize, [usize; 2]) = (64, [2, 2]);
const LARGE: (usize, [usize; 2]) = (128, [4, 2]);

/// What a GPU must let a workgroup have: bytes, and invocations for each of the smallest subgroup.
pub const WORKGROUP_BYTES: u32 = 32 << 10;
pub const WORKGROUP_SUBGROUPS: u32 = (LARGE.1[0] * LARGE.1[1]) as u32;

/// The matrices that a GPU multiplies: halves, with sums of floats.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Matrices {
    /// Their rows and columns: 8 or 16.
    pub side: usize,
    /// The invocations of its smallest subgroups.
    pub lanes: usize,
    pub maker: Maker,
}

/// Who multiplies matrices.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Maker {
    Driver,
    /// Functions that do it in any shader, rightly or not, for subgroups of so many invocations, a multiple of the
    /// rows of matrices.
    #[cfg(test)]
    Played {
        right: bool,
        lanes: usize,
    },
}

/// Where the halves of an operand come from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Halves {
    /// This operand of the shader, eight neighbours at once.
    Eights(u32),
    /// The same, one by one.
    Ones(u32),
    /// The kernel that was taken in, whose results are halves.
    Kernel,
}

/// What such a product depends on beside its form.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Cooperative {
    pub matrices: Matrices,
    pub large: bool,
    /// Of left and of right.
    pub halves: [Halves; 2],
}

impl Cooperative {
    /// Rows, and columns, of a tile.
    pub fn side(&self) -> usize {
        self.of_tile().0
    }

    /// Whether this operand of the shader is read eight at once.
    pub fn has_eights(&self, operand: u32) -> bool {
        self.halves.contains(&Halves::Eights(operand))
    }

    pub(super) fn of_tile(&self) -> (usize, [usize; 2]) {
        if self.large { LARGE } else { SMALL }
    }

    pub(super) fn parts(&self) -> usize {
        let (_, [down, across]) = self.of_tile();
        down * across
    }

    pub(super) fn invocations(&self) -> usize {
        self.parts() * self.matrices.lanes
    }
}
