//! A host of handlers: what it takes to call one, and to see what it gives.
//!
//! Invariant: what frames point to is owned by the call that makes them, or by who calls.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_int, c_void};
use std::mem::{offset_of, size_of};
use std::ptr::null_mut;
use std::thread::JoinHandle;

use ferrax_ffi::abi::{self, CallFrame, Handler, Stage, Table};

/// An array, or another's memory.
#[derive(Clone, Debug)]
pub struct Array {
    dtype: c_int,
    dims: Vec<i64>,
    memory: Vec<u64>,
    bytes: usize,
    shift: usize,
    other: *mut c_void,
}

/// Values in memory that is aligned to 8 bytes, with a byte more.
fn memory<T: Copy>(values: &[T]) -> (Vec<u64>, usize) {
    let bytes = size_of_val(values);
    let mut memory = vec![0u64; bytes / 8 + 1];
    // SAFETY: the memory is as large, and apart.
    unsafe { std::ptr::copy_nonoverlapping(values.as_ptr().cast::<u8>(), memory.as_mut_ptr().cast(), bytes) };
    (memory, bytes)
}

impl Array {
    pub fn of<T: Copy>(dtype: c_int, dims: &[i64], values: &[T]) -> Array {
        let (memory, bytes) = memory(values);
        Array { dtype, dims: dims.to_vec(), memory, bytes, shift: 0, other: null_mut() }
    }

    /// One that lies so many bytes further.
    pub fn moved(&self, shift: usize) -> Array {
        Array { shift, ..self.clone() }
    }

    /// One in the memory of this.
    pub fn alias(&mut self) -> Array {
        Array { other: self.memory.as_mut_ptr().cast(), memory: Vec::new(), ..self.clone() }
    }

    pub fn values<T: Copy>(&self) -> &[T] {
        // SAFETY: so many bytes are there, aligned for numbers of up to 8 of them.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().cast(), self.bytes / size_of::<T>()) }
    }

    fn buffer(&mut self) -> abi::Buffer {
        let own = self.memory.as_mut_ptr().cast::<u8>().wrapping_add(self.shift).cast();
        abi::Buffer {
            size: size_of::<abi::Buffer>(),
            extension: null_mut(),
            dtype: self.dtype,
            data: if self.other.is_null() { own } else { self.other },
            rank: self.dims.len() as i64,
            dims: self.dims.as_mut_ptr(),
        }
    }
}

/// An attribute.
pub enum Value {
    Scalar(c_int, Vec<u64>),
    Array(c_int, usize, Vec<u64>),
    Text(&'static str),
    Dictionary(Vec<(&'static str, Value)>),
}

impl Value {
    pub fn scalar<T: Copy>(dtype: c_int, value: T) -> Value {
        Value::Scalar(dtype, memory(&[value]).0)
    }

    pub fn array<T: Copy>(dtype: c_int, values: &[T]) -> Value {
        Value::Array(dtype, values.len(), memory(values).0)
    }

    pub fn text(text: &'static str) -> Value {
        Value::Text(text)
    }

    pub fn dictionary(items: Vec<(&'static str, Value)>) -> Value {
        Value::Dictionary(items)
    }
}

/// What attributes point into.
#[expect(clippy::vec_box, reason = "attributes point to them, and more are added")]
#[derive(Default)]
struct Listed {
    kinds: Vec<c_int>,
    names: Vec<*mut abi::Span>,
    items: Vec<*mut c_void>,
    spans: Vec<Box<abi::Span>>,
    scalars: Vec<Box<abi::Scalar>>,
    arrays: Vec<Box<abi::Array>>,
    dictionaries: Vec<(Box<abi::Attributes>, Listed)>,
}

impl Listed {
    fn span(&mut self, text: &str) -> *mut abi::Span {
        self.spans.push(Box::new(abi::Span { pointer: text.as_ptr().cast(), length: text.len() }));
        &raw mut **self.spans.last_mut().unwrap()
    }

    fn new(items: &[(&'static str, Value)]) -> Listed {
        let mut listed = Listed::default();
        for (name, value) in items {
            let name = listed.span(name);
            listed.names.push(name);
            let (kind, item): (c_int, *mut c_void) = match value {
                Value::Scalar(dtype, memory) => {
                    let value = memory.as_ptr().cast_mut().cast();
                    listed.scalars.push(Box::new(abi::Scalar { dtype: *dtype, value }));
                    (abi::SCALAR, (&raw mut **listed.scalars.last_mut().unwrap()).cast())
                }
                Value::Array(dtype, length, memory) => {
                    let data = memory.as_ptr().cast_mut().cast();
                    listed.arrays.push(Box::new(abi::Array { dtype: *dtype, length: *length, data }));
                    (abi::ARRAY, (&raw mut **listed.arrays.last_mut().unwrap()).cast())
                }
                Value::Text(text) => (abi::STRING, listed.span(text).cast()),
                Value::Dictionary(items) => {
                    let mut inner = Listed::new(items);
                    listed.dictionaries.push((Box::new(inner.attributes()), inner));
                    (abi::DICTIONARY, (&raw mut *listed.dictionaries.last_mut().unwrap().0).cast())
                }
            };
            listed.kinds.push(kind);
            listed.items.push(item);
        }
        listed
    }

    fn attributes(&mut self) -> abi::Attributes {
        abi::Attributes {
            size: size_of::<abi::Attributes>(),
            extension: null_mut(),
            count: self.kinds.len() as i64,
            kinds: self.kinds.as_mut_ptr(),
            names: self.names.as_mut_ptr(),
            items: self.items.as_mut_ptr(),
        }
    }
}

/// What a call is made in: the context of frames.
pub struct Host {
    pub handler: Handler,
    pub minor: c_int,
    pub threads: i64,
    state: RefCell<Option<(i64, *mut c_void)>>,
    tasks: RefCell<Vec<JoinHandle<()>>>,
}

type Failure = (c_int, CString);

fn error(code: c_int, message: &str) -> *mut c_void {
    let failure: Failure = (code, CString::new(message).unwrap());
    Box::into_raw(Box::new(failure)).cast()
}

/// # Safety
/// An error of this host's that nobody else has, or null.
unsafe fn taken(error: *mut c_void) -> Result<(), (c_int, String)> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: as said.
    let (code, message) = *unsafe { Box::from_raw(error.cast::<Failure>()) };
    Err((code, message.into_string().unwrap()))
}

unsafe extern "C" fn error_create(arguments: *mut c_void) -> *mut c_void {
    // SAFETY: what a handler passes; the message ends in a zero.
    unsafe {
        let given = &*arguments.cast::<abi::ErrorCreate>();
        error(given.code, CStr::from_ptr(given.message).to_str().unwrap())
    }
}

unsafe extern "C" fn error_message(arguments: *mut c_void) {
    // SAFETY: as above; the code is asked for by size.
    unsafe {
        let given = &mut *arguments.cast::<abi::ErrorMessage>();
        assert_eq!(given.size, offset_of!(abi::ErrorMessage, code));
        given.message = (*given.error.cast::<Failure>()).1.as_ptr();
    }
}

unsafe extern "C" fn error_destroy(arguments: *mut c_void) {
    // SAFETY: the handler gives the error up.
    unsafe { taken((*arguments.cast::<abi::ErrorDestroy>()).error).unwrap_err() };
}

unsafe extern "C" fn unknown(_: *mut c_void) -> *mut c_void {
    error(Code::UNIMPLEMENTED, "not here")
}

struct Code;

impl Code {
    const INVALID_ARGUMENT: c_int = 3;
    const NOT_FOUND: c_int = 5;
    const UNIMPLEMENTED: c_int = 12;
}

unsafe fn host<'a>(context: *mut c_void) -> &'a Host {
    // SAFETY: the context of frames is the host.
    unsafe { &*context.cast::<Host>() }
}

unsafe extern "C" fn state_set(arguments: *mut c_void) -> *mut c_void {
    // SAFETY: what a handler passes.
    unsafe {
        let given = &*arguments.cast::<abi::State>();
        let mut state = host(given.context).state.borrow_mut();
        if state.is_some() || given.stage != Stage::Instantiate as c_int {
            return error(Code::INVALID_ARGUMENT, "a state is there");
        }
        *state = Some((*given.id, given.state));
    }
    null_mut()
}

unsafe extern "C" fn state_get(arguments: *mut c_void) -> *mut c_void {
    // SAFETY: what a handler passes.
    unsafe {
        let given = &mut *arguments.cast::<abi::State>();
        match *host(given.context).state.borrow() {
            Some((id, state)) if id == *given.id => given.state = state,
            _ => return error(Code::NOT_FOUND, "no state"),
        }
    }
    null_mut()
}

unsafe extern "C" fn pool_threads(arguments: *mut c_void) -> *mut c_void {
    // SAFETY: what a handler passes.
    unsafe {
        let given = &*arguments.cast::<abi::NumThreads>();
        let threads = host(given.context).threads;
        if threads == 0 {
            return error(Code::UNIMPLEMENTED, "no pool");
        }
        *given.count = threads;
    }
    null_mut()
}

unsafe extern "C" fn pool_schedule(arguments: *mut c_void) -> *mut c_void {
    struct Data(*mut c_void);
    // SAFETY: a task and its data go to any thread.
    unsafe impl Send for Data {}
    // SAFETY: what a handler passes.
    unsafe {
        let given = &*arguments.cast::<abi::Schedule>();
        let (task, data) = (given.task, Data(given.data));
        let mut tasks = host(given.context).tasks.borrow_mut();
        // The pool is never as large as it says, and refuses some time.
        if tasks.len() == 6 {
            return error(Code::UNIMPLEMENTED, "enough");
        }
        tasks.push(std::thread::spawn(move || {
            let data = data;
            task(data.0);
        }));
    }
    null_mut()
}

unsafe extern "C" fn run_id(arguments: *mut c_void) -> *mut c_void {
    // SAFETY: what a handler passes.
    unsafe { (*arguments.cast::<abi::RunId>()).id = 3 };
    null_mut()
}

unsafe extern "C" fn device(arguments: *mut c_void) -> *mut c_void {
    // SAFETY: what a handler passes.
    unsafe { (*arguments.cast::<abi::DeviceOrdinal>()).ordinal = 1 };
    null_mut()
}

fn operands(
    buffers: &mut [abi::Buffer],
    kinds: &mut Vec<c_int>,
    items: &mut Vec<*mut c_void>,
) -> abi::Operands {
    *kinds = vec![abi::BUFFER; buffers.len()];
    *items = buffers.iter_mut().map(|buffer| (&raw mut *buffer).cast()).collect();
    abi::Operands {
        size: size_of::<abi::Operands>(),
        extension: null_mut(),
        count: buffers.len() as i64,
        kinds: kinds.as_mut_ptr(),
        items: items.as_mut_ptr(),
    }
}

impl Host {
    pub fn new(handler: Handler) -> Host {
        Host { handler, minor: 5, threads: 2, state: RefCell::default(), tasks: RefCell::default() }
    }

    fn table(&self) -> Table {
        Table {
            size: size_of::<Table>(),
            extension: null_mut(),
            version: abi::Version {
                size: size_of::<abi::Version>(),
                extension: null_mut(),
                major: 0,
                minor: self.minor,
            },
            internal: std::ptr::null(),
            error_create,
            error_message,
            error_destroy,
            handler_register: unknown,
            stream_get: unknown,
            type_register: unknown,
            context_get: unknown,
            state_set,
            state_get,
            memory_allocate: unknown,
            memory_free: unknown,
            pool_schedule,
            pool_threads,
            future_create: unknown,
            future_set: unknown,
            future_fail: unknown,
            run_id,
            device,
            find_extension: unknown,
            custom_options: unknown,
        }
    }

    fn run(
        &self,
        extension: *mut abi::Extension,
        inputs: &mut [abi::Buffer],
        outputs: &mut [abi::Buffer],
        listed: &mut Listed,
    ) -> Result<(), (c_int, String)> {
        let table = self.table();
        let [mut a, mut b] = [(Vec::new(), Vec::new()), (Vec::new(), Vec::new())];
        let mut frame = CallFrame {
            size: offset_of!(CallFrame, future),
            extension,
            api: &raw const table,
            context: (&raw const *self).cast_mut().cast(),
            stage: Stage::Execute as c_int,
            operands: operands(inputs, &mut a.0, &mut a.1),
            results: operands(outputs, &mut b.0, &mut b.1),
            attributes: listed.attributes(),
            future: null_mut(),
        };
        // SAFETY: the frame and what it points to live until the handler has returned and its tasks are done.
        let found = unsafe { taken((self.handler)(&raw mut frame)) };
        self.tasks.borrow_mut().drain(..).for_each(|task| task.join().unwrap());
        found
    }

    /// Calls the handler; its error is a code and a message.
    pub fn call(
        &self,
        inputs: &[&Array],
        outputs: &mut [&mut Array],
        attributes: &[(&'static str, Value)],
    ) -> Result<(), (c_int, String)> {
        let mut own: Vec<Array> = inputs.iter().map(|&array| array.clone()).collect();
        let mut inputs: Vec<abi::Buffer> = own.iter_mut().map(Array::buffer).collect();
        let mut outputs: Vec<abi::Buffer> = outputs.iter_mut().map(|array| array.buffer()).collect();
        self.run(null_mut(), &mut inputs, &mut outputs, &mut Listed::new(attributes))
    }

    /// The version that the handler says it was built for. A host of old asks for less than there is.
    pub fn version(&self) -> (c_int, c_int) {
        let version =
            abi::Version { size: size_of::<abi::Version>(), extension: null_mut(), major: 9, minor: 9 };
        let mut metadata =
            abi::Metadata { size: offset_of!(abi::Metadata, state_type), version, traits: 7, state_type: -1 };
        let base = abi::Extension {
            size: size_of::<abi::MetadataExtension>(),
            kind: abi::METADATA,
            next: null_mut(),
        };
        let mut asked = abi::MetadataExtension { base, metadata: &raw mut metadata };
        let mut other =
            abi::Extension { size: size_of::<abi::Extension>(), kind: 99, next: (&raw mut asked).cast() };
        self.run(&raw mut other, &mut [], &mut [], &mut Listed::default()).unwrap();
        assert_eq!((metadata.traits, metadata.state_type), (0, -1));
        (metadata.version.major, metadata.version.minor)
    }

    /// Deletes the state as an executable's end does.
    pub fn delete_state(&self, info: *const abi::TypeInfo) {
        let (_, state) = self.state.take().unwrap();
        // SAFETY: what the library says of its type, called once.
        unsafe { (*info).deleter.unwrap()(state) };
    }
}
