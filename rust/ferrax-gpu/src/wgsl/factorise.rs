//! Factorisations of small matrices as WGSL (Golub and Van Loan, Matrix Computations, 2013, chapters 3 to 5).
//!
//! A workgroup has a matrix, which it copies to the result and factorises there, column by column. Triangular systems
//! and products of reflections need no workgroup: an invocation has a column of the result, or a row where the matrix
//! is on the right. Words: zero, workgroups or invocations, rows and columns of the matrix, vectors of the result,
//! and the number of reflections.

use ferrax_ir::scalar::ScalarType;
use ferrax_ir::{DType, Result};

use super::arrays::Words;
use super::types::{self, register};
use super::{MOST_GROUPS, Needs, Shader, WORKGROUP, numbered, ops};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum What {
    Cholesky,
    Lu,
    Qr,
    /// A triangular system: whether its matrix is on the left, the triangle that is read, and how.
    Solve {
        left: bool,
        lower: bool,
        transposed: bool,
        conjugated: bool,
        unit: bool,
    },
    /// The first columns of the product of reflections.
    Product,
    /// That product, or its adjoint, times a matrix, or the matrix times it.
    Apply {
        left: bool,
        adjoint: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FactorForm {
    pub what: What,
    pub dtype: DType,
}

impl What {
    pub fn by_workgroups(self) -> bool {
        matches!(self, What::Cholesky | What::Lu | What::Qr)
    }

    /// How many operands and results there are, and which of them are of whole numbers.
    fn operands(self) -> (u32, [bool; 4]) {
        match self {
            What::Cholesky => (2, [false; 4]),
            What::Lu => (4, [false, false, true, true]),
            What::Qr | What::Solve { .. } | What::Product => (3, [false; 4]),
            What::Apply { .. } => (4, [false; 4]),
        }
    }
}

pub fn shader(form: FactorForm) -> Result<Shader> {
    let FactorForm { what, dtype } = form;
    let (operands, whole) = what.operands();
    let ty = ScalarType::of(dtype.real())?;
    let name = register(ty);
    let complex = dtype.is_complex();
    let mut text = format!("var<private> zero: u32;\nalias Real = {name};\n");
    text += &ops::functions(|other| other == ty);
    text += &format!("fn nan_of(x: Real) -> bool {{ return nan_{name}(x); }}\n");
    text += if complex { COMPLEX } else { REAL };
    for (operand, _) in (0..operands).zip(whole).filter(|(_, whole)| !whole) {
        let part = |part: u8| types::load(operand, dtype, part, "i");
        let (value, parts) = match complex {
            true => (format!("Element({}, {})", part(0)?, part(1)?), vec!["value.x", "value.y"]),
            false => (part(0)?, vec!["value"]),
        };
        let stores: String = (0u8..)
            .zip(parts)
            .map(|(part, value)| types::store(operand, dtype, part, "i", value))
            .collect::<Result<_>>()?;
        text += &format!(
            "fn get{operand}(i: u32) -> Element {{ return {value}; }}\n\
             fn put{operand}(i: u32, value: Element) {{ {stores} }}\n"
        );
    }
    let nan: u64 = if ty == ScalarType::F64 { 0x7ff8 << 48 } else { 0x7fc0 << 16 };
    let body = match what {
        What::Cholesky => {
            let unknown = if complex { "Element(nan, nan)" } else { "nan" };
            format!("let nan = {};\n{CHOLESKY}", ops::constant(ty, nan)).replace("UNKNOWN", unknown)
        }
        What::Lu => LU.to_string(),
        What::Qr => QR.to_string(),
        What::Solve { left, lower, transposed, conjugated, unit } => {
            // From the right, all is transposed.
            let turned = transposed == left;
            let at = if turned { "column * size + row" } else { "row * size + column" };
            let value = if conjugated { "conjugate(get0(first + i))" } else { "get0(first + i)" };
            text += &format!(
                "fn entry(first: u32, size: u32, row: u32, column: u32) -> Element {{ let i = {at}; return {value}; }}\n"
            );
            let place = if left { "i * n[4] + vector" } else { "vector * size + i" };
            text += &format!("fn place(size: u32, vector: u32, i: u32) -> u32 {{ return {place}; }}\n");
            SOLVE
                .replace("ROW", if lower != turned { "step" } else { "(size - 1u - step)" })
                .replace("KNOWN", if lower != turned { "before" } else { "(size - 1u - before)" })
                .replace("SOLVED", if unit { "rest" } else { "divide(rest, entry(first, size, row, row))" })
        }
        What::Product => {
            text += PLACE_OF_COLUMNS;
            format!("{PRODUCT_BEGIN}{}", reflections(2, false, false))
        }
        What::Apply { left, adjoint } => {
            text += if left { PLACE_OF_COLUMNS } else { PLACE_OF_ROWS };
            format!("{APPLY_BEGIN}{}", reflections(3, adjoint, !left))
        }
    };
    text += &match what.by_workgroups() {
        true => format!(
            "{SHARED}@compute @workgroup_size({WORKGROUP})\n\
             fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {{\n\
             let number = group.x + group.y * {MOST_GROUPS}u;\nif number >= n[1] {{ return; }}\nzero = n[0];\n\
             let lane = local.x;\nlet rows = n[2];\nlet columns = n[3];\nlet first = number * rows * columns;\n\
             for (var i = lane; i < rows * columns; i = i + {WORKGROUP}u) {{ put1(first + i, get0(first + i)); }}\n\
             {body}}}\n"
        )
        .replace("LANES", &format!("{WORKGROUP}u"))
        .replace("BARRIER", "storageBarrier();\nworkgroupBarrier();"),
        false => format!(
            "@compute @workgroup_size({WORKGROUP})\nfn main(@builtin(global_invocation_id) id: vec3<u32>) {{\n\
             {}\nif number >= n[1] {{ return; }}\nlet vector = number % n[4];\nlet matrix = number / n[4];\n{body}}}\n",
            numbered()
        ),
    };
    let wide = ty == ScalarType::F64;
    Ok(Shader {
        text,
        needs: Needs { int64: wide, float64: wide, ..Needs::default() },
        arrays: vec![Words::Whole; operands as usize],
    })
}

const REAL: &str = "\
alias Element = Real;
fn of_real(x: Real) -> Element { return x; }
fn real(x: Element) -> Real { return x; }
fn imaginary(x: Element) -> Real { return Real(0); }
fn conjugate(x: Element) -> Element { return x; }
fn times(a: Element, b: Element) -> Element { return a * b; }
fn divide(a: Element, b: Element) -> Element { return a / b; }
fn size_of(x: Element) -> Real { return abs(x); }
";

/// The quotient is Smith's (Algorithm 116: Complex division, 1962), which neither overflows nor underflows in between.
const COMPLEX: &str = "\
alias Element = vec2<Real>;
fn of_real(x: Real) -> Element { return Element(x, Real(0)); }
fn real(x: Element) -> Real { return x.x; }
fn imaginary(x: Element) -> Real { return x.y; }
fn conjugate(x: Element) -> Element { return Element(x.x, -x.y); }
fn times(a: Element, b: Element) -> Element { return Element(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }
fn divide(a: Element, b: Element) -> Element {
    if abs(b.x) >= abs(b.y) {
        let ratio = b.y / b.x;
        let whole = b.x + b.y * ratio;
        return Element((a.x + a.y * ratio) / whole, (a.y - a.x * ratio) / whole);
    }
    let ratio = b.x / b.y;
    let whole = b.x * ratio + b.y;
    return Element((a.x * ratio + a.y) / whole, (a.y * ratio - a.x) / whole);
}
fn size_of(x: Element) -> Real { return abs(x.x) + abs(x.y); }
";

/// The sum, or the greatest, of what the invocations of a workgroup give.
const SHARED: &str = "\
var<workgroup> parts: array<Real, 64>;
var<workgroup> wheres: array<u32, 64>;
fn sum_of_all(lane: u32, part: Real) -> Real {
    workgroupBarrier();
    parts[lane] = part;
    for (var half = 32u; half > 0u; half = half / 2u) {
        workgroupBarrier();
        if lane < half { parts[lane] = parts[lane] + parts[lane + half]; }
    }
    workgroupBarrier();
    return parts[0];
}
fn greatest_of_all(lane: u32, part: Real, place: u32) -> u32 {
    workgroupBarrier();
    parts[lane] = part;
    wheres[lane] = place;
    for (var half = 32u; half > 0u; half = half / 2u) {
        workgroupBarrier();
        if lane < half {
            let other = parts[lane + half];
            if other > parts[lane] || (other == parts[lane] && wheres[lane + half] < wheres[lane]) {
                parts[lane] = other;
                wheres[lane] = wheres[lane + half];
            }
        }
    }
    workgroupBarrier();
    return wheres[0];
}
";

const CHOLESKY: &str = "\
var failed = false;
BARRIER
for (var step = 0u; step < rows; step = step + 1u) {
    let square = real(get1(first + step * rows + step));
    failed = failed || !(square > Real(0));
    let pivot = sqrt(square);
    BARRIER
    if lane == 0u { put1(first + step * rows + step, of_real(pivot)); }
    for (var row = step + 1u + lane; row < rows; row = row + LANES) {
        let at = first + row * rows + step;
        put1(at, get1(at) / pivot);
    }
    BARRIER
    let side = rows - step - 1u;
    for (var i = lane; i < side * side; i = i + LANES) {
        let row = step + 1u + i / side;
        let column = step + 1u + i % side;
        if column <= row {
            let at = first + row * rows + column;
            let more = times(get1(first + row * rows + step), conjugate(get1(first + column * rows + step)));
            put1(at, get1(at) - more);
        }
    }
    BARRIER
}
for (var i = lane; i < rows * rows; i = i + LANES) {
    if i % rows > i / rows { put1(first + i, of_real(Real(0))); }
    else if failed { put1(first + i, UNKNOWN); }
}
";

/// A pivot that is NaN stays where it is, others go before NaN.
const LU: &str = "\
for (var i = lane; i < rows; i = i + LANES) { set3(number * rows + i, i); }
let least = min(rows, columns);
BARRIER
for (var step = 0u; step < least; step = step + 1u) {
    var most = Real(-1);
    var place = step;
    for (var row = step + lane; row < rows; row = row + LANES) {
        let size = size_of(get1(first + row * columns + step));
        if row == step && nan_of(size) { most = Real(3e38); place = row; }
        if size > most { most = size; place = row; }
    }
    let pivot = greatest_of_all(lane, most, place);
    if pivot != step {
        for (var column = lane; column < columns; column = column + LANES) {
            let above = get1(first + step * columns + column);
            put1(first + step * columns + column, get1(first + pivot * columns + column));
            put1(first + pivot * columns + column, above);
        }
    }
    if lane == 0u {
        set2(number * least + step, pivot);
        let above = word3(number * rows + step);
        set3(number * rows + step, word3(number * rows + pivot));
        set3(number * rows + pivot, above);
    }
    BARRIER
    let divisor = get1(first + step * columns + step);
    let singular = size_of(divisor) == Real(0);
    for (var row = step + 1u + lane; row < rows && !singular; row = row + LANES) {
        let at = first + row * columns + step;
        put1(at, divide(get1(at), divisor));
    }
    BARRIER
    let across = columns - step - 1u;
    for (var i = lane; i < (rows - step - 1u) * across && !singular; i = i + LANES) {
        let row = step + 1u + i / across;
        let column = step + 1u + i % across;
        let at = first + row * columns + column;
        put1(at, get1(at) - times(get1(first + row * columns + step), get1(first + step * columns + column)));
    }
    BARRIER
}
";

/// Lengths are of numbers that were divided by the greatest, whose squares do not overflow.
const QR: &str = "\
let least = min(rows, columns);
BARRIER
for (var step = 0u; step < least; step = step + 1u) {
    var most = Real(0);
    for (var row = step + 1u + lane; row < rows; row = row + LANES) {
        let size = size_of(get1(first + row * columns + step));
        if !(size <= most) { most = size; }
    }
    let holder = greatest_of_all(lane, most, lane);
    let greatest = parts[0];
    let unit = select(greatest, Real(1), greatest == Real(0));
    var squares = Real(0);
    for (var row = step + 1u + lane; row < rows; row = row + LANES) {
        let x = get1(first + row * columns + step) / unit;
        squares = squares + real(times(x, conjugate(x)));
    }
    let below = unit * sqrt(sum_of_all(lane, squares));
    let head = get1(first + step * columns + step);
    let trivial = below == Real(0) && imaginary(head) == Real(0);
    let scale = select(max(size_of(head), below), Real(1), trivial);
    let along = head / scale;
    let whole = scale * sqrt(below / scale * (below / scale) + real(times(along, conjugate(along))));
    let multiple = select(whole, -whole, real(head) >= Real(0));
    var tau = of_real(Real(0));
    BARRIER
    if !trivial {
        let turn = head - of_real(multiple);
        tau = (of_real(multiple) - head) / multiple;
        for (var row = step + 1u + lane; row < rows; row = row + LANES) {
            let at = first + row * columns + step;
            put1(at, divide(get1(at), turn));
        }
        if lane == 0u { put1(first + step * columns + step, of_real(multiple)); }
    }
    if lane == 0u { put2(number * least + step, tau); }
    BARRIER
    for (var column = step + 1u + lane; column < columns; column = column + LANES) {
        var sum = get1(first + step * columns + column);
        for (var row = step + 1u; row < rows; row = row + 1u) {
            sum = sum + times(conjugate(get1(first + row * columns + step)), get1(first + row * columns + column));
        }
        sum = times(conjugate(tau), sum);
        put1(first + step * columns + column, get1(first + step * columns + column) - sum);
        for (var row = step + 1u; row < rows; row = row + 1u) {
            let at = first + row * columns + column;
            put1(at, get1(at) - times(get1(first + row * columns + step), sum));
        }
    }
    BARRIER
}
";

const SOLVE: &str = "\
let size = n[2];
let first = matrix * size * size;
let begin = matrix * size * n[4];
for (var step = 0u; step < size; step = step + 1u) {
    let row = ROW;
    var rest = get1(begin + place(size, vector, row));
    for (var before = 0u; before < step; before = before + 1u) {
        let column = KNOWN;
        rest = rest - times(entry(first, size, row, column), get2(begin + place(size, vector, column)));
    }
    put2(begin + place(size, vector, row), SOLVED);
}
";

const PLACE_OF_COLUMNS: &str = "fn place(vector: u32, i: u32) -> u32 { return i * n[4] + vector; }\n";
const PLACE_OF_ROWS: &str = "fn place(vector: u32, i: u32) -> u32 { return vector * n[2] + i; }\n";

const PRODUCT_BEGIN: &str = "\
let begin = matrix * n[2] * n[4];
for (var i = 0u; i < n[2]; i = i + 1u) {
    put2(begin + place(vector, i), of_real(select(Real(0), Real(1), i == vector)));
}
";

const APPLY_BEGIN: &str = "\
let begin = matrix * n[2] * n[4];
for (var i = 0u; i < n[2]; i = i + 1u) {
    put3(begin + place(vector, i), get2(begin + place(vector, i)));
}
";

/// Applies reflections to a vector of operand `to`, or where it is `turned` to the conjugate of its conjugate: that of
/// `H x` is the conjugate of H times that of x.
fn reflections(to: u32, adjoint: bool, turned: bool) -> String {
    let step = if adjoint { "step" } else { "(n[5] - 1u - step)" };
    let conjugate = |text: &str, applies: bool| match applies {
        true => format!("conjugate({text})"),
        false => text.to_string(),
    };
    let tau = conjugate("get1(matrix * n[5] + at)", adjoint != turned);
    let v = "get0(first + i * n[3] + at)";
    let (left, right) = (conjugate(v, !turned), conjugate(v, turned));
    format!(
        "let first = matrix * n[2] * n[3];\n\
         for (var step = 0u; step < n[5]; step = step + 1u) {{\n\
         let at = {step};\nlet head = begin + place(vector, at);\nvar sum = get{to}(head);\n\
         for (var i = at + 1u; i < n[2]; i = i + 1u) {{ sum = sum + times({left}, get{to}(begin + place(vector, i))); }}\n\
         sum = times({tau}, sum);\nput{to}(head, get{to}(head) - sum);\n\
         for (var i = at + 1u; i < n[2]; i = i + 1u) {{\n\
         let own = begin + place(vector, i);\nput{to}(own, get{to}(own) - times({right}, sum));\n}}\n}}\n"
    )
}
