//! Bytes to the reader of saved programs. Whatever they are, it gives a program that verifies,
//! saves and loads again, or a parse error. The checksum of the header would stop nearly all
//! changes, so that each input is also read with the header that its payload should have.

#![no_main]

use ferrax_ir::Error;
use ferrax_ir::serial::{from_bytes, seal, to_bytes};
use libfuzzer_sys::fuzz_target;

fn read(bytes: &[u8]) {
    let (program, interface) = match from_bytes(bytes) {
        Ok(loaded) => loaded,
        Err(Error::Parse(text)) => return assert!(!text.is_empty()),
        Err(other) => panic!("expected a parse error, got {other:?}"),
    };
    let again = to_bytes(&program, &interface).unwrap_or_else(|error| panic!("{error}\n{program}"));
    let loaded = from_bytes(&again).unwrap_or_else(|error| panic!("{error}\n{program}"));
    assert_eq!(loaded, (program.clone(), interface));
    ferrax_fuzz::check(&program);
}

fuzz_target!(|bytes: &[u8]| {
    read(bytes);
    let mut sealed = bytes.to_vec();
    seal(&mut sealed);
    read(&sealed);
});
