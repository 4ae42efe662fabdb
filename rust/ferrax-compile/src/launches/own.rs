//! Memory that a workgroup, or an invocation, has of its own: where in it the values between kernels are.

/// The fewest words of own memory; above, they are a power of two, so that shapes share shaders.
const FEWEST: usize = 256;

/// Words to which values in own memory are aligned: those of the widest elements.
const ALIGNED: usize = 4;

/// Where a value is while a sequence runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// In the array of this number.
    Array(u32),
    /// In own memory, from a word on.
    Own { first: usize, words: usize },
}

impl Place {
    pub fn meets(self, other: Place) -> bool {
        match (self, other) {
            (Place::Array(a), Place::Array(b)) => a == b,
            (Place::Own { first: a, words: m }, Place::Own { first: b, words: n }) => a < b + n && b < a + m,
            _ => false,
        }
    }
}

/// Values of own memory by the time from the first to the last use of each: two have the same words only if these do
/// not meet.
#[derive(Debug, Default)]
pub struct OwnMemory {
    most: usize,
    taken: Vec<(usize, usize, usize, usize)>,
    /// Words up to which some are taken.
    size: usize,
}

impl OwnMemory {
    /// Of so many words at most.
    pub fn new(most: usize) -> OwnMemory {
        OwnMemory { most, ..OwnMemory::default() }
    }

    /// A place for so many words between these times, if there is one.
    pub fn take(&mut self, words: usize, first: usize, last: usize) -> Option<Place> {
        let words = words.max(1).next_multiple_of(ALIGNED);
        let mut others: Vec<(usize, usize)> = self
            .taken
            .iter()
            .filter(|(_, _, from, to)| *from <= last && first <= *to)
            .map(|&(begin, end, ..)| (begin, end))
            .collect();
        others.sort_unstable();
        let mut begin = 0;
        for (from, to) in others {
            if from >= begin + words {
                break;
            }
            begin = begin.max(to);
        }
        if begin + words > self.most {
            return None;
        }
        self.taken.push((begin, begin + words, first, last));
        self.size = self.size.max(begin + words);
        Some(Place::Own { first: begin, words })
    }

    /// Its words, rounded up.
    pub fn rounded(&self) -> u32 {
        match self.size {
            0 => 0,
            size => size.next_power_of_two().max(FEWEST).min(self.most) as u32,
        }
    }
}
