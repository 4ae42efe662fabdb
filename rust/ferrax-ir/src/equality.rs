//! Equality and hash of programs, by content and linear in the size of what is
//! shared.
//!
//! A program that calls another twice reaches it twice, and a tower of such
//! programs reaches the lowest exponentially often. So one comparison looks at
//! each pair of programs once, and one hash at each program once: what is known
//! of sub-programs is kept by address until the outermost comparison or hash of
//! the thread ends. Until then they are all borrowed, so an address means one
//! program.

use std::cell::RefCell;
use std::hash::{Hash, Hasher};

use rustc_hash::{FxHashMap, FxHashSet, FxHasher};

use crate::Program;

#[derive(Default)]
struct Known {
    /// How many comparisons and hashes are under way, one within the other.
    depth: usize,
    /// Pairs of programs that are equal. A pair that is not ends the comparison.
    equal: FxHashSet<(usize, usize)>,
    hashes: FxHashMap<usize, u64>,
}

thread_local! {
    static KNOWN: RefCell<Known> = RefCell::default();
}

/// One comparison or hash; the outermost forgets what was known.
struct Visit;

impl Visit {
    fn begin() -> Visit {
        KNOWN.with_borrow_mut(|known| known.depth += 1);
        Visit
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        KNOWN.with_borrow_mut(|known| {
            known.depth -= 1;
            if known.depth == 0 {
                // Anew, not cleared: clearing costs as much as the largest comparison before.
                *known = Known::default();
            }
        });
    }
}

fn address(program: &Program) -> usize {
    std::ptr::from_ref(program).addr()
}

/// By content, names and effects included; sources are all equal.
impl PartialEq for Program {
    fn eq(&self, other: &Program) -> bool {
        // Exhaustive: a new field must be compared too.
        let Program { name, types, inputs, constants, equations, outputs, effects, donated } = self;
        if std::ptr::eq(self, other) {
            return true;
        }
        let pair = (address(self), address(other));
        if KNOWN.with_borrow(|known| known.equal.contains(&pair)) {
            return true;
        }
        let _visit = Visit::begin();
        let equal = *name == other.name
            && *types == other.types
            && *inputs == other.inputs
            && *outputs == other.outputs
            && *effects == other.effects
            && *donated == other.donated
            && *equations == other.equations
            && *constants == other.constants;
        if equal {
            KNOWN.with_borrow_mut(|known| known.equal.insert(pair));
        }
        equal
    }
}

impl Eq for Program {}

/// Constants are hashed by type alone: reading large arrays would cost more
/// than the rare collision.
impl Hash for Program {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let address = address(self);
        if let Some(hash) = KNOWN.with_borrow(|known| known.hashes.get(&address).copied()) {
            return state.write_u64(hash);
        }
        let _visit = Visit::begin();
        let mut own = FxHasher::default();
        self.types.hash(&mut own);
        self.inputs.hash(&mut own);
        for (var, tensor) in &self.constants {
            (var, tensor.dtype(), tensor.sizes()).hash(&mut own);
        }
        self.equations.hash(&mut own);
        self.outputs.hash(&mut own);
        let hash = own.finish();
        KNOWN.with_borrow_mut(|known| known.hashes.insert(address, hash));
        state.write_u64(hash);
    }
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;
    use std::sync::Arc;

    use rustc_hash::FxBuildHasher;

    use super::*;
    use crate::ops::{Binary, Call, Unary};
    use crate::{ArrayType, Builder, DType, Op};

    const LEVELS: usize = 60;

    /// Level 0 applies `op`; each level above calls the one below twice.
    fn tower(op: Unary) -> Arc<Program> {
        let ty = ArrayType::scalar(DType::F32);
        let mut b = Builder::new("level");
        let x = b.input(ty.clone());
        let y = b.emit1(op, &[x]).unwrap();
        let mut program = Arc::new(b.finish([y]));
        for _ in 0..LEVELS {
            let mut b = Builder::new("level");
            let x = b.input(ty.clone());
            let call = || Op::from(Call { name: "level".into(), program: program.clone(), inline: false });
            let (y, z) = (b.emit1(call(), &[x]).unwrap(), b.emit1(call(), &[x]).unwrap());
            let sum = b.emit1(Binary::Add, &[y, z]).unwrap();
            program = Arc::new(b.finish([sum]));
        }
        program
    }

    #[test]
    fn towers_of_shared_callees_are_hashed_and_compared_in_linear_time() {
        let (one, same, other) = (tower(Unary::Sin), tower(Unary::Sin), tower(Unary::Cos));
        let hash = |program: &Program| FxBuildHasher.hash_one(program);
        for _ in 0..2 {
            assert_eq!(hash(&one), hash(&same));
            assert_ne!(hash(&one), hash(&other));
            assert!(one == same);
            assert!(one == one.clone());
            assert!(one != other && other != same);
        }
        let depth = KNOWN.with_borrow(|known| (known.depth, known.equal.len(), known.hashes.len()));
        assert_eq!(depth, (0, 0, 0));
    }
}
