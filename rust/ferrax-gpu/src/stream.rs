//! Commands of a GPU, in one order for all threads.
//!
//! Commands are recorded, and go to the GPU by [`Stream::flush`]: when somebody reads, when an executable has ended,
//! and when there are many. Nobody waits for them but who reads, and who is too far ahead.

use std::collections::VecDeque;

use crate::bindings::Bindings;
use crate::pipelines::Pipeline;
use crate::profile::Profile;
use ferrax_ir::{Result, device_error};
use wgpu::{
    BindGroup, Buffer, CommandEncoder, CommandEncoderDescriptor, ComputePass, ComputePassDescriptor, Device,
    PollType, Queue, SubmissionIndex,
};

/// Commands that are recorded before the GPU begins with them.
pub const MANY: usize = 256;

/// How many submissions the GPU may be behind.
const AHEAD: usize = 32;

/// Commands that were recorded and not submitted, and those that may not have run.
pub struct Stream {
    device: Device,
    queue: Queue,
    encoder: Option<CommandEncoder>,
    pass: Option<ComputePass<'static>>,
    recorded: usize,
    submitted: VecDeque<SubmissionIndex>,
    pub profile: Option<Profile>,
    pub bindings: Bindings,
}

impl Stream {
    pub fn new(device: Device, queue: Queue) -> Stream {
        Stream {
            bindings: Bindings::new(device.clone()),
            device,
            queue,
            encoder: None,
            pass: None,
            recorded: 0,
            submitted: VecDeque::new(),
            profile: None,
        }
    }

    fn encoder(&mut self) -> &mut CommandEncoder {
        let device = &self.device;
        self.encoder
            .get_or_insert_with(|| device.create_command_encoder(&CommandEncoderDescriptor::default()))
    }

    /// Runs a pipeline in so many workgroups.
    pub fn dispatch(&mut self, pipeline: &Pipeline, bound: &BindGroup, groups: [u32; 2]) -> Result<()> {
        if self.profile.is_some() {
            self.pass = None;
        }
        let device = &self.device;
        let pass = match &mut self.pass {
            Some(pass) => pass,
            None => {
                let encoder = self.encoder.get_or_insert_with(|| {
                    device.create_command_encoder(&CommandEncoderDescriptor::default())
                });
                let timestamp_writes = self.profile.as_mut().map(|profile| profile.writes(&pipeline.name));
                let pass =
                    encoder.begin_compute_pass(&ComputePassDescriptor { label: None, timestamp_writes });
                self.pass.insert(pass.forget_lifetime())
            }
        };
        pass.set_pipeline(&pipeline.pipeline);
        pass.set_bind_group(0, bound, &[]);
        pass.dispatch_workgroups(groups[0], groups[1], 1);
        self.count()
    }

    /// Copies the first bytes of one buffer to a place in another.
    pub fn copy(&mut self, from: &Buffer, to: &Buffer, at: u64, bytes: u64) -> Result<()> {
        self.pass = None;
        self.encoder().copy_buffer_to_buffer(from, 0, to, at, bytes);
        self.count()
    }

    /// Fills a buffer with zeros.
    pub fn clear(&mut self, buffer: &Buffer) -> Result<()> {
        self.pass = None;
        self.encoder().clear_buffer(buffer, 0, None);
        self.count()
    }

    fn count(&mut self) -> Result<()> {
        self.recorded += 1;
        if self.recorded < MANY { Ok(()) } else { self.flush() }
    }

    /// Gives the GPU what was recorded, and waits if it is too far behind.
    pub fn flush(&mut self) -> Result<()> {
        self.pass = None;
        self.recorded = 0;
        if let Some(mut encoder) = self.encoder.take() {
            if let Some(profile) = &mut self.profile {
                profile.submit(&mut encoder);
            }
            self.submitted.push_back(self.queue.submit([encoder.finish()]));
        }
        while self.submitted.len() > AHEAD {
            let submission_index = self.submitted.pop_front();
            let wait = PollType::Wait { submission_index, timeout: None };
            self.device.poll(wait).map_err(|error| device_error!("the GPU was lost: {error}"))?;
        }
        Ok(())
    }
}
