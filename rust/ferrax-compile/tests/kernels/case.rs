//! The files of `tests/kernels`: a kernel, and what it gives for some operands. Every emitter runs them; that
//! kernels print as they are written is held here.
//!
//! ```text
//! What the case shows, in prose.
//!
//! a launch, as it prints itself
//!
//! run b0 = 1 2; b1 = 0 0      (elements of each operand; of complex numbers both parts)
//! gives b1 = 2 4              (bit by bit, but any NaN for NaN)
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use ferrax_compile::Launch;
use ferrax_ir::{DType, Scalar};

pub struct Case {
    pub path: PathBuf,
    pub launch: Launch,
    pub runs: Vec<Run>,
}

pub struct Run {
    /// The bytes of each operand before.
    pub operands: Vec<Vec<u8>>,
    /// Operands and their elements after.
    gives: Vec<(usize, Vec<Scalar>)>,
}

pub fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/kernels");
    let entries = fs::read_dir(folder).expect("tests/kernels is a folder");
    let mut files: Vec<PathBuf> =
        entries.map(|entry| entry.expect("an entry of tests/kernels").path()).collect();
    files.sort();
    assert!(files.len() >= 10, "only {} cases", files.len());
    files.into_iter().map(read).collect()
}

fn read(path: PathBuf) -> Case {
    let text = fs::read_to_string(&path).expect("a readable case");
    let start = text
        .find("\nkernel ")
        .map(|at| at + 1)
        .unwrap_or_else(|| panic!("{}: there is no kernel", path.display()));
    let (launch, runs) = text[start..].split_once("\n\n").expect("an empty line after the kernel");
    let kernel: Launch = launch.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut found: Vec<Run> = Vec::new();
    for line in runs.lines() {
        if let Some(line) = line.strip_prefix("run ") {
            let mut operands = vec![Vec::new(); kernel.kernel.operands.len()];
            for (operand, elements) in arrays(line, &kernel) {
                operands[operand] = elements.iter().flat_map(|element| element.bytes()).collect();
            }
            found.push(Run { operands, gives: Vec::new() });
        } else if let Some(line) = line.strip_prefix("gives ") {
            found.last_mut().expect("a line 'run' before 'gives'").gives = arrays(line, &kernel);
        }
    }
    assert!(!found.is_empty() && found.iter().all(|run| !run.gives.is_empty()), "{}", path.display());
    assert_eq!(kernel.to_string().trim_end(), launch, "{}", path.display());
    Case { path, launch: kernel, runs: found }
}

fn arrays(line: &str, launch: &Launch) -> Vec<(usize, Vec<Scalar>)> {
    let array = |text: &str| {
        let (name, numbers) = text.split_once('=').expect("b0 = …");
        let operand: usize = name.trim().trim_start_matches('b').parse().expect("the number of an operand");
        let dtype = launch.kernel.operands[operand].dtype;
        let numbers: Vec<Scalar> =
            numbers.split_whitespace().map(|text| number(dtype.real(), text)).collect();
        let elements = numbers.chunks(dtype.parts()).map(|parts| match parts {
            [re, im] => Scalar::from_bits(dtype, re.bits() | im.bits() << (dtype.size() * 4)),
            parts => parts[0],
        });
        (operand, elements.collect())
    };
    line.split(';').map(array).collect()
}

fn number(dtype: DType, text: &str) -> Scalar {
    match text.parse() {
        Ok(value) if !dtype.is_float() => Scalar::from_i64(dtype, value),
        _ => Scalar::from_f64(dtype, text.parse().expect("a number")),
    }
}

impl Case {
    /// Holds the operands after a run against what it should give.
    pub fn check(&self, run: &Run, operands: &[Vec<u8>]) {
        for (operand, expected) in &run.gives {
            let dtype = self.launch.kernel.operands[*operand].dtype;
            let found: Vec<Scalar> = operands[*operand]
                .chunks(dtype.size())
                .map(|bytes| Scalar::from_bytes(dtype, bytes).expect("a whole element"))
                .collect();
            let same = |a: &Scalar, b: &Scalar| {
                let nan = |x: &Scalar| x.to_f64().is_some_and(f64::is_nan);
                a == b || nan(a) && nan(b)
            };
            let equal = found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| same(a, b));
            assert!(equal, "{}: b{operand} is {found:?}, not {expected:?}", self.path.display());
        }
    }
}
