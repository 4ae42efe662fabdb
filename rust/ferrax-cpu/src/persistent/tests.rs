//! Hits, misses, damage and bounds, in a folder of their own. The counts are the process's: one test at a time
//! has the lock.

use std::path::Path;

use ferrax_ir::ops::{Binary, Unary};
use ferrax_ir::{ArrayType, Builder, DType};

use super::*;

static TURN: Mutex<()> = Mutex::new(());

fn chain(length: usize, factor: f64) -> Program {
    let mut b = Builder::new("chain");
    let mut x = b.input(ArrayType::of_sizes(&[5], DType::F32));
    for step in 0..length {
        let number = b.scalar(DType::F32, factor + step as f64);
        x = b.binary(Binary::Mul, x, number).unwrap();
        x = b.unary(Unary::Sin, x).unwrap();
    }
    b.finish([x])
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("ferrax-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Folder(path)
    }

    fn settings(&self) -> Settings {
        Settings {
            folder: self.0.clone(),
            build: "test".into(),
            least_time: Duration::ZERO,
            least_bytes: 0,
            most_bytes: None,
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        configure_thread(None);
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What asking for a program changed of hits, misses, written files and problems.
fn asked(program: &Program) -> [usize; 4] {
    let before = counts();
    let got = prepared(program).unwrap();
    assert_eq!(got, prepare(program).unwrap());
    let after = counts();
    [
        after.hits - before.hits,
        after.misses - before.misses,
        after.written - before.written,
        after.problems - before.problems,
    ]
}

fn only_file(folder: &Path) -> PathBuf {
    std::fs::read_dir(folder).unwrap().next().unwrap().unwrap().path()
}

#[test]
fn what_was_written_is_found_and_damage_is_not_believed() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new("damage");
    configure_thread(Some(Some(folder.settings())));
    let program = chain(20, 0.5);
    assert_eq!(asked(&program), [0, 1, 1, 0]);
    assert_eq!(asked(&program), [1, 0, 0, 0]);
    assert_eq!(asked(&chain(20, 0.25)), [0, 1, 1, 0]);
    assert_eq!(entries(&folder.0).count, 2);
    clear(&folder.0).unwrap();
    assert_eq!(asked(&program), [0, 1, 1, 0]);
    let path = only_file(&folder.0);
    let good = std::fs::read(&path).unwrap();
    for place in [0, 9, 13, 30, good.len() / 2, good.len() - 1] {
        let mut bytes = good.clone();
        bytes[place] ^= 0x10;
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(asked(&program), [0, 1, 1, 1], "byte {place}");
        assert!(take_problem().unwrap().contains("cannot use"));
        assert_eq!(std::fs::read(&path).unwrap(), good);
    }
    std::fs::write(&path, &good[..good.len() / 2]).unwrap();
    assert_eq!(asked(&program), [0, 1, 1, 1]);
    // A good file of another program under this name.
    configure_thread(Some(Some(Settings { build: "other".into(), ..folder.settings() })));
    assert_eq!(asked(&program), [0, 1, 1, 0]);
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(paths.len(), 2);
    let other = paths.swap_remove(usize::from(paths[0] == path));
    std::fs::copy(&path, &other).unwrap();
    assert_eq!(asked(&program), [0, 1, 1, 1]);
    assert!(take_problem().unwrap().contains("of another program"));
}

#[test]
fn what_is_quick_or_small_is_not_written_and_too_much_goes() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new("bounds");
    configure_thread(Some(Some(Settings { least_time: Duration::from_secs(1), ..folder.settings() })));
    assert_eq!(asked(&chain(20, 0.5)), [0, 0, 0, 0]);
    configure_thread(Some(Some(Settings { least_bytes: 1 << 20, ..folder.settings() })));
    assert_eq!(asked(&chain(20, 0.5)), [0, 1, 0, 0]);
    configure_thread(Some(Some(folder.settings())));
    for number in 0..10 {
        assert_eq!(asked(&chain(20, f64::from(number))), [0, 1, 1, 0]);
        std::thread::sleep(Duration::from_millis(15));
    }
    let full = entries(&folder.0);
    assert_eq!(full.count, 10);
    // The first is used again, so that the second goes before it.
    assert_eq!(asked(&chain(20, 0.0)), [1, 0, 0, 0]);
    configure_thread(Some(Some(Settings { most_bytes: Some(full.bytes), ..folder.settings() })));
    assert_eq!(asked(&chain(20, 10.0)), [0, 1, 1, 0]);
    let after = entries(&folder.0);
    assert!(after.bytes <= full.bytes && after.count >= 8, "{after:?}");
    assert_eq!(asked(&chain(20, 0.0)), [1, 0, 0, 0]);
    assert_eq!(asked(&chain(20, 10.0)), [1, 0, 0, 0]);
    assert_eq!(asked(&chain(20, 1.0)), [0, 1, 1, 0]);
}

#[test]
fn a_folder_that_is_none_is_a_problem_and_no_failure() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new("file");
    std::fs::write(&folder.0, b"").unwrap();
    configure_thread(Some(Some(Settings { folder: folder.0.join("below"), ..folder.settings() })));
    assert_eq!(asked(&chain(20, 0.5)), [0, 1, 0, 1]);
    assert!(take_problem().unwrap().contains("cannot write"));
    assert_eq!(take_problem(), None);
    configure_thread(None);
    std::fs::remove_file(&folder.0).unwrap();
}

/// Code is used if its user alone can have written it, for what it was made of.
#[cfg(unix)]
#[test]
fn code_of_drivers() {
    use std::os::unix::fs::PermissionsExt;
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new("code");
    assert!(code::place("machine", "text").is_none(), "no folder is configured");
    configure_thread(Some(Some(Settings { least_time: Duration::from_millis(5), ..folder.settings() })));
    let place = || code::place("machine", "text").unwrap();
    place().write(b"fast", Duration::from_millis(1));
    assert_eq!(place().read(), None, "what is made fast is not kept");
    place().write(b"instructions", Duration::from_millis(9));
    assert_eq!(place().read().as_deref(), Some(&b"instructions"[..]));
    for (machine, text) in [("other", "text"), ("machine", "other")] {
        assert_eq!(code::place(machine, text).unwrap().read(), None);
    }
    let path = std::fs::read_dir(&folder.0).unwrap().next().unwrap().unwrap().path();
    let may = |path: &Path, mode: u32| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    may(&path, 0o666);
    assert_eq!(place().read(), None);
    assert!(take_problem().unwrap().contains("others may have written it"));
    may(&path, 0o600);
    may(&folder.0, 0o777);
    assert_eq!(place().read(), None);
    may(&folder.0, 0o700);
    assert!(place().read().is_some());
    let mut bytes = std::fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&path, bytes).unwrap();
    take_problem();
    assert_eq!(place().read(), None);
    assert!(take_problem().unwrap().contains("not whole") && !path.exists());
    place().write(b"instructions", Duration::from_millis(9));
    assert_eq!((entries(&folder.0).count, clear(&folder.0)), (1, Ok(1)));
}
