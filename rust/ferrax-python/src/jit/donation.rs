//! Donated arguments: which buffers a program can reuse, and giving them up.

use ferrax_ir::Type;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{JitFunction, Key, StaticName};
use crate::convert::Operand;
use crate::eager;
use crate::once::intern;

impl JitFunction {
    /// Which leaves' buffers can be reused; warns of those that cannot.
    pub(super) fn donated(
        &self,
        py: Python<'_>,
        key: &Key,
        (arguments, keywords): (&Bound<'_, PyTuple>, Option<&Bound<'_, PyDict>>),
        program: &ferrax_ir::Program,
    ) -> PyResult<Option<Vec<bool>>> {
        if self.donate_argnums.is_empty() && self.donate_argnames.is_empty() {
            return Ok(None);
        }
        let mut flags = Vec::with_capacity(key.leaves.len());
        // Numbers of static arguments do not count among the dynamic ones.
        let statics = |position: usize| {
            key.statics.iter().filter(|s| matches!(s.name, StaticName::Position(p) if p <= position)).count()
        };
        let total = arguments.len() + statics(usize::MAX);
        let positions: FxHashSet<usize> = Self::positions(&self.donate_argnums, total)
            .into_iter()
            .map(|position| position - statics(position))
            .collect();
        for (index, child) in key.args.children(py)?.iter().enumerate() {
            flags.extend(std::iter::repeat_n(positions.contains(&index), child.num_leaves()));
        }
        if let (Some(tree), Some(keywords)) = (&key.kwargs, keywords) {
            let mut names: Vec<String> = keywords.keys().extract()?;
            names.sort();
            for (name, child) in names.iter().zip(tree.children(py)?) {
                flags.extend(std::iter::repeat_n(self.donate_argnames.contains(name), child.num_leaves()));
            }
        }
        // How many outputs of each kind have no donor yet: those of its shape and dtype first, then those of as many bytes.
        let kind = |ty: &Type| ty.as_array().map(|ty| (ty.shape.clone(), ty.dtype));
        let bytes = |ty: &Type| {
            let ty = ty.as_array()?;
            Some(ty.sizes()?.iter().product::<usize>() * ty.dtype.size())
        };
        let mut open: FxHashMap<_, usize> = FxHashMap::default();
        for output in program.output_types().filter_map(|ty| kind(&ty)) {
            *open.entry(output).or_default() += 1;
        }
        let mut others = Vec::new();
        for (place, ty) in
            program.input_types().take(flags.len()).enumerate().filter(|(place, _)| flags[*place])
        {
            match kind(ty).and_then(|kind| open.get_mut(&kind)).filter(|left| **left > 0) {
                Some(left) => *left -= 1,
                None => others.push((place, ty)),
            }
        }
        let mut of_size: FxHashMap<usize, usize> = FxHashMap::default();
        for ((shape, dtype), left) in open {
            let ty = Type::Array(ferrax_ir::ArrayType::new(shape, dtype));
            *of_size.entry(bytes(&ty).unwrap_or(0)).or_default() += left;
        }
        let mut unusable = Vec::new();
        for (place, ty) in others {
            match bytes(ty).and_then(|bytes| of_size.get_mut(&bytes)).filter(|left| **left > 0) {
                Some(left) => *left -= 1,
                None => {
                    flags[place] = false;
                    unusable.push(ty.to_string());
                }
            }
        }
        if !unusable.is_empty() {
            let text = format!(
                "Some donated buffers were not usable: {}. Donation pays where an output has as many bytes as the \
                 donated argument.",
                unusable.join(", ")
            );
            let warnings = py.import(intern!(py, "warnings"))?;
            warnings.call_method1(intern!(py, "warn"), (text,))?;
        }
        Ok(Some(flags))
    }
}

/// Errors: RuntimeError where a donated array is another argument, too.
pub(super) fn check_donated(operands: &[Operand<'_>], donated: &[bool]) -> PyResult<()> {
    let pointer = |operand: &Operand<'_>| match operand {
        Operand::Array(array) => Some(array.as_ptr() as usize),
        Operand::Literal(_) => None,
    };
    let mut uses: FxHashMap<usize, usize> = FxHashMap::default();
    if donated.contains(&true) {
        operands.iter().filter_map(pointer).for_each(|array| *uses.entry(array).or_default() += 1);
    }
    for (operand, _) in operands.iter().zip(donated).filter(|(_, donated)| **donated) {
        if pointer(operand).is_some_and(|array| uses.get(&array) > Some(&1)) {
            return Err(PyRuntimeError::new_err(
                "the same array is donated and used as another argument of one call; pass a copy (x.copy())",
            ));
        }
    }
    Ok(())
}

/// The tensors of a call; donated arrays give theirs up.
pub(super) fn take_donated(
    py: Python<'_>,
    operands: &[Operand<'_>],
    donated: &[bool],
) -> PyResult<Vec<ferrax_ir::Tensor>> {
    check_donated(operands, donated)?;
    let tensors = eager::tensors(py, operands)?;
    give_up(operands, donated);
    Ok(tensors.into_vec())
}

/// Donated arrays count as deleted from now on.
pub(super) fn give_up(operands: &[Operand<'_>], donated: &[bool]) {
    for (operand, _) in operands.iter().zip(donated).filter(|(_, donated)| **donated) {
        if let Operand::Array(array) = operand
            && let Some(concrete) = array.get().concrete()
        {
            concrete.delete();
        }
    }
}
