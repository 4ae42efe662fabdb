//! A call frame that is made once: of a run only the addresses of the data change.
//!
//! Invariant: frames point into memory that is owned beside them and does not move.

use std::ffi::{c_int, c_void};

use ferrax_ffi::abi::{self, Attributes, BUFFER, Buffer, CallFrame, Operands, Span, Stage};
use ferrax_ir::{DType, Result, unsupported};

use super::table::empty_frame;

/// An attribute of a call. Numbers are bytes in the machine's order.
#[derive(Clone, Debug)]
pub enum Attribute {
    Scalar(DType, Vec<u8>),
    /// With how many elements.
    Array(DType, usize, Vec<u8>),
    Text(String),
    Dictionary(Vec<(String, Attribute)>),
}

/// The type of an operand or a result.
#[derive(Clone, Debug)]
pub struct Operand {
    pub dtype: DType,
    pub sizes: Vec<usize>,
}

impl Operand {
    pub fn bytes(&self) -> usize {
        self.sizes.iter().product::<usize>() * self.dtype.size()
    }
}

/// The attributes of a call, or of a dictionary in it, as C sees them.
#[derive(Default)]
pub struct Listed {
    kinds: Vec<c_int>,
    names: Vec<*mut Span>,
    items: Vec<*mut c_void>,
    /// What the pointers are to.
    held: Vec<Held>,
}

/// A value at an address of its own.
enum Held {
    Span(Box<Span>),
    Scalar(Box<abi::Scalar>),
    Array(Box<abi::Array>),
    Dictionary(Box<(Attributes, Listed)>),
}

impl Held {
    fn address(&mut self) -> *mut c_void {
        match self {
            Held::Span(value) => (&raw mut **value).cast(),
            Held::Scalar(value) => (&raw mut **value).cast(),
            Held::Array(value) => (&raw mut **value).cast(),
            Held::Dictionary(value) => (&raw mut value.0).cast(),
        }
    }
}

// SAFETY: nothing of it changes once it is made; it points to what it owns, and to attributes that outlive it.
unsafe impl Send for Listed {}
// SAFETY: as above.
unsafe impl Sync for Listed {}

impl Listed {
    /// The attributes must live as long as what is made of them.
    pub fn new(attributes: &[(String, Attribute)]) -> Result<Listed> {
        let mut listed = Listed::default();
        for (name, attribute) in attributes {
            let name = listed.span(name);
            listed.names.push(name);
            let (kind, item) = match attribute {
                Attribute::Scalar(dtype, bytes) => {
                    let value = bytes.as_ptr().cast_mut().cast();
                    (
                        abi::SCALAR,
                        listed.hold(Held::Scalar(abi::Scalar { dtype: code(*dtype)?, value }.into())),
                    )
                }
                Attribute::Array(dtype, length, bytes) => {
                    let data = bytes.as_ptr().cast_mut().cast();
                    let array = abi::Array { dtype: code(*dtype)?, length: *length, data };
                    (abi::ARRAY, listed.hold(Held::Array(array.into())))
                }
                Attribute::Text(text) => (abi::STRING, listed.span(text).cast()),
                Attribute::Dictionary(inner) => {
                    let mut inner = Listed::new(inner)?;
                    let attributes = inner.attributes();
                    (abi::DICTIONARY, listed.hold(Held::Dictionary((attributes, inner).into())))
                }
            };
            listed.kinds.push(kind);
            listed.items.push(item);
        }
        Ok(listed)
    }

    fn span(&mut self, text: &str) -> *mut Span {
        self.hold(Held::Span(Span { pointer: text.as_ptr().cast(), length: text.len() }.into())).cast()
    }

    /// Keeps a value, and says where it is.
    fn hold(&mut self, mut held: Held) -> *mut c_void {
        let address = held.address();
        self.held.push(held);
        address
    }

    /// As a part of a frame; it points into this.
    pub fn attributes(&mut self) -> Attributes {
        Attributes {
            size: size_of::<Attributes>(),
            extension: std::ptr::null_mut(),
            count: self.kinds.len() as i64,
            kinds: self.kinds.as_mut_ptr(),
            names: self.names.as_mut_ptr(),
            items: self.items.as_mut_ptr(),
        }
    }
}

/// The number of a dtype in frames; `None` for one that the interface has not.
fn dtype_code(dtype: DType) -> Option<c_int> {
    Some(match dtype {
        DType::Bool => 1,
        DType::I8 => 2,
        DType::I16 => 3,
        DType::I32 => 4,
        DType::I64 => 5,
        DType::U8 => 6,
        DType::U16 => 7,
        DType::U32 => 8,
        DType::U64 => 9,
        DType::F16 => 10,
        DType::F32 => 11,
        DType::F64 => 12,
        DType::C64 => 15,
        DType::BF16 => 16,
        DType::C128 => 18,
        DType::F8E5M2 => 19,
        DType::F8E4M3FN => 20,
        DType::F8E4M3B11FNUZ => 23,
        DType::F8E5M2FNUZ => 24,
        DType::F8E4M3FNUZ => 25,
        DType::F8E4M3 => 28,
        DType::F8E3M4 => 29,
        DType::F8E8M0FNU => 33,
        _ => return None,
    })
}

fn code(dtype: DType) -> Result<c_int> {
    dtype_code(dtype).ok_or_else(|| {
        unsupported!("ffi_call: XLA's interface has no {dtype}; convert to a dtype that it has, as float32")
    })
}

/// The operands or the results of a call.
struct Listing {
    buffers: Vec<Buffer>,
    kinds: Vec<c_int>,
    items: Vec<*mut c_void>,
    _dims: Vec<Vec<i64>>,
}

impl Listing {
    fn new(arguments: &[Operand]) -> Result<Listing> {
        let mut dims: Vec<Vec<i64>> =
            arguments.iter().map(|x| x.sizes.iter().map(|&size| size as i64).collect()).collect();
        let mut buffers = Vec::with_capacity(arguments.len());
        for (argument, dims) in arguments.iter().zip(&mut dims) {
            buffers.push(Buffer {
                size: size_of::<Buffer>(),
                extension: std::ptr::null_mut(),
                dtype: code(argument.dtype)?,
                data: std::ptr::null_mut(),
                rank: dims.len() as i64,
                dims: dims.as_mut_ptr(),
            });
        }
        let items = buffers.iter_mut().map(|buffer| (&raw mut *buffer).cast()).collect();
        Ok(Listing { kinds: vec![BUFFER; buffers.len()], items, buffers, _dims: dims })
    }

    fn operands(&mut self) -> Operands {
        Operands {
            size: size_of::<Operands>(),
            extension: std::ptr::null_mut(),
            count: self.items.len() as i64,
            kinds: self.kinds.as_mut_ptr(),
            items: self.items.as_mut_ptr(),
        }
    }
}

/// A frame with operands and results of these types.
pub struct Frame {
    inputs: Listing,
    outputs: Listing,
}

// SAFETY: it points to what it owns, and its data pointers are set for each run by who has it.
unsafe impl Send for Frame {}

impl Frame {
    pub fn new(inputs: &[Operand], outputs: &[Operand]) -> Result<Frame> {
        Ok(Frame { inputs: Listing::new(inputs)?, outputs: Listing::new(outputs)? })
    }

    pub fn set_input(&mut self, index: usize, data: *mut c_void) {
        self.inputs.buffers[index].data = data;
    }

    pub fn set_output(&mut self, index: usize, data: *mut c_void) {
        self.outputs.buffers[index].data = data;
    }

    /// The frame of a stage, with these attributes. It points into this.
    pub fn frame(&mut self, stage: Stage, attributes: Attributes, context: *mut c_void) -> CallFrame {
        let mut frame = empty_frame(stage);
        frame.operands = self.inputs.operands();
        frame.results = self.outputs.operands();
        frame.attributes = attributes;
        frame.context = context;
        frame
    }
}
