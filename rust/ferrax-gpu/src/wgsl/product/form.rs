//! What shaders of products depend on, where the words of a product are, and what every way begins with.

use std::fmt::Write;

use ferrax_compile::Operand;
use ferrax_compile::launches::Origin;
use ferrax_ir::DType;

use super::super::MOST_GROUPS;
use super::super::taken::TakenForm;
use super::matrices::Cooperative;

/// Rows, or columns, of invocations in a workgroup that has a tile.
pub const SIDE: usize = 16;

/// Invocations for one result, and of a workgroup that adds segments.
pub const SINGLE: usize = 64;

/// What a workgroup has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Way {
    /// Of so many rows and columns for each invocation.
    Tiles(usize),
    Cooperative(Cooperative),
    Single,
    Finish,
}

impl Way {
    /// Rows, and columns, of a workgroup.
    pub fn side(self) -> usize {
        match self {
            Way::Tiles(part) => SIDE * part,
            Way::Cooperative(cooperative) => cooperative.side(),
            Way::Single | Way::Finish => 1,
        }
    }
}

/// What shaders of products depend on.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ProductForm {
    /// Of the product's operands and its result.
    pub dtype: DType,
    /// Bindings after the first.
    pub operands: Vec<Operand>,
    pub left: Origin<TakenForm>,
    pub right: Origin<TakenForm>,
    /// What is made of results; else the last operand has them.
    pub then: Option<Box<TakenForm>>,
    pub way: Way,
    pub batch: usize,
    /// For each axis of rows, and of terms, the guard that its index moves.
    pub rows: Vec<Option<usize>>,
    pub terms: Vec<Option<usize>>,
    pub columns: usize,
    pub guards: usize,
    /// Whether neighbouring terms, not rows, are neighbours in the left operand, and columns, not terms, in the right
    /// one.
    pub left_terms: bool,
    pub right_columns: bool,
    /// Whether four of them are read at once, as they begin at a multiple of four wherever they are.
    pub left_quads: bool,
    pub right_quads: bool,
    /// Whether sums of segments of terms go to a further binding.
    pub segmented: bool,
}

/// Words before those of axes: a zero; counts of batches, rows, columns, terms; where left, right and result begin;
/// terms of a segment, and how many segments there are.
pub const HEAD: usize = 10;
pub const SEGMENT_TERMS: usize = 8;
pub(super) const SEGMENTS: usize = 9;

/// Words of an axis: its count, and its strides: of a batch in all three, of others in two, and the guard's step.
pub const AXIS: usize = 4;

impl ProductForm {
    /// How it is computed, as profiles say it.
    pub fn name(&self) -> String {
        match self.way {
            Way::Single => "single".to_string(),
            Way::Finish => "sums of segments".to_string(),
            Way::Tiles(_) => {
                let fours = usize::from(self.left_quads) + usize::from(self.right_quads);
                let fours = ["", ", fours of one", ", fours of both"].get(fours).copied().unwrap_or_default();
                let segments = if self.segmented { ", segments" } else { "" };
                format!("tiles of {}{fours}{segments}", self.way.side())
            }
            Way::Cooperative(_) => {
                let segments = if self.segmented { ", segments" } else { "" };
                format!("tiles of {} by matrices{segments}", self.way.side())
            }
        }
    }

    pub(super) fn cooperative(&self) -> Option<&Cooperative> {
        match &self.way {
            Way::Cooperative(cooperative) => Some(cooperative),
            _ => None,
        }
    }

    /// The statement that writes a result, or the sum of a segment of its terms.
    pub fn write(&self, value: &str) -> String {
        match self.segmented {
            true => format!("keep(((segment * n[1] + batch) * n[2] + down_at) * n[3] + across_at, {value});"),
            false => {
                format!("store_element(base + result_row(down_at) + result_column(across_at), {value});")
            }
        }
    }

    pub(super) fn axes_before_rows(&self) -> usize {
        HEAD + AXIS * self.batch
    }

    pub(super) fn axes_before_columns(&self) -> usize {
        self.axes_before_rows() + AXIS * self.rows.len()
    }

    pub(super) fn axes_before_terms(&self) -> usize {
        self.axes_before_columns() + AXIS * self.columns
    }

    pub(super) fn before_guards(&self) -> usize {
        self.axes_before_terms() + AXIS * self.terms.len()
    }

    /// The words before those of the kernels that it took in: of left, of right and of the result.
    pub(super) fn before_kernels(&self) -> [usize; 3] {
        let own = self.before_guards() + 2 * self.guards;
        let after = |before: usize, origin: &Origin<TakenForm>| {
            origin.kernel().map_or(before, |form| form.end(before))
        };
        let right = after(own, &self.left);
        [own, right, after(right, &self.right)]
    }

    pub(super) fn taken(&self) -> impl Iterator<Item = &TakenForm> {
        [self.left.kernel(), self.right.kernel(), self.then.as_deref()].into_iter().flatten()
    }
}

const BEGIN: &str = "\
    zero = n[0];
    let lane = local.x;
";

/// The beginning of the entry point.
pub fn entry(text: &mut String, invocations: usize) {
    entry_with(text, invocations, "");
}

/// The same with further builtin values.
pub fn entry_with(text: &mut String, invocations: usize, values: &str) {
    let _ = write!(
        text,
        "@compute @workgroup_size({invocations})\n\
         fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>{values}) {{\n\
         {BEGIN}    var number = group.x + group.y * {MOST_GROUPS}u;\n"
    );
}

/// What sums of segments are stored as: registers as they are.
pub fn partial(dtype: DType) -> DType {
    match dtype {
        DType::Bool | DType::U8 | DType::U16 => DType::U32,
        DType::I8 | DType::I16 => DType::I32,
        DType::F16 | DType::BF16 => DType::F32,
        other => other,
    }
}

/// Workgroups that add segments of so many results.
pub fn finishing_groups(results: usize) -> usize {
    results.div_ceil(SINGLE)
}
