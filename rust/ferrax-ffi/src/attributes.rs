//! Attributes of calls: numbers, texts, arrays and dictionaries of these.

use std::ffi::{c_int, c_void};

use crate::abi;
use crate::element::{Bool, Element, name};
use crate::error::{Code, Error, Result};

/// The attributes of a call, or a dictionary among them.
#[derive(Clone, Copy)]
pub struct Attributes<'a> {
    raw: &'a abi::Attributes,
}

/// An attribute: its kind and where its value is.
#[derive(Clone, Copy)]
pub struct Attribute<'a> {
    kind: c_int,
    item: *const c_void,
    _frame: std::marker::PhantomData<&'a abi::Attributes>,
}

/// What an attribute may be read as: a number of its own dtype, `bool`, `&str`, a slice, [`Attributes`].
pub trait FromAttribute<'a>: Sized {
    /// # Errors
    /// `InvalidArgument` for an attribute of another kind or dtype.
    fn from_attribute(attribute: Attribute<'a>) -> Result<Self>;
}

/// A slice of foreign memory.
///
/// # Safety
/// There are so many elements at the pointer, or none are asked for.
pub(crate) unsafe fn slice<'a, T>(pointer: *const T, length: usize) -> &'a [T] {
    if length == 0 {
        return &[];
    }
    // SAFETY: as the caller says.
    unsafe { std::slice::from_raw_parts(pointer, length) }
}

/// # Safety
/// A span of the caller's.
unsafe fn text<'a>(span: *const abi::Span) -> Result<&'a str> {
    // SAFETY: as said; spans have so many bytes.
    let bytes = unsafe { slice((*span).pointer.cast::<u8>(), (*span).length) };
    std::str::from_utf8(bytes).map_err(|_| Error::invalid_argument("an attribute is no UTF-8"))
}

impl<'a> Attributes<'a> {
    /// The attributes of a frame, which has what it says it has.
    pub(crate) fn new(raw: &'a abi::Attributes) -> Attributes<'a> {
        Attributes { raw }
    }

    pub fn len(&self) -> usize {
        usize::try_from(self.raw.count).unwrap_or(0)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        // SAFETY: a frame of the caller's has so many names, each a span.
        let names = unsafe { slice(self.raw.names, self.len()) };
        // SAFETY: as above.
        names.iter().map(|&name| unsafe { text(name) }.unwrap_or("?"))
    }

    /// The attribute of a name, if there is one.
    pub fn find(&self, wanted: &str) -> Option<Attribute<'a>> {
        let index = self.names().position(|name| name == wanted)?;
        // SAFETY: a frame of the caller's has as many kinds and items as names.
        let (kind, item) = unsafe { (*self.raw.kinds.add(index), *self.raw.items.add(index)) };
        Some(Attribute { kind, item, _frame: std::marker::PhantomData })
    }

    /// The value of an attribute.
    ///
    /// # Errors
    /// `NotFound` where there is none of this name, `InvalidArgument` for one of another kind or dtype.
    pub fn get<T: FromAttribute<'a>>(&self, wanted: &str) -> Result<T> {
        let found = self.find(wanted).ok_or_else(|| {
            let names: Vec<&str> = self.names().collect();
            Error::new(Code::NotFound, format!("there is no attribute `{wanted}`, only {names:?}"))
        })?;
        T::from_attribute(found)
            .map_err(|error| Error::new(error.code, format!("the attribute `{wanted}`: {}", error.message)))
    }
}

impl Attribute<'_> {
    fn what(&self) -> String {
        // SAFETY: the kind says what the item is.
        unsafe {
            match self.kind {
                abi::SCALAR => format!("a {}", name((*self.item.cast::<abi::Scalar>()).dtype)),
                abi::ARRAY => format!("an array of {}", name((*self.item.cast::<abi::Array>()).dtype)),
                abi::STRING => "a string".to_owned(),
                abi::DICTIONARY => "a dict".to_owned(),
                kind => format!("of kind {kind}"),
            }
        }
    }

    fn refused(&self, wanted: &str) -> Error {
        Error::invalid_argument(format!("wanted {wanted}, got {}", self.what()))
    }

    fn scalar<T: Element>(&self) -> Result<T> {
        if self.kind == abi::SCALAR {
            // SAFETY: the kind says what the item is.
            let scalar = unsafe { &*self.item.cast::<abi::Scalar>() };
            if scalar.dtype == T::DTYPE {
                // SAFETY: a number of this dtype; wherever it lies.
                return Ok(unsafe { scalar.value.cast::<T>().read_unaligned() });
            }
        }
        Err(self.refused(T::NAME))
    }
}

macro_rules! numbers {
    ($($ty:ty),*) => {
        $(impl FromAttribute<'_> for $ty {
            fn from_attribute(attribute: Attribute<'_>) -> Result<$ty> {
                attribute.scalar()
            }
        })*
    };
}

numbers!(i8, i16, i32, i64, u8, u16, u32, u64, f32, f64);

impl FromAttribute<'_> for bool {
    fn from_attribute(attribute: Attribute<'_>) -> Result<bool> {
        attribute.scalar::<Bool>().map(Bool::get)
    }
}

impl<'a> FromAttribute<'a> for &'a str {
    fn from_attribute(attribute: Attribute<'a>) -> Result<&'a str> {
        if attribute.kind != abi::STRING {
            return Err(attribute.refused("a string"));
        }
        // SAFETY: the kind says that it is a span, which the frame has as long as it lives.
        unsafe { text(attribute.item.cast()) }
    }
}

impl<'a, T: Element> FromAttribute<'a> for &'a [T] {
    fn from_attribute(attribute: Attribute<'a>) -> Result<&'a [T]> {
        if attribute.kind == abi::ARRAY {
            // SAFETY: the kind says what the item is.
            let array = unsafe { &*attribute.item.cast::<abi::Array>() };
            let data = array.data.cast_const().cast::<T>();
            if array.dtype == T::DTYPE {
                if array.length > 0 && !data.is_aligned() {
                    return Err(Error::invalid_argument("the array lies at an odd address"));
                }
                // SAFETY: so many numbers of this dtype, which the frame has as long as it lives.
                return Ok(unsafe { slice(data, array.length) });
            }
        }
        Err(attribute.refused(&format!("an array of {}", T::NAME)))
    }
}

impl<'a> FromAttribute<'a> for Attributes<'a> {
    fn from_attribute(attribute: Attribute<'a>) -> Result<Attributes<'a>> {
        if attribute.kind != abi::DICTIONARY {
            return Err(attribute.refused("a dict"));
        }
        // SAFETY: the kind says that it is a dictionary, which the frame has as long as it lives.
        Ok(Attributes { raw: unsafe { &*attribute.item.cast::<abi::Attributes>() } })
    }
}
