//! Where checkpoints go: binomial checkpointing.
//!
//! To go back through `l` steps with room for `c` states between steps, the first
//! of which is there, run forwards from it for some steps, keep that state, go
//! back through the rest with `c - 1` states, and then through those steps with
//! `c`. `reach(c, r) = C(c + r, c)` is how many steps one can go back through that
//! way while running none more than `r` times. For the least such `r` the fewest
//! runs in all are `r l - reach(c + 1, r - 1)`, and they are attained exactly if
//! both parts are within reach for their own numbers: Griewank, Achieving
//! logarithmic growth of temporal and spatial complexity in reverse automatic
//! differentiation, Optimization Methods and Software 1 (1992); Griewank and
//! Walther, Algorithm 799: Revolve, ACM TOMS 26 (2000).

/// How many steps can be gone back through from so many states if none is run more
/// than `repetitions` times; the largest number where there are more.
pub fn reach(states: usize, repetitions: usize) -> usize {
    let (small, large) = (states.min(repetitions) as u128, states.max(repetitions) as u128);
    let mut number: u128 = 1;
    for factor in 1..=small {
        // A binomial coefficient after each factor, so the division leaves no rest.
        number = number.saturating_mul(large + factor) / factor;
        if number > usize::MAX as u128 {
            return usize::MAX;
        }
    }
    number as usize
}

/// The least number of times that some step of these is run.
pub fn repetitions(steps: usize, states: usize) -> usize {
    let mut enough: usize = 0;
    while reach(states, enough) < steps {
        enough = 2 * enough + 1;
    }
    let mut few = enough / 2;
    while few < enough {
        let middle = few + (enough - few) / 2;
        if reach(states, middle) < steps { few = middle + 1 } else { enough = middle }
    }
    enough
}

/// After how many of at least two steps the second of at least two states is kept:
/// the earliest place of the best ones.
pub fn split(steps: usize, states: usize) -> usize {
    let most = repetitions(steps, states);
    let first_part = if most >= 2 { reach(states, most - 2) } else { 1 };
    first_part.max(steps.saturating_sub(reach(states - 1, most)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fewest runs by trying all places.
    fn fewest(steps: usize, states: usize, known: &mut Vec<Vec<Option<usize>>>) -> usize {
        if steps <= 1 {
            return 0;
        }
        if states == 1 {
            return steps * (steps - 1) / 2;
        }
        if let Some(found) = known[steps][states] {
            return found;
        }
        let at = |place: usize, known: &mut Vec<_>| {
            place + fewest(steps - place, states - 1, known) + fewest(place, states, known)
        };
        let found = (1..steps).map(|place| at(place, known)).min().unwrap_or(0);
        known[steps][states] = Some(found);
        found
    }

    fn runs(steps: usize, states: usize) -> usize {
        match (steps, states) {
            (0 | 1, _) => 0,
            (_, 1) => steps * (steps - 1) / 2,
            _ => {
                let place = split(steps, states);
                place + runs(steps - place, states - 1) + runs(place, states)
            }
        }
    }

    #[test]
    fn no_place_is_better() {
        let mut known = vec![vec![None; 12]; 130];
        for states in 1..12 {
            for steps in 2..130 {
                let found = runs(steps, states);
                assert_eq!(found, fewest(steps, states, &mut known), "{steps} steps, {states} states");
                let most = repetitions(steps, states);
                assert_eq!(found, most * steps - reach(states + 1, most - 1));
                assert!(reach(states, most) >= steps && reach(states, most - 1) < steps);
            }
        }
    }

    #[test]
    fn large_numbers_saturate() {
        assert_eq!(reach(10, 3), 286);
        assert_eq!(reach(1 << 40, 1), (1 << 40) + 1);
        assert_eq!(reach(500, 500), usize::MAX);
        assert_eq!(repetitions(usize::MAX, 1), usize::MAX - 1);
        assert_eq!(repetitions(1 << 40, 2), 1_482_909);
        assert_eq!(repetitions(usize::MAX, usize::MAX), 1);
    }
}
