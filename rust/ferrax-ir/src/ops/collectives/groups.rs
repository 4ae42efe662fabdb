//! Collectives in which lanes talk within groups, over a batch of the lanes.
//!
//! Each lane is taken alone, and what its group gives is put together again: the equations are as many as there are lanes,
//! times the size of a group.

use super::super::Concatenate;
use super::only;
use crate::rules::{Batch, Batched};
use crate::{Atom, Builder, Result, value_error};

/// What `of_group` makes of the lanes of each group, one result for each of them, as a batch in front.
pub fn by_group(
    op: &str,
    b: &mut Builder,
    eqn: &Batch<'_>,
    groups: &[Vec<usize>],
    mut of_group: impl FnMut(&mut Builder, &[Atom]) -> Result<Vec<Atom>>,
) -> Result<Batched> {
    let size = eqn.size.require("a collective over groups")?;
    let (operand, dim) = only(op, eqn)?;
    let mut results: Vec<Option<Atom>> = vec![None; size];
    for group in groups {
        let mut lanes = Vec::with_capacity(group.len());
        for &lane in group {
            lanes.push(match dim {
                Some(dim) if lane < size => {
                    let one = b.slice_axis(operand, dim, lane, lane + 1)?;
                    b.squeeze(one, &[dim])?
                }
                _ => operand,
            });
        }
        for (&lane, result) in group.iter().zip(of_group(b, &lanes)?) {
            if let Some(place) = results.get_mut(lane) {
                *place = Some(result);
            }
        }
    }
    match results.into_iter().collect::<Option<Vec<Atom>>>() {
        Some(results) => Ok(Batched::from_iter([(stacked(b, &results, 0)?, Some(0))])),
        None => Err(value_error!(
            "{op}: axis_index_groups must take each of the {size} lanes once, got {groups:?}"
        )),
    }
}

/// Arrays of one type along a new axis.
pub fn stacked(b: &mut Builder, arrays: &[Atom], axis: usize) -> Result<Atom> {
    let arrays = arrays.iter().map(|&array| b.expand_dim(array, axis)).collect::<Result<Vec<_>>>()?;
    b.emit1(Concatenate { dimension: axis }, &arrays)
}
