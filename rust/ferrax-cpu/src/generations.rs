//! Bounded caches that forget what was not asked for lately.
//!
//! Entries live in two generations. New ones, and old ones that are found again,
//! go to the young generation; when that is full it becomes the old one, and what
//! was in the old one is forgotten. So whatever is among the last `most` entries
//! that were asked for is kept, and at most twice as many are. A hit among the
//! young costs a look-up and writes nothing.
//!
//! Tables of threads come with an [`Epoch`], by which they are cleared from anywhere.
//!
//! What is forgotten is handed to the caller, who drops it outside of locks and
//! borrows: values may belong to a host whose destructors run anything.

use std::sync::atomic::{AtomicUsize, Ordering};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// With their sizes in bytes.
type Entries<V> = FxHashMap<u64, SmallVec<[(V, usize); 1]>>;

/// Entries by hash; those of one hash are told apart by the caller.
#[derive(Debug)]
pub struct Generations<V> {
    young: Option<Entries<V>>,
    old: Option<Entries<V>>,
    /// Entries and bytes of the young generation.
    count: usize,
    bytes: usize,
    old_count: usize,
    most: usize,
    most_bytes: usize,
}

/// What a cache forgot.
#[must_use = "dropped under no lock or borrow"]
#[derive(Debug)]
pub struct Forgotten<V>(SmallVec<[Entries<V>; 2]>);

impl<V> Forgotten<V> {
    fn nothing() -> Forgotten<V> {
        Forgotten(SmallVec::new())
    }

    pub fn iter(&self) -> impl Iterator<Item = &V> {
        self.0.iter().flat_map(|entries| entries.values().flatten()).map(|(value, _)| value)
    }
}

impl<V: Clone> Generations<V> {
    /// A cache of generations of at most `most` entries, whose sizes are about `most_bytes` together.
    pub const fn new(most: usize, most_bytes: usize) -> Generations<V> {
        Generations { young: None, old: None, count: 0, bytes: 0, old_count: 0, most, most_bytes }
    }

    /// The entry with this hash that `is` the one. An old one becomes young again.
    #[inline]
    pub fn find(&mut self, hash: u64, is: impl Fn(&V) -> bool) -> (Option<V>, Forgotten<V>) {
        match self.peek(hash, &is) {
            Some(value) => (Some(value.clone()), Forgotten::nothing()),
            None => self.find_old(hash, is),
        }
    }

    #[cold]
    fn find_old(&mut self, hash: u64, is: impl Fn(&V) -> bool) -> (Option<V>, Forgotten<V>) {
        let Some(values) = self.old.as_mut().and_then(|old| old.get_mut(&hash)) else {
            return (None, Forgotten::nothing());
        };
        let place = values.iter().position(|(value, _)| is(value));
        let Some(place) = place else { return (None, Forgotten::nothing()) };
        let (value, bytes) = values.swap_remove(place);
        self.old_count -= 1;
        let forgotten = self.insert(hash, value.clone(), bytes);
        (Some(value), forgotten)
    }

    /// The young entry with this hash that `is` the one: most hits are, and this writes nothing.
    #[inline]
    pub fn peek(&self, hash: u64, is: impl Fn(&V) -> bool) -> Option<&V> {
        let values = self.young.as_ref()?.get(&hash)?;
        values.iter().map(|(value, _)| value).find(|value| is(value))
    }

    /// All entries with this hash, for callers that compare outside of a lock and then `find` the one.
    pub fn candidates(&self, hash: u64) -> SmallVec<[V; 1]> {
        let of =
            |entries: &Option<Entries<V>>| entries.as_ref().and_then(|entries| entries.get(&hash)).cloned();
        let (young, old) = (of(&self.young), of(&self.old));
        young.into_iter().chain(old).flatten().map(|(value, _)| value).collect()
    }

    /// Adds an entry that refers to about so many bytes.
    pub fn insert(&mut self, hash: u64, value: V, bytes: usize) -> Forgotten<V> {
        let mut forgotten = Forgotten::nothing();
        let now = bytes.saturating_add(size_of::<(u64, V, usize)>());
        let full = self.count >= self.most || self.bytes.saturating_add(now) > self.most_bytes;
        if full && self.count > 0 {
            forgotten.0.extend(std::mem::replace(&mut self.old, self.young.take()));
            self.old_count = std::mem::take(&mut self.count);
            self.bytes = 0;
        }
        self.young.get_or_insert_default().entry(hash).or_default().push((value, bytes));
        self.count += 1;
        self.bytes = self.bytes.saturating_add(now);
        forgotten
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.count + self.old_count
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn iter(&self) -> impl Iterator<Item = &V> {
        let all = self.young.iter().chain(&self.old);
        all.flat_map(|entries| entries.values().flatten()).map(|(value, _)| value)
    }

    /// Forgets everything.
    pub fn clear(&mut self) -> Forgotten<V> {
        (self.count, self.bytes, self.old_count) = (0, 0, 0);
        Forgotten(self.young.take().into_iter().chain(self.old.take()).collect())
    }
}

static CLEARED: AtomicUsize = AtomicUsize::new(0);

/// How often all caches had been cleared when one was last looked at. A thread cannot empty the
/// tables of others: each finds out by itself that it is time to.
#[derive(Debug)]
pub struct Epoch(usize);

impl Epoch {
    pub const FIRST: Epoch = Epoch(0);

    /// Whether nothing was cleared since the last `renew`.
    #[inline]
    pub fn is_current(&self) -> bool {
        self.0 == CLEARED.load(Ordering::Relaxed)
    }

    /// Whether caches were cleared since the last time: then what this one holds is to be dropped.
    #[inline]
    pub fn renew(&mut self) -> bool {
        let now = CLEARED.load(Ordering::Relaxed);
        std::mem::replace(&mut self.0, now) != now
    }

    /// Clears all caches that have an epoch.
    pub fn end() {
        CLEARED.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(cache: &mut Generations<u32>, value: u32, bytes: usize) -> bool {
        // Few hashes, so that entries share them.
        let hash = u64::from(value % 3);
        let (found, old) = cache.find(hash, |&other| other == value);
        drop(old);
        if found.is_none() {
            drop(cache.insert(hash, value, bytes));
        }
        found.is_some()
    }

    #[test]
    fn what_is_asked_for_stays_and_the_rest_goes() {
        let mut cache = Generations::new(10, usize::MAX);
        for value in 0..1000 {
            // 0 is asked for every other time.
            assert_eq!(ask(&mut cache, 0, 1), value > 0);
            assert_eq!(ask(&mut cache, value, 1), value == 0);
            assert!(cache.len() <= 20 && cache.len() == cache.iter().count());
        }
        // A round of as many as a generation holds never misses after the first time.
        for round in 0..3 {
            for value in 5000..5010 {
                assert_eq!(ask(&mut cache, value, 1), round > 0);
            }
        }
        assert!(cache.candidates(0).iter().all(|value| value % 3 == 0));
        assert_eq!(cache.clear().iter().count(), 20);
        assert!(cache.is_empty() && cache.iter().next().is_none());
    }

    #[test]
    fn bytes_count_too_but_one_entry_always_fits() {
        let mut cache = Generations::new(1000, 100);
        for value in 0..100 {
            ask(&mut cache, value, 40);
            assert!(cache.len() <= 4);
        }
        // Entries take room of their own, whatever they refer to.
        let mut empty = Generations::new(100_000, 10_000);
        (0..10_000).for_each(|value| assert!(!ask(&mut empty, value, 0)));
        assert!(empty.len() * size_of::<u32>() < 20_000, "{}", empty.len());
        assert!(!ask(&mut cache, 1000, 5000));
        assert!(ask(&mut cache, 1000, 5000));
    }
}
