//! Counter-based random bits: Threefry-2x32 with 20 rounds (Salmon, Moraes,
//! Dror, Shaw: "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011), and the
//! ops on keys that stand on it.

use std::sync::Arc;

use crate::{Shape, op_struct, pending_rules};

op_struct! {
    /// The block cipher: key words k1, k2 and counter words x1, x2 to two words of bits.
    Threefry2x32 "threefry2x32" {}
}
op_struct! {
    /// A key from an integer.
    RandomSeed "random_seed" { r#impl: Arc<str> }
}
op_struct! {
    /// New keys from each key, as many as `shape` has places.
    RandomSplit "random_split" { shape: Shape }
}
op_struct! {
    /// A new key from a key and an integer.
    RandomFoldIn "random_fold_in" {}
}
op_struct! {
    /// An array of random unsigned integers of `bit_width` bits for each key.
    RandomBits "random_bits" { bit_width: u32, shape: Shape }
}
op_struct! {
    /// Keys from their raw words (a last axis of u32).
    RandomWrap "random_wrap" { r#impl: Arc<str> }
}
op_struct! {
    /// The raw words of keys.
    RandomUnwrap "random_unwrap" {}
}

pending_rules!(Threefry2x32, RandomSeed, RandomSplit, RandomFoldIn, RandomBits, RandomWrap, RandomUnwrap);
