//! Sorting as WGSL: keys become words whose order is that of unsigned numbers, words are sorted with the places that
//! they come from, and operands are brought into the order of the places.
//!
//! Items are in *planes*: the words of keys, the most significant first, then the places; word w of item i of a line
//! is at `w · lines · length + line · length + i`. No two items are equal, as no two places of a line are: so sorts
//! are stable. They are bitonic (Batcher, Sorting networks and their applications, 1968) in the form in which all
//! comparisons go the same way, which begins each merge with a mirror image: what would be beyond the end of a line
//! is greater than all and never moves, so lines have any length. Cost: `O(n log² n)` comparisons for lines of n
//! items.

use ferrax_ir::{DType, Kind, Result};

use super::arrays::Words;
use super::types::{self, Storage};
use super::{MOST_GROUPS, Needs, Shader, WORKGROUP, numbered};

/// Items that a workgroup sorts in its memory.
pub const BLOCK: usize = 512;

/// Words of an item, at most: what 16 KiB hold of a block.
pub const MOST_WORDS: usize = 8;

/// What sorting shaders depend on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SortForm {
    /// Words of the elements of a dtype.
    Keys { dtype: DType, order: Order },
    /// The places of items.
    Places,
    /// So many planes, by these exchanges.
    Exchange { planes: usize, way: Way },
    /// Elements in the order of places: units of so many bits, and how many an element has.
    Take { bits: u32, units: u32 },
    /// The first places.
    TakePlaces,
}

/// Which order words are in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Order {
    /// That of keys, where zeros are equal and NaN is last.
    Keys,
    /// That of IEEE 754 from the greatest to the least.
    Descending,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Way {
    /// All of a block.
    Block,
    /// All of a merge that stay within a block.
    Merge,
    /// With the mirror image, over blocks.
    Mirror,
    /// With a neighbour, over blocks.
    Step,
}

/// The words of a key of this dtype.
pub fn key_words(dtype: DType) -> Result<usize> {
    let (storage, parts) = types::storage(dtype)?;
    Ok(parts as usize * if storage == Storage::Pair { 2 } else { 1 })
}

/// Words of [`SortForm::Keys`]: zero, items, length of a line, elements between neighbours of a line, first plane.
/// [`SortForm::Places`]: the same, of which the stride is unused. [`SortForm::Exchange`]: zero, invocations or
/// blocks, length of a line, pairs or blocks of a line, plane size, distance. [`SortForm::Take`]: zero, elements,
/// length of a line that is kept, elements between its neighbours, length of a line, first place;
/// [`SortForm::TakePlaces`] as well.
pub fn shader(form: SortForm) -> Result<Shader> {
    let text = match form {
        SortForm::Keys { dtype, order } => keys(dtype, order)?,
        SortForm::Places => places(),
        SortForm::Exchange { planes, way } => exchange(planes, way),
        SortForm::Take { bits, units } => take(bits, units)?,
        SortForm::TakePlaces => {
            items(&format!("{ELEMENT}set1(at, word0(n[5] + line * n[4] + number % n[2]));\n"))
        }
    };
    let arrays = match form {
        SortForm::Keys { .. } | SortForm::TakePlaces => vec![Words::Whole; 2],
        SortForm::Places | SortForm::Exchange { .. } => vec![Words::Whole],
        SortForm::Take { bits, .. } => vec![Words::Whole, Words::Whole, Words::parts_if(bits < 32)],
    };
    Ok(Shader { text, needs: Needs::default(), arrays })
}

fn items(body: &str) -> String {
    format!(
        "@compute @workgroup_size({WORKGROUP})\nfn main(@builtin(global_invocation_id) id: vec3<u32>) {{\n\
         {}\nif number >= n[1] {{ return; }}\n{body}}}\n",
        numbered()
    )
}

fn places() -> String {
    items("set0(n[4] * n[1] + number, number % n[2]);\n")
}

/// The element of an array that item `number` is: lines go along one axis.
const ELEMENT: &str = "let line = number / n[2];\nlet at = (line / n[3]) * n[2] * n[3] + (number % n[2]) * n[3] + line % n[3];\n";

fn keys(dtype: DType, order: Order) -> Result<String> {
    let (storage, parts) = types::storage(dtype)?;
    let mut body = ELEMENT.to_string();
    let mut plane = 0;
    for part in 0..parts {
        // The bits of a part: its upper word with the sign in front, and its lower one.
        let (high, low) = match storage {
            Storage::Part(bits) => {
                let (each, log) = if bits == 8 { (3, 2) } else { (1, 1) };
                let value = format!("extractBits(word0(at >> {log}u), (at & {each}u) * {bits}u, {bits}u)");
                (format!("{value} << {}u", 32 - bits), None)
            }
            Storage::Word => (format!("word0(at * {parts}u + {part}u)"), None),
            Storage::Pair => {
                let first = 2 * part;
                let word = |word: u32| format!("word0(at * {}u + {word}u)", 2 * parts);
                (word(first + 1), Some(word(first)))
            }
        };
        body += &format!("{{\nvar high = {high};\nvar low = {};\n", low.as_deref().unwrap_or("0u"));
        body += &ordered(dtype, order);
        if order == Order::Descending {
            body += "high = ~high;\nlow = ~low;\n";
        }
        body += &format!("set1((n[4] + {plane}u) * n[1] + number, high);\n");
        plane += 1;
        if low.is_some() {
            body += &format!("set1((n[4] + {plane}u) * n[1] + number, low);\n");
            plane += 1;
        }
        body += "}\n";
    }
    Ok(items(&body))
}

/// Makes an unsigned number of two words of the bits of a number of another kind.
fn ordered(dtype: DType, order: Order) -> String {
    match dtype.kind() {
        Kind::Signed => "high = high ^ 0x80000000u;\n".to_string(),
        Kind::Float | Kind::Complex => {
            let infinity: u32 = match dtype.real() {
                DType::F16 => 0x7c00_0000,
                DType::F64 => 0x7ff0_0000,
                _ => 0x7f80_0000,
            };
            let canonical = format!(
                "let size = high & 0x7fffffffu;\nif (size | low) == 0u {{ high = 0u; }}\n\
                 if size > {infinity}u || (size == {infinity}u && low != 0u) {{ high = 0x7fffffffu; low = 0xffffffffu; }}\n"
            );
            let signed =
                "if (high >> 31u) == 1u { high = ~high; low = ~low; } else { high = high | 0x80000000u; }\n";
            if order == Order::Keys { canonical + signed } else { signed.to_string() }
        }
        _ => String::new(),
    }
}

/// Statements that exchange items `a` and `b` of a line that has `length` of them, where they are not in order.
/// `get` reads a word of an item, `put` writes one.
fn exchanged(
    planes: usize,
    get: impl Fn(usize, &str) -> String,
    put: impl Fn(usize, &str, &str) -> String,
) -> String {
    let mut text = "if b < length {\n".to_string();
    for plane in 0..planes {
        text += &format!("let x{plane} = {};\nlet y{plane} = {};\n", get(plane, "a"), get(plane, "b"));
    }
    let greater = (0..planes).rev().fold("false".to_string(), |rest, plane| {
        format!("(x{plane} > y{plane} || (x{plane} == y{plane} && {rest}))")
    });
    text += &format!("if {greater} {{\n");
    for plane in 0..planes {
        text += &put(plane, "a", &format!("y{plane}"));
        text += &put(plane, "b", &format!("x{plane}"));
    }
    text + "}\n}\n"
}

/// The items that pair `i` is of: at a distance, or mirror images in blocks of twice the distance.
const STEP: &str = "let a = (i / distance) * 2u * distance + i % distance;\nlet b = a + distance;\n";
const MIRROR: &str = "let low = (i / distance) * 2u * distance;\nlet a = low + i % distance;\nlet b = low + 2u * distance - 1u - i % distance;\n";

fn exchange(planes: usize, way: Way) -> String {
    if matches!(way, Way::Mirror | Way::Step) {
        let pair = if way == Way::Step { STEP } else { MIRROR };
        let at = |plane: usize, at: &str| format!("{plane}u * n[4] + begin + {at}");
        return items(&format!(
            "let length = n[2];\nlet i = number % n[3];\nlet begin = (number / n[3]) * length;\nlet distance = n[5];\n{pair}{}",
            exchanged(
                planes,
                |plane, item| format!("word0({})", at(plane, item)),
                |plane, item, word| format!("set0({}, {word});\n", at(plane, item))
            )
        ));
    }
    let get = |plane: usize, at: &str| format!("s{plane}[{at}]");
    let put = |plane: usize, at: &str, word: &str| format!("s{plane}[{at}] = {word};\n");
    let each = |pair: &str| {
        format!("{{\nlet i = lane;\n{pair}{}}}\nworkgroupBarrier();\n", exchanged(planes, get, put))
    };
    let lanes = BLOCK / 2;
    let mut text: String =
        (0..planes).map(|plane| format!("var<workgroup> s{plane}: array<u32, {BLOCK}>;\n")).collect();
    text += &format!(
        "@compute @workgroup_size({lanes})\n\
         fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {{\n\
         let lane = local.x;\nlet block = group.x + group.y * {MOST_GROUPS}u;\nif block >= n[1] {{ return; }}\n\
         let first = (block % n[3]) * {BLOCK}u;\nlet begin = (block / n[3]) * n[2] + first;\n\
         let length = min({BLOCK}u, n[2] - first);\n"
    );
    let copies = |both: &dyn Fn(usize) -> String| {
        let planes: String = (0..planes).map(both).collect();
        format!("for (var i = lane; i < length; i = i + {lanes}u) {{\n{planes}}}\n")
    };
    text += &copies(&|plane| format!("s{plane}[i] = word0({plane}u * n[4] + begin + i);\n"));
    text += "workgroupBarrier();\n";
    let steps = format!("for (; distance > 0u; distance = distance / 2u) {{\n{}}}\n", each(STEP));
    text += &match way {
        Way::Block => format!(
            "for (var size = 1u; size < length; size = size * 2u) {{\nvar distance = size;\n{}distance = size / 2u;\n{steps}}}\n",
            each(MIRROR)
        ),
        _ => format!("var distance = {}u;\n{steps}", BLOCK / 2),
    };
    text += &copies(&|plane| format!("set0({plane}u * n[4] + begin + i, s{plane}[i]);\n"));
    text + "}\n"
}

fn take(bits: u32, units: u32) -> Result<String> {
    let dtype = unit(bits);
    let mut body = format!(
        "{ELEMENT}let place = word1(n[5] + line * n[4] + number % n[2]);\n\
         let source = (line / n[3]) * n[4] * n[3] + place * n[3] + line % n[3];\n"
    );
    for part in 0..units {
        let load = types::load(0, dtype, 0, &format!("source * {units}u + {part}u"))?;
        body += &types::store(2, dtype, 0, &format!("at * {units}u + {part}u"), &load)?;
        body += "\n";
    }
    Ok(items(&body))
}

/// Whole numbers of so many bits: what elements are moved as.
pub fn unit(bits: u32) -> DType {
    match bits {
        8 => DType::U8,
        16 => DType::U16,
        _ => DType::U32,
    }
}
