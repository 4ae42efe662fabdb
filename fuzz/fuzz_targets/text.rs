//! Text to the parser of programs. Whatever it is, the parser gives a program that verifies and
//! whose exact text is read as the same program, or a parse error.

#![no_main]

use ferrax_ir::{Error, Program};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let program = match Program::parse(text) {
        Ok(program) => program,
        Err(Error::Parse(text)) => return assert!(text.contains("line")),
        Err(other) => panic!("expected a parse error, got {other:?}"),
    };
    let exact = format!("{program:#}");
    let again = Program::parse(&exact).unwrap_or_else(|error| panic!("{error}\n{exact}"));
    assert_eq!(again, program.canonical(), "{exact}");
    assert_eq!(format!("{again:#}"), exact);
    ferrax_fuzz::check(&program);
});
