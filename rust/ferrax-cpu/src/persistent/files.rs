//! The folder: one file a program, or piece of code, named by its digest and the build that wrote it.
//!
//! A file appears whole (written beside, then renamed), so that other processes see all of it or none. Its time of
//! change is when it was last used, and the files that were not used for longest go first where there are too
//! many bytes. Files that cannot be read as what they should be are removed.

use std::ffi::OsStr;
use std::fs;
use std::hash::{Hash, Hasher};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use ferrax_ir::serial::{self, Interface};
use ferrax_ir::{Program, Source};
use rustc_hash::FxHasher;

use super::Settings;

/// The end of the names of files, and of those that are being written.
const EXTENSION: &str = "frx";
const UNFINISHED: &str = "part";
/// After so long a file that is being written was given up.
const GIVEN_UP: Duration = Duration::from_secs(3600);

/// The name of a program's file, and what has to stand in it.
pub struct Name {
    pub path: PathBuf,
    /// Digest and build.
    pub label: String,
}

impl Name {
    pub fn new(settings: &Settings, digest: u128) -> Name {
        let mut build = FxHasher::default();
        settings.build.hash(&mut build);
        let file = format!("{digest:032x}-{:08x}.{EXTENSION}", build.finish() as u32);
        Name { path: settings.folder.join(file), label: format!("{digest:032x} {}", settings.build) }
    }
}

pub fn told(verb: &str, path: &Path, error: impl std::fmt::Display) -> String {
    format!("cannot {verb} '{}': {error}", path.display())
}

/// The program in a file, if there is one; `flat` is what it was made of. The error says what is wrong.
pub fn read(name: &Name, flat: &Program) -> Result<Option<Program>, String> {
    let path = &name.path;
    let Some(bytes) = read_bytes(path)? else { return Ok(None) };
    let wrong = match serial::from_bytes(&bytes) {
        Ok((program, interface)) => {
            let fits = interface.metadata == name.label
                && program.input_types().eq(flat.input_types())
                && program.output_types().eq(flat.output_types());
            if fits {
                used_now(path);
                return Ok(Some(program));
            }
            "it is of another program".to_owned()
        }
        Err(error) => error.to_string(),
    };
    let _ = fs::remove_file(path);
    Err(told("use", path, wrong))
}

/// The bytes of a file, if there is one.
pub fn read_bytes(path: &Path) -> Result<Option<Vec<u8>>, String> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(told("read", path, error)),
    }
}

/// Notes that a file was used. On a folder that cannot be written to it stays as it is.
pub fn used_now(path: &Path) {
    let _ = fs::File::options().append(true).open(path).and_then(|file| file.set_modified(SystemTime::now()));
}

/// Writes a program's file; its bytes, or none if it was not written for it is too small or too large.
pub fn write(name: &Name, program: &Program, settings: &Settings) -> Result<Option<u64>, String> {
    let mut plain = program.clone();
    // Lines of errors are those of the program that a process traced.
    plain.equations.iter_mut().for_each(|equation| equation.source = Source::UNKNOWN);
    let interface = Interface { metadata: name.label.clone(), ..Interface::default() };
    let bytes = serial::to_bytes(&plain, &interface).map_err(|error| told("write", &name.path, error))?;
    write_bytes(name, &bytes, settings)
}

/// The same of any bytes.
pub fn write_bytes(name: &Name, bytes: &[u8], settings: &Settings) -> Result<Option<u64>, String> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let size = bytes.len() as u64;
    if size < settings.least_bytes || settings.most_bytes.is_some_and(|most| size > most) {
        return Ok(None);
    }
    let folder = name.path.parent().unwrap_or(Path::new("."));
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let beside = name.path.with_extension(format!("{}-{number}.{UNFINISHED}", std::process::id()));
    let mut done = write_own(&beside, bytes);
    if done.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        done = make_folder(folder).and_then(|()| write_own(&beside, bytes));
    }
    let done = done.and_then(|()| fs::rename(&beside, &name.path));
    if let Err(error) = done {
        let _ = fs::remove_file(&beside);
        return Err(told("write", &name.path, error));
    }
    Ok(Some(size))
}

/// Writes a new file that is its owner's alone.
fn write_own(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut options = fs::File::options();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    std::io::Write::write_all(&mut options.write(true).create(true).truncate(true).open(path)?, bytes)
}

/// Makes a folder that is its owner's alone.
fn make_folder(folder: &Path) -> std::io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder)
}

/// The files in a folder: how many, and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Entries {
    pub count: usize,
    pub bytes: u64,
}

struct Entry {
    used: SystemTime,
    path: PathBuf,
    bytes: u64,
}

/// All files of programs. Those that were given up while they were written are removed.
fn list(folder: &Path) -> Vec<Entry> {
    let Ok(files) = fs::read_dir(folder) else { return Vec::new() };
    let mut found = Vec::new();
    for file in files.flatten() {
        let path = file.path();
        let extension = path.extension().and_then(OsStr::to_str);
        let Some(extension @ (EXTENSION | UNFINISHED)) = extension else { continue };
        let Ok(facts) = file.metadata() else { continue };
        let used = facts.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        if extension == EXTENSION {
            found.push(Entry { used, path, bytes: facts.len() });
        } else if used.elapsed().is_ok_and(|age| age > GIVEN_UP) {
            let _ = fs::remove_file(&path);
        }
    }
    found
}

/// What is in a folder.
pub fn entries(folder: &Path) -> Entries {
    let found = list(folder);
    Entries { count: found.len(), bytes: found.iter().map(|entry| entry.bytes).sum() }
}

/// Removes files, those that were not used for longest first, until there are no more than nine tenths of so many
/// bytes; does nothing where there are not more. How many are left.
pub fn shrink(folder: &Path, most: u64) -> u64 {
    let mut found = list(folder);
    let mut left: u64 = found.iter().map(|entry| entry.bytes).sum();
    if left <= most {
        return left;
    }
    found.sort_by_key(|entry| entry.used);
    for entry in found {
        if left <= most / 10 * 9 {
            break;
        }
        if fs::remove_file(&entry.path).is_ok() {
            left -= entry.bytes;
        }
    }
    left
}

/// Removes all files of programs; how many. The error says which one stays.
pub fn clear(folder: &Path) -> Result<usize, String> {
    let found = list(folder);
    let mut removed = 0;
    for entry in &found {
        match fs::remove_file(&entry.path) {
            Ok(()) => removed += 1,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(told("remove", &entry.path, error)),
        }
    }
    Ok(removed)
}
