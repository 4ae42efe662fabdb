//! Arrays along an axis of which devices hold windows rather than equal parts.
//!
//! A slice `x[1:]` of an array in parts lies where it was: each device has a part of it, but the first has an element less. So arrays
//! whose sizes parts do not divide are held without being gathered, and what reaches over the edges of parts is exchanged when values that
//! lie apart by some elements meet. Device d holds the elements from `d * step - before` on, `length` of them.
//!
//! Invariants: `before` is not negative, `step` not zero, `length` at least `step`, and each element of the array is held by a device.
//! What a device holds at places outside of the array is of no meaning, and nothing that is in the array is made of it.

use smallvec::SmallVec;

/// See the head of the file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Span {
    pub step: usize,
    pub before: i64,
    pub length: usize,
}

/// Axes that are held in windows, by number; others are in equal parts, or whole.
pub type Spans = SmallVec<[(usize, Span); 1]>;

impl Span {
    /// Equal parts.
    pub fn even(step: usize) -> Span {
        Span { step, before: 0, length: step }
    }

    pub fn is_even(&self, count: usize, size: usize) -> bool {
        *self == Span::even(self.step) && self.step * count == size
    }

    /// How an array of this size is held over `count` devices whose parts are `step` elements apart: in the middle of them, so that values made of
    /// neighbours on either side meet half way; what is longer than all parts together is held by each device with what follows its part.
    pub fn middle(step: usize, count: usize, size: usize) -> Span {
        let total = step * count;
        match size <= total {
            true => Span { step, before: ((total - size) / 2) as i64, length: step },
            false => Span { step, before: 0, length: step + size - total },
        }
    }

    /// Whether an array of this size can be held so without some devices having nothing, or twice as much.
    pub fn is_near(step: usize, count: usize, size: usize) -> bool {
        step > 0 && size.abs_diff(step * count) < step
    }

    /// Whether a device that has this has that.
    pub fn contains(&self, other: &Span) -> bool {
        self.step == other.step
            && other.before <= self.before
            && other.length as i64 - other.before <= self.length as i64 - self.before
    }

    /// Whether all elements of an array of this size are held.
    pub fn covers(&self, count: usize, size: usize) -> bool {
        self.before >= 0 && self.end(count) >= size as i64
    }

    /// Behind the last element that any device holds.
    pub fn end(&self, count: usize) -> i64 {
        (count as i64 - 1) * self.step as i64 - self.before + self.length as i64
    }
}

#[cfg(test)]
mod tests {
    use super::Span;

    #[test]
    fn arrays_are_held_in_the_middle() {
        assert_eq!(Span::middle(4, 4, 16), Span::even(4));
        assert_eq!(Span::middle(4, 4, 14), Span { step: 4, before: 1, length: 4 });
        assert_eq!(Span::middle(4, 4, 18), Span { step: 4, before: 0, length: 6 });
        for size in 13..20 {
            assert!(Span::is_near(4, 4, size) && Span::middle(4, 4, size).covers(4, size));
        }
        assert!(!Span::is_near(4, 4, 12) && !Span::is_near(4, 4, 20) && !Span::is_near(0, 4, 0));
    }

    #[test]
    fn a_longer_window_contains_shorter_ones() {
        let padded = Span::middle(4, 4, 18);
        assert!(padded.contains(&Span::even(4)));
        assert!(Span { before: 2, ..padded }.contains(&Span::even(4)));
        assert!(
            !Span::even(4).contains(&padded) && !Span::even(4).contains(&Span { before: 1, ..Span::even(4) })
        );
    }
}
