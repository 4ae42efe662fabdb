//! Kernels have no more arrays than the machine takes.

use ferrax_compile::{Step, Target, plan};
use ferrax_ir::Program;

/// Zeros read no array where they are made of a number, but are one if what follows needs them stored: here a
/// scatter, after sums of about as many arrays as the machine takes with the result.
#[test]
fn numbers_that_are_stored_later_count_as_arrays() {
    for more in 0..5 {
        let inputs: String = (0..more).map(|at| format!(" x{at}:f64[3,5]")).collect();
        let mut sums = String::new();
        let mut last = "f".to_owned();
        for at in 0..more {
            sums += &format!("y{at}:f64[3,5] = add {last} x{at};\n");
            last = format!("y{at}");
        }
        let text = format!(
            "{{ lambda ; a:bool[3,5] b:f64[3,5] e:i32[3,1]{inputs}. let
             z:f64[3,5] = broadcast_in_dim[shape=(3, 5) broadcast_dimensions=()] 0.0:f64[];
             f:f64[3,5] = select_n a z b;
             {sums}
             s:f64[3,5] = scatter_add[update_window_dims=(1,) inserted_window_dims=(0,)
                scatter_dims_to_operand_dims=(0,) operand_batching_dims=() scatter_indices_batching_dims=() mode=clip
                unique_indices=False indices_are_sorted=False] z e b
             in ({last}, s) }}"
        );
        let program = Program::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let target = Target { operands: 6, ..Target::CPU };
        for step in plan(&program, &target).unwrap().steps {
            if let Step::Kernel { operands, .. } = step {
                assert!(operands.len() <= 6, "{} arrays in a kernel of\n{program}", operands.len());
            }
        }
    }
}
