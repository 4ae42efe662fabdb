//! Which axes of an op's operands and results can be cut into parts together.
//!
//! Axes that hang together are the same *factor*: cut alike, each part of the results is made of the same part of the
//! operands. An axis can be several factors (a reshape merges and splits axes), the first one major. What a factor is follows
//! from what rows state for compilers: index maps, reductions, elementwise bodies. Ops of which these say nothing are taken to
//! keep the axes that have the same size and number in a result and in operands of its rank; products, and those that need whole matrices,
//! say it themselves ([`Rules::shard`]).
//!
//! The form is that of Shardy's rules (<https://openxla.org/shardy/sharding_representation>).

use smallvec::{SmallVec, smallvec};

use crate::Result;
use crate::ops::Kept;
use crate::rules::{Extents, Follow, IndexMap, Lowering, Rules};

/// The factors of an axis, by number, major first.
pub type Factors = SmallVec<[u16; 2]>;

/// The factors of each axis of an array.
pub type ArrayFactors = SmallVec<[Factors; 4]>;

/// What it takes to compute the parts of a factor on devices of their own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Cut {
    /// Nothing.
    Pass,
    /// The parts' results are folded into one.
    Fold,
    /// Elements of other parts, such as near the ends of neighbouring ones.
    Shift,
    /// It has to be whole: nothing else is cut with it.
    Whole,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Factor {
    pub size: usize,
    pub cut: Cut,
}

/// See the head of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShardRule {
    pub factors: SmallVec<[Factor; 8]>,
    pub operands: SmallVec<[ArrayFactors; 3]>,
    pub results: SmallVec<[ArrayFactors; 1]>,
    /// Whether the op of the parts gives the parts of its results; else the rule is a guess, and good for propagation only.
    pub exact: bool,
}

impl ShardRule {
    /// Each axis alone, and whole.
    pub fn apart(inputs: &[Extents<'_>], outputs: &[Extents<'_>]) -> ShardRule {
        let mut factors = SmallVec::new();
        let mut alone = |extents: &Extents<'_>| -> ArrayFactors {
            let axis = |&size: &usize| {
                factors.push(Factor { size, cut: Cut::Whole });
                smallvec![factors.len() as u16 - 1]
            };
            extents.sizes.iter().map(axis).collect()
        };
        let results = outputs.iter().map(&mut alone).collect();
        let operands = inputs.iter().map(&mut alone).collect();
        ShardRule { factors, operands, results, exact: true }
    }

    /// Axes with the same number are cut together, where they have the same size and the arrays the same rank.
    pub fn alike(inputs: &[Extents<'_>], outputs: &[Extents<'_>]) -> ShardRule {
        let mut rule = ShardRule { exact: false, ..ShardRule::apart(inputs, outputs) };
        let Some(first) = outputs.iter().max_by_key(|output| output.sizes.len()) else { return rule };
        for axis in 0..first.sizes.len() {
            let same = |extents: &Extents<'_>| {
                extents.sizes.len() == first.sizes.len() && extents.sizes[axis] == first.sizes[axis]
            };
            rule.axis_of_all(axis, inputs, outputs, same);
        }
        rule
    }

    /// All axes are, but along these elements depend on others.
    pub fn coupled(axes: &[usize], inputs: &[Extents<'_>], outputs: &[Extents<'_>]) -> ShardRule {
        let mut rule = ShardRule { exact: true, ..ShardRule::alike(inputs, outputs) };
        for &axis in axes {
            let of_axis = rule.operands.iter().chain(&rule.results).filter_map(|factors| factors.get(axis));
            for factor in of_axis.flatten() {
                let cut = &mut rule.factors[usize::from(*factor)].cut;
                *cut = (*cut).max(Cut::Shift);
            }
        }
        rule
    }

    /// Along this axis a block of so many elements of some arrays goes with one element of the others: blocks are cut together, where
    /// arrays have whole ones; an axis that is neither stays as it is.
    pub fn in_blocks(&mut self, axis: usize, block: usize, inputs: &[Extents<'_>], outputs: &[Extents<'_>]) {
        let sizes = inputs.iter().chain(outputs).filter_map(|extents| extents.sizes.get(axis));
        let Some(whole) = sizes.clone().max().copied() else { return };
        let count = whole / block.max(1);
        if block < 2 || count * block != whole || !sizes.clone().all(|&size| size == whole || size == count) {
            return;
        }
        let first = self.factors.len() as u16;
        self.factors.push(Factor { size: count, cut: Cut::Pass });
        self.factors.push(Factor { size: block, cut: Cut::Whole });
        let arrays = self.operands.iter_mut().zip(inputs).chain(self.results.iter_mut().zip(outputs));
        for (factors, extents) in arrays {
            if let (Some(own), Some(&size)) = (factors.get_mut(axis), extents.sizes.get(axis)) {
                *own = if size == whole { smallvec![first, first + 1] } else { smallvec![first] };
            }
        }
    }

    /// The leading axes are cut together: what comes behind them is whole.
    pub fn leading(count: usize, inputs: &[Extents<'_>], outputs: &[Extents<'_>]) -> ShardRule {
        let mut rule = ShardRule::apart(inputs, outputs);
        for axis in 0..count {
            rule.axis_of_all(axis, inputs, outputs, |extents| extents.sizes.len() >= count);
        }
        rule
    }

    /// This axis of all arrays for which `has` holds becomes one factor.
    fn axis_of_all(
        &mut self,
        axis: usize,
        inputs: &[Extents<'_>],
        outputs: &[Extents<'_>],
        has: impl Fn(&Extents<'_>) -> bool,
    ) {
        let mut shared = None;
        let outputs = self.results.iter_mut().zip(outputs);
        for (factors, extents) in outputs.chain(self.operands.iter_mut().zip(inputs)) {
            if has(extents) {
                let own = factors[axis][0];
                let factor = *shared.get_or_insert(own);
                factors[axis] = smallvec![factor];
                self.factors[usize::from(factor)].cut = Cut::Pass;
            }
        }
    }

    /// An axis of an operand and one of a result are cut together.
    pub fn share(&mut self, operand: usize, axis: usize, result: usize, to: usize, cut: Cut) {
        let factor = self.results[result][to][0];
        let factors = &mut self.operands[operand][axis];
        if let Some(factor) = self.factors.get_mut(usize::from(factor)) {
            factor.cut = if factor.cut == Cut::Whole { cut } else { factor.cut.max(cut) };
        }
        *factors = smallvec![factor];
    }

    /// Axes of two operands are cut together, and are in no result: what is made of the parts is folded.
    pub fn fold(&mut self, one: (usize, usize), other: (usize, usize)) {
        let factor = self.operands[one.0][one.1][0];
        self.operands[other.0][other.1] = smallvec![factor];
        self.factors[usize::from(factor)].cut = Cut::Fold;
    }
}

/// The rule of an op that says none of its own.
pub fn derived(
    op: &(impl Rules + ?Sized),
    inputs: &[Extents<'_>],
    outputs: &[Extents<'_>],
) -> Result<ShardRule> {
    if op.matrix_axes() > 0
        && let Some(first) = inputs.first()
    {
        return Ok(ShardRule::leading(first.sizes.len().saturating_sub(op.matrix_axes()), inputs, outputs));
    }
    if op.lower() == Lowering::Elementwise {
        return Ok(ShardRule { exact: true, ..ShardRule::alike(inputs, outputs) });
    }
    if let Some(input) = inputs.first()
        && let Some(coupled) = op.coupled_axes(input.sizes.len())
    {
        return Ok(ShardRule::coupled(&coupled, inputs, outputs));
    }
    let [output] = outputs else { return Ok(ShardRule::alike(inputs, outputs)) };
    if let Some(map) = op.index_map(inputs, *output)? {
        return Ok(of_map(&map, inputs, *output));
    }
    if let [input] = inputs
        && let Some(reduction) = op.reduction(*input)?
    {
        let mut rule = ShardRule::apart(inputs, outputs);
        let kept = (0..input.sizes.len()).filter(|axis| !reduction.axes.contains(axis));
        for (to, axis) in kept.enumerate().take(output.sizes.len()) {
            rule.share(0, axis, 0, to, Cut::Pass);
        }
        for axis in &reduction.axes {
            let factor = rule.operands[0][*axis][0];
            rule.factors[usize::from(factor)].cut = Cut::Fold;
        }
        return Ok(rule);
    }
    Ok(ShardRule::alike(inputs, outputs))
}

fn of_map(map: &IndexMap, inputs: &[Extents<'_>], output: Extents<'_>) -> ShardRule {
    let mut rule = ShardRule::apart(inputs, &[output]);
    let follow = |rule: &mut ShardRule, operand: usize, follows: &[Follow], whole: &dyn Fn(usize) -> bool| {
        for (axis, follow) in follows.iter().enumerate() {
            let Some(to) = follow.axis else { continue };
            let same = inputs[operand].sizes[axis] == output.sizes[to];
            if *follow == Follow::axis(to) && same {
                rule.share(operand, axis, 0, to, Cut::Pass);
            } else if !whole(axis) {
                rule.share(operand, axis, 0, to, Cut::Shift);
            }
        }
    };
    match map {
        IndexMap::Along(follows) => {
            // Along new axes all parts are the same.
            for axis in 0..output.sizes.len() {
                let new = follows.iter().all(|follow| follow.axis != Some(axis));
                rule.factors[usize::from(rule.results[0][axis][0])].cut =
                    if new { Cut::Pass } else { Cut::Whole };
            }
            follow(&mut rule, 0, follows, &|_| false);
        }
        IndexMap::Picked(picked) => {
            follow(&mut rule, 0, &picked.within, &|_| true);
            for start in &picked.starts {
                follow(&mut rule, start.operand, &start.at, &|_| true);
            }
        }
        IndexMap::Padded(kept) => {
            for axis in 0..kept.len() {
                let size = inputs[0].sizes[axis];
                let same =
                    kept[axis] == Kept { from: 0, count: size, to: 0, step: 1 } && size == output.sizes[axis];
                rule.share(0, axis, 0, axis, if same { Cut::Pass } else { Cut::Shift });
            }
        }
        IndexMap::Joined { axis } => {
            for operand in 0..inputs.len() {
                for along in 0..output.sizes.len() {
                    rule.share(operand, along, 0, along, if along == *axis { Cut::Shift } else { Cut::Pass });
                }
            }
        }
        IndexMap::InOrder => reshaped(&mut rule, inputs[0].sizes, output.sizes),
        IndexMap::Bytes => return ShardRule::alike(inputs, &[output]),
        // What is counted begins elsewhere in each part, which compilers have to see to.
        IndexMap::Counted { .. } | IndexMap::Constant(_) => {
            for axis in 0..output.sizes.len() {
                let factor = rule.results[0][axis][0];
                rule.factors[usize::from(factor)].cut = Cut::Pass;
            }
        }
    }
    rule
}

/// Axes before and after a reshape are cut into their common divisors, from the major end of each run of axes that have as many
/// elements.
fn reshaped(rule: &mut ShardRule, before: &[usize], after: &[usize]) {
    if before.contains(&0) || after.contains(&0) {
        return;
    }
    let mut operand: ArrayFactors = before.iter().map(|_| Factors::new()).collect();
    let mut result: ArrayFactors = after.iter().map(|_| Factors::new()).collect();
    let (mut from, mut to) = (0, 0);
    let (mut left, mut right) = (1, 1);
    while from < before.len() || to < after.len() || left > 1 || right > 1 {
        if left == 1 && from < before.len() {
            left = before[from];
            from += 1;
            continue;
        }
        if right == 1 && to < after.len() {
            right = after[to];
            to += 1;
            continue;
        }
        if left == 1 || right == 1 {
            break; // only if the counts differ
        }
        let common = divisor(left, right);
        let number = rule.factors.len() as u16;
        if common > 1 {
            rule.factors.push(Factor { size: common, cut: Cut::Pass });
            operand[from - 1].push(number);
            result[to - 1].push(number);
            left /= common;
            right /= common;
        } else {
            // What is left of both axes has nothing in common: their elements do not go together.
            for (factors, size) in [(&mut operand[from - 1], left), (&mut result[to - 1], right)] {
                factors.push(rule.factors.len() as u16);
                rule.factors.push(Factor { size, cut: Cut::Whole });
            }
            (left, right) = skip(&mut from, &mut to, left, right, before, after);
        }
    }
    rule.operands[0] = operand;
    rule.results[0] = result;
}

/// Goes on to where as many elements have been passed on both sides.
fn skip(
    from: &mut usize,
    to: &mut usize,
    left: usize,
    right: usize,
    before: &[usize],
    after: &[usize],
) -> (usize, usize) {
    let (mut left, mut right) = (left, right);
    while left != right {
        if left < right && *from < before.len() {
            left *= before[*from];
            *from += 1;
        } else if *to < after.len() {
            right *= after[*to];
            *to += 1;
        } else {
            break;
        }
    }
    (1, 1)
}

fn divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { divisor(b, a % b) }
}
