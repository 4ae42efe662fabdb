//! Sequences of kernels as shaders: their forms, and their words.
//!
//! In: a sequence that was planned. Out: what its shader is made of, and the words of its launches. Cost: linear.

use ferrax_compile::launches::{Folds, Frame, Part, Place, Sequence, Together};
use ferrax_ir::{Result, internal_error};

use crate::gpu::{Gpu, Prepared};
use crate::pipelines::Source;
use crate::wgsl::arrays::Words;
use crate::wgsl::numbers::{Fold, Form, INDICES, Means, words};
use crate::wgsl::sequence::{COUNT, FRAME_WORDS, Part as PartForm, SequenceForm};
use crate::wgsl::{WORKGROUP, Where, types};

/// What a shader is made of; none if an array is written as parts of words and as whole ones.
pub fn form(sequence: &Sequence) -> Option<SequenceForm> {
    let mut written: Vec<Option<Words>> = vec![None; sequence.arrays];
    for part in sequence.parts() {
        for (place, operand) in part.places.iter().zip(&part.launch.kernel.operands) {
            let (Place::Array(number), true) = (place, operand.written) else { continue };
            let words = types::words(operand.dtype, true);
            let known = written.get_mut(*number as usize)?.get_or_insert(words);
            if *known != words {
                return None;
            }
        }
    }
    let parts = |parts: &[Part]| parts.iter().map(part_form).collect();
    Some(SequenceForm {
        frame: sequence.frame,
        lanes: sequence.lanes,
        own: sequence.own,
        arrays: written.into_iter().map(|words| words.unwrap_or(Words::Whole)).collect(),
        before: parts(&sequence.before),
        condition: parts(&sequence.condition),
        body: parts(&sequence.body),
        after: parts(&sequence.after),
    })
}

fn part_form(part: &Part) -> PartForm {
    let mut form = Form::part(&part.launch);
    form.fold = match part.folds {
        Folds::None => Fold::None,
        Folds::Each => Fold::Each,
        Folds::Together => Fold::Together,
    };
    let operand = |place: &Place| match *place {
        Place::Own { .. } => Where::Own,
        Place::Array(number) => Where::Array(number),
    };
    let operands = part.places.iter().map(operand).collect();
    PartForm { form, rows: part.rows.clone(), operands, waits: part.waits }
}

/// The form and the words, of which the frame's are to be set.
pub fn with_words(sequence: &Sequence) -> Result<(SequenceForm, Vec<u32>)> {
    let form = form(sequence).ok_or_else(|| internal_error!("a sequence that has no shader"))?;
    let mut all = vec![0; FRAME_WORDS];
    for (part, shape) in sequence.parts().zip(form.parts()) {
        // Who puts a sequence together sees to it that loops end in time.
        let mut numbers = words(&part.launch, &shape.form, &Means::EVER)?;
        numbers[INDICES] = part.indices as u32;
        all.extend(numbers);
    }
    Ok((form, all))
}

/// Kernels that go through rows together, made ready.
pub fn prepared(gpu: &Gpu, together: &Together) -> Result<Prepared> {
    let (form, mut words) = with_words(&together.sequence)?;
    words[COUNT] = together.rows;
    let alone = form.frame == Frame::Alone;
    let groups = if alone { together.rows.div_ceil(WORKGROUP) } else { together.rows };
    gpu.prepared(Source::Sequence(Box::new(form)), &words, groups)
}
