//! What fuzzing starts from: `fuzz_seeds directory` writes into it the folders `file` and `text`
//! with programs that have every op, and `words`, a dictionary of names for both.
//!
//! The programs are those of `tests/support/every_op.txt` and of the golden files in `tests/ir`.

use std::path::{Path, PathBuf};

use ferrax_ir::serial::{Interface, to_bytes};
use ferrax_ir::{DType, Program};

fn main() -> std::io::Result<()> {
    let Some(directory) = std::env::args_os().nth(1).map(PathBuf::from) else {
        return Err(std::io::Error::other("usage: fuzz_seeds directory"));
    };
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let ops = std::fs::read_to_string(here.join("tests/support/every_op.txt"))?;
    let mut programs: Vec<Program> = ops.lines().filter_map(|line| Program::parse(line).ok()).collect();
    for group in std::fs::read_dir(here.join("../../tests/ir"))? {
        let group = group?.path();
        for file in if group.is_dir() { Some(std::fs::read_dir(group)?) } else { None }.into_iter().flatten()
        {
            let text = std::fs::read_to_string(file?.path())?;
            programs.extend(text.split("\n\n").filter_map(|paragraph| Program::parse(paragraph).ok()));
        }
    }
    let (files, texts) = (directory.join("file"), directory.join("text"));
    std::fs::create_dir_all(&files)?;
    std::fs::create_dir_all(&texts)?;
    for (number, program) in programs.iter().enumerate() {
        std::fs::write(texts.join(format!("seed-{number}")), format!("{program:#}"))?;
        // Files refuse arrays that no machine can hold; one golden program is about such.
        if let Ok(bytes) = to_bytes(program, &Interface::default()) {
            std::fs::write(files.join(format!("seed-{number}")), bytes)?;
        }
    }
    let ops = ferrax_ir::op::documented_ops().into_iter().map(|(name, _)| name);
    let dtypes = DType::ALL.iter().flat_map(|dtype| [dtype.name(), dtype.short_name()]);
    let names =
        programs.iter().flat_map(|program| &program.equations).flat_map(|equation| equation.op.params());
    let words: std::collections::BTreeSet<&str> =
        ops.chain(dtypes).chain(names.map(|(name, _)| name)).collect();
    let lines: String = words.iter().map(|word| format!("\"{word}\"\n")).collect();
    std::fs::write(directory.join("words"), lines)
}
