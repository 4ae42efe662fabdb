//! Commands of a GPU, in one order for all threads.
//!
//! Commands are recorded, and go to the GPU by [`Stream::flush`]: when somebody reads, when an executable has ended,
//! and when there are many. Nobody waits for them but who reads, and who is too far ahead.

use std::collections::VecDeque;

use ferrax_ir::{Result, unsupported};
use wgpu::{
    BindGroup, Buffer, CommandEncoder, CommandEncoderDescriptor, ComputePass, ComputePassDescriptor,
    ComputePipeline, Device, PollType, Queue, SubmissionIndex,
};

/// Commands that are recorded before the GPU begins with them.
const MANY: usize = 256;

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
}

impl Stream {
    pub fn new(device: Device, queue: Queue) -> Stream {
        Stream { device, queue, encoder: None, pass: None, recorded: 0, submitted: VecDeque::new() }
    }

    fn encoder(&mut self) -> &mut CommandEncoder {
        let device = &self.device;
        self.encoder
            .get_or_insert_with(|| device.create_command_encoder(&CommandEncoderDescriptor::default()))
    }

    /// Runs a pipeline in so many workgroups.
    pub fn dispatch(
        &mut self,
        pipeline: &ComputePipeline,
        bound: &BindGroup,
        groups: [u32; 2],
    ) -> Result<()> {
        let pass = match &mut self.pass {
            Some(pass) => pass,
            None => {
                let pass = self.encoder().begin_compute_pass(&ComputePassDescriptor::default());
                let pass = pass.forget_lifetime();
                self.pass.insert(pass)
            }
        };
        pass.set_pipeline(pipeline);
        pass.set_bind_group(0, bound, &[]);
        pass.dispatch_workgroups(groups[0], groups[1], 1);
        self.count()
    }

    /// Copies the first bytes of one buffer to another.
    pub fn copy(&mut self, from: &Buffer, to: &Buffer, bytes: u64) -> Result<()> {
        self.pass = None;
        self.encoder().copy_buffer_to_buffer(from, 0, to, 0, bytes);
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
        if let Some(encoder) = self.encoder.take() {
            self.submitted.push_back(self.queue.submit([encoder.finish()]));
        }
        while self.submitted.len() > AHEAD {
            let submission_index = self.submitted.pop_front();
            let wait = PollType::Wait { submission_index, timeout: None };
            self.device.poll(wait).map_err(|error| unsupported!("the GPU was lost: {error}"))?;
        }
        Ok(())
    }
}
