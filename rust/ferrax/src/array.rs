//! Arrays: dense, row-major, of one dtype, in memory.

use std::fmt;

use ferrax_ir::{DType, Result, Scalar, Sizes, Tensor, type_error, value_error};

/// Rust types that arrays have elements of. Complex numbers are `[re, im]`.
pub trait Element: Copy + sealed::Sealed {
    const DTYPE: DType;

    #[doc(hidden)]
    fn to_tensor(sizes: Sizes, elements: &[Self]) -> Result<Tensor>;

    #[doc(hidden)]
    fn of_tensor(tensor: &Tensor) -> Result<Vec<Self>>;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($ty:ty),*) => {$(
        impl sealed::Sealed for $ty {}

        impl Element for $ty {
            const DTYPE: DType = <$ty as ferrax_ir::Element>::DTYPE;

            fn to_tensor(sizes: Sizes, elements: &[Self]) -> Result<Tensor> {
                Tensor::from_elements(sizes, elements)
            }

            fn of_tensor(tensor: &Tensor) -> Result<Vec<Self>> {
                tensor.elements::<$ty>().map(<[$ty]>::to_vec)
            }
        }
    )*};
}

elements!(u8, u16, u32, u64, i8, i16, i32, i64, f32, f64, [f32; 2], [f64; 2]);

impl sealed::Sealed for bool {}

impl Element for bool {
    const DTYPE: DType = DType::Bool;

    fn to_tensor(sizes: Sizes, elements: &[Self]) -> Result<Tensor> {
        Tensor::from_bools(sizes, elements)
    }

    fn of_tensor(tensor: &Tensor) -> Result<Vec<Self>> {
        Ok(tensor.bytes().iter().map(|&byte| byte != 0).collect())
    }
}

/// An array. Copies are cheap: they share the elements.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Array {
    tensor: Tensor,
}

impl Array {
    /// An array of this shape with a copy of these elements, in row-major order.
    pub fn from_slice<T: Element>(elements: &[T], shape: impl AsRef<[usize]>) -> Result<Array> {
        let shape = shape.as_ref();
        let count = shape.iter().try_fold(1usize, |total, &size| total.checked_mul(size));
        if count != Some(elements.len()) {
            return Err(value_error!("{} elements do not fill an array of shape {shape:?}", elements.len()));
        }
        T::to_tensor(shape.into(), elements).map(Array::from)
    }

    /// The same from a vector.
    pub fn from_vec<T: Element>(elements: Vec<T>, shape: impl AsRef<[usize]>) -> Result<Array> {
        Array::from_slice(&elements, shape)
    }

    /// An array without dimensions.
    pub fn scalar<T: Element>(value: T) -> Result<Array> {
        Array::from_slice(&[value], [])
    }

    /// An array of zeros. Fails with [`crate::Error::Memory`] if it cannot be allocated.
    pub fn zeros(dtype: DType, shape: impl AsRef<[usize]>) -> Result<Array> {
        Tensor::zeros(dtype, shape.as_ref()).map(Array::from)
    }

    /// An array of any dtype from its elements' little-endian bytes. Of bools, what is not 0 is true.
    pub fn from_bytes(dtype: DType, shape: impl AsRef<[usize]>, bytes: &[u8]) -> Result<Array> {
        let shape = shape.as_ref();
        let need = ferrax_ir::tensor::byte_size(shape, dtype)?;
        if need != bytes.len() {
            return Err(value_error!(
                "{} bytes for an array {dtype}{shape:?}, which takes {need}",
                bytes.len()
            ));
        }
        let mut tensor = Tensor::from_bytes(dtype, shape, bytes)?;
        ferrax_ir::tensor::normalise(dtype, tensor.bytes_mut()?);
        Ok(Array::from(tensor))
    }

    pub fn shape(&self) -> &[usize] {
        self.tensor.sizes()
    }

    pub fn rank(&self) -> usize {
        self.tensor.rank()
    }

    pub fn dtype(&self) -> DType {
        self.tensor.dtype()
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.tensor.len()
    }

    pub fn is_empty(&self) -> bool {
        self.tensor.is_empty()
    }

    /// The elements' bytes, little-endian.
    pub fn bytes(&self) -> &[u8] {
        self.tensor.bytes()
    }

    /// The elements in row-major order. `T` has to be the type of the elements.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        if T::DTYPE != self.dtype() {
            return Err(type_error!("an array of {} has no elements of {}", self.dtype(), T::DTYPE));
        }
        T::of_tensor(&self.tensor)
    }

    /// The only element of an array that has one.
    pub fn item<T: Element>(&self) -> Result<T> {
        match self.to_vec::<T>()?.as_slice() {
            [only] => Ok(*only),
            all => Err(value_error!("an array of {} elements has no single element", all.len())),
        }
    }

    /// The same elements in another shape, without a copy.
    pub fn reshape(&self, shape: impl AsRef<[usize]>) -> Result<Array> {
        let shape = shape.as_ref();
        let count = shape.iter().try_fold(1usize, |total, &size| total.checked_mul(size));
        if count != Some(self.len()) {
            return Err(value_error!("an array of shape {:?} cannot have shape {shape:?}", self.shape()));
        }
        self.tensor.with_sizes(shape).map(Array::from)
    }

    pub(crate) fn tensor(&self) -> &Tensor {
        &self.tensor
    }
}

impl From<Tensor> for Array {
    fn from(tensor: Tensor) -> Array {
        Array { tensor }
    }
}

impl From<Array> for Tensor {
    fn from(array: Array) -> Tensor {
        array.tensor
    }
}

/// How many elements `Display` shows.
const SHOWN: usize = 16;

/// `f32[2,3] [1.0, 2.0, …]`: the type and the first elements.
impl fmt::Display for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [", self.tensor.array_type())?;
        let width = self.dtype().size().max(1);
        for (index, bytes) in self.bytes().chunks_exact(width).enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            if index == SHOWN {
                f.write_str("…")?;
                break;
            }
            match Scalar::from_bytes(self.dtype(), bytes) {
                Some(value) => write!(f, "{value}")?,
                None => f.write_str("?")?,
            }
        }
        f.write_str("]")
    }
}
