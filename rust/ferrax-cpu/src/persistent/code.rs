//! Code that a driver made for its machine, in files, so that another process need not wait for it.
//!
//! Nobody but the driver can tell whether code is what it should be. So a file is used only if it is its user's own, whom
//! alone may write to it and to its folder, and if it is whole: its label, which says what it was made of and for, and a
//! digest of its bytes stand in it. Where the system has no such permissions nothing is kept. The files
//! are bounded, counted and removed with those of programs.

use std::fs;
use std::hash::Hasher;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use siphasher::sip128::{Hasher128, SipHasher13};

use super::{Settings, files, problem, settings, wrote};

/// Bytes of a digest.
const DIGEST: usize = 16;

/// The place of a piece of code among the files, where files are kept.
pub struct Place {
    settings: Arc<Settings>,
    name: files::Name,
}

fn digest(parts: &[&[u8]]) -> u128 {
    let mut state = SipHasher13::new();
    for part in parts {
        state.write_usize(part.len());
        state.write(part);
    }
    state.finish128().as_u128()
}

/// The place of code that is made of this text for this machine: its name, driver and the driver's version.
pub fn place(machine: &str, text: &str) -> Option<Place> {
    let settings = settings()?;
    let mut name = files::Name::new(&settings, digest(&[machine.as_bytes(), text.as_bytes()]));
    name.label = format!("{} {machine}", name.label);
    Some(Place { settings, name })
}

impl Place {
    /// The code, if it was kept and is whole. A file that is not is removed.
    pub fn read(&self) -> Option<Vec<u8>> {
        let path = &self.name.path;
        let checked = || {
            let Some(bytes) = files::read_bytes(path)? else { return Ok(None) };
            own(path.parent().unwrap_or(Path::new(".")))?;
            own(path)?;
            Ok(Some(bytes))
        };
        let bytes = match checked() {
            Ok(bytes) => bytes?,
            Err(text) => {
                problem(text);
                return None;
            }
        };
        let code = bytes.split_at_checked(DIGEST).and_then(|(known, rest)| {
            let code = rest.strip_prefix(self.name.label.as_bytes())?;
            (known == digest(&[self.name.label.as_bytes(), code]).to_le_bytes()).then(|| code.to_vec())
        });
        match code {
            Some(code) => {
                files::used_now(path);
                Some(code)
            }
            None => {
                let _ = fs::remove_file(path);
                problem(files::told("use", path, "it is not whole, or of something else"));
                None
            }
        }
    }

    /// Keeps code that took so long to make.
    pub fn write(&self, code: &[u8], took: Duration) {
        if took < self.settings.least_time || !HAS_OWNERS {
            return;
        }
        let label = self.name.label.as_bytes();
        let bytes = [&digest(&[label, code]).to_le_bytes(), label, code].concat();
        match files::write_bytes(&self.name, &bytes, &self.settings) {
            Ok(Some(written)) => wrote(&self.settings, written),
            Ok(None) => {}
            Err(text) => problem(text),
        }
    }
}

/// Whether files say whose they are.
const HAS_OWNERS: bool = cfg!(unix);

/// Fails if others than this user may write to a file or folder.
fn own(path: &Path) -> Result<(), String> {
    let facts = fs::metadata(path).map_err(|error| files::told("read", path, error))?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        // SAFETY: it takes nothing and always succeeds.
        let user = unsafe { libc::geteuid() };
        if facts.uid() == user && facts.mode() & 0o022 == 0 {
            return Ok(());
        }
    }
    #[cfg(not(unix))]
    drop(facts);
    Err(files::told("use", path, "others may have written it"))
}
