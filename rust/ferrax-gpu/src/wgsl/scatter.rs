//! Scatters as WGSL: windows of updates go to places that indices say, or come from there.
//!
//! Numbers of windows are made of indices of *positions*, those of a window's elements of *loops*; each has a stride in
//! the arrays. Four shaders:
//!
//! - [`Way::Gather`]: an invocation for each element of each window, which is taken out of the operand;
//! - [`Way::Direct`]: an invocation for each element of each window, where no two have one place;
//! - [`Way::Keys`]: where windows, or their elements, go, as words that `sort` sorts with their numbers;
//! - [`Way::Runs`]: after that, an invocation for each element takes all that go to one place, in the order
//!   of the updates, so that results depend on no order of invocations; or so many of them, and a later launch the next.

use ferrax_ir::ops::ScatterKind;
use ferrax_ir::scalar::{Instruction, Reg, ScalarOp, ScalarType};
use ferrax_ir::{DType, Result, internal_error};

use super::arrays::Words;
use super::sort::unit;
use super::types::{self, register};
use super::{Needs, Shader, WORKGROUP, numbered, ops};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Way {
    Gather,
    Direct,
    Keys,
    Runs,
}

/// What shaders of scatters depend on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ScatterForm {
    pub way: Way,
    pub kind: ScatterKind,
    /// What elements are combined as, or moved as in so many units.
    pub dtype: DType,
    pub units: u32,
    pub indices: DType,
    /// Whether each start is an array of its own.
    pub scalars: bool,
    pub clamp: bool,
    /// Whether elements of windows are sorted, not whole windows.
    pub by_element: bool,
    pub positions: usize,
    pub starts: usize,
    pub loops: usize,
}

/// Words before those of positions (count; strides in indices, updates and operand), starts (stride in the operand,
/// last that fits), loops (count; strides in updates and operand): zero, invocations, elements of a window, items of
/// a plane, four of what is taken for windows that are not there, or, of runs, how many were taken before, and how
/// many are at most.
pub const HEAD: usize = 8;
pub const POSITION: usize = 4;
pub const START: usize = 2;
pub const LOOP: usize = 3;

/// The key of windows that are dropped, which is the last of all.
const DROPPED: &str = "0xffffffffu";

/// Arrays: the result, updates (or the operand of a gather), and indices or the sorted planes; of [`Way::Keys`] the
/// planes and indices.
pub fn shader(form: &ScatterForm) -> Result<Shader> {
    let first_index = if form.way == Way::Keys { 1 } else { 2 };
    let others = match form.way {
        Way::Runs => 1,
        _ if form.scalars => form.starts as u32,
        _ => 1,
    };
    let mut arrays = vec![Words::Whole; (first_index + others) as usize];
    arrays[0] = types::words(form.dtype, form.way != Way::Keys);
    let mut text = "var<private> zero: u32;\nvar<private> at: i32;\nvar<private> source: i32;\n".to_string();
    place(form, first_index, &mut text)?;
    within(form, &mut text);
    let mut needs = Needs::default();
    let body = match form.way {
        Way::Keys => keys(form),
        Way::Gather => gather(form)?,
        Way::Direct | Way::Runs => {
            needs = combine(form, &mut text)?;
            if form.way == Way::Direct { DIRECT.to_string() } else { runs(form) }
        }
    };
    text += &format!(
        "@compute @workgroup_size({WORKGROUP})\nfn main(@builtin(global_invocation_id) id: vec3<u32>) {{\n\
         {}\nif number >= n[1] {{ return; }}\nzero = n[0];\n{body}}}\n",
        numbered()
    );
    Ok(Shader { text, needs, arrays })
}

fn number(at: usize) -> String {
    format!("bitcast<i32>(n[{at}])")
}

/// `place` says whether a window is there, and where it begins in the operand and the updates.
fn place(form: &ScatterForm, first_index: u32, text: &mut String) -> Result<()> {
    *text += "fn place(window: u32) -> bool {\nvar rest = window;\nvar index = 0;\nat = 0;\nsource = 0;\n";
    for position in (0..form.positions).rev() {
        let words = HEAD + POSITION * position;
        *text += &format!("{{ let i = bitcast<i32>(rest % n[{words}]); rest = rest / n[{words}];\n");
        for (stride, what) in ["index", "source", "at"].into_iter().enumerate() {
            *text += &format!("{what} = {what} + i * {};\n", number(words + 1 + stride));
        }
        *text += "}\n";
    }
    let starts = if form.way == Way::Runs { 0 } else { form.starts };
    for start in 0..starts {
        let words = HEAD + POSITION * form.positions + START * start;
        let (binding, entry) = match form.scalars {
            true => (first_index + start as u32, "0".to_string()),
            false => (first_index, format!("(index + {start})")),
        };
        let (stride, last) = (number(words), number(words + 1));
        *text += &format!("{{ var start = 0;\n{}\n", index(binding, form.indices, &entry)?);
        if !form.clamp {
            *text += &format!("if start < 0 || start > {last} {{ return false; }}\n");
        }
        *text += &format!("at = at + clamp(start, 0, {last}) * {stride}; }}\n");
    }
    *text += "return true;\n}\n";
    Ok(())
}

/// A statement that reads an index of any width, clamped to those of 32 bits.
fn index(binding: u32, dtype: DType, entry: &str) -> Result<String> {
    let word = |word: u32| format!("word{binding}(2u * u32({entry}) + {word}u)");
    Ok(match dtype {
        DType::U32 => format!("start = i32(min(word{binding}(u32({entry})), 0x7fffffffu));"),
        DType::I64 | DType::U64 => {
            let negative = if dtype == DType::I64 { "(high >> 31u) == 1u" } else { "false" };
            format!(
                "let low = {}; let high = {};\n\
                 if {negative} {{ start = select(-2147483647, max(bitcast<i32>(low), -2147483647), high == 0xffffffffu && (low >> 31u) == 1u); }}\n\
                 else {{ start = select(0x7fffffff, i32(min(low, 0x7fffffffu)), high == 0u); }}",
                word(0),
                word(1)
            )
        }
        DType::Bool => format!("start = select(0, 1, {});", types::load(binding, dtype, 0, entry)?),
        _ => format!("start = i32({});", types::load(binding, dtype, 0, entry)?),
    })
}

/// `within` goes from where a window begins to one of its elements.
fn within(form: &ScatterForm, text: &mut String) {
    *text += "fn within(element: u32) {\nvar rest = element;\n";
    for each in (0..form.loops).rev() {
        let words = HEAD + POSITION * form.positions + START * form.starts + LOOP * each;
        *text += &format!(
            "{{ let i = bitcast<i32>(rest % n[{words}]); rest = rest / n[{words}];\nsource = source + i * {}; at = at + i * {}; }}\n",
            number(words + 1),
            number(words + 2)
        );
    }
    *text += "}\n";
}

/// `begin` takes what is at `at`, `take` what is at `source` into it, and `end` puts it to `at`.
fn combine(form: &ScatterForm, text: &mut String) -> Result<Needs> {
    let dtype = form.dtype;
    if form.kind == ScatterKind::Set {
        let dtype = unit(8 * dtype.size() as u32);
        *text += "fn begin() {}\nfn end() {}\nfn take() {\n";
        for part in 0..form.units {
            let element = |at: &str| format!("{at} * {} + {part}", form.units);
            let value = types::load(1, dtype, 0, &element("source"))?;
            *text += &types::store(0, dtype, 0, &element("at"), &value)?;
            text.push('\n');
        }
        *text += "}\n";
        return Ok(Needs::default());
    }
    let real = dtype.real();
    let ty = ScalarType::of(real)?;
    *text += &ops::functions(|other| other == ty);
    let op = match form.kind {
        ScatterKind::Add => ScalarOp::Add,
        ScatterKind::Sub => ScalarOp::Sub,
        ScatterKind::Mul => ScalarOp::Mul,
        ScatterKind::Min => ScalarOp::Min,
        ScatterKind::Max => ScalarOp::Max,
        ScatterKind::Set => return Err(internal_error!("updates that are set are not combined")),
    };
    let pair = |op: ScalarOp, a: &str, b: &str| {
        let args = [Reg(0), Reg(1)].into_iter().collect();
        ops::expression(&Instruction { op, ty, args }, &[ty, ty], &[a.to_string(), b.to_string()])
    };
    let name = register(ty);
    let parts = if dtype.is_complex() { vec!["re", "im"] } else { vec!["re"] };
    let each = |line: &dyn Fn(u8, &str) -> Result<String>| -> Result<String> {
        (0u8..).zip(&parts).map(|(part, own)| line(part, own)).collect()
    };
    *text += &each(&|_, own| Ok(format!("var<private> {own}: {name};\n")))?;
    *text += "fn begin() {\n";
    *text += &each(&|part, own| Ok(format!("{own} = {};\n", types::load(0, dtype, part, "at")?)))?;
    *text += "}\nfn end() {\n";
    *text += &each(&|part, own| types::store(0, dtype, part, "at", own))?;
    *text += "}\nfn take() {\n";
    *text +=
        &each(&|part, own| Ok(format!("let {own}_more = {};\n", types::load(1, dtype, part, "source")?)))?;
    if dtype.is_complex() && form.kind == ScatterKind::Mul {
        *text +=
            "let product = re * re_more - im * im_more;\nim = re * im_more + im * re_more;\nre = product;\n";
    } else {
        *text += &each(&|_, own| {
            let value = pair(op, own, &format!("{own}_more"))?;
            let value = match dtype {
                DType::BF16 => format!("round_bf16({value})"),
                DType::F16 => format!("unpack2x16float(f16_bits({value})).x"),
                _ => value,
            };
            Ok(format!("{own} = {value};\n"))
        })?;
    }
    *text += "}\n";
    let wide = matches!(real, DType::I64 | DType::U64 | DType::F64);
    Ok(Needs { int64: wide, float64: real == DType::F64, ..Needs::default() })
}

const DIRECT: &str = "\
if !place(number / n[2]) { return; }
within(number % n[2]);
begin();
take();
end();
";

fn gather(form: &ScatterForm) -> Result<String> {
    let element = |at: &str, part: u32| format!("{at} * {} + {part}", form.units);
    let mut text = "let there = place(number / n[2]);\nwithin(number % n[2]);\n".to_string();
    let fill = HEAD - 4;
    for part in 0..form.units {
        let value = types::load(1, form.dtype, 0, &element("select(0, at, there)", part))?;
        let value = format!("select(n[{}], {value}, there)", fill + part as usize);
        text += &types::store(0, form.dtype, 0, &element("source", part), &value)?;
        text.push('\n');
    }
    Ok(text)
}

fn keys(form: &ScatterForm) -> String {
    let (window, element) =
        if form.by_element { ("number / n[2]", "within(number % n[2]);\n") } else { ("number", "") };
    format!(
        "let there = place({window});\n{element}\
         set0(number, select({DROPPED}, u32(at), there));\nset0(n[3] + number, number);\n"
    )
}

fn runs(form: &ScatterForm) -> String {
    // Where an item goes is its key, wherever it comes from.
    let go = match form.by_element {
        true => "place(item / n[2]); within(item % n[2]); at = i32(key);\n",
        false => "place(item); at = i32(key); within(number % n[2]);\n",
    };
    let own = if form.by_element { "number" } else { "number / n[2]" };
    format!(
        "let own = {own};\nlet key = word2(own);\n\
         if key == {DROPPED} || (own > 0u && word2(own - 1u) == key) {{ return; }}\n\
         let first = own + n[4];\nif first >= n[3] || word2(first) != key {{ return; }}\n\
         let last = first + min(n[5], n[3] - first);\n\
         for (var next = first; next < last && word2(next) == key; next = next + 1u) {{\n\
         let item = word2(n[3] + next);\n{go}if next == first {{ begin(); }}\ntake();\n}}\nend();\n"
    )
}
