//! Invocations that have several neighbours each, so that arrays are read and written by vectors of words.
//!
//! An invocation has [`TOGETHER`] indices of the last loop that has more than one. What an operand has for these is a
//! *group*: neighbours in memory that begin at a multiple of their number, if all accesses of the operand are such. A
//! group is read and written as a whole, so that elements narrower than words need no atomic operations. Other
//! operands are read element by element.

use ferrax_compile::{Jumps, Launch, View};
use ferrax_ir::scalar::{Body, Reg};
use ferrax_ir::{DType, Result};

use super::arrays::Words;
use super::types::{self, Storage};
use super::{Stage, Writer};

/// Indices of an invocation.
pub const TOGETHER: usize = 4;

/// Vectors have no more words.
const LONGEST: usize = 4;

/// How a kernel goes by groups.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Wide {
    /// The loop whose indices an invocation has several of.
    pub axis: usize,
    /// Whether its extent is no multiple of [`TOGETHER`].
    pub rest: bool,
    /// Which operands are read and written by groups.
    pub operands: Vec<bool>,
}

/// How a launch over operands of so many bytes goes by groups, if it does: where all that it writes are groups, and
/// there are as many indices as are `many`, or elements that are narrower than words.
pub fn of(launch: &Launch, bytes: &[usize], guarded: &[bool], many: usize) -> Option<Wide> {
    let kernel = &launch.kernel;
    let axis = (0..launch.extents.len()).rfind(|&axis| launch.extents[axis] > 1)?;
    let together = TOGETHER as i64;
    let is_group = |view: &View| {
        let others = (0..launch.extents.len()).filter(|&other| other != axis && launch.extents[other] > 1);
        view.offset % together == 0
            && view.strides[axis] == 1
            && others.into_iter().all(|other| view.strides[other] % together == 0)
    };
    let mut operands = vec![true; kernel.operands.len()];
    for (number, (load, view)) in kernel.loads.iter().zip(&launch.loads).enumerate() {
        let plain = launch.jumps.get(number).is_none_or(Jumps::is_empty) && !guarded[number];
        operands[load.operand as usize] &= plain && is_group(view);
    }
    for (store, view) in kernel.stores.iter().zip(&launch.stores) {
        operands[store.operand as usize] &= is_group(view);
    }
    // The last group reaches beyond the loop: there what it writes has to be the end of an array, whose memory is
    // rounded up.
    let extent = launch.extents[axis];
    let rest = !extent.is_multiple_of(TOGETHER);
    let is_all = |store: &ferrax_compile::Store, view: &View| {
        let operand = store.operand as usize;
        view.offset == 0 && bytes.get(operand) == Some(&(extent * kernel.operands[operand].dtype.size()))
    };
    let mut stores = kernel.stores.iter().zip(&launch.stores);
    let whole = !rest || (launch.iterations() == extent && stores.all(|(store, view)| is_all(store, view)));
    let narrow = |dtype: DType| matches!(types::storage(dtype), Ok((Storage::Part(_), _)));
    let mut written = kernel.stores.iter().map(|store| store.operand as usize);
    let worth_it = launch.iterations() >= many || written.clone().any(|n| narrow(kernel.operands[n].dtype));
    (whole && worth_it && written.all(|operand| operands[operand])).then_some(Wide { axis, rest, operands })
}

/// The words of a group.
fn length(dtype: DType) -> usize {
    dtype.size() * TOGETHER / 4
}

/// How arrays of groups are declared.
pub fn words(dtype: DType) -> Words {
    match length(dtype).min(LONGEST) {
        1 => Words::Whole,
        length => Words::Vectors(length as u32),
    }
}

/// Of the group that load `load` read, element `k`.
pub fn load(load: usize, dtype: DType, part: u8) -> Result<String> {
    types::load_from(|index| format!("group{load}[{index}]"), dtype, part, "k")
}

/// The statement by which element `k` goes to the group that store `store` writes.
pub fn store(store: usize, dtype: DType, part: u8, value: &str) -> Result<String> {
    let word = |index: &str| format!("result{store}[{index}]");
    let set = |index: &str, given: &str| format!("{} = {given};", word(index));
    let insert = |index: &str, _: &str, bits: &str| format!("{0} = {0} | ({bits});", word(index));
    types::store_by(set, insert, dtype, part, "k", value)
}

impl Writer<'_> {
    /// Whether an invocation has several indices of this loop.
    pub(super) fn is_wide(&self, axis: usize) -> bool {
        self.form.wide.as_ref().is_some_and(|wide| wide.axis == axis)
    }

    /// Whether an operand is read and written by groups.
    pub(super) fn is_vector(&self, operand: u32) -> bool {
        self.form.wide.as_ref().is_some_and(|wide| wide.operands[operand as usize])
    }

    /// The first of an invocation's indices of a loop.
    pub(super) fn groups(&mut self, axis: usize, extent: &str) {
        self.line(format!(
            "let groups = ({extent} + {}u) / {TOGETHER}u;\n\
             i{axis} = bitcast<i32>((rest % groups) * {TOGETHER}u); rest = rest / groups;",
            TOGETHER - 1
        ));
    }

    /// All indices of an invocation: its groups are read, its elements computed one after the other, and what they
    /// give is written.
    pub(super) fn group(&mut self, main: &(Body, Vec<Reg>), wide: &Wide) -> Result<()> {
        let kernel = &self.form.kernel;
        for (number, load) in kernel.loads.iter().enumerate() {
            if self.is_vector(load.operand) {
                self.line(self.read(number, load.operand));
            }
        }
        for (number, store) in kernel.stores.iter().enumerate() {
            let words = length(kernel.operands[store.operand as usize].dtype);
            self.line(format!("var result{number}: array<u32, {words}>;"));
        }
        let axis = wide.axis;
        self.line(format!(
            "let begin = i{axis};\nfor (var k = 0u; k < {TOGETHER}u; k = k + 1u) {{\ni{axis} = begin + i32(k);"
        ));
        if wide.rest {
            self.line(format!("if i{axis} >= {} {{ break; }}", Self::number(self.layout.extents + axis)));
        }
        self.stage(Stage::Main, main, &[])?;
        self.line(format!("}}\ni{axis} = begin;"));
        for (number, store) in kernel.stores.iter().enumerate() {
            self.line(self.write(number, store.operand));
        }
        Ok(())
    }

    /// The statements that read the group of a load.
    fn read(&self, load: usize, operand: u32) -> String {
        let (first, words) = self.first(self.layout.loads[load], operand);
        let mut text = format!("var group{load}: array<u32, {words}>;\n{{ let first = {first};\n");
        if words == 1 {
            return text + &format!("group{load}[0] = word{operand}(first); }}");
        }
        for word in (0..words).step_by(LONGEST) {
            text += &format!("let v{word} = vector{operand}(first + {}u);\n", word / LONGEST);
            for (part, i) in ["x", "y", "z", "w"].into_iter().zip(word..words) {
                text += &format!("group{load}[{i}] = v{word}.{part};\n");
            }
        }
        text + "}"
    }

    /// The statements that write the group of a store.
    fn write(&self, store: usize, operand: u32) -> String {
        let (first, words) = self.first(self.layout.stores[store], operand);
        let mut text = format!("{{ let first = {first};\n");
        if words == 1 {
            return text + &format!("set{operand}(first, result{store}[0]); }}");
        }
        for word in (0..words).step_by(LONGEST) {
            let parts = word..words.min(word + LONGEST);
            let (number, length) = (word / LONGEST, parts.len());
            let parts: Vec<String> = parts.map(|i| format!("result{store}[{i}]")).collect();
            text +=
                &format!("set_vector{operand}(first + {number}u, vec{length}<u32>({}));\n", parts.join(", "));
        }
        text + "}"
    }

    /// Where the first vector is of the group that a view of an operand has at the indices, and the words of the group.
    fn first(&self, at: usize, operand: u32) -> (String, usize) {
        let words = length(self.form.kernel.operands[operand as usize].dtype);
        let vectors = words.div_ceil(LONGEST);
        (format!("u32({}) / {TOGETHER}u * {vectors}u", self.element(at)), words)
    }
}

#[cfg(test)]
mod tests {
    use ferrax_compile::{Plan, Step, Target, plan};
    use ferrax_ir::Program;

    use super::super::numbers::{Form, Means};

    fn form(text: &str) -> Form {
        let Plan { steps, buffers, .. } = plan(&Program::parse(text).unwrap(), &Target::CPU).unwrap();
        match &steps[..] {
            [Step::Kernel { launch, operands }] => {
                let bytes: Vec<usize> = operands.iter().map(|id| buffers[id.0 as usize].bytes).collect();
                Form::of(launch, &bytes, &Means::EVER)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn narrow_elements_and_many_are_written_by_groups() {
        let add = |ty: &str| form(&format!("{{ lambda ; a:{ty} b:{ty}. let c:{ty} = add a b in (c,) }}"));
        assert_eq!(add("f32[1000]").wide, None);
        for ty in ["f32[262144]", "f16[8]", "i8[6,4]"] {
            let wide = add(ty).wide.unwrap();
            assert!(!wide.rest && wide.operands.iter().all(|&vector| vector), "{ty}: {wide:?}");
        }
        let wide = add("f16[7]").wide.unwrap();
        assert!(wide.rest, "{wide:?}");
    }

    #[test]
    fn operands_that_are_no_neighbours_are_read_one_by_one() {
        let wide = form(
            "{ lambda ; a:f16[8,8] b:f16[8,8]. let c:f16[8,8] = transpose[permutation=(1, 0)] b
                d:f16[8,8] = add a c in (d,) }",
        );
        assert_eq!(wide.wide.unwrap().operands.iter().filter(|&&vector| vector).count(), 2);
        let part = form(
            "{ lambda ; a:f16[9]. let b:f16[8] = slice[start_indices=(1,) limit_indices=(9,) strides=None] a in (b,) }",
        );
        assert_eq!(part.wide.unwrap().operands.iter().filter(|&&vector| vector).count(), 1);
    }
}
