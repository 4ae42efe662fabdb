//! The files of `tests/ir`: what they say, and the passes they name.
//!
//! ```text
//! What the case shows, in prose.
//!
//! pass: NAME key=value …       (one line or more, in turn)
//!
//! a program, as `{:#}` prints it
//!
//! ---
//!
//! what the passes give: programs, plans, or the error
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use ferrax_compile::{Target, expand, plan};
use ferrax_ir::verify::verify;
use ferrax_ir::{Dim, Program, Result};
use ferrax_transform::{
    Inline, Options, OutDims, batch, cse, dce_with, fold, inline, jvp_with, linearize, optimise,
    partial_eval_with, simplify, transpose, vjp, vjp_program,
};

/// A file of `tests/ir`.
pub struct Case {
    pub path: PathBuf,
    /// The whole file.
    pub text: String,
    prose: String,
    pub passes: Vec<Pass>,
    pub program: Program,
}

/// A line that names a pass.
pub struct Pass {
    line: String,
    name: String,
    options: Vec<(String, String)>,
}

/// What passes gave.
#[derive(Default)]
pub struct Outcome {
    notes: Vec<String>,
    pub programs: Vec<(&'static str, Program)>,
    plan: Option<String>,
}

pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/ir")
}

/// All cases, in the order of their paths.
pub fn cases() -> Vec<Case> {
    let mut files = Vec::new();
    for group in fs::read_dir(folder()).expect("tests/ir is a folder") {
        let group = group.expect("an entry of tests/ir").path();
        if group.is_dir() {
            let entries = fs::read_dir(&group).expect("a folder of tests/ir");
            files.extend(entries.map(|entry| entry.expect("a file of tests/ir").path()));
        }
    }
    files.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    files.into_iter().map(Case::read).collect()
}

impl Case {
    fn read(path: PathBuf) -> Case {
        let text = fs::read_to_string(&path).expect("a readable case");
        let refuse = |why: &str| -> ! { panic!("{}: {why}", path.display()) };
        let Some((head, _)) = text.split_once("\n---\n") else { refuse("there is no line '---'") };
        let (lines, program): (Vec<&str>, Vec<&str>) = {
            let Some(last) = head.lines().collect::<Vec<_>>().iter().rposition(|l| l.starts_with("pass:"))
            else {
                refuse("there is no line 'pass: …'")
            };
            (head.lines().take(last + 1).collect(), head.lines().skip(last + 1).collect())
        };
        let passes = lines.iter().filter_map(|line| line.strip_prefix("pass:")).map(Pass::read).collect();
        let prose: Vec<&str> = lines.iter().copied().filter(|line| !line.starts_with("pass:")).collect();
        let program = Program::parse(&program.join("\n")).unwrap_or_else(|error| refuse(&error.to_string()));
        Case { prose: prose.join("\n").trim().to_owned(), passes, program, text, path }
    }

    /// The file as it should be.
    pub fn render(&self) -> String {
        let passes: Vec<String> = self.passes.iter().map(|pass| format!("pass: {}", pass.line)).collect();
        let result = match self.outcome(&self.program) {
            Ok(outcome) => outcome.text(),
            Err(error) => format!("error: {error}"),
        };
        format!("{}\n\n{}\n\n{:#}\n\n---\n\n{result}\n", self.prose, passes.join("\n"), self.program)
    }

    /// Whether a pass is told things about the program that may be wrong.
    pub fn trusts_flags(&self) -> bool {
        self.passes.iter().any(|pass| ["transpose", "batch"].contains(&pass.name.as_str()))
    }

    /// What the passes make of a program; every result is verified.
    pub fn outcome(&self, program: &Program) -> Result<Outcome> {
        let mut outcome = Outcome { programs: vec![("", program.clone())], ..Outcome::default() };
        for pass in &self.passes {
            outcome = match pass.option("of") {
                Some(which) => outcome.keep(which),
                None => outcome,
            };
            let [(_, program)] = &outcome.programs[..] else {
                panic!("'{}' follows a pass that gives several programs; say which: of=…", pass.line)
            };
            outcome = pass.apply(program)?;
            for (_, program) in &outcome.programs {
                verify(program).unwrap_or_else(|error| panic!("{}: {error}\n{program:#}", pass.line));
            }
        }
        Ok(outcome)
    }
}

impl Outcome {
    fn keep(mut self, which: &str) -> Self {
        self.programs.retain(|(name, _)| *name == which);
        self
    }

    fn of(program: Program) -> Self {
        Outcome { programs: vec![("", program)], ..Outcome::default() }
    }

    fn note(mut self, what: &str, flags: &[bool]) -> Self {
        self.notes.push(format!("{what}: {}", digits(flags)));
        self
    }

    fn text(&self) -> String {
        let mut parts = Vec::new();
        if !self.notes.is_empty() {
            parts.push(self.notes.join("\n"));
        }
        for (name, program) in &self.programs {
            let text = format!("{program:#}");
            let again = Program::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            assert_eq!(again, program.canonical(), "{text}");
            parts.push(if name.is_empty() { text } else { format!("{name}:\n{text}") });
        }
        parts.extend(self.plan.clone());
        parts.join("\n\n")
    }
}

fn digits(flags: &[bool]) -> String {
    flags.iter().map(|&flag| if flag { '1' } else { '0' }).collect()
}

impl Pass {
    fn read(line: &str) -> Pass {
        let mut words = line.split_whitespace();
        let name = words.next().expect("the name of a pass").to_owned();
        let options = words
            .map(|word| word.split_once('=').unwrap_or_else(|| panic!("'{word}' is not key=value")))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        Pass { line: line.trim().to_owned(), name, options }
    }

    fn option(&self, key: &str) -> Option<&str> {
        self.options.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Flags as digits; none if they are not given.
    fn flags(&self, key: &str) -> Vec<bool> {
        self.option(key).unwrap_or("").chars().map(|c| c == '1').collect()
    }

    /// Axes between commas, `-` for none.
    fn axes(&self, key: &str) -> Vec<Option<usize>> {
        self.option(key).unwrap_or("").split(',').map(|axis| axis.parse().ok()).collect()
    }

    fn apply(&self, program: &Program) -> Result<Outcome> {
        let flags = |key| self.flags(key);
        Ok(match self.name.as_str() {
            "jvp" => {
                let (program, nonzero) = jvp_with(program, &flags("nonzero"), &flags("instantiate"))?;
                Outcome::of(program).note("outputs with tangents", &nonzero)
            }
            "linearize" => {
                let found = linearize(program, &flags("nonzero"))?;
                let programs = vec![("primal", found.primal), ("linear", found.linear)];
                Outcome { programs, ..Outcome::default() }.note("outputs with tangents", &found.nonzero_out)
            }
            "transpose" => {
                let (program, nonzero) = transpose(program, &flags("linear"), &flags("cotangents"))?;
                Outcome::of(program).note("inputs with cotangents", &nonzero)
            }
            "vjp" => {
                let found = vjp(program, &flags("nonzero"))?;
                let backward = found.backward(&flags("given"))?;
                let programs = vec![("forward", found.linearized.primal), ("backward", backward.program)];
                Outcome { programs, ..Outcome::default() }
                    .note("inputs with cotangents", &backward.nonzero_in)
            }
            "vjp_program" => Outcome::of(vjp_program(program, &flags("nonzero"), &flags("given"))?),
            "partial_eval" => {
                let found = partial_eval_with(program, &flags("unknown"), &flags("force"))?;
                let programs = vec![("known", found.known), ("unknown", found.unknown)];
                Outcome { programs, ..Outcome::default() }.note("unknown outputs", &found.unknown_out)
            }
            "batch" => {
                let size = Dim::parse(self.option("size").unwrap_or("n"))?;
                let force = self.axes("out");
                let out = match self.option("out") {
                    None => OutDims::AsIs,
                    Some("front") => OutDims::Front,
                    Some(_) => OutDims::Force(&force),
                };
                let (program, dims) = batch(program, &size, &self.axes("dims"), None, out)?;
                let dims: Vec<String> =
                    dims.iter().map(|dim| dim.map_or("-".to_owned(), |dim| dim.to_string())).collect();
                let mut outcome = Outcome::of(program);
                outcome.notes.push(format!("axes of outputs: {}", dims.join(",")));
                outcome
            }
            "dce" => {
                let used = self.option("used").map_or(vec![true; program.outputs.len()], |_| flags("used"));
                let (program, inputs) = dce_with(program, &used)?;
                Outcome::of(program).note("inputs in use", &inputs)
            }
            "inline" => Outcome::of(inline(
                program,
                match self.option("which") {
                    None | Some("all") => Inline::All,
                    Some("marked") => Inline::Marked,
                    Some(count) => Inline::UpTo(count.parse().expect("which=all, marked or a number")),
                },
            )?),
            "simplify" => Outcome::of(simplify(program)?),
            "fold" => Outcome::of(fold(program)?),
            "cse" => Outcome::of(cse(program)?),
            "optimise" => Outcome::of(optimise(program, Options::default())?),
            "expand" => Outcome::of(expand(program)?),
            "plan" => Outcome {
                plan: Some(plan(&expand(program)?, &Target::CPU)?.to_string()),
                ..Outcome::default()
            },
            name => panic!("there is no pass '{name}'"),
        })
    }
}
