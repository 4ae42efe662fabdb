//! How long kernels take, by the GPU's own clock.
//!
//! While a profile is taken each kernel is a pass of its own, at whose ends the GPU writes the time (feature
//! `TIMESTAMP_QUERY`), so that kernels do not overlap. Times are read when the profile ends. Library calls that run on
//! the CPU are timed by the host, from when the profile began, as kernels are from the first of them.

use std::time::Instant;

use ferrax_compile::backend::Event;
use ferrax_ir::{Result, device_error};
use wgpu::{
    Buffer, BufferDescriptor, BufferUsages, CommandEncoder, ComputePassTimestampWrites, Device, MapMode,
    PollType, QUERY_SIZE, QuerySet, QuerySetDescriptor, QueryType, Queue,
};

pub struct Profile {
    device: Device,
    times: QuerySet,
    /// Nanoseconds of a tick.
    period: f64,
    began: Instant,
    /// What was recorded since the last submission.
    names: Vec<String>,
    /// What was submitted, and where its times go.
    waiting: Vec<(Vec<String>, Buffer)>,
    host: Vec<Event>,
}

impl Profile {
    /// For as many kernels as are submitted together.
    pub fn new(device: &Device, queue: &Queue, most: usize) -> Profile {
        let times = device.create_query_set(&QuerySetDescriptor {
            label: None,
            ty: QueryType::Timestamp,
            count: 2 * most as u32,
        });
        Profile {
            device: device.clone(),
            times,
            period: f64::from(queue.get_timestamp_period()),
            began: Instant::now(),
            names: Vec::new(),
            waiting: Vec::new(),
            host: Vec::new(),
        }
    }

    /// Where a pass of the kernel that is called so writes its times.
    pub fn writes(&mut self, name: &str) -> ComputePassTimestampWrites<'_> {
        let at = 2 * self.names.len() as u32;
        self.names.push(name.to_string());
        ComputePassTimestampWrites {
            query_set: &self.times,
            beginning_of_pass_write_index: Some(at),
            end_of_pass_write_index: Some(at + 1),
        }
    }

    /// Takes the times home that were written by what is submitted now.
    pub fn submit(&mut self, encoder: &mut CommandEncoder) {
        if self.names.is_empty() {
            return;
        }
        let queries = 2 * self.names.len() as u32;
        let buffer = |usage: BufferUsages| {
            self.device.create_buffer(&BufferDescriptor {
                label: None,
                size: u64::from(queries * QUERY_SIZE),
                usage,
                mapped_at_creation: false,
            })
        };
        let resolved = buffer(BufferUsages::QUERY_RESOLVE | BufferUsages::COPY_SRC);
        let home = buffer(BufferUsages::COPY_DST | BufferUsages::MAP_READ);
        encoder.resolve_query_set(&self.times, 0..queries, &resolved, 0);
        encoder.copy_buffer_to_buffer(&resolved, 0, &home, 0, resolved.size());
        self.waiting.push((std::mem::take(&mut self.names), home));
    }

    /// Notes what the host did since then.
    pub fn host(&mut self, name: &str, since: Instant) {
        let from = |time: Instant| time.saturating_duration_since(self.began).as_nanos() as f64;
        let (begin, end) = (from(since), from(Instant::now()));
        self.host.push(Event { name: name.to_string(), begin, end, host: true });
    }

    /// All events, kernels first.
    pub fn finish(self) -> Result<Vec<Event>> {
        for (_, home) in &self.waiting {
            home.map_async(MapMode::Read, .., |_| {});
        }
        let lost = |error: &dyn std::fmt::Display| device_error!("a profile was lost: {error}");
        self.device
            .poll(PollType::Wait { submission_index: None, timeout: None })
            .map_err(|error| lost(&error))?;
        let mut events = Vec::new();
        let mut zero = None;
        for (names, home) in self.waiting {
            let view = home.get_mapped_range(..).map_err(|error| lost(&error))?;
            let ticks: Vec<u64> = bytemuck::pod_collect_to_vec(&view[..]);
            for (name, pair) in names.into_iter().zip(ticks.chunks_exact(2)) {
                let zero = *zero.get_or_insert(pair[0]);
                let [begin, end] =
                    [pair[0], pair[1]].map(|tick| tick.wrapping_sub(zero) as f64 * self.period);
                events.push(Event { name, begin, end, host: false });
            }
        }
        events.extend(self.host);
        Ok(events)
    }
}
