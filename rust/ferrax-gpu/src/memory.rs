//! Memory of a GPU, which is given out again when nobody has it any more.
//!
//! Commands run in the order in which they were recorded, whatever thread recorded them (see `stream`). So memory
//! is free as soon as the last who has it lets it go, though commands that use it may not have run yet: those that get
//! it next come after them. Nothing is reserved in advance. What is kept for later is at most as much as is in
//! use, and [`KEPT`] bytes; beyond that the largest pieces go back to the driver.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ferrax_ir::{Error, Result, unsupported};
use wgpu::{Buffer, BufferDescriptor, BufferUsages, Device, ErrorFilter};

/// Bytes that are kept for later whatever is in use.
const KEPT: u64 = 64 << 20;

/// The smallest piece, and the number of sizes between a power of two and the next.
const SMALLEST: u64 = 256;
const SIZES: u64 = 8;

/// How many of the largest arrays a message names.
const NAMED: usize = 5;

/// Memory of a GPU.
#[derive(Clone)]
pub struct Memory(Arc<Held>);

struct Held {
    buffer: Buffer,
    pool: Arc<Pool>,
}

impl Memory {
    pub fn buffer(&self) -> &Buffer {
        &self.0.buffer
    }

    /// Whether somebody else has it too.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({} bytes)", self.buffer().size())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.pool.give_back(self.buffer.clone());
    }
}

/// Bytes of a pool: in arrays, and kept for later.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolUsage {
    pub in_use: u64,
    pub kept: u64,
}

#[derive(Default)]
struct State {
    usage: PoolUsage,
    /// How many pieces of each size are in use.
    live: BTreeMap<u64, usize>,
    free: BTreeMap<u64, Vec<Buffer>>,
    /// Bytes that may be in use at once, if somebody said so.
    limit: Option<u64>,
}

/// All memory of a GPU.
pub struct Pool {
    name: String,
    device: Device,
    state: Mutex<State>,
}

impl Pool {
    pub fn new(name: String, device: Device) -> Arc<Pool> {
        Arc::new(Pool { name, device, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn usage(&self) -> PoolUsage {
        self.state().usage
    }

    pub fn set_limit(&self, bytes: Option<u64>) {
        self.state().limit = bytes;
    }

    /// Gives all that is kept for later back to the driver.
    pub fn trim(&self) {
        let mut state = self.state();
        let free = std::mem::take(&mut state.free);
        state.usage.kept = 0;
        drop(state);
        drop(free);
    }

    /// Memory of at least so many bytes.
    ///
    /// Errors: more than an array may have; more than there is, with the largest that there are.
    pub fn take(self: &Arc<Self>, bytes: usize) -> Result<Memory> {
        let limits = self.device.limits();
        let most = limits.max_storage_buffer_binding_size.min(limits.max_buffer_size) & !15;
        if bytes as u64 > most {
            return Err(unsupported!(
                "an array of {bytes} bytes on {}, whose arrays have at most {most}",
                self.name
            ));
        }
        let size = rounded(bytes as u64).min(most);
        let mut state = self.state();
        let found = state.free.get_mut(&size).and_then(Vec::pop);
        if found.is_some() {
            state.usage.kept -= size;
        } else if state.limit.is_some_and(|limit| state.usage.in_use + size > limit) {
            return Err(self.exhausted(&state, bytes, "the limit that was set"));
        }
        drop(state);
        let buffer = match found {
            Some(buffer) => buffer,
            None => self.create(size, bytes)?,
        };
        let mut state = self.state();
        state.usage.in_use += size;
        *state.live.entry(size).or_default() += 1;
        drop(state);
        Ok(Memory(Arc::new(Held { buffer, pool: self.clone() })))
    }

    /// New memory; if there is none, what was kept goes back to the driver before it is asked again.
    fn create(&self, size: u64, bytes: usize) -> Result<Buffer> {
        let once = || {
            let scope = self.device.push_error_scope(ErrorFilter::OutOfMemory);
            let buffer = self.device.create_buffer(&BufferDescriptor {
                label: None,
                size,
                usage: BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST,
                mapped_at_creation: false,
            });
            pollster::block_on(scope.pop()).map_or(Ok(buffer), Err)
        };
        once().or_else(|_| {
            self.trim();
            let wait = wgpu::PollType::Wait { submission_index: None, timeout: None };
            // If the GPU is lost, so is the next attempt.
            let _ = self.device.poll(wait);
            once().map_err(|error| self.exhausted(&self.state(), bytes, &error.to_string()))
        })
    }

    fn exhausted(&self, state: &State, bytes: usize, why: &str) -> Error {
        let largest = state.live.iter().rev().take(NAMED);
        let largest: Vec<String> = largest.map(|(size, count)| format!("{count} of {size} bytes")).collect();
        let live = if largest.is_empty() { "none".to_string() } else { largest.join(", ") };
        unsupported!(
            "{} has no memory for {bytes} bytes more beside {} that are in use ({why}); the largest arrays: {live}. \
             Delete arrays, or compute in smaller parts",
            self.name,
            state.usage.in_use
        )
    }

    fn give_back(&self, buffer: Buffer) {
        let size = buffer.size();
        let mut state = self.state();
        state.usage.in_use -= size;
        if let Some(count) = state.live.get_mut(&size) {
            *count -= 1;
            if *count == 0 {
                state.live.remove(&size);
            }
        }
        state.usage.kept += size;
        state.free.entry(size).or_default().push(buffer);
        let mut dropped = Vec::new();
        while state.usage.kept > KEPT.max(state.usage.in_use) {
            let Some(mut largest) = state.free.last_entry() else { break };
            let piece = largest.get_mut().pop();
            if largest.get().is_empty() {
                largest.remove();
            }
            state.usage.kept -= piece.as_ref().map_or(0, Buffer::size);
            dropped.extend(piece);
        }
        drop(state);
        drop(dropped);
    }
}

/// The size of the piece that is given for so many bytes: at most an eighth more, so that arrays of nearly the same
/// size take each other's place.
fn rounded(bytes: u64) -> u64 {
    let bytes = bytes.max(SMALLEST);
    let step = (bytes.next_power_of_two() / 2 / SIZES).max(SMALLEST / SIZES);
    bytes.next_multiple_of(step)
}
