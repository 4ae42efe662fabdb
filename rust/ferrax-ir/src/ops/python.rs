//! How elementwise ops are shown in Python: the functions of `lax` and `numpy` that are
//! one op, what help says of them, and what jaxprs show besides the op's own parameters.

/// What happens to the operands' dtypes before the op.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Promotion {
    /// The common dtype.
    Numeric,
    /// The common dtype, or the float dtype for integers.
    Inexact,
    /// [`Promotion::Numeric`]; truth values count as 0 and 1.
    Counting,
    /// Truth values.
    Logical,
    /// None. Operands of dtypes that the op does not accept are their own result.
    Accepted,
    /// None. Real operands are their own result.
    Complex,
    /// [`Promotion::Numeric`]; complex numbers are ordered by their real part, then by
    /// their imaginary part.
    Lexicographic,
    /// None: the lax functions are strict.
    Strict,
}

impl Promotion {
    /// What help says of it, for a function of one or two operands.
    pub const fn doc(self, operands: usize) -> &'static str {
        match (self, operands) {
            (Promotion::Numeric, 1) => "The result has the dtype of `x`.",
            (Promotion::Numeric, _) => "The result has the common dtype of `x` and `y`.",
            (Promotion::Inexact, 1) => "Integers and truth values become floats first.",
            (Promotion::Inexact, _) => {
                "The result has the common dtype of `x` and `y`; integers and truth values become floats first."
            }
            (Promotion::Counting, _) => "Truth values become integers first.",
            (Promotion::Logical, 1) => "What is not zero counts as true; the result is bool.",
            (Promotion::Logical, _) => "What is not zero in `x` and `y` counts as true; the result is bool.",
            (Promotion::Accepted, _) => {
                "Dtypes whose elements are their own result are returned as they are."
            }
            (Promotion::Complex, _) => "Real arrays are returned as they are.",
            (Promotion::Lexicographic, _) => {
                "Complex numbers are ordered by their real part, then by their imaginary part."
            }
            (Promotion::Strict, 1) => "",
            (Promotion::Strict, _) => {
                "`x` and `y` have one dtype, and one shape unless one is a scalar (TypeError); nothing is promoted."
            }
        }
    }
}

/// A function of `numpy` that is one op after promotion. Each alias is one of its own.
#[derive(Clone, Copy, Debug)]
pub struct Numpy {
    pub name: &'static str,
    pub promotion: Promotion,
}

/// The Python side of a row.
#[derive(Clone, Copy, Debug)]
pub struct Python {
    /// The function of `lax`; empty where it is no native one.
    pub lax: &'static str,
    pub numpy: &'static [Numpy],
    /// Parameters that jaxprs show, always None, and that the lax function takes by name.
    pub shown: &'static [&'static str],
    /// What help says besides the op's meaning.
    pub note: &'static str,
}

/// `name` in `numpy`.
pub const fn numpy(name: &'static str, promotion: Promotion) -> Numpy {
    Numpy { name, promotion }
}

/// The parameters of functions that can be asked for an accuracy.
pub const ACCURACY: &[&str] = &["accuracy"];
