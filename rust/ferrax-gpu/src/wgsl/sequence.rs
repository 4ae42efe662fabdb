//! Several kernels as one shader: the [`Part`]s of a sequence, each a function that the invocations of a workgroup go
//! through together.
//!
//! In: a [`SequenceForm`]. Out: a shader whose words are those of its [`Frame`], then those of each part, in order.
//! What is between parts may be in memory that the workgroup has of its own, `own`. Loops of a part that are numbered
//! by the `row`, which is a row of arrays or a step of a loop, have the indices of the one row; others are shared
//! among invocations. Parts follow one another without waiting, but where one needs what others read and wrote before
//! it ([`Waits`]). Cost: linear in the kernels, with their functions of floats written out.

use ferrax_compile::Stage;
use ferrax_compile::launches::{Frame, Waits};
use ferrax_ir::Result;
use ferrax_ir::scalar::{Body, Reg, ScalarType};

use super::arrays::Words;
use super::numbers::{Fold, Form, INDICES, Layout};
use super::{
    MOST_GROUPS, Needs, Shader, WORKGROUP, Where, Writer, expanded, fold, has, needs, numbered, ops,
};

/// Words before those of the parts: zero, and what the frame needs.
pub const FRAME_WORDS: usize = 6;
/// Rows, or how many steps there are at most.
pub const COUNT: usize = 1;
/// The first row of a scan, and what is added for the next.
pub const FIRST: usize = 2;
pub const NEXT: usize = 3;
/// The word of `own` that says whether a `while` goes on.
pub const HOLDS: usize = 4;

/// A kernel of a sequence.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Part {
    pub form: Form,
    /// The loops whose indices are those of the row.
    pub rows: Vec<usize>,
    pub operands: Vec<Where>,
    pub waits: Waits,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SequenceForm {
    pub frame: Frame,
    /// Invocations of a workgroup.
    pub lanes: u32,
    /// Words of `own`.
    pub own: u32,
    pub arrays: Vec<Words>,
    /// What is done once, before all steps.
    pub before: Vec<Part>,
    pub condition: Vec<Part>,
    pub body: Vec<Part>,
    /// What is done once, after all steps.
    pub after: Vec<Part>,
}

impl SequenceForm {
    /// The parts, in the order of their words.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.before.iter().chain(&self.condition).chain(&self.body).chain(&self.after)
    }

    fn shared(&self) -> Vec<(String, ScalarType)> {
        fold::shared(self.parts().map(|part| &part.form))
    }

    /// Bytes of workgroup memory.
    pub fn workgroup_bytes(&self) -> usize {
        let own = if self.frame == Frame::Alone { 0 } else { self.own as usize * size_of::<u32>() };
        // Booleans and narrow numbers are words there.
        let folds = self.shared().iter().map(|(_, ty)| ty.size().max(size_of::<u32>())).sum::<usize>();
        own + folds * self.lanes as usize
    }
}

const ALL: Waits = Waits { own: true, arrays: true };

/// What waits for that.
fn waiting(waits: Waits) -> &'static str {
    match (waits.own, waits.arrays) {
        (true, true) => "workgroupBarrier();\nstorageBarrier();\n",
        (true, false) => "workgroupBarrier();\n",
        (false, true) => "storageBarrier();\n",
        (false, false) => "",
    }
}

pub fn shader(form: &SequenceForm) -> Result<Shader> {
    let mut text = "var<private> zero: u32;\n".to_string();
    if form.own > 0 {
        let space = if form.frame == Frame::Alone { "private" } else { "workgroup" };
        text += &format!("var<{space}> own: array<u32, {}>;\n", form.own);
    }
    text += &fold::declared(&form.shared(), form.lanes);
    let mut bodies: Vec<[(Body, Vec<Reg>); 2]> = Vec::new();
    for part in form.parts() {
        bodies.push([expanded(&part.form.kernel.body)?, expanded(&part.form.kernel.epilogue)?]);
    }
    text += &ops::functions(|ty| {
        let mut all = form.parts().zip(&bodies);
        all.any(|(part, [main, epilogue])| has(&part.form, ty, &[&main.0, &epilogue.0]))
    });
    let mut all_needs = Needs::default();
    let mut begin = FRAME_WORDS;
    for (number, (part, code)) in form.parts().zip(&bodies).enumerate() {
        let own = needs(&part.form, &code.each_ref().map(|(body, _)| body));
        all_needs.int64 |= own.int64;
        all_needs.float64 |= own.float64;
        let mut writer = Writer::new(&part.form, begin, form.lanes, Some(&part.operands));
        writer.part(number, part, form.frame == Frame::Alone, code)?;
        text += &writer.text;
        begin = Layout::new(&part.form, begin).end;
    }
    text += &main(form);
    Ok(Shader { text, needs: all_needs, arrays: form.arrays.clone() })
}

/// The function that goes through the parts.
fn main(form: &SequenceForm) -> String {
    let mut next = 0;
    let mut calls = |parts: &[Part]| {
        let call = |part: &Part| {
            next += 1;
            let waits = if form.frame == Frame::Alone { "" } else { waiting(part.waits) };
            format!("{waits}part{}(local, row);\n", next - 1)
        };
        parts.iter().map(call).collect::<String>()
    };
    let (before, condition) = (calls(&form.before), calls(&form.condition));
    let (body, after) = (calls(&form.body), calls(&form.after));
    let ids = "@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>";
    let all = waiting(ALL);
    let code = match form.frame {
        Frame::Rows => format!(
            "let row = group.x + group.y * {MOST_GROUPS}u;\nif row >= n[{COUNT}] {{ return; }}\nzero = n[0];\n{body}"
        ),
        Frame::Alone => format!(
            "{}\nlet row = number;\nif row >= n[{COUNT}] {{ return; }}\nzero = n[0];\n{body}",
            numbered()
        ),
        Frame::Scan => format!(
            "zero = n[0];\n{{\nlet row = 0u;\n{before}}}\n\
             for (var step = 0u; step < n[{COUNT}]; step = step + 1u) {{\n{all}\
             let row = n[{FIRST}] + step * n[{NEXT}];\n{body}}}\n{all}{{\nlet row = 0u;\n{after}}}\n"
        ),
        Frame::While => format!(
            "zero = n[0];\nlet row = 0u;\n{before}var holds = 0u;\n\
             for (var step = 0u; ; step = step + 1u) {{\n{all}{condition}{all}\
             holds = own[n[{HOLDS}]];\nif holds == 0u || step >= n[{COUNT}] {{ break; }}\n{body}}}\n\
             {after}if local.x == 0u {{ set{}(0u, holds); }}\n",
            form.arrays.len().saturating_sub(1)
        ),
    };
    let (size, ids) = match form.frame {
        Frame::Alone => (WORKGROUP, format!("@builtin(global_invocation_id) id: vec3<u32>, {ids}")),
        _ => (form.lanes, ids.to_string()),
    };
    format!("@compute @workgroup_size({size})\nfn main({ids}) {{\n{code}}}\n")
}

impl Writer<'_> {
    /// A part as a function of an invocation and the row; `alone` if the invocation has the row for itself.
    fn part(
        &mut self,
        number: usize,
        part: &Part,
        alone: bool,
        [main, epilogue]: &[(Body, Vec<Reg>); 2],
    ) -> Result<()> {
        let form = self.form;
        self.line(format!("fn part{number}(local: vec3<u32>, row: u32) {{"));
        for axis in 0..form.kernel.axes.len() {
            self.line(format!("var i{axis} = 0;"));
        }
        if !part.rows.is_empty() {
            self.line("{");
            self.indices(&part.rows, "row");
            self.line("}");
        }
        let shared = form.fold.is_shared();
        let (first, next) = match alone || shared {
            true => ("0u".to_string(), 1),
            false => ("local.x".to_string(), self.lanes),
        };
        self.line(format!(
            "for (var number = {first}; number < {}; number = number + {next}u) {{",
            self.word(INDICES)
        ));
        let inner: Vec<usize> = form.outer().into_iter().filter(|axis| !part.rows.contains(axis)).collect();
        self.indices(&inner, "number");
        let accumulators = &form.kernel.accumulators;
        match form.fold {
            Fold::None => self.stage(Stage::Main, main, &[])?,
            Fold::Together => {
                self.line("let segment = 0u;");
                self.fold_together(main)?;
                self.line("if local.x == 0u {");
                self.results()?;
                self.stage(Stage::Epilogue, epilogue, accumulators)?;
                // Before others write what this invocation reads.
                self.line("}\nworkgroupBarrier();");
            }
            _ => {
                self.fold(main)?;
                self.stage(Stage::Epilogue, epilogue, accumulators)?;
            }
        }
        self.line("}\n}");
        Ok(())
    }
}
