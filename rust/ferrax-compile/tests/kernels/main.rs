//! Kernel IR as text, and its reference interpreter.

mod case;

use case::cases;
use ferrax_compile::Launch;
use ferrax_compile::interpret::{interpret, tree};

#[test]
fn the_interpreter_gives_what_cases_say() {
    for case in cases() {
        for run in &case.runs {
            let mut operands = run.operands.clone();
            interpret(&case.launch, &mut operands).unwrap();
            case.check(run, &operands);
        }
    }
}

/// Sizes are no part of a kernel: what prints alike but for them is one kernel.
#[test]
fn kernels_are_equal_whatever_their_sizes() {
    let text = |n: usize, start: i64| {
        format!(
            "kernel parallel {n}\n  operands i64 written\n  param 0 = i64 {start}\n  main\n    %0: i64 = index 0\n    \
             %1: i64 = param 0\n    %2: i64 = add %0 %1\n  store main b0[0 + 1*i0] = %2\n"
        )
    };
    let [a, b] = [(3, 1), (50, -7)].map(|(n, start)| text(n, start).parse::<Launch>().unwrap());
    assert_ne!(a, b);
    assert_eq!(a.kernel, b.kernel);
    let hash = |launch: &Launch| {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        launch.kernel.hash(&mut hasher);
        hasher.finish()
    };
    assert_eq!(hash(&a), hash(&b));
}

#[test]
fn errors_name_the_line_and_what_was_expected() {
    let refused = |text: &str| text.parse::<Launch>().unwrap_err().to_string();
    for (text, expected) in [
        ("kernel sideways 3", "line 1 of a kernel: expected 'parallel' or 'reduction'"),
        ("kernel parallel x", "line 1 of a kernel: expected an extent"),
        ("kernel parallel 3\n  operands f99", "line 2 of a kernel: expected a dtype"),
        ("kernel parallel 3\n  load 0 = b0[0]", "line 2 of a kernel: expected one of the operands"),
        ("kernel parallel 3\n operands f32\n load 0 = b0[0 + 1*i1]", "expected a loop of the kernel"),
        ("%0: f32 = input 0", "expected 'main' before instructions"),
        ("main\n%1: f32 = input 0", "expected register %0"),
        ("main\n%0: f32 = add %0 %0", "expected registers from above"),
        ("main\n%0: f32 = frobnicate", "expected an instruction instead of 'frobnicate'"),
        ("main\n%0: f32 = const one", "expected a number"),
        ("kernel parallel 3\n operands f32\n load 0 = b0[0 + 2*(0..=x)]", "expected the last index"),
        ("kernel parallel 3\n operands f32\n load 0 = b0[0 + 2*(3)]", "expected '*i'"),
        (
            "kernel parallel 3\n operands f32 written\n main\n%0: f32 = const 1.0\n store main b0[0 + 1*(0..=2)] = %0",
            "line 5 of a kernel: expected a store without computed indices",
        ),
        ("accumulate 0 = sum %3", "expected a register of the main body"),
        ("nonsense", "expected a line of a kernel instead of 'nonsense'"),
    ] {
        let found = refused(text);
        assert!(found.contains(expected), "{text:?}: {found}");
    }
}

#[test]
fn the_tree_of_a_sum_is_one_of_pairs() {
    // Which terms are added to which, as text.
    let terms: Vec<usize> = (0..19).collect();
    let depth = |n: usize| {
        let terms = vec![0u32; n];
        tree(&terms, 0, &|a, b| Ok(a.max(b) + 1)).unwrap()
    };
    assert_eq!(tree(&terms, 0, &|a, b| Ok(a + b)).unwrap(), terms.iter().sum::<usize>());
    assert_eq!(tree(&[] as &[usize], 7, &|a, b| Ok(a + b)).unwrap(), 7);
    // A lane takes 16 terms and its start, four levels combine lanes, then blocks are in pairs.
    assert_eq!(depth(256), 16 + 4);
    assert_eq!(depth(512), 16 + 4 + 1);
    assert_eq!(depth(256 * 8), 16 + 4 + 3);
}
