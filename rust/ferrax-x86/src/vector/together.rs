//! Steps of a chain side by side: each instruction is followed by those of the other steps.
//!
//! A chain's instructions wait for one another, and a processor looks ahead for others no further than some hundred.

use ferrax_compile::chain::Chain;

use super::{Class, Isa, Lowered, Micro, Shape, Source};

/// How many values of a class there are at once, at most, and one at least.
pub(super) fn most_live(lowered: &Lowered, class: Class) -> usize {
    let mut last = vec![0; lowered.classes.len()];
    for (number, micro) in lowered.micros.iter().enumerate() {
        for arg in &micro.args {
            if let Source::Value(value) = arg {
                last[*value as usize] = number;
            }
        }
    }
    let mut ending = vec![0usize; lowered.micros.len() + 1];
    let (mut now, mut most) = (0, 0);
    for (number, micro) in lowered.micros.iter().enumerate() {
        now -= ending[number];
        if let Some(to) = micro.to.filter(|&to| lowered.classes[to as usize] == class) {
            now += 1;
            most = most.max(now);
            ending[last[to as usize].max(number + 1)] += 1;
        }
    }
    most.max(1)
}

/// How many steps go side by side: as many as registers hold, where constants need two.
pub(super) fn steps(lowered: &Lowered, isa: Isa) -> usize {
    let (vectors, masks, most) = match isa {
        Isa::Avx2 => (14, usize::MAX, 2),
        Isa::Avx512 => (30, 7, 4),
    };
    let fit = (vectors / most_live(lowered, Class::Vector))
        .min(masks / most_live(lowered, Class::Mask))
        .clamp(1, most);
    1 << fit.ilog2()
}

/// The same for so many steps.
pub(super) fn together(lowered: Lowered, chain: &Chain, isa: Isa, steps: usize) -> Lowered {
    if steps == 1 {
        return lowered;
    }
    let count = lowered.classes.len() as u32;
    let outputs = chain.outputs.iter().map(|&output| chain.body.type_of(output));
    let sizes: Vec<usize> =
        chain.inputs.iter().map(|input| input.0).chain(outputs).map(|ty| ty.size()).collect();
    let of_step = |micro: &Micro, step: usize| {
        let first = step as u32 * count;
        let further = |block: u32, offset: i32| offset + (step * isa.lanes() * sizes[block as usize]) as i32;
        let shape = match micro.shape {
            Shape::Load { block, offset } => Shape::Load { block, offset: further(block, offset) },
            Shape::Store { block, offset } => Shape::Store { block, offset: further(block, offset) },
            shape => shape,
        };
        let moved = |source: &Source| match *source {
            Source::Value(value) => Source::Value(first + value),
            source => source,
        };
        Micro {
            shape,
            to: micro.to.map(|to| first + to),
            args: micro.args.iter().map(moved).collect(),
            ..*micro
        }
    };
    let micros =
        lowered.micros.iter().flat_map(|micro| (0..steps).map(move |step| of_step(micro, step))).collect();
    Lowered { micros, classes: lowered.classes.repeat(steps) }
}
