//! What shaders see of arrays: bind groups, kept for launches that come again with the same memory.
//!
//! A program that runs again is given the same memory for what it computes, which is free again when it has ended
//! (`memory`). So most launches find their group, which costs less than to make one. Groups hold memory: when some
//! goes back to the driver, all are forgotten.

use std::hash::{Hash, Hasher};
use std::num::NonZeroU64;
use std::sync::Arc;

use ferrax_cpu::generations::Generations;
use rustc_hash::FxHasher;
use smallvec::SmallVec;
use wgpu::{BindGroup, BindGroupDescriptor, BindGroupEntry, BindingResource, Buffer, BufferBinding, Device};

use crate::pipelines::Pipeline;

/// Groups of a generation.
const MOST: usize = 4096;

/// The words of a launch, then its arrays.
pub type Buffers<'a> = SmallVec<[&'a Buffer; 8]>;

#[derive(Clone)]
struct Known {
    pipeline: Arc<Pipeline>,
    buffers: SmallVec<[Buffer; 8]>,
    group: BindGroup,
}

pub struct Bindings {
    device: Device,
    known: Generations<Known>,
    /// How many pieces of memory had gone back to the driver when the oldest group was made.
    returned: u64,
}

impl Bindings {
    pub fn new(device: Device) -> Bindings {
        Bindings { device, known: Generations::new(MOST, usize::MAX), returned: 0 }
    }

    /// Forgets all groups.
    pub fn clear(&mut self) {
        self.known = Generations::new(MOST, usize::MAX);
    }

    /// The group of a pipeline for these buffers, of which so many bytes are bound at once, after so many pieces of
    /// memory have gone back to the driver.
    pub fn group(
        &mut self,
        pipeline: &Arc<Pipeline>,
        buffers: &Buffers<'_>,
        piece: u64,
        returned: u64,
    ) -> BindGroup {
        if self.returned != returned {
            self.clear();
            self.returned = returned;
        }
        let mut hash = FxHasher::default();
        Arc::as_ptr(pipeline).hash(&mut hash);
        buffers.hash(&mut hash);
        let hash = hash.finish();
        let is = |known: &Known| {
            Arc::ptr_eq(&known.pipeline, pipeline) && known.buffers.iter().eq(buffers.iter().copied())
        };
        if let (Some(known), _) = self.known.find(hash, is) {
            return known.group;
        }
        let mut entries: SmallVec<[BindGroupEntry<'_>; 8]> = SmallVec::new();
        for &buffer in buffers {
            for offset in (0..buffer.size()).step_by(piece as usize) {
                let size = NonZeroU64::new(piece.min(buffer.size() - offset));
                let resource = BindingResource::Buffer(BufferBinding { buffer, offset, size });
                entries.push(BindGroupEntry { binding: entries.len() as u32, resource });
            }
        }
        let descriptor = BindGroupDescriptor { label: None, layout: &pipeline.layout, entries: &entries };
        let group = self.device.create_bind_group(&descriptor);
        let buffers = buffers.iter().map(|&buffer| buffer.clone()).collect();
        let known = Known { pipeline: pipeline.clone(), buffers, group: group.clone() };
        drop(self.known.insert(hash, known, 0));
        group
    }
}
