//! A call of a handler: operands, results, attributes and states.
//!
//! Invariants: results are memory of the call alone, and each is given out once; an operand that lies in a
//! result's memory is not given out beside it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ffi::c_int;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};

use crate::abi::{self, CallFrame};
use crate::attributes::{Attributes, FromAttribute, slice};
use crate::element::{Element, described, name};
use crate::error::{Code, Error, Result, take_error};
use crate::state::State;

/// What a handler is called with.
pub struct Call<'a> {
    frame: &'a CallFrame,
    /// Results that were given out: of the first 64 a bit each.
    given: Cell<u64>,
    more: RefCell<BTreeSet<usize>>,
    _life: PhantomData<&'a mut ()>,
}

/// The type of an operand or a result.
#[derive(Clone, Copy, Debug)]
pub struct ArrayType<'a> {
    /// The number of the dtype, as XLA has it.
    pub dtype: c_int,
    pub dims: &'a [i64],
}

impl ArrayType<'_> {
    /// How many rows there are, and how long they are: the last axis, 1 without axes.
    #[must_use]
    pub fn rows(&self) -> (usize, usize) {
        match self.dims.split_last() {
            Some((&last, rest)) => (rest.iter().map(|&x| x as usize).product(), last as usize),
            None => (1, 1),
        }
    }
}

/// An operand: a slice of its elements, row by row.
#[derive(Clone, Copy, Debug)]
pub struct Operand<'a, T> {
    pub ty: ArrayType<'a>,
    data: &'a [T],
}

impl<'a, T> Operand<'a, T> {
    /// The elements, for as long as the call.
    #[must_use]
    pub fn elements(&self) -> &'a [T] {
        self.data
    }
}

impl<T> Deref for Operand<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.data
    }
}

/// A result: a slice of its elements, row by row. What is in it before is of no meaning, unless an operand is
/// given in the same memory (`input_output_aliases`): then it is that.
#[derive(Debug)]
pub struct ResultBuffer<'a, T> {
    pub ty: ArrayType<'a>,
    data: &'a mut [T],
}

impl<'a, T> ResultBuffer<'a, T> {
    /// The elements, for as long as the call.
    #[must_use]
    pub fn into_elements(self) -> &'a mut [T] {
        self.data
    }
}

impl<T> Deref for ResultBuffer<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.data
    }
}

impl<T> DerefMut for ResultBuffer<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.data
    }
}

/// The elements of an array.
///
/// # Errors
/// `InvalidArgument` for what is too large for a slice.
fn count(ty: &ArrayType<'_>, size: usize) -> Result<usize> {
    let product = ty
        .dims
        .iter()
        .try_fold(1usize, |product, &dim| usize::try_from(dim).ok().and_then(|dim| product.checked_mul(dim)));
    let fits = |count: &usize| count.checked_mul(size).is_some_and(|bytes| isize::try_from(bytes).is_ok());
    product.filter(fits).ok_or_else(|| Error::invalid_argument(format!("an array of dims {:?}", ty.dims)))
}

impl<'a> Call<'a> {
    /// # Safety
    /// The frame is that of a call which is going on for `'a`, and has what the interface says.
    pub(crate) unsafe fn new(frame: &'a CallFrame) -> Call<'a> {
        Call { frame, given: Cell::new(0), more: RefCell::default(), _life: PhantomData }
    }

    pub(crate) fn frame(&self) -> &'a CallFrame {
        self.frame
    }

    #[must_use]
    pub fn operands(&self) -> usize {
        usize::try_from(self.frame.operands.count).unwrap_or(0)
    }

    #[must_use]
    pub fn results(&self) -> usize {
        usize::try_from(self.frame.results.count).unwrap_or(0)
    }

    fn buffer(&self, of: &'a abi::Operands, what: &str, index: usize) -> Result<&'a abi::Buffer> {
        let all = usize::try_from(of.count).unwrap_or(0);
        if index >= all {
            return Err(Error::invalid_argument(format!("there is no {what} {index}, only {all}")));
        }
        // SAFETY: the frame has so many operands, of which the kind says that they are buffers.
        unsafe {
            match *of.kinds.add(index) {
                abi::BUFFER => Ok(&*(*of.items.add(index)).cast::<abi::Buffer>()),
                kind => {
                    Err(Error::invalid_argument(format!("the {what} {index} is of kind {kind}, no buffer")))
                }
            }
        }
    }

    fn ty(buffer: &'a abi::Buffer) -> ArrayType<'a> {
        // SAFETY: a buffer has as many dims as its rank says.
        let dims = unsafe { slice(buffer.dims.cast_const(), usize::try_from(buffer.rank).unwrap_or(0)) };
        ArrayType { dtype: buffer.dtype, dims }
    }

    /// The type of an operand.
    ///
    /// # Errors
    /// `InvalidArgument` where there is none.
    pub fn operand_type(&self, index: usize) -> Result<ArrayType<'a>> {
        self.buffer(&self.frame.operands, "operand", index).map(Self::ty)
    }

    /// The type of a result.
    ///
    /// # Errors
    /// `InvalidArgument` where there is none.
    pub fn result_type(&self, index: usize) -> Result<ArrayType<'a>> {
        self.buffer(&self.frame.results, "result", index).map(Self::ty)
    }

    /// The elements of a buffer as those of `T`, `each` of them to one of the array's.
    fn elements<T>(
        buffer: &'a abi::Buffer,
        what: &str,
        index: usize,
        each: usize,
    ) -> Result<(ArrayType<'a>, *mut T, usize)> {
        let ty = Self::ty(buffer);
        let length = count(&ty, each * size_of::<T>())? * each;
        let data = buffer.data.cast::<T>();
        if length > 0 && (data.is_null() || !data.is_aligned()) {
            return Err(Error::invalid_argument(format!("the {what} {index} lies at {data:p}")));
        }
        Ok((ty, data, length))
    }

    fn is_of<T: Element>(buffer: &abi::Buffer, what: &str, index: usize) -> Result<()> {
        if buffer.dtype == T::DTYPE {
            return Ok(());
        }
        let (wanted, got) = (T::NAME, name(buffer.dtype));
        Err(Error::invalid_argument(format!("the {what} {index} has to be {wanted}, got {got}")))
    }

    fn bytes_each(buffer: &abi::Buffer, what: &str, index: usize) -> Result<usize> {
        described(buffer.dtype).map(|(_, bytes)| bytes).ok_or_else(|| {
            Error::new(Code::Unimplemented, format!("the {what} {index} has {}", name(buffer.dtype)))
        })
    }

    /// The addresses of a buffer's data.
    fn range(buffer: &'a abi::Buffer) -> Range<usize> {
        let ty = Self::ty(buffer);
        let each = described(buffer.dtype).map_or(16, |(_, bytes)| bytes);
        let start = buffer.data as usize;
        start..start + count(&ty, each).map_or(0, |count| count * each)
    }

    /// That an operand is not what a result is written over.
    fn apart(&self, buffer: &'a abi::Buffer, index: usize) -> Result<()> {
        let here = Self::range(buffer);
        for number in 0..self.results() {
            let there = Self::range(self.buffer(&self.frame.results, "result", number)?);
            if here.start < there.end && there.start < here.end {
                return Err(Error::new(
                    Code::FailedPrecondition,
                    format!(
                        "the operand {index} is given in the memory of the result {number}, which begins as it: read it there"
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Notes that a result is given out.
    fn give(&self, index: usize) -> Result<()> {
        let fresh = if index < 64 {
            let before = self.given.get();
            self.given.set(before | 1 << index);
            before & (1 << index) == 0
        } else {
            self.more.borrow_mut().insert(index)
        };
        if fresh { Ok(()) } else { Err(Error::internal(format!("the result {index} was asked for twice"))) }
    }

    /// The elements of an operand.
    ///
    /// # Errors
    /// `InvalidArgument` for another dtype, and where there is no such operand; `FailedPrecondition` for one
    /// that lies in the memory of a result (`input_output_aliases`): the result begins as it.
    pub fn operand<T: Element>(&self, index: usize) -> Result<Operand<'a, T>> {
        let buffer = self.buffer(&self.frame.operands, "operand", index)?;
        Self::is_of::<T>(buffer, "operand", index)?;
        self.apart(buffer, index)?;
        let (ty, data, length) = Self::elements::<T>(buffer, "operand", index, 1)?;
        // SAFETY: so many elements of this dtype, aligned; nobody writes there while the call goes on.
        Ok(Operand { ty, data: unsafe { slice(data.cast_const(), length) } })
    }

    /// The bytes of an operand, whatever its dtype.
    ///
    /// # Errors
    /// As [`Call::operand`]; `Unimplemented` for dtypes whose size is not known here.
    pub fn operand_bytes(&self, index: usize) -> Result<Operand<'a, u8>> {
        let buffer = self.buffer(&self.frame.operands, "operand", index)?;
        self.apart(buffer, index)?;
        let each = Self::bytes_each(buffer, "operand", index)?;
        let (ty, data, length) = Self::elements::<u8>(buffer, "operand", index, each)?;
        // SAFETY: as in `operand`.
        Ok(Operand { ty, data: unsafe { slice(data.cast_const(), length) } })
    }

    /// The elements of a result, to be written. Each is given once.
    ///
    /// # Errors
    /// `InvalidArgument` for another dtype, and where there is no such result; `Internal` for the second time.
    pub fn result<T: Element>(&self, index: usize) -> Result<ResultBuffer<'a, T>> {
        let buffer = self.buffer(&self.frame.results, "result", index)?;
        Self::is_of::<T>(buffer, "result", index)?;
        let (ty, data, length) = Self::elements::<T>(buffer, "result", index, 1)?;
        self.give(index)?;
        // SAFETY: so many elements of this dtype, aligned, every pattern of bits a value; the memory is the call's,
        // no operand in it is given out, and this result is given for the first time.
        Ok(ResultBuffer { ty, data: unsafe { slice_mut(data, length) } })
    }

    /// The bytes of a result, whatever its dtype. Each result is given once.
    ///
    /// # Errors
    /// As [`Call::result`]; `Unimplemented` for dtypes whose size is not known here.
    pub fn result_bytes(&self, index: usize) -> Result<ResultBuffer<'a, u8>> {
        let buffer = self.buffer(&self.frame.results, "result", index)?;
        let each = Self::bytes_each(buffer, "result", index)?;
        let (ty, data, length) = Self::elements::<u8>(buffer, "result", index, each)?;
        self.give(index)?;
        // SAFETY: as in `result`.
        Ok(ResultBuffer { ty, data: unsafe { slice_mut(data, length) } })
    }

    /// All attributes.
    #[must_use]
    pub fn attributes(&self) -> Attributes<'a> {
        Attributes::new(&self.frame.attributes)
    }

    /// An attribute: a number, `bool`, `&str`, a slice, or [`Attributes`].
    ///
    /// # Errors
    /// `NotFound` where there is none of this name, `InvalidArgument` for one of another kind or dtype.
    pub fn attribute<T: FromAttribute<'a>>(&self, name: &str) -> Result<T> {
        self.attributes().get(name)
    }

    /// The state that the handler for the stage "instantiate" made for this call's executable.
    ///
    /// # Errors
    /// `NotFound` where there is none, or one of another type.
    pub fn state<T: State>(&self) -> Result<&'a T> {
        let mut arguments = abi::State {
            size: size_of::<abi::State>(),
            extension: std::ptr::null_mut(),
            context: self.frame.context,
            stage: abi::Stage::Instantiate as c_int,
            id: T::id().as_ptr(),
            state: std::ptr::null_mut(),
        };
        // SAFETY: the table is the caller's, of a version that has this function (`handler::call`).
        unsafe {
            let error = ((*self.frame.api).state_get)((&raw mut arguments).cast());
            take_error(self.frame.api, error)?;
        }
        // SAFETY: what is known by the id of the type was boxed by `handler::instantiate`; it is shared, so only
        // read, and lives as long as the executable.
        unsafe { arguments.state.cast::<T>().as_ref() }
            .ok_or_else(|| Error::new(Code::NotFound, "there is no state"))
    }
}

/// # Safety
/// There are so many elements at the pointer, of which nobody else has any; or none are asked for.
unsafe fn slice_mut<'a, T>(pointer: *mut T, length: usize) -> &'a mut [T] {
    if length == 0 {
        return &mut [];
    }
    // SAFETY: as the caller says.
    unsafe { std::slice::from_raw_parts_mut(pointer, length) }
}
