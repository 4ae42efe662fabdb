//! Digests of programs: 128 bits of all that compilation may depend on.
//!
//! Two programs with one digest are taken for the same, so that the digest reads everything, the elements of
//! constants too, and is not the hash of tables in memory, which may leave things out. Sources are left out: two
//! places may make the same program. Cost: linear in the distinct programs and their constants.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use ferrax_ir::{Atom, DType, Effect, Op, Program, Type};
use rustc_hash::FxHashMap;
use siphasher::sip128::{Hasher128, SipHasher13};

/// Bytes of constants beyond which a program is not kept in files: they would be written and read for little.
const MOST_CONSTANTS: usize = 1 << 20;

/// The digest, or none for programs that files cannot hold, or should not: with functions of this process
/// (callbacks, primitives and generators that are defined in it), mutable arrays, or large constants.
pub fn digest(program: &Program) -> Option<u128> {
    Digester::default().program(program)
}

#[derive(Default)]
struct Digester {
    /// Sub-programs by address; their program is borrowed, so that addresses stay theirs.
    done: FxHashMap<usize, u128>,
    constants: usize,
}

impl Digester {
    fn program(&mut self, program: &Program) -> Option<u128> {
        // Exhaustive: what is added to programs is to be read here. What callers give up is known by executables.
        let Program { name, types, inputs, constants, equations, outputs, effects, donated: _ } = program;
        let mut state = SipHasher13::new();
        name.hash(&mut state);
        types.iter().all(is_plain).then_some(())?;
        types.hash(&mut state);
        inputs.hash(&mut state);
        state.write_usize(constants.len());
        for (var, tensor) in constants {
            self.constants = self.constants.checked_add(tensor.bytes().len())?;
            (self.constants <= MOST_CONSTANTS).then_some(())?;
            (var, tensor.dtype(), tensor.sizes(), tensor.bytes()).hash(&mut state);
        }
        state.write_usize(equations.len());
        for equation in equations {
            is_data(&equation.op).then_some(())?;
            // Of sub-programs this reads little; they follow.
            equation.op.hash(&mut state);
            for inner in equation.op.programs() {
                state.write_u128(self.callee(inner)?);
            }
            equation.inputs.hash(&mut state);
            equation.outputs.hash(&mut state);
            let literals = equation.inputs.iter().filter_map(Atom::as_literal);
            literals.map(|literal| literal.value.dtype()).all(is_lasting).then_some(())?;
        }
        outputs.hash(&mut state);
        effects.iter().all(|effect| matches!(effect, Effect::NamedAxis(_))).then_some(())?;
        effects.hash(&mut state);
        Some(state.finish128().as_u128())
    }

    fn callee(&mut self, program: &Arc<Program>) -> Option<u128> {
        let address = Arc::as_ptr(program).addr();
        if let Some(&known) = self.done.get(&address) {
            return Some(known);
        }
        let digest = self.program(program)?;
        self.done.insert(address, digest);
        Some(digest)
    }
}

/// Whether an op is all in its parameters. Programs are expanded, and have no rules of the user's any more.
fn is_data(op: &Op) -> bool {
    use ferrax_ir::View;
    match op.view() {
        View::Leaf(_) => !matches!(op, Op::Extension(_)) && op.effects().is_empty(),
        View::Cond(_) | View::While(_) | View::Sweeps(_) | View::Scan(_) => true,
        View::Call(_) | View::Checkpoint(_) | View::CustomJvp(_) | View::CustomVjp(_) | View::Ruled(..) => {
            false
        }
    }
}

fn is_plain(ty: &Type) -> bool {
    matches!(ty, Type::Array(array) if is_lasting(array.dtype))
}

/// Whether a dtype means the same in each process.
fn is_lasting(dtype: DType) -> bool {
    !matches!(dtype, DType::Key(generator) if generator.is_defined())
}

#[cfg(test)]
mod tests {
    use ferrax_ir::ops::{Binary, Scan};
    use ferrax_ir::{ArrayType, Builder, Tensor};

    use super::*;

    fn scaled(name: &str, factor: f64, size: usize) -> Program {
        let mut b = Builder::new(name);
        let x = b.input(ArrayType::of_sizes(&[size], DType::F32));
        let factor = b.scalar(DType::F32, factor);
        let y = b.binary(Binary::Mul, x, factor).unwrap();
        b.finish([y])
    }

    #[test]
    fn equal_programs_have_one_digest_and_others_not() {
        let known = digest(&scaled("f", 2.0, 3)).unwrap();
        assert_eq!(digest(&scaled("f", 2.0, 3)), Some(known));
        for other in [scaled("g", 2.0, 3), scaled("f", 2.5, 3), scaled("f", 2.0, 4), scaled("f", -2.0, 3)] {
            assert_ne!(digest(&other), Some(known));
        }
        let mut many = std::collections::HashSet::new();
        for number in 0..2000 {
            assert!(many.insert(digest(&scaled("f", f64::from(number), 3)).unwrap()));
            assert!(many.insert(digest(&scaled("f", 0.5, 10 + number as usize)).unwrap()));
        }
    }

    #[test]
    fn constants_are_read_and_large_ones_refused() {
        let with = |values: &[f32]| {
            let mut b = Builder::new("f");
            let c = b.constant(Tensor::from_elements(&[values.len()][..], values).unwrap(), false);
            b.finish([c])
        };
        assert_ne!(digest(&with(&[1.0, 2.0])), digest(&with(&[1.0, 3.0])));
        assert!(digest(&with(&vec![0.0; 1000])).is_some());
        assert!(digest(&with(&vec![0.0; MOST_CONSTANTS])).is_none());
    }

    #[test]
    fn bodies_of_loops_are_read() {
        let scan = |factor: f64| {
            let body = Arc::new(scaled("body", factor, 3));
            let mut b = Builder::new("f");
            let x = b.input(ArrayType::of_sizes(&[3], DType::F32));
            let op = Scan {
                jaxpr: body,
                length: 4.into(),
                num_carry: 1,
                num_consts: 0,
                reverse: false,
                unroll: 1,
            };
            let y = b.emit1(op, &[x]).unwrap();
            digest(&b.finish([y])).unwrap()
        };
        assert_eq!(scan(2.0), scan(2.0));
        assert_ne!(scan(2.0), scan(3.0));
    }
}
