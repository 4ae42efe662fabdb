//! A shader that says how the invocations of a workgroup are in subgroups: for each a one if its place in its
//! subgroup is what its number says, as shuffles that fold terms (`fold`) take for granted and no document promises.

use super::arrays::Words;
use super::{Needs, Shader, WORKGROUP};

/// Words: none. Arrays: the answers.
pub fn shader() -> Shader {
    let text = format!(
        "@compute @workgroup_size({WORKGROUP})\n\
         fn main(@builtin(local_invocation_id) local: vec3<u32>, @builtin(subgroup_size) size: u32, \
         @builtin(subgroup_invocation_id) place: u32) {{\n\
         set0(local.x, select(0u, 1u, place == local.x % size));\n}}\n"
    );
    Shader { text, needs: Needs::default(), arrays: vec![Words::Whole] }
}
