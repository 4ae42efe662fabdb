//! What passes make of programs, as text: the cases of `tests/ir`.
//!
//! `FERRAX_UPDATE_SNAPSHOTS=1 cargo test -p ferrax-compile --test golden` writes
//! the files anew; a new case needs its prose, its passes, its program and a
//! line `---`.

mod case;

use case::{Case, cases, folder};
use ferrax_compile::{Target, expand, plan};
use ferrax_ir::verify::verify;
use ferrax_ir::{Error, Program, Result};
use ferrax_transform::{Options, optimise};

#[test]
fn passes_give_the_texts_of_the_cases() {
    let update = std::env::var("FERRAX_UPDATE_SNAPSHOTS").is_ok_and(|value| value == "1");
    let mut wrong = Vec::new();
    let cases = cases();
    assert!(cases.len() >= 40, "only {} cases in {}", cases.len(), folder().display());
    for case in &cases {
        let found = case.render();
        if found == case.text {
            continue;
        }
        if update {
            std::fs::write(&case.path, found).expect("a writable case");
        } else {
            wrong.push(format!("{}\n{}", case.path.display(), difference(&case.text, &found)));
        }
    }
    let hint = "FERRAX_UPDATE_SNAPSHOTS=1 writes them anew";
    assert!(
        wrong.is_empty(),
        "{} of the files say something else; {hint}\n\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// The lines from the first that differs to the last.
fn difference(expected: &str, found: &str) -> String {
    let (expected, found): (Vec<&str>, Vec<&str>) = (expected.lines().collect(), found.lines().collect());
    let same = expected.iter().zip(&found).take_while(|(a, b)| a == b).count();
    let tail =
        expected[same..].iter().rev().zip(found[same..].iter().rev()).take_while(|(a, b)| a == b).count();
    let show = |mark: char, lines: &[&str]| -> String {
        lines[same..lines.len() - tail].iter().map(|line| format!("{mark} {line}\n")).collect()
    };
    format!("line {}\n{}{}", same + 1, show('-', &expected), show('+', &found))
}

/// Reproducible random numbers (PCG's multiplier and increment).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit.max(1)
    }
}

/// Names and numbers whole, everything else one character each.
fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        let length = match rest.find(|c| !word(c)) {
            Some(0) => first.len_utf8(),
            Some(length) => length,
            None => rest.len(),
        };
        let (token, tail) = rest.split_at(length);
        tokens.push(token);
        rest = tail;
    }
    tokens
}

/// Words that programs are made of beside those of the case.
const WORDS: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "7",
    "4294967296",
    "9223372036854775807",
    "n",
    "2*n",
    "-",
    "~",
    "f32",
    "f64",
    "bf16",
    "i32",
    "u8",
    "bool",
    "c64",
    "True",
    "None",
    "nan",
    "()",
    "(0,)",
    "(1, 0)",
    "[2]",
    "neg",
    "mul",
    "convert_element_type",
];

/// The text with one to three tokens exchanged, repeated or left out.
fn mutated(text: &str, random: &mut Random) -> String {
    let mut tokens = tokens(text);
    for _ in 0..=random.below(3) {
        let (at, other) = (random.below(tokens.len()), random.below(tokens.len()));
        match random.below(6) {
            _ if tokens.is_empty() => break,
            0 => tokens.swap(at, other),
            1 => {
                tokens.remove(at);
            }
            2 => tokens.insert(at, tokens[other]),
            3 => tokens[at] = tokens[other],
            // A number for a number keeps most programs readable.
            4 => {
                let numbers: Vec<usize> = (0..tokens.len())
                    .filter(|&i| tokens[i].starts_with(|c: char| c.is_ascii_digit()))
                    .collect();
                if !numbers.is_empty() {
                    tokens[numbers[random.below(numbers.len())]] = WORDS[random.below(5)];
                }
            }
            _ => tokens[at] = WORDS[random.below(WORDS.len())],
        }
    }
    tokens.concat()
}

/// A program that was read from a changed text is as good as any: it verifies,
/// and passes give programs that verify, or an error that blames the program.
fn check_changed(case: &Case, text: &str, is_input: bool) -> bool {
    let program = match Program::parse(text) {
        Ok(program) => program,
        Err(Error::Parse(_)) => return false,
        Err(other) => panic!("expected a parse error, got {other:?}\n{text}"),
    };
    verify(&program).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let fair = |result: Result<()>| {
        if let Err(Error::Internal(error)) = result {
            panic!("{}: {error}\n{text}", case.path.display());
        }
    };
    fair(optimise(&program, Options::default()).and_then(|program| verify(&program)));
    fair(expand(&program).and_then(|flat| plan(&flat, &Target::CPU)).map(drop));
    // The options of the case are for so many inputs and outputs, and what they say of these
    // (what is linear, where an axis is) is the caller's word: if it is wrong, the error is internal.
    let counts = |program: &Program| (program.inputs.len(), program.outputs.len());
    if is_input && counts(&program) == counts(&case.program) {
        let result = case.outcome(&program).map(drop);
        if !case.trusts_flags() {
            fair(result);
        }
    }
    true
}

#[test]
fn changed_programs_never_panic() {
    let mut random = Random(11);
    let (mut read, mut tried) = (0, 0);
    for case in cases() {
        let mut texts = vec![format!("{:#}", case.program)];
        if let Ok(outcome) = case.outcome(&case.program) {
            texts.extend(outcome.programs.iter().map(|(_, program)| format!("{program:#}")));
        }
        for (index, text) in texts.iter().enumerate() {
            for _ in 0..500 {
                read += usize::from(check_changed(&case, &mutated(text, &mut random), index == 0));
                tried += 1;
            }
        }
    }
    assert!(read * 20 > tried, "only {read} of {tried} changed texts were valid: too wild to test much");
}
