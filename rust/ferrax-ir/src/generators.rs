//! The random number generators that keys belong to: what a key's dtype needs to know of one.
//!
//! Those of the table below exist in each process and have fixed names, which files may hold. Others are
//! defined while the process lives, and are good for it alone. A key is one, two or four 32-bit words.

use std::sync::OnceLock;

use crate::{Result, parse_error, value_error};

/// A random number generator, by its number.
///
/// Invariant: a number beyond the table is that of a generator that was defined, whose slot is filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyImpl {
    number: u8,
    words: u8,
}

struct Generator {
    name: &'static str,
    /// The short name in types, as in `key<fry>[]`.
    tag: &'static str,
    dtype_name: &'static str,
    key_shape: &'static [usize],
}

macro_rules! known {
    ($($name:literal $tag:literal $words:literal;)*) => {
        static KNOWN: &[Generator] = &[$(Generator {
            name: $name,
            tag: $tag,
            dtype_name: concat!("key<", $tag, ">"),
            key_shape: &[$words],
        }),*];
    };
}

// Threefry and Philox: Salmon, Moraes, Dror and Shaw, SC 2011; the last two draw bits by Philox-4x32.
known! {
    "threefry2x32" "fry" 2;
    "threefry4x32" "fry4" 4;
    "philox2x32" "phx2" 1;
    "philox4x32" "phx4" 2;
    "rbg" "rbg" 4;
    "unsafe_rbg" "urbg" 4;
}

/// How many generators a process may define.
const MOST: usize = 200;

static DEFINED: [OnceLock<Generator>; MOST] = [const { OnceLock::new() }; MOST];

impl KeyImpl {
    /// Threefry-2x32, 20 rounds: two words a key.
    pub const THREEFRY2X32: KeyImpl = KeyImpl { number: 0, words: 2 };

    fn generator(self) -> &'static Generator {
        let number = usize::from(self.number);
        let defined = || DEFINED.get(number - KNOWN.len()).and_then(OnceLock::get);
        // The last never happens, by the invariant.
        KNOWN.get(number).or_else(defined).unwrap_or(&KNOWN[0])
    }

    /// Whether it was defined while the process lives, and is good for it alone.
    pub fn is_defined(self) -> bool {
        usize::from(self.number) >= KNOWN.len()
    }

    /// All generators, those that were defined last.
    pub fn all() -> impl Iterator<Item = KeyImpl> {
        let defined = DEFINED.iter().map_while(OnceLock::get);
        KNOWN.iter().chain(defined).enumerate().map(|(number, generator)| KeyImpl {
            number: number as u8,
            words: generator.key_shape.iter().product::<usize>() as u8,
        })
    }

    /// Makes a generator known. Its name is made unique.
    pub fn define(name: &str, tag: &str, key_shape: &[usize]) -> Result<KeyImpl> {
        let words = key_shape.iter().try_fold(1usize, |words, &extent| words.checked_mul(extent));
        let Some(words @ (1 | 2 | 4)) = words else {
            return Err(value_error!(
                "a key has one, two or four words of 32 bits, got key_shape={key_shape:?}"
            ));
        };
        for (slot, place) in DEFINED.iter().enumerate() {
            let number = KNOWN.len() + slot;
            let taken = KeyImpl::all().any(|known| known.name() == name);
            // As long as the process: `OnceLock` keeps the first that comes, so a race costs these few bytes.
            let leak = |text: String| -> &'static str { Box::leak(text.into_boxed_str()) };
            let mut is_mine = false;
            place.get_or_init(|| {
                is_mine = true;
                Generator {
                    name: leak(if taken { format!("{name}#{number}") } else { name.to_owned() }),
                    tag: leak(tag.to_owned()),
                    dtype_name: leak(format!("key<{tag}>")),
                    key_shape: Box::leak(Box::<[usize]>::from(key_shape)),
                }
            });
            if is_mine {
                return Ok(KeyImpl { number: number as u8, words: words as u8 });
            }
        }
        Err(value_error!("a process may define {MOST} random number generators, which it has done"))
    }

    /// The generator with this name or short name.
    pub fn named(name: &str) -> Result<KeyImpl> {
        KeyImpl::all().find(|known| known.name() == name || known.tag() == name).ok_or_else(|| {
            let names: Vec<_> = KeyImpl::all().map(KeyImpl::name).collect();
            value_error!("unknown PRNG implementation '{name}'; there are {}", names.join(", "))
        })
    }

    /// The generator whose keys have the dtype of this name.
    pub(crate) fn of_dtype(name: &str) -> Result<KeyImpl> {
        let mut found = KeyImpl::all().filter(|known| known.dtype_name() == name);
        match (found.next(), found.next()) {
            (Some(only), None) => Ok(only),
            (None, _) => Err(parse_error!("unknown dtype '{name}': no generator with this tag is defined")),
            (Some(_), Some(_)) => Err(parse_error!("dtype '{name}' is that of several generators")),
        }
    }

    pub fn number(self) -> u8 {
        self.number
    }

    pub fn name(self) -> &'static str {
        self.generator().name
    }

    pub fn tag(self) -> &'static str {
        self.generator().tag
    }

    pub(crate) fn dtype_name(self) -> &'static str {
        self.generator().dtype_name
    }

    /// The shape of the `u32` words of one key.
    pub fn key_shape(self) -> &'static [usize] {
        self.generator().key_shape
    }

    /// How many `u32` words hold one key.
    pub const fn words(self) -> usize {
        self.words as usize
    }
}

#[cfg(test)]
mod tests {
    use super::KeyImpl;
    use crate::DType;

    #[test]
    fn generators_are_known_by_their_names() {
        let rbg = KeyImpl::named("rbg").unwrap();
        assert_eq!((rbg, rbg.words()), (KeyImpl::named("rbg").unwrap(), 4));
        assert_eq!(DType::parse("key<rbg>").unwrap(), DType::Key(rbg));
        assert_eq!((DType::Key(rbg).size(), DType::Key(rbg).parts()), (16, 2));
        assert!(DType::parse("key<other>").is_err());
        let first = KeyImpl::define("mine", "own", &[2, 2]).unwrap();
        let second = KeyImpl::define("mine", "twin", &[1]).unwrap();
        assert_ne!(first.name(), second.name());
        assert_eq!((KeyImpl::named("mine").unwrap(), first.key_shape()), (first, &[2, 2][..]));
        assert_eq!(DType::parse("key<twin>").unwrap().size(), 4);
        assert!(KeyImpl::define("three", "three", &[3]).is_err());
    }
}
