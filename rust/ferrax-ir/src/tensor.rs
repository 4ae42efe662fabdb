//! Values: dense row-major arrays, and typed scalars for literals.
//!
//! Storage is behind a trait so that a backend's buffer can be a tensor without
//! a copy (a captured array, an argument, a result) and go back to the
//! backend's allocator when the last tensor that holds it is dropped.

use std::sync::Arc;

use bytemuck::{Pod, cast_slice};
use half::{bf16, f16};
use smallvec::SmallVec;

use crate::{ArrayType, DType, Result, internal_error, memory_error, value_error};

/// Memory that holds the elements of a tensor.
///
/// The address of `bytes` never changes and is aligned to at least 16 bytes;
/// the contents change only while the storage is exclusively owned.
pub trait Storage: Send + Sync + std::fmt::Debug {
    fn bytes(&self) -> &[u8];

    /// The bytes for writing, if this kind of storage can be written to.
    fn bytes_mut(&mut self) -> Option<&mut [u8]>;
}

/// Plain memory from the global allocator.
#[derive(Debug)]
struct Owned {
    words: Vec<u128>,
    len: usize,
}

impl Storage for Owned {
    fn bytes(&self) -> &[u8] {
        &cast_slice(&self.words)[..self.len]
    }

    fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        Some(&mut bytemuck::cast_slice_mut(&mut self.words)[..self.len])
    }
}

/// The sizes of a tensor, outermost first.
pub type Sizes = SmallVec<[usize; 4]>;

/// One element, beside its reference count.
#[derive(Debug)]
struct Single {
    word: u128,
    len: usize,
}

impl Storage for Single {
    fn bytes(&self) -> &[u8] {
        &bytemuck::bytes_of(&self.word)[..self.len]
    }

    fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        Some(&mut bytemuck::bytes_of_mut(&mut self.word)[..self.len])
    }
}

/// A dense row-major array.
#[derive(Debug)]
pub struct Tensor {
    dtype: DType,
    sizes: Sizes,
    storage: Arc<dyn Storage>,
}

/// Rust types that are stored as the elements of some dtype.
pub trait Element: Pod {
    const DTYPE: DType;
}

macro_rules! elements {
    ($($ty:ty => $dtype:ident),* $(,)?) => {$(
        impl Element for $ty {
            const DTYPE: DType = DType::$dtype;
        }
    )*};
}

elements! {
    u8 => U8, u16 => U16, u32 => U32, u64 => U64, i8 => I8, i16 => I16, i32 => I32, i64 => I64,
    bf16 => BF16, f16 => F16, f32 => F32, f64 => F64, [f32; 2] => C64, [f64; 2] => C128,
}

/// Bytes that an array of these sizes takes, or an error where no machine could hold it. An array
/// with an axis of size 0 takes none, whatever its other sizes.
///
/// Where this succeeds, the number of elements and every position among them fit into `isize`.
pub fn byte_size(sizes: &[usize], dtype: DType) -> Result<usize> {
    if sizes.contains(&0) {
        return Ok(0);
    }
    // Elements without bytes are counted all the same.
    sizes
        .iter()
        .try_fold(dtype.size().max(1), |total, &size| total.checked_mul(size))
        .filter(|&bytes| bytes <= isize::MAX as usize)
        .map(|bytes| if dtype.size() == 0 { 0 } else { bytes })
        .ok_or_else(|| {
            memory_error!("an array of shape {sizes:?} and dtype {dtype} exceeds the address space")
        })
}

/// Whether these bytes are elements of the dtype: those of bools are 0 and 1, which kernels rely on; elements of other
/// dtypes may be any bytes. What comes from outside is asked, or made so by [`normalise`].
pub fn are_normal(dtype: DType, bytes: &[u8]) -> bool {
    // In blocks, each of which is looked at without branches.
    !dtype.is_bool() || bytes.chunks(4096).all(|block| block.iter().fold(0, |all, byte| all | byte) <= 1)
}

/// Makes bytes from outside elements of the dtype: what is not 0 is true.
pub fn normalise(dtype: DType, bytes: &mut [u8]) {
    if dtype.is_bool() {
        bytes.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
    }
}

/// The number of elements of an array that exists (see [`byte_size`]).
pub fn element_count(sizes: &[usize]) -> usize {
    if sizes.contains(&0) { 0 } else { sizes.iter().product() }
}

/// Row-major strides of an array whose neighbours are `unit` apart. Only those of an array without
/// elements can saturate, and none of these is ever used.
pub fn row_major(sizes: &[usize], unit: usize) -> Sizes {
    let mut strides: Sizes = smallvec::smallvec![unit; sizes.len()];
    for axis in (1..sizes.len()).rev() {
        strides[axis - 1] = strides[axis].saturating_mul(sizes[axis].max(1)).min(isize::MAX as usize);
    }
    strides
}

/// Written out because sizes are copied at once here, and one by one by `SmallVec`'s own clone.
impl Clone for Tensor {
    #[inline]
    fn clone(&self) -> Self {
        Tensor { dtype: self.dtype, sizes: Sizes::from_slice(&self.sizes), storage: self.storage.clone() }
    }
}

impl Tensor {
    /// Wraps storage that already holds the elements.
    pub fn from_storage(dtype: DType, sizes: impl Into<Sizes>, storage: Arc<dyn Storage>) -> Result<Tensor> {
        let sizes = sizes.into();
        let (need, have) = (byte_size(&sizes, dtype)?, storage.bytes().len());
        if need != have {
            return Err(internal_error!("storage of {have} bytes for {dtype}{sizes:?}, which takes {need}"));
        }
        Ok(Tensor { dtype, sizes, storage })
    }

    /// An array of zeros. Fails with a memory error if it cannot be allocated.
    pub fn zeros(dtype: DType, sizes: impl Into<Sizes>) -> Result<Tensor> {
        let sizes = sizes.into();
        let len = byte_size(&sizes, dtype)?;
        let mut words: Vec<u128> = Vec::new();
        words
            .try_reserve_exact(len.div_ceil(16))
            .map_err(|_| memory_error!("could not allocate {len} bytes for an array {dtype}{sizes:?}"))?;
        words.resize(len.div_ceil(16), 0);
        Ok(Tensor { dtype, sizes, storage: Arc::new(Owned { words, len }) })
    }

    /// An array with these raw bytes.
    pub fn from_bytes(dtype: DType, sizes: impl Into<Sizes>, bytes: &[u8]) -> Result<Tensor> {
        let mut tensor = Tensor::zeros(dtype, sizes)?;
        let target = tensor.bytes_mut()?;
        if target.len() != bytes.len() {
            return Err(value_error!("{} bytes given where the array takes {}", bytes.len(), target.len()));
        }
        target.copy_from_slice(bytes);
        Ok(tensor)
    }

    /// An array with these elements.
    pub fn from_elements<T: Element>(sizes: impl Into<Sizes>, elements: &[T]) -> Result<Tensor> {
        Tensor::from_bytes(T::DTYPE, sizes, cast_slice(elements))
    }

    /// A boolean array.
    pub fn from_bools(sizes: impl Into<Sizes>, elements: &[bool]) -> Result<Tensor> {
        let bytes: Vec<u8> = elements.iter().map(|&b| u8::from(b)).collect();
        Tensor::from_bytes(DType::Bool, sizes, &bytes)
    }

    pub fn dtype(&self) -> DType {
        self.dtype
    }

    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    pub fn rank(&self) -> usize {
        self.sizes.len()
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        element_count(&self.sizes)
    }

    pub fn is_empty(&self) -> bool {
        self.sizes.contains(&0)
    }

    /// The type of this value, not weak.
    pub fn array_type(&self) -> ArrayType {
        ArrayType::of_sizes(&self.sizes, self.dtype)
    }

    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    /// What [`Tensor::from_storage`] takes.
    pub fn into_parts(self) -> (DType, Sizes, Arc<dyn Storage>) {
        (self.dtype, self.sizes, self.storage)
    }

    pub fn bytes(&self) -> &[u8] {
        self.storage.bytes()
    }

    /// The bytes for writing; copies first if another tensor shares them.
    pub fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        let writable = Arc::get_mut(&mut self.storage).is_some_and(|storage| storage.bytes_mut().is_some());
        if !writable {
            *self = {
                let mut copy = Tensor::zeros(self.dtype, self.sizes.clone())?;
                if let Some(bytes) = Arc::get_mut(&mut copy.storage).and_then(|s| s.bytes_mut()) {
                    bytes.copy_from_slice(self.storage.bytes());
                }
                copy
            };
        }
        Arc::get_mut(&mut self.storage)
            .and_then(|storage| storage.bytes_mut())
            .ok_or_else(|| internal_error!("fresh storage cannot be written"))
    }

    /// The elements as `T`, whose size must be the dtype's (any type of that
    /// size will do: `u8` for booleans, `u32` pairs for keys).
    pub fn elements<T: Pod>(&self) -> Result<&[T]> {
        bytemuck::try_cast_slice(self.bytes())
            .map_err(|_| internal_error!("{} read as elements of {} bytes", self.dtype, size_of::<T>()))
    }

    pub fn elements_mut<T: Pod>(&mut self) -> Result<&mut [T]> {
        let dtype = self.dtype;
        bytemuck::try_cast_slice_mut(self.bytes_mut()?)
            .map_err(|_| internal_error!("{dtype} written as elements of {} bytes", size_of::<T>()))
    }

    /// The same elements in the same order with other sizes.
    pub fn with_sizes(&self, sizes: impl Into<Sizes>) -> Result<Tensor> {
        Tensor::from_storage(self.dtype, sizes, self.storage.clone())
    }

    /// The same bytes as another dtype of equal size.
    pub fn with_dtype(&self, dtype: DType) -> Result<Tensor> {
        Tensor::from_storage(dtype, self.sizes.clone(), self.storage.clone())
    }

    /// The only element, for arrays that have one.
    pub fn to_scalar(&self) -> Option<Scalar> {
        let bytes = self.bytes();
        (self.len() == 1).then(|| Scalar::from_bytes(self.dtype, bytes)).flatten()
    }
}

/// Bit equality: NaNs equal themselves, zeros of different sign differ.
impl PartialEq for Tensor {
    fn eq(&self, other: &Self) -> bool {
        self.dtype == other.dtype && self.sizes == other.sizes && self.bytes() == other.bytes()
    }
}

impl Eq for Tensor {}

/// One element of some dtype, as its bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Scalar {
    dtype: DType,
    bits: u128,
}

impl Scalar {
    /// The element whose little-endian bytes these are.
    pub fn from_bytes(dtype: DType, bytes: &[u8]) -> Option<Scalar> {
        let mut buffer = [0u8; 16];
        buffer.get_mut(..dtype.size())?.copy_from_slice(bytes.get(..dtype.size())?);
        Some(Scalar { dtype, bits: u128::from_le_bytes(buffer) })
    }

    pub fn new<T: Element>(value: T) -> Scalar {
        let mut buffer = [0u8; 16];
        let bytes = bytemuck::bytes_of(&value);
        buffer[..bytes.len()].copy_from_slice(bytes);
        Scalar { dtype: T::DTYPE, bits: u128::from_le_bytes(buffer) }
    }

    pub fn bool(value: bool) -> Scalar {
        Scalar { dtype: DType::Bool, bits: u128::from(value) }
    }

    /// Zero of any dtype.
    pub fn zero(dtype: DType) -> Scalar {
        Scalar { dtype, bits: 0 }
    }

    /// `value` converted to `dtype` as a C cast would, saturating.
    pub fn from_f64(dtype: DType, value: f64) -> Scalar {
        crate::convert::scalar_from_f64(dtype, value)
    }

    /// `value` converted to `dtype`, wrapping where it does not fit.
    pub fn from_i64(dtype: DType, value: i64) -> Scalar {
        crate::convert::scalar_from_i64(dtype, value)
    }

    pub fn dtype(self) -> DType {
        self.dtype
    }

    pub fn bits(self) -> u128 {
        self.bits
    }

    pub fn from_bits(dtype: DType, bits: u128) -> Scalar {
        let mask = if dtype.size() >= 16 { u128::MAX } else { (1 << (dtype.size() * 8)) - 1 };
        Scalar { dtype, bits: bits & mask }
    }

    pub fn bytes(self) -> SmallVec<[u8; 16]> {
        SmallVec::from_slice(&self.bits.to_le_bytes()[..self.dtype.size()])
    }

    /// The value as `f64`, exact where `f64` can hold it; the real part of a
    /// complex number. `None` for keys and `float0`.
    pub fn to_f64(self) -> Option<f64> {
        crate::convert::scalar_to_f64(self)
    }

    /// The value of an integer or boolean.
    pub fn to_i128(self) -> Option<i128> {
        crate::convert::scalar_to_i128(self)
    }

    /// A 0-d tensor with this value.
    pub fn to_tensor(self) -> Result<Tensor> {
        let word = u128::from_ne_bytes(self.bits.to_le_bytes());
        let storage = Arc::new(Single { word, len: self.dtype.size() });
        Tensor::from_storage(self.dtype, Sizes::new(), storage)
    }

    pub fn is_zero(self) -> bool {
        match self.dtype.kind() {
            crate::Kind::Float => self.to_f64() == Some(0.0),
            _ => self.bits == 0,
        }
    }

    pub fn is_one(self) -> bool {
        match self.dtype.kind() {
            crate::Kind::Complex => self == Scalar::from_f64(self.dtype, 1.0),
            _ => self.to_f64() == Some(1.0),
        }
    }
}
